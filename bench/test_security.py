"""Measures what security costs: brokers with many ACLs beside brokers without any, in turns.

Command: ``python -m bench security``, or by itself ``python -m pytest bench/test_security.py
--benchmark-json=build/bench/security.json`` (``--quick``).

Of ACLs nine in ten are of other topics by name, the others of prefixes. The clients are in this process, so
processor time is the broker's alone; Metadata has no socket and is processor time of one thread. A round is a
turn of each side.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Final

import psutil
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench.figures import Figures, processor_seconds_of, take_turns
from bench.peers.brokers import wait_for_leaders
from bench.peers.record_load import Connection, batch_of
from ctrlchan import EmbeddedCluster
from ctrlchan.authorizer.acl_authorizer import AclAuthorizer
from ctrlchan.authorizer.acl_nodes import AclNodes
from ctrlchan.authorizer.acls import CLUSTER_NAME
from ctrlchan.embedded.controller import LocalController
from ctrlchan.server.apis.metadata import API
from ctrlchan.server.request_handler import RequestHandler
from ctrlchan.state.importing.generate import GeneratorConfig, generate
from ctrlchan.zookeeper import nodes, paths
from ctrlchan.zookeeper.memory.server import MemoryZooKeeper
from ctrlchan.zookeeper.operations import Create
from ctrlchan.zookeeper.session import ZooKeeperSession
from ctrlchan.zookeeper.settings import ZooKeeperSettings
from tests.unit.broker.cores import broker_core
from tests.unit.broker.local_broker import client_frame
from tests.unit.server.contexts import LOCAL_CLIENT
from tests.unit.zookeeper.sessions import session

ROUNDS: Final = 5
_TIMEOUT: Final = 1200
_HOST: Final = "127.0.0.1"
_CONTROLLER: Final = 1000
_CLASS: Final = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}
_ACLS: Final = (10_000, 100_000)
_WITHOUT: Final = "without"
_PREFIXES: Final = 10
_AT_ONCE: Final = 1_000

#: Requests of a turn, whose records are read so often, and before the first one; Metadata of so many topics.
_PRODUCES: Final = 20_000
_READINGS: Final = 3
_WARMUPS: Final = 2_000
_TOPICS: Final = 10_000
_METADATA: Final = 3
_METADATA_VERSION: Final = 12
_METADATA_REQUESTS: Final = 5
_ONE: Final = batch_of(1, 100)


def acl_nodes(count: int) -> Iterator[Create]:
    """Yield the nodes of ACLs: what clients here need, then those of others."""

    def node(pattern_type: str, kind: str, name: str, principal: str, host: str) -> Create:
        entry = nodes.AclEntry(principal, host, "All", "Allow")
        return Create(paths.acl(pattern_type, kind, name), nodes.encode_acls([entry]))

    for kind, name in (("Cluster", CLUSTER_NAME), ("Topic", "*"), ("Group", "*")):
        yield node("literal", kind, name, "User:ANONYMOUS", _HOST)
    for number in range(count):
        of_prefix = number % _PREFIXES == 0
        name = f"team-{number:06}-" if of_prefix else f"{GeneratorConfig.topic_prefix}{number:06}"
        principal = f"User:{number}" if of_prefix else "User:ANONYMOUS"
        yield node("prefixed" if of_prefix else "literal", "Topic", name, principal, _HOST)


def write_acls(one: ZooKeeperSession, count: int) -> None:
    AclNodes(one).create_parents()
    creations = [*acl_nodes(count)]
    for first in range(0, len(creations), _AT_ONCE):
        one.multi(creations[first : first + _AT_ONCE])


@contextmanager
def broker_with(acls: int, folder: Path) -> Iterator[tuple[psutil.Process, int]]:
    """Yield the process and the port of a broker; without ACLs it has no authorizer."""
    with ExitStack() as stack:
        zookeeper = stack.enter_context(MemoryZooKeeper())
        if acls:
            with session(zookeeper.address) as one:
                write_acls(one, acls)
        controller = LocalController(_CONTROLLER, zookeeper=zookeeper.address)
        stack.callback(controller.close)
        configs = {"controlled.shutdown.enable": "false"} | (_CLASS if acls else {})
        cluster = stack.enter_context(
            EmbeddedCluster(
                1, log_dir=folder, configs=configs, zookeeper=zookeeper.address, controller_id=_CONTROLLER
            )
        )
        stack.callback(controller.stop)
        controller.wait_until_active()
        cluster.create_topic("small", 1, 1)
        port = cluster.brokers[0].endpoints[0].port
        wait_for_leaders(port, "small")
        yield psutil.Process(cluster.pids[0]), port


@pytest.mark.timeout(_TIMEOUT)
def test_hot_path(benchmark: BenchmarkFixture, scaled: Callable[[int], int], tmp_path: Path) -> None:
    figures = Figures()
    with ExitStack() as stack:
        brokers = {
            f"{acls:,}" if acls else _WITHOUT: stack.enter_context(broker_with(acls, tmp_path / str(acls)))
            for acls in (0, *_ACLS)
        }
        clients = {
            side: stack.enter_context(closing(Connection(port))) for side, (_, port) in brokers.items()
        }
        for client in clients.values():
            client.produce("small", _ONE, _WARMUPS)

        def turn(side: str) -> None:
            process, client = brokers[side][0], clients[side]
            count, unit = scaled(_PRODUCES), "processor time, µs"

            def fetch() -> int:
                return sum(client.fetch("small", 1024, _ONE, 1, len(_ONE) * count) for _ in range(_READINGS))

            spent, _ = processor_seconds_of(process, lambda: client.produce("small", _ONE, count))
            figures.add(side, "Produce of one record of 100 B", unit, spent / count * 1e6)
            spent, requests = processor_seconds_of(process, fetch)
            figures.add(side, "Fetch of 1 KB", unit, spent / requests * 1e6)

        _run(benchmark, scaled, figures, list(brokers), turn)


def test_metadata(benchmark: BenchmarkFixture, scaled: Callable[[int], int]) -> None:
    figures = Figures()
    core = broker_core(0)
    core.metadata.state = generate(GeneratorConfig(topics=_TOPICS, partitions_per_topic=1))
    frame = client_frame(_METADATA, _METADATA_VERSION, topics=None)
    with ExitStack() as stack:
        handlers = {_WITHOUT: RequestHandler(core, {_METADATA: API})}
        for acls in _ACLS:
            zookeeper = stack.enter_context(MemoryZooKeeper())
            with session(zookeeper.address) as one:
                write_acls(one, acls)
            authorizer = AclAuthorizer(ZooKeeperSettings(connect=zookeeper.address))
            authorizer.configure({})
            stack.callback(authorizer.close)
            handlers[f"{acls:,}"] = RequestHandler(core, {_METADATA: API}, authorizer=authorizer)

        def turn(side: str) -> None:
            began = time.thread_time()
            for _ in range(_METADATA_REQUESTS):
                handlers[side].serve(frame, LOCAL_CLIENT)
            took = (time.thread_time() - began) / _METADATA_REQUESTS
            figures.add(side, f"Metadata of {_TOPICS:,} topics", "processor time, ms", took * 1e3)

        _run(benchmark, scaled, figures, list(handlers), turn)


def test_loading(benchmark: BenchmarkFixture, scaled: Callable[[int], int]) -> None:
    """The limit is reading the same nodes, as they are."""
    figures = Figures()
    with MemoryZooKeeper() as zookeeper:
        with session(zookeeper.address) as one:
            write_acls(one, _ACLS[-1])

        def turn(side: str) -> None:
            began = time.perf_counter()
            if side == "reading":
                with session(zookeeper.address) as reader:
                    for pattern_type in ("literal", "prefixed"):
                        parent = paths.acls_of_type(pattern_type, "Topic")
                        reader.get_many([f"{parent}/{name}" for name in reader.children(parent) or []])
            else:
                authorizer = AclAuthorizer(ZooKeeperSettings(connect=zookeeper.address))
                authorizer.configure({})
                authorizer.close()
            figures.add(side, f"loading {_ACLS[-1]:,} ACLs", "s", time.perf_counter() - began)

        _run(benchmark, scaled, figures, ["reading", f"{_ACLS[-1]:,}"], turn)


def _run(
    benchmark: BenchmarkFixture,
    scaled: Callable[[int], int],
    figures: Figures,
    sides: list[str],
    turn: Callable[[str], Any],
) -> None:
    """Let the sides take turns, and hand the figures to the report."""
    take_turns(benchmark, sides, scaled(ROUNDS), turn)
    benchmark.extra_info.update(suite="security", figures=figures.all)

"""Measures what security costs: brokers with many ACLs beside one without any, and Kafka's, in turns.

Command: ``python -m bench security``, or by itself ``python -m pytest bench/test_security.py
--benchmark-json=build/bench/security.json`` (``--no-kafka``, ``--quick``).

Of ACLs nine in ten are of other topics by name, the others of prefixes. The clients are in this process, so
processor time is the broker's alone. A round is a turn of each side. Kafka has as many ACLs as our last side.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Final

import psutil
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench.figures import Figures, processor_seconds_of, take_turns
from bench.peers.brokers import Kafka, wait_for_leaders
from bench.peers.record_load import Connection, batch_of
from ctrlchan import EmbeddedCluster
from ctrlchan._codec import UPDATE_METADATA
from ctrlchan.authorizer.acl_authorizer import AclAuthorizer
from ctrlchan.authorizer.acl_nodes import AclNodes
from ctrlchan.authorizer.acls import CLUSTER_NAME
from ctrlchan.embedded.controller import LocalController
from ctrlchan.state.importing.generate import GeneratorConfig
from ctrlchan.zookeeper import nodes, paths
from ctrlchan.zookeeper.memory.server import MemoryZooKeeper
from ctrlchan.zookeeper.operations import Create
from ctrlchan.zookeeper.session import ZooKeeperSession
from ctrlchan.zookeeper.settings import ZooKeeperSettings
from tests.unit.broker.local_broker import (
    LiveBroker,
    Part,
    client_frame,
    control_frame,
    read_client_response,
)
from tests.unit.zookeeper.sessions import session

ROUNDS: Final = 5
#: Of loading: Kafka takes a minute or more.
_LOADS: Final = 2
_TIMEOUT: Final = 1200
_HOST: Final = "127.0.0.1"
_CONTROLLER: Final = 1000
_CLASS: Final = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}
_ACLS: Final = (10_000, 100_000)
_WITHOUT, _READING, _KAFKA = "without", "reading", "kafka"
_PREFIXES: Final = 10
_AT_ONCE: Final = 1_000

#: Requests of a turn, whose records are read so often, and before the first one; Metadata of so many topics.
_PRODUCES: Final = 10_000
_READINGS: Final = 3
_WARMUPS: Final = 20_000
_TOPICS: Final = 10_000
_METADATA: Final = 3
_METADATA_VERSION: Final = 12
_METADATA_REQUESTS: Final = 5
_METADATA_REQUEST: Final = client_frame(_METADATA, _METADATA_VERSION, topics=None)
_UPDATE_METADATA_VERSION: Final = 8
#: Higher than that of any controller here
_CONTROLLER_EPOCH: Final = 1_000_000
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


@contextmanager
def kafka_with(acls: int, folder: Path) -> Iterator[Kafka]:
    """Yield Kafka's broker; without ACLs it has no authorizer."""

    def prepare(zookeeper: str) -> None:
        with session(zookeeper) as one:
            write_acls(one, acls)

    folder.mkdir()
    kafka = Kafka(folder, configs=_CLASS, prepare=prepare) if acls else Kafka(folder)
    with closing(kafka):
        yield kafka


def fill(client: Connection, port: int) -> None:
    """Tell a broker of many topics, as a new controller would."""
    parts = [Part(f"events-{number:05}", leader=1, isr=(1,), replicas=(1,)) for number in range(_TOPICS)]
    frame = control_frame(
        UPDATE_METADATA,
        _UPDATE_METADATA_VERSION,
        parts,
        controller_epoch=_CONTROLLER_EPOCH,
        broker_epoch=-1,
        live=[LiveBroker(1, host=_HOST, port=port)],
    )
    client.ask(frame)
    answer = read_client_response(_METADATA, _METADATA_VERSION, client.ask(_METADATA_REQUEST))
    if len(answer.topics) < _TOPICS:
        raise RuntimeError(f"Metadata: {len(answer.topics)} topics")


@pytest.mark.timeout(_TIMEOUT)
def test_requests(
    benchmark: BenchmarkFixture, with_kafka: bool, scaled: Callable[[int], int], tmp_path: Path
) -> None:
    figures = Figures()
    with ExitStack() as stack:
        brokers = {
            f"{acls:,}" if acls else _WITHOUT: stack.enter_context(broker_with(acls, tmp_path / str(acls)))
            for acls in (0, *_ACLS)
        }
        if with_kafka:
            kafka = stack.enter_context(kafka_with(_ACLS[-1], tmp_path / _KAFKA))
            kafka.create_topic("small")
            brokers[_KAFKA] = kafka.process, kafka.port
        clients = {
            side: stack.enter_context(closing(Connection(port))) for side, (_, port) in brokers.items()
        }
        for side, (_, port) in brokers.items():
            clients[side].produce("small", _ONE, scaled(_WARMUPS))
            clients[side].fetch("small", 1024, _ONE, 1, len(_ONE) * scaled(_WARMUPS))
            fill(clients[side], port)

        def turn(side: str) -> None:
            process, client = brokers[side][0], clients[side]
            count, unit = scaled(_PRODUCES), "processor time, µs"

            def fetch() -> int:
                return sum(client.fetch("small", 1024, _ONE, 1, len(_ONE) * count) for _ in range(_READINGS))

            def ask_metadata() -> None:
                for _ in range(_METADATA_REQUESTS):
                    client.ask(_METADATA_REQUEST)

            spent, _ = processor_seconds_of(process, lambda: client.produce("small", _ONE, count))
            figures.add(side, "Produce of one record of 100 B", unit, spent / count * 1e6)
            spent, requests = processor_seconds_of(process, fetch)
            figures.add(side, "Fetch of 1 KB", unit, spent / requests * 1e6)
            spent, _ = processor_seconds_of(process, ask_metadata)
            took = spent / _METADATA_REQUESTS * 1e3
            figures.add(side, f"Metadata of {_TOPICS:,} topics", "processor time, ms", took)

        take_turns(benchmark, list(brokers), scaled(ROUNDS), turn)
        benchmark.extra_info.update(suite="security", figures=figures.all)


@pytest.mark.timeout(_TIMEOUT)
def test_loading(
    benchmark: BenchmarkFixture, with_kafka: bool, scaled: Callable[[int], int], tmp_path: Path
) -> None:
    """The limit is reading the same nodes, as they are. Kafka: a start, less one without an authorizer."""
    figures = Figures()
    with ExitStack() as stack:
        kafkas = []
        if with_kafka:
            kafkas = [stack.enter_context(kafka_with(acls, tmp_path / f"{acls}")) for acls in (0, _ACLS[-1])]
            address = kafkas[-1].zookeeper
        else:
            address = stack.enter_context(MemoryZooKeeper()).address
            with session(address) as one:
                write_acls(one, _ACLS[-1])

        def read() -> None:
            with session(address) as reader:
                for pattern_type in ("literal", "prefixed"):
                    parent = paths.acls_of_type(pattern_type, "Topic")
                    reader.get_many([f"{parent}/{name}" for name in reader.children(parent) or []])

        def load() -> None:
            authorizer = AclAuthorizer(ZooKeeperSettings(connect=address))
            authorizer.configure({})
            authorizer.close()

        def restart(kafka: Kafka) -> float:
            kafka.stop()
            return _seconds(kafka.start)

        def turn(side: str) -> None:
            if side == _KAFKA:
                without, seconds = map(restart, kafkas)
                seconds -= without
            else:
                seconds = _seconds(read if side == _READING else load)
            figures.add(side, f"loading {_ACLS[-1]:,} ACLs", "s", seconds)

        sides = [_READING, f"{_ACLS[-1]:,}", *([_KAFKA] if with_kafka else [])]
        take_turns(benchmark, sides, scaled(_LOADS), turn)
        benchmark.extra_info.update(suite="security", figures=figures.all)


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began

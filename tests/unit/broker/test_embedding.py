"""EmbeddedBroker and EmbeddedCluster: start, inspection, and an end that leaves nothing behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from ctrlchan import TEMPORARY, EmbeddedBroker, EmbeddedCluster
from ctrlchan._codec import LEADER_AND_ISR, UPDATE_METADATA
from ctrlchan.errors import ConfigError, CtrlchanError, KafkaError
from ctrlchan.state import Broker, Endpoint, SecurityProtocol
from tests.kafka.waiting import wait_until
from tests.kafka.wire import exchange
from tests.unit.broker.local_broker import (
    EPOCH,
    Part,
    client_frame,
    control_frame,
    read_client_response,
    read_control_response,
    topic_id,
)


def send(broker: Broker, api_key: int, version: int, *parts: Part, **head: Any) -> int:
    endpoint = broker.endpoints[0]
    response = exchange(endpoint.host, endpoint.port, control_frame(api_key, version, parts, **head))
    names = {topic_id(part.topic): part.topic for part in parts}
    return read_control_response(api_key, version, response, names)[0]


def test_an_embedded_broker() -> None:
    with EmbeddedBroker(7, epoch=EPOCH, listener="INTERNAL", rack="r", cluster_id="c") as broker:
        assert broker.broker == Broker(
            7, EPOCH, (Endpoint("INTERNAL", SecurityProtocol.PLAINTEXT, "127.0.0.1", broker.port),), "r"
        )
        assert send(broker.broker, UPDATE_METADATA, 8, Part()) == 0
        described = broker.describe()
        assert (described["id"], described["listener"], described["cluster_id"]) == (7, "INTERNAL", "c")
        assert described["metadata"] == {"topics": 1, "partitions": 1, "live_brokers": [1, 2, 3]}
        assert broker.inspect(lambda core: core.metadata.state.topic_name(0)) == "alpha"
        broker.set_epoch(EPOCH + 1)
        assert send(broker.broker, UPDATE_METADATA, 8, Part()) == 77
    # After its end it can still be inspected; a second close changes nothing.
    broker.close()
    assert broker.describe()["apis"]["UpdateMetadata"]["errors"] == {"STALE_BROKER_EPOCH": 1}


def test_a_log_directory_can_fail() -> None:
    with EmbeddedBroker(1) as broker:
        send(broker.broker, UPDATE_METADATA, 8)
        send(broker.broker, LEADER_AND_ISR, 7, Part())
        broker.set_offline("alpha", 0)
        assert broker.describe()["replicas"]["offline"] == 1
        with pytest.raises(KeyError, match="alpha-1"):
            broker.set_offline("alpha", 1)


def test_inspect_raises_the_functions_error() -> None:
    def fail(core: object) -> None:
        raise ZeroDivisionError

    with EmbeddedBroker(1) as broker:
        with pytest.raises(ZeroDivisionError):
            broker.inspect(fail)
        assert broker.describe()["id"] == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"id": -1},
        {"id": 2**31},
        {"id": 1, "port": 65_536},
        {"id": 1, "listener": ""},
        {"id": 1, "max_request_bytes": 0},
        {"id": 1, "idle_timeout": 0},
    ],
)
def test_invalid_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        EmbeddedBroker(**wrong)


@pytest.mark.parametrize("name", ["host", "listener", "rack", "cluster_id"])
def test_settings_that_no_request_can_carry_are_refused(name: str) -> None:
    long: dict[str, Any] = {name: "x" * 40_000}
    half: dict[str, Any] = {name: "x\ud800"}
    shown = {"listener": "the name of listener", "cluster_id": "cluster id"}.get(name, name)
    with pytest.raises(
        ConfigError, match=f"^{shown} 'xxx.*' has 40000 bytes, more than the 32767 of a string"
    ):
        EmbeddedBroker(1, **long)
    with pytest.raises(ConfigError, match=f"^{shown} '.*' has half of a surrogate pair"):
        EmbeddedBroker(1, **half)


@pytest.mark.parametrize(
    ("configs", "message"),
    [
        (
            {"listeners": "PLAINTEXT://:9092"},
            r"listeners: is set by arguments \(host, port, more_listeners\)",
        ),
        ({"num.io.threads": [4]}, r"num.io.threads: \[4\] is not a text, a number, true or false"),
        ({"auto.create.topic.enable": False}, "the nearest is auto.create.topics.enable"),
    ],
)
def test_configs_that_cannot_be(tmp_path: Path, configs: dict[str, Any], message: str) -> None:
    for start in (partial(EmbeddedBroker, 1), partial(EmbeddedCluster, 1)):
        with pytest.raises(ConfigError, match=message):
            start(log_dir=tmp_path, configs=configs)


def left_behind(work: Callable[[], None]) -> tuple[int, int]:
    """(descriptors, threads) that are more after ``work`` than before; done once before, to warm up."""
    work()
    process = psutil.Process()
    fds, threads = process.num_fds(), threading.active_count()
    for _ in range(3):
        work()
    return process.num_fds() - fds, threading.active_count() - threads


def test_an_embedded_broker_leaves_nothing() -> None:
    def work() -> None:
        with EmbeddedBroker(1) as broker:
            send(broker.broker, UPDATE_METADATA, 8, Part())
            endpoint = broker.broker.endpoints[0]
            exchange(endpoint.host, endpoint.port, client_frame(3, 12, topics=None))
            with socket.create_connection(("127.0.0.1", broker.port)) as connection:
                connection.sendall(b"\0\0")
                broker.close()

    assert left_behind(work) == (0, 0)


def test_a_broker_that_cannot_listen_leaves_nothing() -> None:
    def work() -> None:
        with EmbeddedBroker(1) as broker, pytest.raises(OSError, match="in use"):
            EmbeddedBroker(2, port=broker.port)

    assert left_behind(work) == (0, 0)


def test_a_cluster() -> None:
    with EmbeddedCluster(30, log_dir=None, racks=["a", "b"], epoch={5: 7}, cluster_id="c") as cluster:
        assert [broker.id for broker in cluster.brokers] == list(range(1, 31))
        assert [broker.rack for broker in cluster.brokers[:3]] == ["a", "b", "a"]
        assert [broker.epoch for broker in cluster.brokers[:6]] == [-1, -1, -1, -1, 7, -1]
        assert len({broker.endpoints[0].port for broker in cluster.brokers}) == 30
        assert len(cluster.bootstrap_servers.split(",")) == 30
        for number, broker in enumerate(cluster.brokers):
            parts = [Part(partition=partition) for partition in range(number)]
            assert send(broker, UPDATE_METADATA, 8, *parts) == 0
        described = cluster.describe()
        # Each has a state of its own.
        assert [one["metadata"]["partitions"] for one in described] == list(range(30))
        assert {one["cluster_id"] for one in described} == {"c"}
        endpoint = cluster.brokers[9].endpoints[0]
        response = exchange(endpoint.host, endpoint.port, client_frame(3, 12, topics=["alpha"]))
        assert len(read_client_response(3, 12, response).topics[0].partitions) == 9


def test_a_cluster_leaves_nothing() -> None:
    pids: list[int] = []

    def work() -> None:
        with EmbeddedCluster(3, log_dir=None, first_id=0, processes=2) as cluster:
            pids.extend(cluster.pids)
            assert len(cluster.pids) == 2
            # A client that stays connected does not keep it alive.
            socket.create_connection(("127.0.0.1", cluster.brokers[0].endpoints[0].port)).close()

    assert left_behind(work) == (0, 0)
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_a_cluster_that_cannot_start_leaves_nothing() -> None:
    before = set(psutil.Process().children())
    # TEST-NET-1: no machine has this address.
    with pytest.raises(CtrlchanError, match=r"192\.0\.2\.1"):
        EmbeddedCluster(2, log_dir=None, host="192.0.2.1", processes=2)
    assert set(psutil.Process().children()) <= before


@pytest.mark.parametrize("wrong", [{"count": 0}, {"count": 2, "processes": 0}, {"count": 2, "first_id": -1}])
def test_invalid_cluster_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        EmbeddedCluster(**wrong)


def test_the_error_names_a_child_that_was_killed() -> None:
    with EmbeddedCluster(2, log_dir=None, processes=1) as cluster:
        (pid,) = cluster.pids
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: is_zombie(pid), what="the child is gone", timeout=10)
        with pytest.raises(CtrlchanError, match=str(pid)):
            cluster.describe()


def test_a_child_ends_with_sigterm_and_ignores_sigint() -> None:
    with EmbeddedCluster(1, log_dir=None) as cluster:
        (pid,) = cluster.pids
        os.kill(pid, signal.SIGINT)
        assert cluster.describe()[0]["id"] == 1
        os.kill(pid, signal.SIGTERM)
        wait_until(
            lambda: psutil.Process(pid).status() == psutil.STATUS_ZOMBIE, what="the child ends", timeout=10
        )


def is_zombie(pid: int) -> bool:
    return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)


# The grandchild inherits the children's standard inputs, as a forked worker of an application would.
PARENT = """
import os, sys, time
from ctrlchan import EmbeddedCluster
cluster = EmbeddedCluster(4, log_dir=None, processes=2)
pids = cluster.pids
if "fork" in sys.argv:
    grandchild = os.fork()
    if grandchild == 0:
        os.close(1)
        time.sleep(60)
        os._exit(0)
    pids = pids + [grandchild]
print(*pids, flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("inherited", [False, True])
def test_brokers_end_with_their_parent_even_when_it_is_killed(inherited: bool) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, *(["fork"] if inherited else [])], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    with parent.stdout:
        pids = [int(pid) for pid in parent.stdout.readline().split()]
    parent.kill()
    parent.wait()
    children = pids[:2]
    try:
        wait_until(
            lambda: not any(psutil.pid_exists(pid) for pid in children), what="the brokers end", timeout=15
        )
    finally:
        for pid in pids[2:]:
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("on_parents_path", [False, True])
def test_children_import_nothing_from_the_working_directory(
    on_parents_path: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("json", "asyncio", "numpy", "kio"):
        (tmp_path / f"{name}.py").write_text(f"open('{name}.ran', 'w').close()\nraise SystemExit(9)\n")
    monkeypatch.chdir(tmp_path)
    if on_parents_path:
        monkeypatch.setattr(sys, "path", ["", str(tmp_path), *sys.path])
    with EmbeddedCluster(1, log_dir=None) as cluster:
        assert len(cluster.describe()) == 1
    assert list(tmp_path.glob("*.ran")) == []


def test_threads_share_a_cluster() -> None:
    """Each call gets its own answer, also after one whose caller did not wait for it."""
    with EmbeddedCluster(1, log_dir=TEMPORARY) as cluster, ThreadPoolExecutor(4) as threads:

        def describe() -> None:
            assert [one["id"] for one in cluster.describe()] == [1]

        def change_faults() -> None:
            cluster.broker(1).delay("Produce", 0.0)
            cluster.broker(1).clear_faults()

        for called in [threads.submit(one) for one in (describe, change_faults) * 50]:
            called.result(60)

        def interrupted() -> None:
            raise KeyboardInterrupt

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cluster._child_of(1), "_receive", interrupted)
            with pytest.raises(KeyboardInterrupt):
                cluster.broker(1).clear_faults()
        describe()


def test_a_broker_that_did_not_start_can_be_started_again() -> None:
    with EmbeddedCluster(2, log_dir=TEMPORARY) as cluster:
        cluster.kill_broker(2)
        endpoint = cluster.brokers[1].endpoints[0]
        with socket.create_server((endpoint.host, endpoint.port)):
            with pytest.raises(CtrlchanError, match="Address already in use"):
                cluster.start_broker(2)
            assert [one["id"] for one in cluster.describe()] == [1]
        assert cluster.start_broker(2).endpoints == (endpoint,)
        assert [one["id"] for one in cluster.describe()] == [1, 2]
        cluster.kill_broker(1)
        cluster.kill_broker(2)
        with pytest.raises(CtrlchanError, match="no broker"):
            cluster.records("orders")
    with EmbeddedCluster(2, log_dir=None, processes=1) as cluster:
        with pytest.raises(ConfigError, match="broker 2 shares its process"):
            cluster.start_broker(2)
        assert [one["id"] for one in cluster.describe()] == [1, 2]


def test_a_cluster_that_goes_on_starts_without_errors(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The controller is elected when the brokers are there: it finds no partition offline."""
    with EmbeddedCluster(1, log_dir=tmp_path) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        admin.create_topics([NewTopic("orders", 3, 1)])["orders"].result(60)
    with EmbeddedCluster(1, log_dir=tmp_path) as cluster:
        assert cluster.records("orders") == []
    assert "failed to change state" not in caplog.text


def test_a_topic_can_be_created_again_at_once() -> None:
    with EmbeddedCluster(1, log_dir=TEMPORARY) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        for _ in range(10):
            admin.create_topics([NewTopic("orders", 3, 1)])["orders"].result(60)
            admin.delete_topics(["orders"])["orders"].result(60)


def test_a_leader_is_moved_to_a_replica_in_sync_or_nothing_changes() -> None:
    with EmbeddedCluster(2, log_dir=TEMPORARY) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        admin.create_topics([NewTopic("orders", 1, replica_assignment=[[1, 2]])])["orders"].result(60)
        cluster.kill_broker(2)
        # librdkafka leaves a request for metadata with a broker whose end it has not yet seen: a new client.
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})

        def replicas() -> tuple[list[int], list[int]]:
            partition = admin.list_topics("orders", timeout=60).topics["orders"].partitions[0]
            return partition.replicas, partition.isrs

        wait_until(lambda: replicas() == ([1, 2], [1]), what="the killed broker is out of sync")
        with pytest.raises(KafkaError, match=r"broker 2 is not in sync for orders-0: in sync are \[1\]"):
            cluster.move_leader("orders", 0, 2)
        assert replicas() == ([1, 2], [1])

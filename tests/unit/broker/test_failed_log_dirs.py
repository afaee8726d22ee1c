"""Log directories that fail under a broker: what its partitions, the controller and its process see."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

import ctrlchan
from ctrlchan._codec import LEADER_AND_ISR
from ctrlchan.broker.config.broker_config import BrokerConfig
from ctrlchan.broker.log import manager
from ctrlchan.broker.server import BrokerServer
from ctrlchan.errors import ErrorCode, KafkaError
from ctrlchan.zookeeper import nodes, paths
from ctrlchan.zookeeper.memory.server import MemoryZooKeeper
from ctrlchan.zookeeper.session import ZooKeeperSession
from ctrlchan.zookeeper.settings import ZooKeeperSettings
from tests.kafka.waiting import wait_until
from tests.kafka.wire import exchange
from tests.unit.broker.local_broker import LiveBroker, Part, control_frame, read_control_response, topic_id
from tests.unit.broker.log.made_batches import batch

SECONDS = 60.0
ALPHA = Part("alpha", 0, replicas=(1,), isr=(1,)), Part("alpha", 1, replicas=(1,), isr=(1,))


@contextmanager
def storing(
    log_dirs: list[Path], session: ZooKeeperSession, halted: threading.Event
) -> Iterator[BrokerServer]:
    config = BrokerConfig(id=1, log_dirs=tuple(map(str, log_dirs)), configs={"num.io.threads": "1"})
    service = BrokerServer(config, halt=halted.set)
    service.start(session)
    try:
        service.serve()
        yield service
    finally:
        service.stop()


def lead(service: BrokerServer, *parts: Part) -> list[tuple[str, int, int]]:
    """Send LeaderAndIsr; return the error of each partition."""
    frame = control_frame(LEADER_AND_ISR, 7, parts, live=[LiveBroker(1)], broker_epoch=-1)
    answer = exchange("127.0.0.1", service.core.endpoint.port, frame)
    error, errors = read_control_response(LEADER_AND_ISR, 7, answer, {topic_id("alpha"): "alpha"})
    assert error == 0
    return sorted(errors)


def fail(service: BrokerServer, partition: int) -> Path:
    """Let the disk fail under an append; return the log directory."""
    log = service.core.logs.log("alpha", partition)
    assert log is not None
    assert append(service, partition) == 0
    # The next segment cannot be created.
    (log.folder / f"{log.end_offset:020d}.log").mkdir()
    with pytest.raises(KafkaError):
        log.roll()
    assert append(service, partition) == ErrorCode.KAFKA_STORAGE_ERROR
    return log.folder.parent


def append(service: BrokerServer, partition: int) -> int:
    """Append a record; return the error."""
    found = service.core.partitions.get("alpha", partition)
    assert found is not None
    return found.append(batch([b"v"])).result(SECONDS)[0]


def test_the_controller_hears_of_it_and_the_last_one_ends_the_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The failed append itself takes the directory offline: nobody looks for it meanwhile.
    monkeypatch.setattr(manager, "_TICK_SECONDS", 10.0**6)
    halted = threading.Event()
    with (
        MemoryZooKeeper() as zookeeper,
        ZooKeeperSession(ZooKeeperSettings(connect=zookeeper.address)) as session,
        storing([tmp_path / "a", tmp_path / "b"], session, halted) as service,
    ):
        assert lead(service, *ALPHA) == [("alpha", 0, 0), ("alpha", 1, 0)]
        failed = fail(service, 1)

        def events() -> list[str]:
            return session.children(paths.LOG_DIR_EVENT_NOTIFICATIONS) or []

        wait_until(events, timeout=SECONDS, what="the controller is notified")
        (name,) = events()
        node = session.get(paths.log_dir_event_notification(name))
        assert node is not None
        assert nodes.parse_log_dir_event(node.data) == 1
        assert service.core.logs.offline_dirs.keys() == {failed}
        # The controller asks with the epochs that it has, which are not new to the other partition.
        errors = [ErrorCode.STALE_CONTROLLER_EPOCH, ErrorCode.KAFKA_STORAGE_ERROR]
        assert [error for _, _, error in lead(service, *ALPHA)] == errors
        assert append(service, 0) == 0
        assert not halted.is_set()
        fail(service, 0)
        assert halted.wait(SECONDS)
        assert len(events()) == 1

        assert service.wait_stopped(SECONDS)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", service.core.endpoint.port), 5)


def test_a_process_without_log_directories_ends(tmp_path: Path) -> None:
    with ctrlchan.EmbeddedCluster(1, log_dir=tmp_path, configs={"log.segment.bytes": "1000"}) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(SECONDS)
        (tmp_path / "broker-1" / "orders-0" / f"{1:020d}.log").mkdir()
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 2})
        producer.produce("orders", bytes(600), partition=0)
        assert producer.flush(SECONDS) == 0
        producer.produce("orders", bytes(600), partition=0)
        producer.poll(0)
        assert cluster._child_of(1).process.wait(SECONDS) == 1
        producer.purge()

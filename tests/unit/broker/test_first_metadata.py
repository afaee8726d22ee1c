"""Clients of a broker that has not heard of a controller yet, or whose controller they cannot reach."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from ctrlchan import TEMPORARY, ChannelConfig, EmbeddedBroker, EmbeddedCluster, Endpoint, SecurityProtocol
from ctrlchan._codec import LEADER_AND_ISR, UPDATE_METADATA
from ctrlchan.broker.config.broker_config import BrokerConfig
from ctrlchan.broker.handlers import metadata
from ctrlchan.broker.server import BrokerServer
from ctrlchan.controller.kafka_controller import KafkaController
from ctrlchan.controller.settings.config import ControllerConfig
from ctrlchan.zookeeper.memory.server import MemoryZooKeeper
from ctrlchan.zookeeper.session import ZooKeeperSession
from ctrlchan.zookeeper.settings import ZooKeeperSettings
from tests.kafka.waiting import wait_until
from tests.kafka.wire import exchange
from tests.unit.broker.local_broker import Part, client_frame, control_frame, read_client_response
from tests.unit.broker.test_storing_broker import ALONE, send

METADATA = 3
CONTROLLER = 1000
#: Controllers end before brokers here.
CONFIGS = {"controlled.shutdown.enable": "false"}
ALL_TOPICS = client_frame(METADATA, 12, topics=None)


@pytest.fixture
def zookeeper() -> Iterator[str]:
    with MemoryZooKeeper() as server:
        yield server.address


def controller_of(zookeeper: str, listener: str = "PLAINTEXT") -> KafkaController:
    return KafkaController(
        ControllerConfig(
            controller_id=CONTROLLER,
            zookeeper=zookeeper,
            listeners=(Endpoint(listener, SecurityProtocol.PLAINTEXT, "127.0.0.1", 0),),
            channel=ChannelConfig(controller_id=CONTROLLER, inter_broker_listener=listener),
        )
    )


@contextmanager
def started(config: BrokerConfig, session: ZooKeeperSession) -> Iterator[BrokerServer]:
    server = BrokerServer(config)
    server.start(session)
    server.serve()
    try:
        yield server
    finally:
        server.stop()


def test_metadata_wait_for_the_first_controller(zookeeper: str) -> None:
    with (
        EmbeddedCluster(1, log_dir=TEMPORARY, zookeeper=zookeeper, configs=CONFIGS) as cluster,
        ThreadPoolExecutor(1) as executor,
    ):
        (endpoint,) = cluster.brokers[0].endpoints
        asked = executor.submit(exchange, endpoint.host, endpoint.port, ALL_TOPICS)
        with controller_of(zookeeper):
            answer = read_client_response(METADATA, 12, asked.result(60))
    assert {node.node_id for node in answer.brokers} == {1, CONTROLLER}
    assert answer.controller_id == CONTROLLER


def test_librdkafka_creates_a_topic_before_there_is_a_controller(zookeeper: str) -> None:
    with EmbeddedCluster(1, log_dir=TEMPORARY, zookeeper=zookeeper, configs=CONFIGS) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        created = admin.create_topics([NewTopic("first", 1, 1)], request_timeout=50)["first"]
        with controller_of(zookeeper):
            created.result(60)


def test_a_broker_without_a_controller_answers_in_the_end(
    zookeeper: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "_FIRST_UPDATE_SECONDS", 0.1)
    with (
        ZooKeeperSession(ZooKeeperSettings(connect=zookeeper)) as session,
        started(BrokerConfig(id=1, log_dirs=[str(tmp_path)], configs=CONFIGS), session) as server,
    ):
        answer = exchange("127.0.0.1", server.ports["PLAINTEXT"], ALL_TOPICS)
    answered = read_client_response(METADATA, 12, answer)
    assert (answered.brokers, answered.topics, answered.controller_id) == ((), (), -1)


def test_metadata_wait_for_the_partitions_of_a_broker_with_logs(zookeeper: str, tmp_path: Path) -> None:
    """A controller that has just been elected sends the brokers, then LeaderAndIsr, then the partitions."""
    with EmbeddedBroker(1, log_dir=tmp_path) as broker:
        send(broker, LEADER_AND_ISR, Part("alpha", 0, **ALONE))
    with (
        ZooKeeperSession(ZooKeeperSettings(connect=zookeeper)) as session,
        ThreadPoolExecutor(1) as executor,
        started(BrokerConfig(id=1, log_dirs=[str(tmp_path)], configs=CONFIGS), session) as server,
    ):
        address = "127.0.0.1", server.ports["PLAINTEXT"]
        exchange(*address, control_frame(UPDATE_METADATA, 8, []))
        asked = executor.submit(exchange, *address, client_frame(METADATA, 12, topics=["alpha"]))
        wait_until(lambda: server.core.metadata.after_update, what="the client waits")
        exchange(*address, control_frame(UPDATE_METADATA, 8, [Part("alpha", 0, **ALONE)]))
        (topic,) = read_client_response(METADATA, 12, asked.result(60)).topics
    assert topic.error_code.value == 0


def test_clients_without_the_controllers_listener_create_topics(zookeeper: str) -> None:
    """The broker that they ask stands for the controller, and forwards what they send."""
    with (
        controller_of(zookeeper, "INTERNAL") as controller,
        EmbeddedCluster(
            1,
            log_dir=TEMPORARY,
            zookeeper=zookeeper,
            listener="INTERNAL",
            more_listeners={"CLIENTS": "127.0.0.1:0"},
            configs=CONFIGS,
        ) as cluster,
    ):
        controller.wait_until_active(60)
        internal, clients = cluster.brokers[0].endpoints
        assert (internal.listener, clients.listener) == ("INTERNAL", "CLIENTS")
        admin = AdminClient({"bootstrap.servers": f"{clients.host}:{clients.port}"})
        admin.create_topics([NewTopic("first", 1, 1)], request_timeout=20)["first"].result(60)
        listed = admin.list_topics(timeout=20)
        assert (listed.controller_id, list(listed.brokers)) == (1, [1])
        # Metadata for clients that reach the controller say where it is.
        near = AdminClient({"bootstrap.servers": f"{internal.host}:{internal.port}"}).list_topics(timeout=20)
        assert (near.controller_id, sorted(near.brokers)) == (CONTROLLER, [1, CONTROLLER])

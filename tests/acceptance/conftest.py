"""One rig and one controller for all acceptance tests of a session."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kazoo.client import KazooClient

from tests.acceptance.clients import metadata
from tests.acceptance.conversation import RealConversations
from tests.acceptance.znodes import ControllerZnodes, TakeOver
from tests.kafka.fixtures import kafka, kafka_jars_ready, pytest_runtest_makereport
from tests.kafka.rig import KafkaRig
from tests.kafka.waiting import wait_until

__all__ = [
    "kafka",
    "kafka_jars_ready",
    "pytest_runtest_makereport",
]

CONTROLLER_ID = 1000  # no broker's id


@pytest.fixture(scope="session")
def znodes(kafka: KafkaRig) -> Iterator[ControllerZnodes]:
    """The controller's ZooKeeper session; it has not taken over yet."""
    client = KazooClient(hosts=kafka.zookeeper_connect, timeout=30.0)
    client.start(timeout=30)
    yield ControllerZnodes(client, CONTROLLER_ID)
    client.stop()
    client.close()


@pytest.fixture(scope="session")
def inherited_topic(kafka: KafkaRig) -> str:
    """A topic of six partitions on all three brokers, made by the JVM controller while it reigned."""
    wait_until(lambda: kafka.jvm_controller() is not None, what="a JVM controller is elected")
    name = "inherited"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for created in admin.create_topics([NewTopic(name, 6, 3)]).values():
        created.result(timeout=60)
    # Told to every broker before the reign ends.
    for broker_id in kafka.broker_ids:
        wait_until(partial(_knows_all, kafka, broker_id, name, 6), what=f"broker {broker_id} hears of {name}")
    return name


@pytest.fixture(scope="session")
def take_over(kafka: KafkaRig, znodes: ControllerZnodes, inherited_topic: str) -> TakeOver:
    """The election that ends the reign of the rig's JVM controller."""
    return znodes.take_over()


@pytest.fixture(scope="session")
def conversations(kafka: KafkaRig, znodes: ControllerZnodes, take_over: TakeOver) -> RealConversations:
    """What the real broker 1 said in each scenario; each takes place once."""
    return RealConversations(kafka, znodes)


def _knows_all(kafka: KafkaRig, broker_id: int, topic: str, partitions: int) -> bool:
    view = metadata(kafka, broker_id, [topic])[topic]
    return view.error == 0 and len(view.partitions) == partitions

"""Brokers of the package that take part in elections, as each of Kafka's, alone and beside Kafka's."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kazoo.exceptions import NoNodeError

from ctrlchan.embedded.certificates import Certificates
from ctrlchan.state.brokers import parse_host_port
from tests.acceptance.controller import nodes
from tests.acceptance.controller.agreement import wait_until_in_sync
from tests.acceptance.controller.cluster import BROKER_PROPERTIES
from tests.acceptance.controller.load import Load
from tests.acceptance.same_answers.messages import Messages
from tests.acceptance.same_answers.recorder import Broker
from tests.kafka.jars import kafka_jars
from tests.kafka.rig import KafkaRig
from tests.kafka.waiting import wait_until

TIMEOUT = 90.0
JVM, OURS = (1,), (2, 3)
PROPERTIES = {
    **BROKER_PROPERTIES,
    "zookeeper.session.timeout.ms": "6000",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "group.initial.rebalance.delay.ms": "0",
}
NOT_CONTROLLER = 41


@pytest.fixture(scope="module")
def rig(kafka_jars_ready: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaRig]:
    with KafkaRig(
        tmp_path_factory.mktemp("elected"), brokers=3, ours=OURS, ours_take_part=True, properties=PROPERTIES
    ) as rig:
        yield rig


def elect(rig: KafkaRig, broker_id: int) -> None:
    """Delete the controller's node until this broker is elected, and every broker knows it."""

    def is_elected() -> bool:
        if rig.jvm_controller() == broker_id:
            return True
        try:
            rig.zookeeper.delete("/controller")
        except NoNodeError:
            return False
        wait_until(lambda: rig.jvm_controller() is not None, timeout=TIMEOUT, what="a controller is elected")
        return rig.jvm_controller() == broker_id

    wait_until(is_elected, timeout=TIMEOUT, what=f"broker {broker_id} is elected")
    wait_until(
        lambda: {controller_of(rig, one) for one in rig.live_broker_ids} == {broker_id},
        timeout=TIMEOUT,
        what="all brokers know the controller",
    )


def controller_of(rig: KafkaRig, broker_id: int) -> int:
    """Return the controller that a broker tells clients of."""
    return int(ask(rig, broker_id, "Metadata", Topics=[])["ControllerId"])


def ask(rig: KafkaRig, broker_id: int, api: str, **fields: Any) -> Any:
    """Send a request to one broker; return the answer."""
    endpoint = rig.broker(broker_id).endpoint("PLAINTEXT")
    messages = Messages(next(kafka_jars().glob("kafka-clients-*.jar")))
    broker = Broker(messages, parse_host_port(f"{endpoint.host}:{endpoint.port}"))
    try:
        return broker.ask(api, broker.announced()[api][-1], **fields)
    finally:
        broker.close()


def create(rig: KafkaRig, topic: str, partitions: int = 6) -> None:
    """Create a topic with a replica on each broker, as an administrator does."""
    admin = AdminClient({"bootstrap.servers": rig.bootstrap})
    for made in admin.create_topics([NewTopic(topic, partitions, len(rig.broker_ids))]).values():
        made.result(TIMEOUT)
    wait_until_in_sync(rig, [topic])


def isrs(rig: KafkaRig, topic: str) -> list[set[int]]:
    return [set(node.isr) for node in nodes.partition_nodes(rig.zookeeper, {topic}).values()]


@pytest.mark.parametrize("controller", [OURS[0], JVM[0]], ids=["ours", "Kafka's"])
def test_brokers_of_both_kinds_ask_the_controller(rig: KafkaRig, controller: int) -> None:
    """ISRs, producer ids, topics: what brokers and clients ask the controller for."""
    topic = f"asked-{controller}"
    elect(rig, controller)
    create(rig, topic)
    others = [one for one in rig.broker_ids if one != controller]
    with Load(rig.bootstrap, topic) as load:
        load.wait_for_more(partitions=6)
        for broker_id in others:
            # Leaders of both kinds take it out of the ISR, and back.
            rig.kill_broker(broker_id)
            wait_until(
                lambda b=broker_id: all(b not in isr for isr in isrs(rig, topic)),  # type: ignore[misc]
                timeout=TIMEOUT,
                what="ISRs shrink",
            )
            load.wait_for_more()
            rig.restart_broker(broker_id)
            wait_until_in_sync(rig, [topic])
        transact(rig, topic, f"transaction-{controller}")
        load.wait_for_more(partitions=6)
    assert rig.jvm_controller() == controller
    load.check_nothing_is_lost()


@pytest.mark.parametrize("asked", OURS)
def test_any_broker_of_ours_creates_topics(rig: KafkaRig, asked: int) -> None:
    """The controller itself, and another broker, which forwards the request to it."""
    elect(rig, OURS[0])
    topic = f"created-{asked}"
    new = {"Name": topic, "NumPartitions": 2, "ReplicationFactor": 3}
    [answer] = ask(rig, asked, "CreateTopics", Topics=[new], TimeoutMs=60_000)["Topics"]
    assert (answer["Name"], answer["ErrorCode"]) == (topic, 0)
    wait_until_in_sync(rig, [topic])
    gone = {"Name": topic, "TopicId": uuid.UUID(int=0)}
    [answer] = ask(rig, asked, "DeleteTopics", Topics=[gone], TimeoutMs=60_000)["Responses"]
    assert answer["ErrorCode"] == 0


def test_who_is_not_the_controller_says_so(rig: KafkaRig) -> None:
    elect(rig, JVM[0])
    identity = {"BrokerId": JVM[0], "BrokerEpoch": rig.broker(JVM[0]).epoch}
    assert ask(rig, OURS[0], "AllocateProducerIds", **identity)["ErrorCode"] == NOT_CONTROLLER
    elect(rig, OURS[0])
    assert ask(rig, OURS[0], "AllocateProducerIds", **identity)["ErrorCode"] == 0


def test_a_controller_that_stops_moves_its_leaders(rig: KafkaRig) -> None:
    """It asks itself for the controlled shutdown, and resigns behind it."""
    topic = "stopped"
    elect(rig, OURS[1])
    create(rig, topic)
    with Load(rig.bootstrap, topic) as load:
        load.wait_for_more(partitions=6)
        rig.stop_broker(OURS[1])
        assert all(node.leader != OURS[1] for node in nodes.partition_nodes(rig.zookeeper, {topic}).values())
        wait_until(lambda: rig.jvm_controller() not in (None, OURS[1]), timeout=TIMEOUT, what="an election")
        load.wait_for_more(partitions=6)
        rig.restart_broker(OURS[1])
        wait_until_in_sync(rig, [topic])
        # The one that is killed has no time to resign.
        elect(rig, OURS[0])
        rig.kill_broker(OURS[0])
        wait_until(lambda: rig.jvm_controller() not in (None, OURS[0]), timeout=TIMEOUT, what="an election")
        load.wait_for_more(partitions=6)
        rig.restart_broker(OURS[0])
        wait_until_in_sync(rig, [topic])
    load.check_nothing_is_lost()


def transact(rig: KafkaRig, topic: str, name: str) -> None:
    """Write in a transaction, and read it in a group: both coordinators are made by the controller."""
    producer = Producer({"bootstrap.servers": rig.bootstrap, "transactional.id": name, "log_level": 2})
    producer.init_transactions(TIMEOUT)
    producer.begin_transaction()
    producer.produce(topic, name, partition=0)
    producer.commit_transaction(TIMEOUT)
    consumer = Consumer(
        {
            "bootstrap.servers": rig.bootstrap,
            "group.id": name,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "log_level": 2,
        }
    )
    consumer.subscribe([topic])

    def has_read() -> bool:
        return any(one.value() == name.encode() for one in consumer.consume(10_000, 1.0))

    try:
        wait_until(has_read, timeout=TIMEOUT, what="the group has read the record")
    finally:
        consumer.close()


SUPER_USER, ALICE, PASSWORD = "kafka", "alice", "secret of all"


def test_a_secured_cluster_of_our_brokers_alone(kafka_jars_ready: None, tmp_path: Path) -> None:
    """SASL_SSL among brokers and for clients, with ACLs, which the controller asks for forwarded requests."""
    (tmp_path / "certificates").mkdir()
    certificates = Certificates(tmp_path / "certificates")
    users = " ".join(f'user_{name}="{PASSWORD}"' for name in (SUPER_USER, ALICE))
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    properties = {
        **PROPERTIES,
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": f"User:{SUPER_USER};User:ANONYMOUS",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.secured.plain.sasl.jaas.config": (
            f'{module} required username="{SUPER_USER}" password="{PASSWORD}" {users};'
        ),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": certificates.issue("broker", ["127.0.0.1"]),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": certificates.ca_file,
    }
    with KafkaRig(
        tmp_path / "rig",
        brokers=3,
        ours=(1, 2, 3),
        ours_take_part=True,
        inter_broker_listener="SECURED",
        listeners={"SECURED": "SASL_SSL"},
        properties=properties,
    ) as rig:
        create(rig, "shared")
        for controller in (1, 2):
            elect(rig, controller)
            with Load(rig.bootstrap, "shared") as load:
                load.wait_for_more(partitions=6)
                transact(rig, "shared", f"secured-{controller}")
            load.check_nothing_is_lost()
            # Alice has no permission, wherever she asks.
            for broker_id in (1, 2):
                endpoint = rig.broker(broker_id).endpoint("SECURED")
                admin = AdminClient(
                    {
                        "bootstrap.servers": f"{endpoint.host}:{endpoint.port}",
                        "security.protocol": "SASL_SSL",
                        "sasl.mechanism": "PLAIN",
                        "sasl.username": ALICE,
                        "sasl.password": PASSWORD,
                        "ssl.ca.location": certificates.ca_file,
                        "log_level": 2,
                    }
                )
                [made] = admin.create_topics([NewTopic("of-alice", 1, 1)]).values()
                error = made.exception(TIMEOUT)
                assert error is not None
                assert "TOPIC_AUTHORIZATION_FAILED" in repr(error)

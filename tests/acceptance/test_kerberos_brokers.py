"""Brokers and a controller of the package that log in to each other with GSSAPI; a client of the latter."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from ctrlchan import ControllerConfig
from ctrlchan.controller.settings.properties import settings_of
from tests.acceptance.controller.agreement import wait_until_in_sync
from tests.acceptance.controller.cluster import BROKER_PROPERTIES, ControlledCluster
from tests.kafka.kdc import Kdc, login_module, running_kdc
from tests.kafka.rig import KafkaRig
from tests.kafka.waiting import wait_until

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its schemas so
    from kafka.admin import KafkaAdminClient, NewTopic
    from kafka.errors import KafkaError

pytestmark = pytest.mark.timeout(400)

LISTENER = "INTERNAL"
BROKER, STRANGER = "kafka/localhost", "stranger"
CONTROLLER_ID = 1000
SESSION_MS = 2000


@pytest.fixture(scope="module")
def kdc(tmp_path_factory: pytest.TempPathFactory, kafka_jars_ready: None) -> Iterator[Kdc]:
    """A KDC. A client that names no principal is the stranger."""
    with running_kdc(tmp_path_factory.mktemp("kdc"), [STRANGER, BROKER]) as kdc:
        yield kdc


@pytest.fixture(scope="module")
def cluster(kdc: Kdc, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlledCluster]:
    """Two brokers and a controller. Only the user kafka may do what brokers and controllers do."""
    prefix = f"listener.name.{LISTENER.lower()}."
    properties = {
        **BROKER_PROPERTIES,
        "transaction.state.log.replication.factor": "2",
        "sasl.mechanism.inter.broker.protocol": "GSSAPI",
        f"{prefix}sasl.enabled.mechanisms": "GSSAPI",
        f"{prefix}gssapi.sasl.jaas.config": login_module(kdc.keytab, BROKER),
        f"{prefix}connections.max.reauth.ms": str(SESSION_MS),
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:kafka;User:ANONYMOUS",
    }
    folder = tmp_path_factory.mktemp("cluster")
    started: list[ControlledCluster] = []

    def elect(rig: KafkaRig) -> None:
        cluster = ControlledCluster(rig)
        started.append(cluster)
        file = rig.folder / "controller.properties"
        given = {
            **properties,
            "broker.id": str(CONTROLLER_ID),
            "zookeeper.connect": rig.zookeeper_connect,
            "listeners": f"{LISTENER}://localhost:0",
            "listener.security.protocol.map": f"{LISTENER}:SASL_PLAINTEXT",
            "inter.broker.listener.name": LISTENER,
        }
        file.write_text("".join(f"{key}={value}\n" for key, value in given.items()))
        cluster.start_controller(ControllerConfig(**settings_of(file))).wait_until_active(60)

    rig = KafkaRig(
        folder / "rig",
        brokers=2,
        ours=(1, 2),
        inter_broker_listener=LISTENER,
        listeners={LISTENER: "SASL_PLAINTEXT"},
        properties=properties,
        before_brokers=elect,
    )
    try:
        with rig:
            # The controller ends before ZooKeeper: its session would wait for it.
            try:
                yield started[0]
            finally:
                started[0].close()
    finally:
        for one in started:
            one.close()


def produce(rig: KafkaRig, topic: str, values: list[str]) -> None:
    """Produce to the replicas of a partition, in one transaction: its marker goes from broker to broker."""
    producer = Producer({"bootstrap.servers": rig.bootstrap, "transactional.id": "t", "log_level": 0})
    producer.init_transactions(60)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, partition=0)
    producer.commit_transaction(60)


def test_records_are_replicated(cluster: ControlledCluster) -> None:
    """A topic of the controller, followers, markers of transactions, and a broker that comes again."""
    rig, topic = cluster.rig, "orders"
    cluster.create_topic(topic, [[1, 2], [2, 1]], {"min.insync.replicas": "2"})
    produce(rig, topic, ["a", "b"])
    rig.stop_broker(2)
    rig.restart_broker(2)
    wait_until_in_sync(rig, [topic])
    produce(rig, topic, ["c"])
    for broker_id in rig.broker_ids:
        assert not [line for line in rig.log_lines(broker_id) if "ERROR" in line or "authentication" in line]


def test_a_client_asks_the_controller(cluster: ControlledCluster) -> None:
    """A client is known there by its principal, and may do what an ACL allows."""
    (controller,) = cluster.active.endpoints
    admin = KafkaAdminClient(
        bootstrap_servers=f"{controller.host}:{controller.port}",
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="GSSAPI",
        sasl_kerberos_service_name="kafka",
        sasl_kerberos_domain_name="localhost",
    )
    topic = "of-the-stranger"

    def create() -> str:
        try:
            admin.create_topics([NewTopic(topic, 1, 2)], timeout_ms=30_000)
        except KafkaError as refused:
            return type(refused).__name__
        return ""

    try:
        assert admin.describe_cluster()["controller_id"] == CONTROLLER_ID
        assert create() == "TopicAuthorizationFailedError"
        allow(cluster, STRANGER, topic)
        wait_until(lambda: create() in ("", "TopicAlreadyExistsError"), what="the ACL counts")
    finally:
        admin.close()
    wait_until_in_sync(cluster.rig, [topic])


def allow(cluster: ControlledCluster, user: str, topic: str) -> None:
    """Allow a user to do all with a topic."""
    acl = AclBinding(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        f"User:{user}",
        "*",
        AclOperation.ALL,
        AclPermissionType.ALLOW,
    )
    for made in cluster.admin.create_acls([acl], request_timeout=30).values():
        made.result(60)

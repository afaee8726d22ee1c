"""JVM brokers and one of the package in one cluster whose brokers authenticate to each other."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from ctrlchan import ControllerConfig
from ctrlchan.controller.settings.properties import settings_of
from ctrlchan.embedded.certificates import Certificates
from tests.acceptance.controller.agreement import wait_until_in_sync
from tests.acceptance.controller.cluster import BROKER_PROPERTIES, ControlledCluster
from tests.acceptance.controller.load import Load
from tests.kafka.jars import java_command
from tests.kafka.rig import KafkaRig
from tests.kafka.waiting import wait_until

pytestmark = pytest.mark.long

JVM, OURS = (1, 2), 3
TIMEOUT = 120.0
USER, PASSWORD = "broker", "s3cret of brokers"
LISTENER = "INTERNAL"
#: Security protocol of the brokers' listener -> mechanism.
PROTOCOLS = {"SASL_PLAINTEXT": "PLAIN", "SASL_SSL": "SCRAM-SHA-512"}
#: Milliseconds after which a broker has to authenticate again.
SESSION = "4000"


def login(mechanism: str, password: str) -> str:
    """The JAAS entry of a broker: its own side as a client, and for PLAIN its users."""
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    options = {"username": USER, "password": password}
    if mechanism == "PLAIN":
        options[f"user_{USER}"] = PASSWORD
    words = " ".join(f'{name}="{value}"' for name, value in options.items())
    return f"org.apache.kafka.common.security.{module} required {words};"


def inter_broker_properties(protocol: str, folder: Path) -> dict[str, str]:
    """What secures the brokers' listener, in Kafka's keys."""
    prefix, mechanism = f"listener.name.{LISTENER.lower()}.", PROTOCOLS[protocol]
    properties: dict[str, str] = {}
    if protocol.endswith("SSL"):
        certificates = Certificates(folder)
        properties |= {
            f"{prefix}ssl.keystore.type": "PEM",
            f"{prefix}ssl.keystore.location": certificates.issue("broker", ["127.0.0.1"]),
            f"{prefix}ssl.truststore.type": "PEM",
            f"{prefix}ssl.truststore.location": certificates.ca_file,
            f"{prefix}ssl.client.auth": "required",
        }
    if protocol.startswith("SASL"):
        properties |= {
            "sasl.mechanism.inter.broker.protocol": mechanism,
            f"{prefix}sasl.enabled.mechanisms": mechanism,
            f"{prefix}{mechanism.lower()}.sasl.jaas.config": login(mechanism, PASSWORD),
            f"{prefix}connections.max.reauth.ms": SESSION,
        }
    return properties


def add_user(rig: KafkaRig) -> None:
    command = java_command(
        "kafka.admin.ConfigCommand",
        *("--zookeeper", rig.zookeeper_connect, "--alter", "--entity-type", "users", "--entity-name", USER),
        *("--add-config", f"SCRAM-SHA-512=[iterations=4096,password={PASSWORD}]"),
    )
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.fixture(scope="module", params=PROTOCOLS)
def cluster(
    kafka_jars_ready: None, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlledCluster]:
    protocol = request.param
    folder = tmp_path_factory.mktemp("secure")
    (folder / "certificates").mkdir()
    properties = {
        **BROKER_PROPERTIES,
        "zookeeper.session.timeout.ms": "6000",
        **inter_broker_properties(protocol, folder / "certificates"),
    }
    with KafkaRig(
        folder / "rig",
        brokers=3,
        ours=(OURS,),
        inter_broker_listener=LISTENER,
        listeners={LISTENER: protocol},
        properties=properties,
        before_brokers=add_user if PROTOCOLS[protocol].startswith("SCRAM") else None,
    ) as rig:
        cluster = ControlledCluster(rig)
        try:
            yield cluster
        finally:
            cluster.close()


def our_controller(rig: KafkaRig) -> ControllerConfig:
    """A controller with the settings of a broker's file."""
    properties = (rig.folder / f"broker-{OURS}" / "server.properties").read_text()
    file = rig.folder / "controller.properties"
    replaced = ("broker.id", "listeners", "log.")
    kept = [line for line in properties.splitlines() if not line.startswith(replaced)]
    file.write_text("\n".join([*kept, f"listeners={LISTENER}://127.0.0.1:0", "broker.id=1000"]))
    return ControllerConfig(**settings_of(file))


def test_records_transactions_and_controllers(cluster: ControlledCluster) -> None:
    """Replication in both directions, markers of transactions, another controller, a broker that dies."""
    rig = cluster.rig
    topic = "secured"
    replicas = [[1, 3, 2], [3, 1, 2], [2, 3, 1]]
    cluster.create_topic(topic, replicas, {"min.insync.replicas": "2"})
    with Load(rig.bootstrap, topic) as load:
        load.wait_for_more(partitions=3)
        commit(rig, topic, "before")
        cluster.take_over(cluster.start_controller(our_controller(rig)))
        load.wait_for_more(partitions=3)
        commit(rig, topic, "after")
        cluster.hand_to_jvm()
        for broker_id in (JVM[0], OURS):
            rig.kill_broker(broker_id)
            load.wait_for_more(partitions=3)
            rig.restart_broker(broker_id)
            wait_until_in_sync(rig)
            load.wait_for_more(partitions=3)
    wait_until_in_sync(rig)
    load.check_nothing_is_lost()
    names = {f"{name}-{number}".encode() for name in ("before", "after") for number in range(3)}
    read_committed(rig, topic, names)


def commit(rig: KafkaRig, topic: str, name: str) -> None:
    """Write a record to each partition in one transaction: its markers go to all leaders."""
    producer = Producer({"bootstrap.servers": rig.bootstrap, "transactional.id": name, "log_level": 0})
    producer.init_transactions(60)
    producer.begin_transaction()
    for partition in range(3):
        producer.produce(topic, f"{name}-{partition}", partition=partition)
    producer.commit_transaction(60)


def read_committed(rig: KafkaRig, topic: str, wanted: set[bytes]) -> None:
    """Wait until a consumer of committed records has read these."""
    consumer = Consumer(
        {
            "bootstrap.servers": rig.bootstrap,
            "group.id": "reader",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    found: set[bytes] = set()
    try:
        consumer.subscribe([topic])

        def has_all() -> bool:
            messages = consumer.consume(1_000, 1.0)
            found.update(one.value() or b"" for one in messages if one.error() is None)
            return found >= wanted

        wait_until(has_all, timeout=TIMEOUT, what="the transactions are read")
    finally:
        consumer.close()


def test_why_a_broker_is_refused_is_in_its_log_until_it_is_mended(cluster: ControlledCluster) -> None:
    rig = cluster.rig
    mechanism = PROTOCOLS[rig.protocol_of(LISTENER)]
    key = f"listener.name.{LISTENER.lower()}.{mechanism.lower()}.sasl.jaas.config"
    cluster.create_topic("mended", [[1, OURS]])
    rig.kill_broker(OURS)
    rig.restart_broker(OURS, properties={key: login(mechanism, "wr0ng")})

    def says_why() -> bool:
        return any(
            "from leader 1" in line and "authentication failed" in line for line in rig.log_lines(OURS)
        )

    wait_until(says_why, timeout=TIMEOUT, what="the follower says why")
    assert not [line for line in rig.log_lines(OURS) if "wr0ng" in line or PASSWORD in line]
    rig.kill_broker(OURS)
    rig.restart_broker(OURS, properties={})
    wait_until_in_sync(rig, timeout=TIMEOUT)

"""JVM brokers and one of the package in one cluster whose brokers authenticate to each other."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, Producer

from ctrlchan import ControllerConfig
from ctrlchan.controller.settings.properties import settings_of
from ctrlchan.embedded.certificates import Certificates
from tests.acceptance.controller.agreement import wait_until_in_sync
from tests.acceptance.controller.cluster import BROKER_PROPERTIES, ControlledCluster
from tests.acceptance.controller.load import Load
from tests.kafka.jars import java_command
from tests.kafka.kdc import login_module, running_kdc
from tests.kafka.rig import KafkaRig
from tests.kafka.waiting import wait_until

pytestmark = pytest.mark.long

JVM, OURS = (1, 2), 3
TIMEOUT = 120.0
USER, PASSWORD, WRONG_PASSWORD = "broker", "s3cret of brokers", "wr0ng"
LISTENER = "INTERNAL"
#: Mechanism of the brokers' listener -> its security protocol.
PROTOCOLS = {"PLAIN": "SASL_PLAINTEXT", "SCRAM-SHA-512": "SASL_SSL", "GSSAPI": "SASL_SSL"}
#: The first part of the brokers' Kerberos principal: a rule makes the user's name of it.
SERVICE = "messages"
PRINCIPAL = f"{SERVICE}/localhost"
#: Milliseconds after which a broker has to authenticate again.
SESSION = "4000"


class Login(NamedTuple):
    """How brokers prove themselves. ``secret``: a password, or the file of a keytab with GSSAPI."""

    mechanism: str
    secret: str

    def properties(self, secret: str | None = None) -> dict[str, str]:
        """The JAAS entry of a broker: its own side as a client, and for PLAIN its users."""
        key = f"listener.name.{LISTENER.lower()}.{self.mechanism.lower()}.sasl.jaas.config"
        if self.mechanism == "GSSAPI":
            return {key: login_module(self.secret, PRINCIPAL), "sasl.kerberos.service.name": SERVICE}
        module = "plain.PlainLoginModule" if self.mechanism == "PLAIN" else "scram.ScramLoginModule"
        options = {"username": USER, "password": secret or self.secret}
        if self.mechanism == "PLAIN":
            options[f"user_{USER}"] = self.secret
        words = " ".join(f'{name}="{value}"' for name, value in options.items())
        return {key: f"org.apache.kafka.common.security.{module} required {words};"}

    def wrong_properties(self) -> dict[str, str]:
        """What a broker has that cannot log in, and lets others in."""
        if self.mechanism == "GSSAPI":
            return {"sasl.kerberos.service.name": "nobody"}
        return self.properties(WRONG_PASSWORD)


@pytest.fixture(scope="module", params=PROTOCOLS)
def login(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Login]:
    if request.param != "GSSAPI":
        yield Login(request.param, PASSWORD)
        return
    with running_kdc(tmp_path_factory.mktemp("kdc"), [PRINCIPAL]) as kdc:
        yield Login(request.param, kdc.keytab)


def inter_broker_properties(login: Login, folder: Path) -> dict[str, str]:
    """What secures the brokers' listener, in Kafka's keys."""
    prefix, mechanism, protocol = (
        f"listener.name.{LISTENER.lower()}.",
        login.mechanism,
        PROTOCOLS[login.mechanism],
    )
    properties = {
        "sasl.mechanism.inter.broker.protocol": mechanism,
        f"{prefix}sasl.enabled.mechanisms": mechanism,
        f"{prefix}connections.max.reauth.ms": SESSION,
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": f"User:{USER};User:ANONYMOUS",
        **login.properties(),
    }
    if protocol.endswith("SSL"):
        certificates = Certificates(folder)
        properties |= {
            f"{prefix}ssl.keystore.type": "PEM",
            f"{prefix}ssl.keystore.location": certificates.issue("broker", ["127.0.0.1"]),
            f"{prefix}ssl.truststore.type": "PEM",
            f"{prefix}ssl.truststore.location": certificates.ca_file,
            f"{prefix}ssl.client.auth": "required",
        }
    if mechanism == "GSSAPI":
        rule = f"RULE:[2:$1]({SERVICE})s/.*/{USER}/"
        properties["sasl.kerberos.principal.to.local.rules"] = rule
    return properties


def add_user(rig: KafkaRig) -> None:
    command = java_command(
        "kafka.admin.ConfigCommand",
        *("--zookeeper", rig.zookeeper_connect, "--alter", "--entity-type", "users", "--entity-name", USER),
        *("--add-config", f"SCRAM-SHA-512=[iterations=4096,password={PASSWORD}]"),
    )
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.fixture(scope="module")
def cluster(
    kafka_jars_ready: None, login: Login, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlledCluster]:
    folder = tmp_path_factory.mktemp("secure")
    (folder / "certificates").mkdir()
    properties = {
        **BROKER_PROPERTIES,
        "zookeeper.session.timeout.ms": "6000",
        **inter_broker_properties(login, folder / "certificates"),
    }
    with KafkaRig(
        folder / "rig",
        brokers=3,
        ours=(OURS,),
        inter_broker_listener=LISTENER,
        listeners={LISTENER: PROTOCOLS[login.mechanism]},
        properties=properties,
        before_brokers=add_user if login.mechanism.startswith("SCRAM") else None,
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


def test_why_a_broker_is_refused_is_in_its_log_until_it_is_mended(
    cluster: ControlledCluster, login: Login
) -> None:
    rig = cluster.rig
    cluster.create_topic("mended", [[1, OURS]])
    rig.kill_broker(OURS)
    rig.restart_broker(OURS, properties=login.wrong_properties())

    def says_why() -> bool:
        return any(
            "from leader 1" in line and "authentication failed" in line for line in rig.log_lines(OURS)
        )

    wait_until(says_why, timeout=TIMEOUT, what="the follower says why")
    assert not [line for line in rig.log_lines(OURS) if WRONG_PASSWORD in line or PASSWORD in line]
    rig.kill_broker(OURS)
    rig.restart_broker(OURS, properties={})
    wait_until_in_sync(rig, timeout=TIMEOUT)

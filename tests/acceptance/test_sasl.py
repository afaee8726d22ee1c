"""Clients that authenticate themselves with SASL at a broker that stores records."""

from __future__ import annotations

import base64
import json
import subprocess
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest

from ctrlchan import EmbeddedCluster
from ctrlchan.embedded.certificates import Certificates
from tests.acceptance.controller.tools import KafkaTools
from tests.acceptance.test_aiokafka import python  # noqa: F401  (a fixture)
from tests.kafka.waiting import wait_until

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.net.sasl.oauth import AbstractTokenProvider

pytestmark = pytest.mark.timeout(240)

#: Its types do not export what stands in its documentation.
ADMIN: Any = confluent_kafka.admin
AIOKAFKA = Path(__file__).with_name("aiokafka_sasl.py")
TOPIC = "secured"
PASSWORD = 'a "quoted", = \\ s3cret'
QUOTED = PASSWORD.replace("\\", "\\\\").replace('"', '\\"')
SESSION_MS = 1500
CONFIGS: dict[str, str | int | float] = {
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SASL_PLAINTEXT,SHORT:SASL_SSL",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
    "listener.name.secure.plain.sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        f'user_alice="{QUOTED}" user_bob="b";'
    ),
    "listener.name.secure.oauthbearer.sasl.jaas.config": (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
    ),
    "listener.name.short.plain.sasl.jaas.config": (
        f'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="{QUOTED}";'
    ),
    "listener.name.short.oauthbearer.sasl.jaas.config": (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
    ),
    "listener.name.short.connections.max.reauth.ms": SESSION_MS,
}
SCRAM = ["SCRAM-SHA-256", "SCRAM-SHA-512"]
MECHANISMS = ["PLAIN", *SCRAM, "OAUTHBEARER"]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def cluster(certificates: Certificates) -> Iterator[EmbeddedCluster]:
    listeners = {"SECURE": "127.0.0.1:0", "SHORT": "127.0.0.1:0"}
    stores = {"ssl.keystore.location": certificates.issue("broker", ["127.0.0.1"])}
    with EmbeddedCluster(more_listeners=listeners, configs=CONFIGS | stores) as cluster:
        cluster.create_topic(TOPIC, partitions=1)
        admin = ADMIN.AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        alter(
            admin,
            *(
                ADMIN.UserScramCredentialUpsertion(
                    "alice", ADMIN.ScramCredentialInfo(mechanism, 4096), PASSWORD.encode()
                )
                for mechanism in (ADMIN.ScramMechanism.SCRAM_SHA_256, ADMIN.ScramMechanism.SCRAM_SHA_512)
            ),
        )
        yield cluster


def alter(admin: Any, *changes: Any) -> None:
    for future in admin.alter_user_scram_credentials(list(changes)).values():
        future.result(30)


def address(cluster: EmbeddedCluster, listener: str) -> str:
    (broker,) = cluster.brokers
    (found,) = (one for one in broker.endpoints if one.listener == listener)
    return f"{found.host}:{found.port}"


def token(name: str = "alice", seconds: float = 3600) -> str:
    """Return a token that nobody has signed."""
    claims = {"sub": name, "iat": time.time() - 1, "exp": time.time() + seconds}
    parts = [json.dumps(part).encode() for part in ({"alg": "none"}, claims)]
    return ".".join([*(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts), ""])


def settings_of(cluster: EmbeddedCluster, mechanism: str, password: str = PASSWORD) -> dict[str, Any]:
    """Return the settings of a client of librdkafka at the listener SECURE."""
    found: dict[str, Any] = {
        "bootstrap.servers": address(cluster, "SECURE"),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
    }
    if mechanism == "OAUTHBEARER":
        return found | {"oauth_cb": lambda _: (token(seconds=3600), time.time() + 3600)}
    return found | {"sasl.username": "alice", "sasl.password": password}


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_confluent_kafka(cluster: EmbeddedCluster, mechanism: str) -> None:
    settings = settings_of(cluster, mechanism)
    producer = confluent_kafka.Producer(settings)
    producer.produce(TOPIC, f"c {mechanism}")
    assert producer.flush(60) == 0
    consumer = confluent_kafka.Consumer(
        settings | {"group.id": f"c-{mechanism}", "auto.offset.reset": "earliest"}
    )
    consumer.assign([confluent_kafka.TopicPartition(TOPIC, 0, 0)])
    seen: list[bytes | None] = []

    def arrived() -> bool:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            seen.append(message.value())
        return f"c {mechanism}".encode() in seen

    wait_until(arrived, what="the record")
    consumer.close()


class Tokens(AbstractTokenProvider):  # type: ignore[misc]
    def token(self) -> str:
        return token()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python(cluster: EmbeddedCluster, mechanism: str) -> None:
    settings: dict[str, Any] = {
        "bootstrap_servers": address(cluster, "SECURE"),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice",
        "sasl_plain_password": PASSWORD,
    }
    if mechanism == "OAUTHBEARER":
        settings["sasl_oauth_token_provider"] = Tokens()
    producer = KafkaProducer(**settings)
    producer.send(TOPIC, f"p {mechanism}".encode()).get(60)
    producer.close()
    consumer = KafkaConsumer(**settings, auto_offset_reset="earliest", consumer_timeout_ms=30_000)
    consumer.assign([TopicPartition(TOPIC, 0)])
    assert any(record.value == f"p {mechanism}".encode() for record in consumer)
    consumer.close()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_wrong_password(cluster: EmbeddedCluster, mechanism: str) -> None:
    errors: list[confluent_kafka.KafkaError] = []
    admin = ADMIN.AdminClient(settings_of(cluster, mechanism, "wrong") | {"error_cb": errors.append})
    with pytest.raises(confluent_kafka.KafkaException):
        admin.list_topics(timeout=5)
    admin.poll(1)
    assert any(one.code() == confluent_kafka.KafkaError._AUTHENTICATION for one in errors)
    assert PASSWORD not in str(errors)


def test_a_client_without_sasl(cluster: EmbeddedCluster) -> None:
    with pytest.raises(confluent_kafka.KafkaException):
        ADMIN.AdminClient({"bootstrap.servers": address(cluster, "SECURE")}).list_topics(timeout=3)


def test_scram_users_come_and_go(cluster: EmbeddedCluster) -> None:
    """Through the APIs of the secured listener itself, and without a restart."""
    admin = ADMIN.AdminClient(settings_of(cluster, "PLAIN"))
    info = ADMIN.ScramCredentialInfo(ADMIN.ScramMechanism.SCRAM_SHA_512, 8192)
    alter(admin, ADMIN.UserScramCredentialUpsertion("carol", info, b"c4rol"))
    described_users = admin.describe_user_scram_credentials(["carol"])
    described = described_users["carol"].result(30)
    assert [(one.mechanism, one.iterations) for one in described.scram_credential_infos] == [
        (ADMIN.ScramMechanism.SCRAM_SHA_512, 8192)
    ]
    carol = settings_of(cluster, "SCRAM-SHA-512") | {"sasl.username": "carol", "sasl.password": "c4rol"}

    def can_log_in() -> bool:
        try:
            return bool(ADMIN.AdminClient(carol).list_topics(timeout=3).topics)
        except confluent_kafka.KafkaException:
            return False

    wait_until(can_log_in, what="the new user")
    alter(admin, ADMIN.UserScramCredentialDeletion("carol", ADMIN.ScramMechanism.SCRAM_SHA_512))
    wait_until(lambda: not can_log_in(), what="the end of the user")


def test_kafka_configs(cluster: EmbeddedCluster, kafka_jars_ready: None, tmp_path: Path) -> None:
    """Kafka's tool makes a user; then, with Kafka's own client, it is that user and removes him."""
    user = ("--entity-type", "users", "--entity-name", "dave")
    with KafkaTools(tmp_path, cluster.bootstrap_servers) as tools:
        made = tools.configs(
            *user, "--alter", "--add-config", "SCRAM-SHA-256=[iterations=4096,password=d4ve]"
        )
        assert made.status == 0, made
    command = tmp_path / "client.properties"
    command.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="dave" password="d4ve";\n'
    )
    with KafkaTools(tmp_path, address(cluster, "SECURE")) as tools:
        gone = tools.configs(
            *user, "--alter", "--delete-config", "SCRAM-SHA-256", "--command-config", str(command)
        )
    assert gone.status == 0, gone


@pytest.mark.long
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka(cluster: EmbeddedCluster, python: Path, mechanism: str) -> None:  # noqa: F811
    command = [str(python), str(AIOKAFKA), address(cluster, "SECURE"), TOPIC, mechanism, token()]
    done = subprocess.run(command, input=PASSWORD, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]


@pytest.mark.parametrize(
    "mechanism", ["PLAIN", "OAUTHBEARER", *(pytest.param(one, marks=pytest.mark.long) for one in SCRAM)]
)
def test_a_client_renews_its_session(
    cluster: EmbeddedCluster, certificates: Certificates, mechanism: str
) -> None:
    """Over TLS; the connection stays."""
    errors: list[Any] = []
    settings = settings_of(cluster, mechanism) | {
        "bootstrap.servers": address(cluster, "SHORT"),
        "security.protocol": "SASL_SSL",
        # From memory, as programs have them that get their secrets from a vault.
        "ssl.ca.pem": Path(certificates.ca_file).read_text(),
        "enable.idempotence": True,
        "error_cb": errors.append,
    }
    producer = confluent_kafka.Producer(settings)
    delivered: list[Any] = []
    began = time.monotonic()
    sent = 0
    while time.monotonic() - began < 4 * SESSION_MS / 1000:
        producer.produce(TOPIC, f"s {sent}", on_delivery=lambda error, _: delivered.append(error))
        sent += 1
        assert producer.flush(30) == 0
        time.sleep(0.2)
    assert delivered == [None] * sent
    assert errors == []

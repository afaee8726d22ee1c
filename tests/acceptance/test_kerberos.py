"""GSSAPI of a broker with a real KDC: Java's clients, kafka-python, tokens by hand, our own connections."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import warnings
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode as KioError

from ctrlchan import EmbeddedCluster
from ctrlchan.broker.config.listener_configs import security_of
from ctrlchan.errors import ConfigError
from ctrlchan.protocol import SecurityProtocol
from ctrlchan.security.failure import ConnectionFailed, Failure
from ctrlchan.security.handshake import Handshake
from ctrlchan.security.settings import SaslSettings
from tests.kafka.jars import java_command
from tests.kafka.kdc import REALM, Kdc, login_module, running_kdc, with_wrong_keys
from tests.kafka.requirement import require_gssapi
from tests.kafka.wire import receive_frame, send_frame
from tests.unit.broker.local_broker import client_frame, read_client_response

gssapi = require_gssapi()

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its schemas so
    from kafka import KafkaConsumer, KafkaProducer

pytestmark = pytest.mark.timeout(400)

HANDSHAKE, AUTHENTICATE, API_VERSIONS, METADATA = 17, 36, 18, 3
BROKER = "kafka/localhost"
SESSION_MS = 3000
TOPIC = "orders"


@pytest.fixture(scope="module")
def kdc(tmp_path_factory: pytest.TempPathFactory, kafka_jars_ready: None) -> Iterator[Kdc]:
    """A KDC, and the environment of this process and its children for it."""
    with running_kdc(tmp_path_factory.mktemp("kdc"), ["alice", "bob/desk", BROKER, "other/localhost"]) as kdc:
        yield kdc


@pytest.fixture(scope="module")
def cluster(kdc: Kdc) -> Iterator[EmbeddedCluster]:
    """One broker; alice and Bob are super users."""
    configs: dict[str, str | int | float] = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT,SHORT:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "GSSAPI",
        "gssapi.sasl.jaas.config": login_module(kdc.keytab, BROKER),
        "sasl.kerberos.principal.to.local.rules": "RULE:[2:$1](bob)s/b/B/,DEFAULT",
        "listener.name.short.connections.max.reauth.ms": SESSION_MS,
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:ANONYMOUS;User:alice;User:Bob",
    }
    listeners = {"CLIENTS": "localhost:0", "SHORT": "localhost:0"}
    with EmbeddedCluster(configs=configs, more_listeners=listeners) as cluster:
        cluster.create_topic(TOPIC, partitions=1)
        yield cluster


def address(cluster: EmbeddedCluster, listener: str = "CLIENTS") -> tuple[str, int]:
    (broker,) = cluster.brokers
    (found,) = (one for one in broker.endpoints if one.listener == listener)
    return found.host, found.port


def connect(cluster: EmbeddedCluster, listener: str = "CLIENTS") -> closing[socket.socket]:
    return closing(socket.create_connection(address(cluster, listener), timeout=60))


def context(principal: str, *, mutual: bool = True, service: str = "kafka") -> Any:
    """Return the security context of a client that logs in with the keytab."""
    name = gssapi.Name(f"{principal}@{REALM}", gssapi.NameType.kerberos_principal)
    credentials = gssapi.Credentials(
        name=name, usage="initiate", store={"ccache": f"MEMORY:{principal}", "client_keytab": keytab()}
    )
    flags = gssapi.RequirementFlag.integrity
    if mutual:
        flags |= gssapi.RequirementFlag.mutual_authentication
    target = gssapi.Name(f"{service}@localhost", gssapi.NameType.hostbased_service)
    return gssapi.SecurityContext(
        name=target, creds=credentials, flags=flags, mech=gssapi.MechType.kerberos, usage="initiate"
    )


def keytab() -> str:
    return os.environ["KRB5_CLIENT_KTNAME"]


class Peer:
    """Exchanges tokens on a connection; ``version`` of SaslAuthenticate, None: without headers."""

    def __init__(self, connection: socket.socket, version: int | None) -> None:
        self.connection = connection
        self.version = version

    def handshake(self) -> None:
        version = 0 if self.version is None else 1
        answer = self.ask(HANDSHAKE, version, mechanism="GSSAPI")
        assert (answer.error_code, answer.mechanisms) == (KioError.none, ("GSSAPI",))

    def ask(self, api_key: int, version: int, **fields: Any) -> Any:
        send_frame(self.connection, client_frame(api_key, version, **fields))
        return read_client_response(api_key, version, receive_frame(self.connection))

    def authenticate(self, token: bytes) -> Any:
        assert self.version is not None
        return self.ask(AUTHENTICATE, self.version, auth_bytes=token)

    def token(self, token: bytes) -> bytes:
        if self.version is None:
            send_frame(self.connection, token)
            return bytes(receive_frame(self.connection))
        answer = self.authenticate(token)
        assert answer.error_code == KioError.none, answer.error_message
        return bytes(answer.auth_bytes)

    def log_in(self, client: Any) -> Any:
        """Go through the exchange; return the last answer of SaslAuthenticate."""
        answer = self.token(client.step(None))
        if not client.complete:
            answer = self.token(client.step(answer) or b"")
        offered = client.unwrap(answer).message
        assert offered == b"\1\0\0\0"
        chosen = client.wrap(b"\1\0\0\0", False).message
        if self.version is not None:
            return self.authenticate(chosen)
        send_frame(self.connection, chosen)
        return None

    def sees_topics(self) -> list[str]:
        answer = self.ask(METADATA, 4, topics=None, allow_auto_topic_creation=False)
        return [str(topic.name) for topic in answer.topics]


@pytest.mark.parametrize("mutual", [True, False])
@pytest.mark.parametrize("version", [None, 0, 1, 2])
def test_tokens_in_all_versions(cluster: EmbeddedCluster, version: int | None, mutual: bool) -> None:
    with connect(cluster) as connection:
        peer = Peer(connection, version)
        peer.handshake()
        answer = peer.log_in(context("alice", mutual=mutual))
        assert answer is None or answer.error_code == KioError.none
        assert peer.sees_topics() == [TOPIC]


def test_a_client_of_kafka_0_9(cluster: EmbeddedCluster) -> None:
    with connect(cluster) as connection:
        peer = Peer(connection, None)
        peer.log_in(context("alice"))
        assert peer.sees_topics() == [TOPIC]


def test_users_have_the_names_of_the_rules(cluster: EmbeddedCluster) -> None:
    """Bob's principal is bob/desk@EXAMPLE.COM; the broker's own is no super user."""
    for principal, topics in (("bob/desk", [TOPIC]), ("kafka/localhost", [])):
        with connect(cluster) as connection:
            peer = Peer(connection, 2)
            peer.handshake()
            assert peer.log_in(context(principal)).error_code == KioError.none
            assert peer.sees_topics() == topics


def test_tickets_that_are_refused(cluster: EmbeddedCluster) -> None:
    """A ticket for another service, a token that is none, a token that was changed."""
    changed = bytearray(context("alice").step(None))
    changed[-1] ^= 1
    for token in (context("alice", service="other").step(None), b"\x60nonsense", bytes(changed), b""):
        with connect(cluster) as connection:
            peer = Peer(connection, 2)
            peer.handshake()
            answer = peer.authenticate(token)
            assert answer.error_code == KioError.sasl_authentication_failed
            assert answer.error_message.endswith("invalid credentials with SASL mechanism GSSAPI")


def test_a_token_that_is_shown_again_ends_the_connection_alone(cluster: EmbeddedCluster) -> None:
    token = context("alice").step(None)
    with connect(cluster) as connection:
        first = Peer(connection, 2)
        first.handshake()
        assert first.token(token)
    with connect(cluster) as connection:
        second = Peer(connection, 2)
        second.handshake()
        with pytest.raises(ConnectionError):
            second.authenticate(token)


def test_a_session_is_renewed(cluster: EmbeddedCluster) -> None:
    with connect(cluster, "SHORT") as connection:
        peer = Peer(connection, 2)
        peer.handshake()
        assert peer.log_in(context("alice")).session_lifetime.total_seconds() == SESSION_MS / 1000
        peer.handshake()
        assert peer.log_in(context("alice")).error_code == KioError.none
        assert peer.sees_topics() == [TOPIC]
    with connect(cluster, "SHORT") as connection:
        peer = Peer(connection, 2)
        peer.handshake()
        peer.log_in(context("alice"))
        peer.handshake()
        answer = peer.log_in(context("bob/desk"))
        assert answer.error_message.startswith("Cannot change principals during re-authentication")


# -- clients


def test_kafka_python(cluster: EmbeddedCluster) -> None:
    host, port = address(cluster)
    settings: dict[str, Any] = {
        "bootstrap_servers": f"{host}:{port}",
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "GSSAPI",
        "sasl_kerberos_service_name": "kafka",
        "sasl_kerberos_domain_name": "localhost",
    }
    producer = KafkaProducer(**settings)
    try:
        producer.send(TOPIC, b"of kafka-python").get(60)
    finally:
        producer.close()
    consumer = KafkaConsumer(TOPIC, auto_offset_reset="earliest", consumer_timeout_ms=60_000, **settings)
    try:
        assert any(message.value == b"of kafka-python" for message in consumer)
    finally:
        consumer.close()


def java_settings(file: Path, login: str) -> str:
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=GSSAPI\nsasl.kerberos.service.name=kafka\n"
        f"sasl.jaas.config={login}\n"
    )
    return str(file)


def test_java(cluster: EmbeddedCluster, kdc: Kdc, tmp_path: Path) -> None:
    """A producer that renews its sessions, and one whose ticket is for a broker of another name."""
    host, port = address(cluster, "SHORT")

    def produce(file: str, records: int, *options: str) -> subprocess.CompletedProcess[str]:
        command = java_command(
            "org.apache.kafka.tools.ProducerPerformance",
            *("--topic", TOPIC, "--num-records", str(records), "--record-size", "10", "--throughput", "10"),
            *("--producer.config", file, "--producer-props", f"bootstrap.servers={host}:{port}", *options),
        )
        return subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)

    settings = java_settings(tmp_path / "alice.properties", login_module(kdc.keytab, "alice"))
    done = produce(settings, 60)
    assert "60 records sent" in done.stdout, done.stdout + done.stderr
    other = "sasl.kerberos.service.name=other"
    refused = produce(settings, 1, other, "max.block.ms=20000")
    assert "invalid credentials with SASL mechanism GSSAPI" in refused.stdout + refused.stderr


# -- our own connections


def shake_hands(cluster: EmbeddedCluster, sasl: SaslSettings) -> Handshake:
    """Log in as the channel, fetchers and the controller's clients do."""
    host, port = address(cluster)
    handshake = Handshake("ours", negotiate=True, sasl=sasl, host=host)
    with closing(socket.create_connection((host, port), timeout=60)) as connection:
        data = handshake.start()
        while not handshake.done:
            connection.sendall(data)
            received = connection.recv(65536)
            assert received
            data = handshake.receive(received)
    return handshake


def test_our_own_side(cluster: EmbeddedCluster, kdc: Kdc) -> None:
    def sasl(principal: str, service: str = "kafka") -> SaslSettings:
        return SaslSettings(
            mechanism="GSSAPI", principal=f"{principal}@{REALM}", keytab=kdc.keytab, service=service
        )

    assert shake_hands(cluster, sasl("alice")).done
    stale = SaslSettings(
        mechanism="GSSAPI", principal=f"alice@{REALM}", keytab=str(with_wrong_keys(Path(kdc.keytab)))
    )
    for wrong, reason in (
        (sasl("nobody"), "nobody"),
        (stale, rf"no ticket for alice@{REALM} \(keytab .*\.wrong\): .*(failed|decrypt|incorrect)"),
        (sasl("alice", "nothing"), "not found in Kerberos database"),
        (sasl("alice", "other"), "invalid credentials with SASL mechanism GSSAPI"),
    ):
        with pytest.raises(ConnectionFailed, match=reason) as failed:
            shake_hands(cluster, wrong)
        assert failed.value.failure is Failure.AUTHENTICATION


def test_a_keytab_that_cannot_be_used(kdc: Kdc, tmp_path: Path) -> None:
    def security(file: str, principal: str) -> None:
        configs = {
            "sasl.enabled.mechanisms": "GSSAPI",
            "listener.name.clients.gssapi.sasl.jaas.config": login_module(file, principal),
        }
        security_of(configs, "CLIENTS", SecurityProtocol.SASL_PLAINTEXT)

    security(kdc.keytab, BROKER)
    key = r"listener\.name\.clients\.gssapi\.sasl\.jaas\.config"
    with pytest.raises(ConfigError, match=rf"{key}: .*has no key of nobody@{REALM} that can be used: No key"):
        security(kdc.keytab, "nobody")
    with pytest.raises(
        ConfigError, match=rf"{key}: .*none.keytab has no key of {BROKER}.*(not found|No such)"
    ):
        security(str(tmp_path / "none.keytab"), BROKER)
    damaged = tmp_path / "damaged.keytab"
    damaged.write_bytes(struct.pack(">HI", 0x0502, 1 << 30))
    with pytest.raises(ConfigError, match=rf"{key}: "):
        security(str(damaged), BROKER)

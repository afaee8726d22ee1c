"""Real brokers that want certificates, passwords, or both, a listener for each; and one for the controller.

One rig of two brokers has them all. The channel's settings are read from properties in Kafka's own names.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)
from cryptography.x509 import load_pem_x509_certificate
from kazoo.client import KazooClient

from ctrlchan import ChannelConfig, ControllerBrokerRequestBatch, ControllerChannelManager, Outcome
from ctrlchan._codec import UPDATE_METADATA
from ctrlchan.config.properties_file import PropertiesFile
from ctrlchan.errors import ErrorCode
from ctrlchan.peers.connection import PeerConnection
from ctrlchan.peers.messages import decode_answer, encode_request
from ctrlchan.peers.requests import OutgoingRequest
from ctrlchan.peers.security import PeerSecurity, SetupError
from ctrlchan.protocol import SecurityProtocol
from ctrlchan.security.client_properties import client_security
from ctrlchan.security.failure import Failure
from ctrlchan.security.listener_properties import ListenerProperties
from tests.acceptance.clients import TopicView, metadata
from tests.acceptance.frames import TRUE_HEAD, Row, Topic, control_errors, control_frame
from tests.acceptance.recordings import target_of
from tests.acceptance.test_push import ctrlchan
from tests.acceptance.zk_controller import ZkController, refused
from tests.acceptance.znodes import ControllerZnodes
from tests.fault.channels import eventually
from tests.kafka.jars import java_command
from tests.kafka.rig import KafkaRig
from tests.kafka.waiting import wait_until
from tests.kafka.wire import exchange

DESCRIBE_CLUSTER = OutgoingRequest(
    60,
    range(1),
    0,
    lambda version: encode_request("describe_cluster", version, include_cluster_authorized_operations=False),
)
TOPIC = "secured"
ASSIGNMENT = {0: [1, 2], 1: [2, 1], 2: [1]}
PASSWORD = 'a "quoted" \\ s3cret'
STORE_PASSWORD = "changeit"
SESSION = 1.5  # s; how long a password is good for on one of the listeners
LISTENERS = {
    "SSL": "SSL",
    "PLAIN": "SASL_PLAINTEXT",
    "SCRAM": "SASL_SSL",
    "TOKENS": "SASL_PLAINTEXT",
    "CONTROLLER": "SASL_SSL",
}


@dataclass(frozen=True)
class Secured:
    controller: ZkController
    properties: dict[str, str]
    views: dict[int, TopicView]
    snapshot: Path
    folder: Path

    @property
    def rig(self) -> KafkaRig:
        return self.controller.kafka

    def of(self, listener: str, **more: str) -> dict[str, str]:
        """The brokers' properties, with this one as their inter-broker listener."""
        properties = dict(self.properties)
        properties.pop("control.plane.listener.name")
        return properties | {"inter.broker.listener.name": listener} | more


def quoted(password: str) -> str:
    return password.replace("\\", "\\\\").replace('"', '\\"')


def jaas(module: str, users: str = "") -> str:
    password = quoted(PASSWORD)
    return (
        f'org.apache.kafka.common.security.{module} required username="admin" password="{password}"{users};'
    )


def broker_properties(folder: Path) -> dict[str, str]:
    """The security settings of a broker's server.properties, and the files that they name."""
    ca = trustme.CA()
    ca.cert_pem.write_to_path(folder / "ca.pem")
    issued = ca.issue_cert("127.0.0.1")
    key = load_pem_private_key(issued.private_key_pem.bytes(), None)
    assert isinstance(key, EllipticCurvePrivateKey)
    chain = b"".join(pem.bytes() for pem in issued.cert_chain_pems)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + chain
    (folder / "broker.pem").write_bytes(pem)
    store = pkcs12.serialize_key_and_certificates(
        b"broker",
        key,
        load_pem_x509_certificate(chain),
        None,
        BestAvailableEncryption(STORE_PASSWORD.encode()),
    )
    (folder / "broker.p12").write_bytes(store)
    plain = jaas("plain.PlainLoginModule", f' user_admin="{quoted(PASSWORD)}"')
    scram = jaas("scram.ScramLoginModule")
    return {
        "control.plane.listener.name": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,"
        + ",".join(f"{name}:{protocol}" for name, protocol in LISTENERS.items()),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "broker.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
        "listener.name.ssl.ssl.client.auth": "required",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.plain.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.plain.connections.max.reauth.ms": str(int(SESSION * 1000)),
        "listener.name.plain.sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.plain.plain.sasl.jaas.config": plain,
        "listener.name.tokens.sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.tokens.connections.max.reauth.ms": str(int(SESSION * 1000)),
        "listener.name.tokens.sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        "listener.name.tokens.oauthbearer.sasl.jaas.config": jaas(
            "oauthbearer.OAuthBearerLoginModule",
            ' unsecuredLoginStringClaim_sub="admin" unsecuredLoginLifetimeSeconds="60"',
        ),
        "listener.name.scram.scram-sha-512.sasl.jaas.config": scram,
        "listener.name.controller.scram-sha-512.sasl.jaas.config": scram,
    }


def add_scram_user(rig: KafkaRig) -> None:
    """As an administrator does before the brokers are there."""
    command = java_command(
        "kafka.admin.ConfigCommand",
        *(
            "--zookeeper",
            rig.zookeeper_connect,
            "--alter",
            "--entity-type",
            "users",
            "--entity-name",
            "admin",
        ),
        *("--add-config", f"SCRAM-SHA-512=[iterations=8192,password={PASSWORD}]"),
    )
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def properties_file(path: Path, properties: dict[str, str]) -> Path:
    """Written as ``java.util.Properties`` reads it."""
    escaped = {key: value.replace("\\", "\\\\") for key, value in properties.items()}
    path.write_text("# a broker's file\n" + "".join(f"{key}={value}\n" for key, value in escaped.items()))
    return path


@pytest.fixture(scope="module")
def secured(kafka_jars_ready: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    properties = broker_properties(folder)
    escaped = {key: value.replace("\\", "\\\\") for key, value in properties.items()}
    with KafkaRig(
        folder / "rig", brokers=2, listeners=LISTENERS, properties=escaped, before_brokers=add_scram_user
    ) as rig:
        client = KazooClient(hosts=rig.zookeeper_connect, timeout=30.0)
        client.start(timeout=30)
        try:
            wait_until(lambda: rig.jvm_controller() is not None, what="a JVM controller is elected")
            znodes = ControllerZnodes(client, 1000)
            znodes.take_over()
            with ZkController(rig, znodes) as controller:
                assert refused(controller.fail_over()) == []
                assert refused(controller.create_topic(TOPIC, ASSIGNMENT)) == []
                views = {i: metadata(rig, i, [TOPIC])[TOPIC] for i in rig.broker_ids}
                ctrlchan("snapshot", "import", "--zookeeper", rig.zookeeper_connect, str(folder / "snapshot"))
                yield Secured(controller, properties, views, folder / "snapshot", folder)
        finally:
            client.stop()
            client.close()


def forget(secured: Secured) -> None:
    """Remove a topic from the metadata of every broker."""
    rig, znodes = secured.rig, secured.controller.znodes
    rows = [Row(Topic(TOPIC), partition, leader=-2) for partition in ASSIGNMENT]
    for broker_id in rig.broker_ids:
        address = rig.broker(broker_id).endpoint("PLAINTEXT")
        frame = control_frame(target_of(rig, znodes, broker_id), UPDATE_METADATA, 8, rows, TRUE_HEAD)
        assert control_errors(UPDATE_METADATA, 8, exchange(address.host, address.port, frame)) == (0, {})
        assert metadata(rig, broker_id, [TOPIC])[TOPIC].error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def push(secured: Secured, properties: dict[str, str]) -> list[str]:
    """Outcomes of ``ctrlchan push`` with these as the operator's file; metadata is right afterwards."""
    forget(secured)
    file = properties_file(secured.folder / "server.properties", properties)
    words = ctrlchan(
        *("push", str(secured.snapshot), "--config", str(file), "--take-over", "--json"),
        *("--controller-id", str(secured.controller.znodes.controller_id)),
    )
    assert PASSWORD not in words
    for broker_id, view in secured.views.items():
        assert metadata(secured.rig, broker_id, [TOPIC])[TOPIC] == view
    return [outcome["outcome"] for outcome in json.loads(words)["outcomes"]]


@pytest.mark.parametrize("listener", ["SSL", "PLAIN", "SCRAM", "TOKENS"])
def test_a_push_over_a_listener(secured: Secured, listener: str) -> None:
    assert push(secured, secured.of(listener)) == ["acknowledged"] * 2


def test_a_push_over_the_control_plane_listener(secured: Secured) -> None:
    assert push(secured, secured.properties) == ["acknowledged"] * 2
    with channel(secured, secured.properties) as connected:
        endpoints = {i: b["endpoint"] for i, b in connected.describe()["brokers"].items()}
    controller = {i: secured.rig.broker(i).endpoint("CONTROLLER") for i in secured.rig.broker_ids}
    assert endpoints == {i: f"{e.host}:{e.port}" for i, e in controller.items()}


def test_stores_made_by_java(secured: Secured) -> None:
    """A PKCS#12 trust store from keytool, and a key store."""
    keytool = shutil.which("keytool")
    assert keytool is not None
    trust = secured.folder / "trust.p12"
    subprocess.run(
        [
            *(keytool, "-importcert", "-noprompt", "-alias", "ca", "-storetype", "PKCS12"),
            *("-file", str(secured.folder / "ca.pem"), "-keystore", str(trust)),
            *("-storepass", STORE_PASSWORD),
        ],
        check=True,
        capture_output=True,
        timeout=60,
    )
    stores = {
        "listener.name.ssl.ssl.truststore.type": "PKCS12",
        "listener.name.ssl.ssl.truststore.location": str(trust),
        "listener.name.ssl.ssl.truststore.password": STORE_PASSWORD,
        "listener.name.ssl.ssl.keystore.type": "PKCS12",
        "listener.name.ssl.ssl.keystore.location": str(secured.folder / "broker.p12"),
        "listener.name.ssl.ssl.keystore.password": STORE_PASSWORD,
    }
    assert push(secured, secured.of("SSL", **stores)) == ["acknowledged"] * 2


def test_brokers_are_asked_for_their_versions(secured: Secured) -> None:
    with channel(secured, secured.of("SCRAM"), negotiate=True) as connected:
        assert refused(rounds(secured, connected, 3)) == []
        for broker in connected.describe()["brokers"].values():
            assert broker["versions"] == {
                "LeaderAndIsr": (0, 7),
                "StopReplica": (0, 4),
                "UpdateMetadata": (0, 8),
            }


def test_a_session_that_ends_costs_no_attempt(secured: Secured) -> None:
    with channel(secured, secured.of("PLAIN")) as connected:
        outcomes = rounds(secured, connected, 3, pause=SESSION)
        assert refused(outcomes) == []
        assert {outcome.attempts for outcome in outcomes} == {1}


def rounds(
    secured: Secured, connected: ControllerChannelManager, count: int, *, pause: float = 0
) -> list[Outcome]:
    """Full metadata to all brokers, so many times, with seconds between."""
    batch = ControllerBrokerRequestBatch(connected, secured.controller.state)
    outcomes = []
    for turn in range(count):
        sleep(pause if turn else 0)
        batch.new_batch()
        batch.add_update_metadata(secured.rig.broker_ids, rows="all")
        sent = batch.send_requests_to_brokers(secured.controller.znodes.controller_epoch)
        outcomes += connected.wait(sent, 60)
    return outcomes


REFUSALS: dict[str, tuple[str, dict[str, str], str]] = {
    "no certificate of ours": (
        "SSL",
        {"ssl.keystore.type": "PEM", "ssl.keystore.location": ""},
        Failure.TLS.text,
    ),
    "wrong PLAIN password": (
        "PLAIN",
        {
            "listener.name.plain.plain.sasl.jaas.config": "x.PlainLoginModule required "
            "username=admin password=wr0ng;"
        },
        f"{Failure.AUTHENTICATION.text}: Authentication failed: Invalid username or password",
    ),
    "wrong SCRAM password": (
        "SCRAM",
        {
            "listener.name.scram.scram-sha-512.sasl.jaas.config": "x.ScramLoginModule required "
            "username=admin password=wr0ng;"
        },
        f"{Failure.AUTHENTICATION.text}: Authentication failed during authentication due to invalid "
        "credentials with SASL mechanism SCRAM-SHA-512",
    ),
    "another mechanism": (
        "SCRAM",
        {
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "plain.sasl.jaas.config": "x.PlainLoginModule required username=admin password=wr0ng;",
        },
        f"{Failure.MECHANISM.text}: PLAIN; it has: SCRAM-SHA-512",
    ),
}


def peer(secured: Secured, listener: str, properties: dict[str, str]) -> PeerConnection:
    """A connection of a node to the first broker, with a node's settings."""
    entries = ListenerProperties(PropertiesFile.read(properties), listener)
    security = PeerSecurity(*client_security(entries, SecurityProtocol[LISTENERS[listener]]))
    address = secured.rig.broker(1).endpoint(listener)
    return PeerConnection((address.host, address.port), b"peer", security=security)


def ask_cluster_id(connection: PeerConnection) -> str:
    answer = connection.ask(DESCRIBE_CLUSTER, monotonic() + 30)
    assert answer is not None
    return str(decode_answer("describe_cluster", *answer).cluster_id)


@pytest.mark.parametrize("listener", ["SSL", "PLAIN", "SCRAM", "TOKENS"])
def test_a_node_asks_over_a_listener(secured: Secured, listener: str) -> None:
    with closing(peer(secured, listener, secured.properties)) as connection:
        before = ask_cluster_id(connection)
        # Of two listeners the session ends meanwhile: it is renewed on its connection.
        sleep(SESSION + 0.5)
        assert ask_cluster_id(connection) == before != ""


@pytest.mark.parametrize("case", REFUSALS)
def test_a_node_has_the_brokers_reason(secured: Secured, case: str) -> None:
    listener, more, words = REFUSALS[case]
    properties = secured.of(listener, **more)
    with pytest.raises(SetupError) as raised, closing(peer(secured, listener, properties)) as connection:
        ask_cluster_id(connection)
    assert words in str(raised.value)
    assert "wr0ng" not in str(raised.value)


@pytest.mark.parametrize("case", REFUSALS)
def test_the_error_has_the_brokers_reason(secured: Secured, case: str) -> None:
    listener, more, words = REFUSALS[case]
    with channel(secured, secured.of(listener, **more)) as connected:
        batch = ControllerBrokerRequestBatch(connected, secured.controller.state)
        batch.new_batch()
        batch.add_update_metadata([1], rows=())
        [sent] = batch.send_requests_to_brokers(secured.controller.znodes.controller_epoch)
        eventually(lambda: words in connected.describe()["brokers"][1]["last_error"], 30)
        assert not sent.done
        assert "wr0ng" not in repr(connected.describe()) + repr(connected.config)


def channel(secured: Secured, properties: dict[str, str], **settings: Any) -> ControllerChannelManager:
    """A channel to the rig's brokers, which has begun."""
    znodes = secured.controller.znodes
    config = ChannelConfig.from_properties(properties, controller_id=znodes.controller_id, **settings)
    made = ControllerChannelManager(config, controller_epoch=znodes.controller_epoch)
    made.startup(secured.controller.state.brokers)
    return made

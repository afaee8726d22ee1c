"""Kafka's Java clients from 0.11 to 4.1 over TLS and SASL, at brokers that store records and authorize.

Each version has one JVM, which runs the programs of ``java_clients`` one after the other.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key
from cryptography.hazmat.primitives.serialization.pkcs12 import (
    PKCS12Certificate,
    serialize_java_truststore,
    serialize_key_and_certificates,
)
from cryptography.x509 import load_pem_x509_certificate

from ctrlchan import EmbeddedCluster
from ctrlchan.embedded.certificates import Certificates
from tests.acceptance.controller.tools import KafkaTools
from tests.acceptance.either_cluster import CONFIGS
from tests.acceptance.test_java_clients import jars
from tests.kafka.jars import class_path, kafka_jars
from tests.kafka.waiting import wait_until

pytestmark = pytest.mark.timeout(300)

#: Its types do not export what stands in its documentation.
ADMIN: Any = confluent_kafka.admin
SOURCES = Path(__file__).with_name("java_clients")
#: The version whose jars other tests have fetched already.
QUICK = "3.9.1"
VERSIONS = [
    version if version == QUICK else pytest.param(version, marks=pytest.mark.long)
    for version in ("0.11.0.3", "1.1.1", "2.0.1", "2.8.2", "3.3.2", QUICK, "4.1.0")
]
FIRST_WITH_ERRORS, FIRST_WITH_TOKENS, FIRST_WITH_RENEWAL = (1, 0), (2, 0), (2, 2)
FIRST_WITH_PEM, FIRST_WITH_TOKEN_ENDPOINT = (2, 7), (3, 1)

TOPIC = "of-alice"
PASSWORD = "a 's3cret', = $1"
STORE_PASSWORD = "changeit"
SESSION_MS = 1_500
SECONDS = 8  # of a client that renews its session: more than four sessions
CLASSES = "org.apache.kafka.common.security"
MODULES = {
    "PLAIN": f"{CLASSES}.plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{CLASSES}.scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{CLASSES}.scram.ScramLoginModule",
    "OAUTHBEARER": f"{CLASSES}.oauthbearer.OAuthBearerLoginModule",
}
#: Listener -> security protocol. SHORT has short sessions, SIGNED takes signed tokens.
LISTENERS = {
    "SSL": "SSL",
    "SASL_PLAINTEXT": "SASL_PLAINTEXT",
    "SASL_SSL": "SASL_SSL",
    "SHORT": "SASL_SSL",
    "SIGNED": "SASL_SSL",
}
WAYS = [
    ("SSL", ""),
    *((listener, mechanism) for listener in ("SASL_PLAINTEXT", "SASL_SSL") for mechanism in MODULES),
    ("SIGNED", "OAUTHBEARER"),
]
QUICK_WAY = ("SASL_SSL", "SCRAM-SHA-512")


@dataclass(frozen=True)
class Secured:
    """A cluster with all listeners, and the files of its clients."""

    cluster: EmbeddedCluster
    folder: Path

    def settings(self, version: str, listener: str, mechanism: str, user: str = "alice") -> dict[str, str]:
        """Return the settings of a Java client. The user ``wrong`` is alice with a wrong password."""
        protocol = LISTENERS[listener]
        found = {
            "bootstrap.servers": self.cluster.bootstrap_servers_of(listener),
            "security.protocol": protocol,
        }
        if protocol.endswith("SSL"):
            kind = "PEM" if parsed(version) >= FIRST_WITH_PEM else "PKCS12"
            found |= self._store("truststore", kind, "authority")
            if protocol == "SSL" and user != "wrong":
                found |= self._store("keystore", kind, user)
        if mechanism:
            found["sasl.mechanism"] = mechanism
            found["sasl.jaas.config"] = f"{MODULES[mechanism]} required {login(mechanism, user)};"
        if listener == "SIGNED":
            found["sasl.oauthbearer.token.endpoint.url"] = (self.folder / f"{user}.jwt").as_uri()
            found["sasl.login.callback.handler.class"] = (
                f"{CLASSES}.oauthbearer.OAuthBearerLoginCallbackHandler"
                if parsed(version) >= (3, 4)
                else f"{CLASSES}.oauthbearer.secured.OAuthBearerLoginCallbackHandler"
            )
        return found

    def _store(self, name: str, kind: str, file: str) -> dict[str, str]:
        found = {
            f"ssl.{name}.type": kind,
            f"ssl.{name}.location": str(self.folder / f"{file}.{'pem' if kind == 'PEM' else 'p12'}"),
        }
        return found if kind == "PEM" else found | {f"ssl.{name}.password": STORE_PASSWORD}


def parsed(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def login(mechanism: str, user: str) -> str:
    """Return the options of the login module."""
    if mechanism == "OAUTHBEARER":
        return "" if user == "wrong" else f'unsecuredLoginStringClaim_sub="{user}"'
    name, password = ("alice", "wr0ng") if user == "wrong" else (user, PASSWORD)
    return f'username="{name}" password="{password}"'


def make_files(folder: Path) -> dict[str, str]:
    """Make the stores, the tokens and their keys; return the settings of the brokers about them."""
    certificates = Certificates(folder)
    authority = Path(certificates.ca_file).rename(folder / "authority.pem")
    trusted = PKCS12Certificate(load_pem_x509_certificate(authority.read_bytes()), b"authority")
    encryption = BestAvailableEncryption(STORE_PASSWORD.encode())
    (folder / "authority.p12").write_bytes(serialize_java_truststore([trusted], encryption))
    broker = certificates.issue("broker", ["127.0.0.1"])
    signer, stranger = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    for user in ("alice", "bob"):
        pem = Path(certificates.issue(user)).rename(folder / f"{user}.pem")
        key: Any = load_pem_private_key(pem.read_bytes(), None)
        store = serialize_key_and_certificates(
            user.encode(), key, load_pem_x509_certificate(pem.read_bytes()), None, encryption
        )
        (folder / f"{user}.p12").write_bytes(store)
    for user, by in {"alice": signer, "bob": signer, "wrong": stranger}.items():
        now = int(time.time())
        claims = {"sub": user, "iat": now, "exp": now + 3600}
        (folder / f"{user}.jwt").write_text(jwt.encode(claims, by, "ES256", {"kid": "k"}))
    jwk = jwt.algorithms.ECAlgorithm.to_jwk(signer.public_key(), as_dict=True) | {"kid": "k", "use": "sig"}
    keys = folder / "keys.json"
    keys.write_text(json.dumps({"keys": [jwk]}))
    return {
        "ssl.keystore.location": broker,
        "ssl.truststore.location": str(authority),
        "listener.name.ssl.ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/",
        "listener.name.signed.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
    }


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    configs: dict[str, str | int | float] = {
        **CONFIGS,
        "listener.security.protocol.map": ",".join(
            f"{name}:{protocol}" for name, protocol in {"PLAINTEXT": "PLAINTEXT", **LISTENERS}.items()
        ),
        "sasl.enabled.mechanisms": ",".join(MODULES),
        "listener.name.signed.sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.short.connections.max.reauth.ms": SESSION_MS,
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:alice;User:ANONYMOUS",
        **make_files(folder),
    }
    users = " ".join(f'user_{name}="{PASSWORD}"' for name in ("alice", "bob"))
    for listener, protocol in LISTENERS.items():
        if protocol.startswith("SASL"):
            prefix = f"listener.name.{listener.lower()}"
            configs[f"{prefix}.plain.sasl.jaas.config"] = f"{MODULES['PLAIN']} required {users};"
            configs[f"{prefix}.oauthbearer.sasl.jaas.config"] = f"{MODULES['OAUTHBEARER']} required;"
    listeners = dict.fromkeys(LISTENERS, "127.0.0.1:0")
    with EmbeddedCluster(3, more_listeners=listeners, configs=configs) as cluster:
        cluster.create_topic(TOPIC, partitions=1)
        add_scram_users(cluster)
        yield Secured(cluster, folder)


def add_scram_users(cluster: EmbeddedCluster) -> None:
    """Add alice and bob, and wait until each broker knows them."""
    admin = ADMIN.AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    mechanisms = (ADMIN.ScramMechanism.SCRAM_SHA_256, ADMIN.ScramMechanism.SCRAM_SHA_512)
    changes = [
        ADMIN.UserScramCredentialUpsertion(user, ADMIN.ScramCredentialInfo(one, 4096), PASSWORD.encode())
        for user in ("alice", "bob")
        for one in mechanisms
    ]
    for future in admin.alter_user_scram_credentials(changes).values():
        future.result(30)
    for server in cluster.bootstrap_servers_of("SASL_PLAINTEXT").split(","):
        settings = {"bootstrap.servers": server, "security.protocol": "SASL_PLAINTEXT", "log_level": 0}
        settings |= {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "bob", "sasl.password": PASSWORD}

        def knows_bob(settings: dict[str, Any] = settings) -> bool:
            try:
                return bool(ADMIN.AdminClient(settings).list_topics(timeout=2).brokers)
            except confluent_kafka.KafkaException:
                return False

        wait_until(knows_bob, what=f"{server} knows bob")


def logging_jars() -> str:
    """Return the jars with which any version of the client logs."""
    return os.pathsep.join(
        str(jar) for name in ("slf4j-reload4j", "reload4j") for jar in kafka_jars().glob(f"{name}-*")
    )


@dataclass(frozen=True)
class Java:
    """The JVM of one version of the client."""

    version: str
    tools: KafkaTools
    folder: Path

    def file(self, settings: Mapping[str, str]) -> str:
        path = self.folder / f"{len(list(self.folder.iterdir()))}.properties"
        path.write_text("".join(f"{key}={value}\n".replace("\\", "\\\\") for key, value in settings.items()))
        return str(path)

    def produce(self, settings: Mapping[str, str], seconds: int = 0) -> dict[str, list[str]]:
        """Run SlowProducer; return what it says by name."""
        run = self.tools.run_as_given("SlowProducer", self.file(settings), TOPIC, str(seconds))
        assert run.status == 0, run
        said: dict[str, list[str]] = {}
        for line in run.output.splitlines():
            name, _, value = line.partition("=")
            said.setdefault(name, []).append(value)
        return said


@pytest.fixture(scope="module", params=VERSIONS)
def java(
    request: pytest.FixtureRequest,
    kafka_jars_ready: None,
    secured: Secured,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Java]:
    version = request.param
    folder = tmp_path_factory.mktemp(f"java-{version}")
    path = class_path() if version == QUICK else f"{jars(version)}{os.sep}*{os.pathsep}{logging_jars()}"
    sources = (SOURCES / "Client.java", SOURCES / "SlowProducer.java")
    with KafkaTools(folder, "", sources=sources, path=path) as tools:
        yield Java(version, tools, folder)


def check_version(java: Java, listener: str, mechanism: str) -> None:
    """Skip what the version of the client does not have."""
    if mechanism == "OAUTHBEARER" and parsed(java.version) < FIRST_WITH_TOKENS:
        pytest.skip("OAUTHBEARER came with 2.0")
    if listener == "SIGNED" and parsed(java.version) < FIRST_WITH_TOKEN_ENDPOINT:
        pytest.skip("token endpoints came with 3.1")


def some_long(ways: list[tuple[str, str]]) -> list[Any]:
    return [way if way == QUICK_WAY else pytest.param(*way, marks=pytest.mark.long) for way in ways]


@pytest.mark.parametrize(("listener", "mechanism"), some_long(WAYS))
def test_it_can_all(java: Java, secured: Secured, listener: str, mechanism: str) -> None:
    """Topics, records, groups, transactions, configs: as without security."""
    check_version(java, listener, mechanism)
    settings = secured.settings(java.version, listener, mechanism)
    topic = f"{java.version}-{listener}-{mechanism}"
    run = java.tools.run_as_given("Client", settings["bootstrap.servers"], topic, java.file(settings))
    assert run.status == 0, run


@pytest.mark.parametrize(("listener", "mechanism"), some_long(WAYS))
def test_who_proves_nothing_gets_an_error(
    java: Java, secured: Secured, listener: str, mechanism: str
) -> None:
    """A wrong password, a token of another signer, no certificate: an AuthenticationException."""
    check_version(java, listener, mechanism)
    settings = secured.settings(java.version, listener, mechanism, user="wrong")
    knows_errors = parsed(java.version) >= FIRST_WITH_ERRORS
    # Before 1.0 clients had no error for it and tried until their time was over.
    settings["max.block.ms"] = "60000" if knows_errors else "3000"
    if mechanism == "OAUTHBEARER" and listener != "SIGNED":
        pytest.skip("anybody may have an unsecured token")
    said = java.produce(settings)
    error = "AuthenticationException" if knows_errors else "TimeoutException"
    assert said["sent"] == ["0"]
    assert any(one.endswith(error) for one in said["error"]), said


@pytest.mark.parametrize(("listener", "mechanism"), some_long(WAYS))
def test_a_user_is_who_he_is(java: Java, secured: Secured, listener: str, mechanism: str) -> None:
    """The authorizer denies to bob what alice may do."""
    check_version(java, listener, mechanism)
    said = java.produce(secured.settings(java.version, listener, mechanism, user="bob"))
    assert any(one.endswith("TopicAuthorizationException") for one in said["error"]), said
    assert "error" not in java.produce(secured.settings(java.version, listener, mechanism))


@pytest.mark.parametrize(
    "mechanism",
    ["SCRAM-SHA-512", *(pytest.param(one, marks=pytest.mark.long) for one in ("PLAIN", "OAUTHBEARER"))],
)
def test_a_session_is_renewed(java: Java, secured: Secured, mechanism: str) -> None:
    """On the same connection from 2.2 on; connections of older clients end, and no record is lost."""
    check_version(java, "SHORT", mechanism)
    settings = secured.settings(java.version, "SHORT", mechanism) | {"enable.idempotence": "true"}
    said = java.produce(settings, SECONDS)
    assert "error" not in said, said
    if parsed(java.version) >= FIRST_WITH_RENEWAL:
        renewed = float(said["successful-reauthentication-total"][0])
        assert renewed >= SECONDS * 1000 // SESSION_MS - 2, said
        assert float(said["connection-close-total"][0]) <= 1, said

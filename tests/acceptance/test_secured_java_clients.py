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
from tests.acceptance.secured_listeners import CLASSES, MODULES, ScramUser, add_scram_users, listener_configs
from tests.acceptance.test_java_clients import jars
from tests.kafka.jars import class_path, kafka_jars

pytestmark = pytest.mark.timeout(300)

SOURCES = Path(__file__).with_name("java_clients")
#: The version whose jars other tests have fetched already.
QUICK = "3.9.1"
VERSIONS = [
    version if version == QUICK else pytest.param(version, marks=pytest.mark.long)
    for version in ("0.11.0.3", "1.1.1", "2.0.1", "2.8.2", "3.3.2", QUICK, "4.1.0")
]
FIRST_WITH_ERRORS, FIRST_WITH_TOKENS, FIRST_WITH_RENEWAL = (1, 0), (2, 0), (2, 2)
#: PEM came with 2.7, keys without a password in it with 3.3.
FIRST_WITH_PEM, FIRST_WITH_TOKEN_ENDPOINT = (3, 3), (3, 1)

TOPIC = "of-alice"
USERS = ("alice", "bob")
PASSWORD = "a 's3cret', = $1"
STORE_PASSWORD = "changeit"
SESSION_MS = 1_500
SECONDS = 8  # of a client whose sessions end: more than four of them
RENEWALS = 3
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
    # With SASL, clients before 2.7 look up the name of the address, and check that one.
    broker = certificates.issue("broker", ["127.0.0.1", "localhost"])
    signer, stranger = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    for user in USERS:
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
        **listener_configs(LISTENERS, dict.fromkeys(USERS, PASSWORD)),
        "listener.name.signed.sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.short.connections.max.reauth.ms": SESSION_MS,
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:alice;User:ANONYMOUS",
        **make_files(folder),
    }
    listeners = dict.fromkeys(LISTENERS, "127.0.0.1:0")
    with EmbeddedCluster(3, more_listeners=listeners, configs=configs) as cluster:
        cluster.create_topic(TOPIC, partitions=1)
        users = [
            ScramUser(name, PASSWORD, one) for name in USERS for one in ("SCRAM-SHA-256", "SCRAM-SHA-512")
        ]
        add_scram_users(cluster, users, "SASL_PLAINTEXT")
        yield Secured(cluster, folder)


def more_jars() -> str:
    """Return the jars with which any version of the client logs and reads tokens of OAUTHBEARER."""
    names = ["slf4j-reload4j", "reload4j", "jose4j"]
    names += ["jackson-annotations", "jackson-core", "jackson-databind"]
    return os.pathsep.join(str(jar) for name in names for jar in kafka_jars().glob(f"{name}-*"))


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

    def produce(
        self, settings: Mapping[str, str], seconds: int = 0, renewals: int = 0
    ) -> dict[str, list[str]]:
        """Run SlowProducer; return what it says by name."""
        run = self.tools.run_as_given("SlowProducer", self.file(settings), TOPIC, str(seconds), str(renewals))
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
    path = class_path() if version == QUICK else f"{jars(version)}{os.sep}*{os.pathsep}{more_jars()}"
    sources = (SOURCES / "Client.java", SOURCES / "SlowProducer.java")
    # Clients from 4.0 on read tokens of these files alone.
    tokens = ",".join((secured.folder / f"{user}.jwt").as_uri() for user in (*USERS, "wrong"))
    options = (f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={tokens}",)
    with KafkaTools(folder, "", sources=sources, path=path, options=options) as tools:
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
    renews = parsed(java.version) >= FIRST_WITH_RENEWAL
    said = java.produce(settings, SECONDS, RENEWALS if renews else 0)
    assert "error" not in said, said
    if renews:
        assert float(said["successful-reauthentication-total"][0]) >= RENEWALS, said
        assert float(said["connection-close-total"][0]) <= 1, said

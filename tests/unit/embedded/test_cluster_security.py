"""The security of a cluster for tests: certificates, settings of brokers and of clients, ACLs as given."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ctrlchan import EmbeddedCluster
from ctrlchan.embedded.acls import Acl
from ctrlchan.embedded.certificates import Certificates
from ctrlchan.embedded.security import ClusterSecurity
from ctrlchan.errors import ConfigError
from ctrlchan.security.jaas import parse_jaas_config

SERVERS = "127.0.0.1:9092"
USERS = {"alice": 'a "quoted" \\ s3cret', "bob": "s3cret"}


@pytest.fixture(params=["SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def security(request: pytest.FixtureRequest) -> Iterator[ClusterSecurity]:
    made = ClusterSecurity(request.param, USERS, "127.0.0.1", authorizes=True)
    yield made
    made.close()


def test_both_sides_accept_the_certificates(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=certificates.ca_file)
    server.load_cert_chain(certificates.issue("broker", ["127.0.0.1", "localhost"]))
    server.verify_mode = ssl.CERT_REQUIRED
    client = ssl.create_default_context(cafile=certificates.ca_file)
    client.load_cert_chain(certificates.issue("alice"))
    ours, theirs = socket.socketpair()
    subjects: list[Any] = []

    def serve() -> None:
        with server.wrap_socket(theirs, server_side=True) as tls:
            subjects.append((tls.getpeercert() or {})["subject"])
            tls.send(b"!")

    thread = threading.Thread(target=serve)
    thread.start()
    with client.wrap_socket(ours, server_hostname="127.0.0.1") as tls:
        assert tls.recv(1) == b"!"
    thread.join()
    assert subjects == [((("commonName", "alice"),),)]
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}


def test_the_settings_of_brokers(security: ClusterSecurity) -> None:
    configs = security.configs({"super.users": "User:ops", "num.partitions": "3"})
    assert configs["super.users"] == "User:ANONYMOUS;User:ops"
    assert configs["num.partitions"] == "3"
    prefix = f"listener.name.{security.protocol.lower()}."
    assert (f"{prefix}ssl.keystore.location" in configs) == security.has_tls
    if security.has_sasl:
        (module,) = parse_jaas_config(configs[f"{prefix}plain.sasl.jaas.config"])
        assert module.options == {f"user_{name}": password for name, password in USERS.items()}
    assert "s3cret" not in repr(security)


def test_the_files_go_with_the_cluster(security: ClusterSecurity) -> None:
    files = [value for value in security.client_settings("java", SERVERS).values() if value.endswith(".pem")]
    assert [Path(file).exists() for file in files] == [True] * {"SSL": 2, "SASL_SSL": 1}.get(
        security.protocol, 0
    )
    security.close()
    assert not [file for file in files if Path(file).exists()]


def test_client_settings(security: ClusterSecurity) -> None:
    confluent = security.client_settings("confluent", SERVERS, "bob", "SCRAM-SHA-512")
    python = security.client_settings("kafka-python", SERVERS, "bob", "SCRAM-SHA-512")
    java = security.client_settings("java", SERVERS, "alice")
    aio = security.client_settings("aiokafka", SERVERS)
    assert (
        confluent["bootstrap.servers"] == python["bootstrap_servers"] == java["bootstrap.servers"] == SERVERS
    )
    assert confluent["security.protocol"] == java["security.protocol"] == security.protocol
    assert python["security_protocol"] == aio["security_protocol"] == security.protocol
    assert ("ssl_context" in aio) == security.has_tls
    if security.has_sasl:
        assert (confluent["sasl.mechanism"], confluent["sasl.username"]) == ("SCRAM-SHA-512", "bob")
        assert python["sasl_plain_password"] == "s3cret"
        # The first user.
        assert aio["sasl_plain_username"] == "alice"
        (module,) = parse_jaas_config(java["sasl.jaas.config"])
        assert module.options == {"username": "alice", "password": USERS["alice"]}
    else:
        assert confluent["ssl.key.location"] == python["ssl_keyfile"] != java["ssl.keystore.location"]


def test_a_principal(security: ClusterSecurity) -> None:
    expected = "User:alice" if security.has_sasl else "User:CN=alice"
    assert security.principal("alice") == expected
    with pytest.raises(KeyError):
        security.principal("carol")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"security": "TLS"}, "security: 'TLS' is not SSL"),
        ({"security": "SSL", "users": {}}, "users: there are none"),
        ({"security": "SSL", "users": {"a,b": "c"}}, "users: 'a,b'"),
        ({"security": "SSL", "log_dir": None}, "security: only for a cluster with records"),
        ({"security": "SSL", "zookeeper": "localhost:1"}, "security: only for a cluster with records"),
        ({"users": {"alice": "a"}}, "users: only for a cluster with security"),
        ({"acls": []}, "acls: only for a cluster with security"),
        ({"security": "SSL", "acls": [Acl("eve", "READ", topic="x")]}, "acls: 'eve' is none of the users"),
    ],
)
def test_arguments_that_secure_nothing(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        EmbeddedCluster(**arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"operation": "LOOK", "topic": "x"}, "'LOOK' is not ALL, READ"),
        ({"operation": "READ"}, "one of topic, group"),
        ({"operation": "READ", "topic": "x", "group": "y"}, "one of topic, group"),
        ({"operation": "READ", "topic": "x", "cluster": True}, "one of topic, group"),
    ],
)
def test_acls_of_nothing(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Acl("alice", **arguments)


@pytest.mark.parametrize(
    ("client", "more"), [("ruby", {}), ("java", {"user": "eve"}), ("java", {"mechanism": "X"})]
)
def test_client_settings_of_nobody(client: str, more: dict[str, str]) -> None:
    made = ClusterSecurity("SASL_PLAINTEXT", None, "127.0.0.1", authorizes=False)
    try:
        with pytest.raises(ConfigError, match=r"ruby|eve|X"):
            made.client_settings(client, SERVERS, **more)
    finally:
        made.close()

"""Brokers with TLS listeners, and the clients of others: confluent-kafka and kafka-python."""

from __future__ import annotations

import logging
import os
import socket
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import trustme
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

from ctrlchan import EmbeddedBroker, EmbeddedCluster
from ctrlchan.errors import ConfigError
from ctrlchan.server.tls_contexts import PYTHON_TLS
from tests.kafka.waiting import wait_until
from tests.unit.server.tls_serving import authority_pem, certificate, client_context, issued, pem_of

MAP = "PLAINTEXT:PLAINTEXT,SECURE:SSL"


def settings(folder: Path) -> dict[str, str]:
    """Return the settings of a broker with a TLS listener SECURE, which asks clients for certificates."""
    broker, authority = folder / "broker.pem", folder / "authority.pem"
    given = pem_of(certificate("broker"))
    broker.write_text(given["key_pem"] + given["certificate_pem"])
    authority.write_text(authority_pem())
    return {
        "listener.security.protocol.map": MAP,
        "ssl.keystore.location": str(broker),
        "ssl.truststore.location": str(authority),
        "listener.name.secure.ssl.client.auth": "requested",
        "ssl.principal.mapping.rules": "RULE:^CN=(.*?),.*$/$1/",
    }


@pytest.fixture(scope="module")
def kafka_python() -> ModuleType:
    with warnings.catch_warnings():
        # It reads its schemas through a deprecated function of the standard library.
        warnings.simplefilter("ignore", DeprecationWarning)
        import kafka

    logging.getLogger("kafka").setLevel(logging.ERROR)
    return kafka  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module", params=["libssl", "python"])
def secured(folder: Path, request: pytest.FixtureRequest) -> Iterator[EmbeddedCluster]:
    """A cluster with OpenSSL by itself, then one with Python's ssl."""
    acls = {
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:alice;User:ANONYMOUS",
    }
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(PYTHON_TLS, "1" if request.param == "python" else "0")
        with EmbeddedCluster(
            1, more_listeners={"SECURE": "localhost:0"}, configs=settings(folder) | acls
        ) as cluster:
            for topic in ("large", "other"):
                cluster.create_topic(topic, partitions=1)
            yield cluster


def client(folder: Path, name: str | None = None) -> dict[str, Any]:
    """Return the settings of a client of confluent-kafka. ``name``: of its certificate."""
    found = {"security.protocol": "SSL", "ssl.ca.location": str(folder / "authority.pem")}
    if name is not None:
        given = pem_of(certificate(name))
        found |= {"ssl.certificate.pem": given["certificate_pem"], "ssl.key.pem": given["key_pem"]}
    return found


def test_many_megabytes_through_confluent_kafka(secured: EmbeddedCluster, folder: Path) -> None:
    common = {"bootstrap.servers": secured.bootstrap_servers_of("SECURE"), **client(folder, "alice")}
    values = [os.urandom(100_000) for _ in range(100)]
    producer = Producer(common | {"linger.ms": 5})
    for value in values:
        producer.produce("large", value)
    assert producer.flush(60) == 0
    consumer = Consumer(common | {"group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["large"])
    found: list[bytes | None] = []
    try:
        while len(found) < len(values):
            (message,) = consumer.consume(1, 60)
            assert message.error() is None
            found.append(message.value())
    finally:
        consumer.close()
    assert found == values


def test_kafka_python(secured: EmbeddedCluster, folder: Path, kafka_python: ModuleType) -> None:
    common = {
        "bootstrap_servers": secured.bootstrap_servers_of("SECURE"),
        "security_protocol": "SSL",
        "ssl_cafile": str(folder / "authority.pem"),
    }
    producer = kafka_python.KafkaProducer(**common)
    assert producer.send("other", b"hello").get(30).offset == 0
    producer.close()
    consumer = kafka_python.KafkaConsumer(
        "other", auto_offset_reset="earliest", consumer_timeout_ms=30_000, **common
    )
    assert next(consumer).value == b"hello"
    consumer.close()


def test_acls_know_the_name_in_a_certificate(secured: EmbeddedCluster, folder: Path) -> None:
    errors: list[Any] = []
    common = {"bootstrap.servers": secured.bootstrap_servers_of("SECURE"), **client(folder, "mallory")}
    producer = Producer(common | {"message.timeout.ms": 5000})
    producer.produce("other", b"no", on_delivery=lambda error, _: errors.append(error))
    producer.flush(30)
    assert [error.name() for error in errors] == ["TOPIC_AUTHORIZATION_FAILED"]


def why_not(cluster: EmbeddedCluster, name: str, value: str) -> str | None:
    """Set a config of the listener SECURE; return why not, or None."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    entry = ConfigEntry(f"listener.name.secure.{name}", value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
    try:
        admin.incremental_alter_configs([resource])[resource].result(60)
    except KafkaException as failed:
        return str(failed.args[0].str())
    return None


def shown(cluster: EmbeddedCluster) -> object:
    """Return the serial number of the certificate that a new connection is shown."""
    host, _, port = cluster.bootstrap_servers_of("SECURE").rpartition(":")
    with client_context().wrap_socket(
        socket.create_connection((host, int(port))), server_hostname="localhost"
    ) as tls:
        found: Any = tls.getpeercert()
        return found["serialNumber"]


def test_an_admin_client_sets_other_stores(secured: EmbeddedCluster, folder: Path) -> None:
    first = shown(secured)
    for name in ("broker", "mallory"):
        given = pem_of(issued(name))
        (folder / f"other-{name}.pem").write_text(given["key_pem"] + given["certificate_pem"])
    location = "ssl.keystore.location"
    refused = why_not(secured, location, str(folder / "other-mallory.pem"))
    assert refused is not None
    assert "Keystore DistinguishedName does not match: existing={DN=CN=broker" in refused
    assert "none.pem: No such file" in (why_not(secured, location, str(folder / "none.pem")) or "")
    assert "existing listener ListenerName(SECURE)" in (why_not(secured, "ssl.client.auth", "none") or "")
    assert shown(secured) == first
    assert why_not(secured, location, str(folder / "other-broker.pem")) is None
    wait_until(lambda: shown(secured) != first, what="the other certificate")
    # The same values again, and another file.
    second, given = shown(secured), pem_of(issued("broker"))
    (folder / "other-broker.pem").write_text(given["key_pem"] + given["certificate_pem"])
    assert why_not(secured, location, str(folder / "other-broker.pem")) is None
    assert shown(secured) != second


def counted(broker: EmbeddedBroker, name: str) -> dict[str, float]:
    """Return a metric by listener."""
    return {
        sample.labels["listener"]: sample.value
        for family in broker.metrics.collect()
        if family.name == f"kafka_server_socket_server_metrics_{name}"
        for sample in family.samples
    }


def test_the_broker_and_its_metrics_name_the_listener(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ctrlchan.broker")
    with EmbeddedBroker(
        1, more_listeners={"SECURE": "localhost:0"}, log_dir=folder / "logs", configs=settings(folder)
    ) as broker:
        # Once for each time that the stores are read.
        assert caplog.text.count("listener SECURE: the certificate ") == 1
        shown = [(one.listener, one.security_protocol.name) for one in broker.broker.endpoints]
        assert shown == [("PLAINTEXT", "PLAINTEXT"), ("SECURE", "SSL")]
        port = broker.broker.endpoints[1].port
        context = client_context()
        for _ in range(3):
            with context.wrap_socket(
                socket.create_connection(("localhost", port)), server_hostname="localhost"
            ) as tls:
                tls.sendall(bytes.fromhex("0000000a00120000000000010000"))
                assert tls.recv(4)
        # Bytes that were not read make a reset of the end.
        with socket.create_connection(("localhost", port)) as raw, suppress(ConnectionResetError):
            raw.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert raw.recv(1) == b""
        assert counted(broker, "successful_authentication") == {"PLAINTEXT": 0, "SECURE": 3}
        assert counted(broker, "failed_authentication") == {"PLAINTEXT": 0, "SECURE": 1}


def test_a_listener_that_cannot_be_secured_ends_the_start(tmp_path: Path) -> None:
    configs = settings(tmp_path) | {"ssl.keystore.location": str(tmp_path / "none.p12")}
    with pytest.raises(
        ConfigError, match=r"listener SECURE: ssl\.keystore\.location: .*none\.p12: No such file"
    ):
        EmbeddedBroker(
            1, more_listeners={"SECURE": "localhost:0"}, log_dir=tmp_path / "logs", configs=configs
        )
    del configs["ssl.keystore.location"]
    with pytest.raises(ConfigError, match=r"listener SECURE: SSL needs a certificate"):
        EmbeddedBroker(
            1, more_listeners={"SECURE": "localhost:0"}, log_dir=tmp_path / "logs", configs=configs
        )


def test_a_broker_whose_certificate_others_would_not_trust_does_not_start(tmp_path: Path) -> None:
    configs = settings(tmp_path) | {"ssl.keystore.location": str(tmp_path / "untrusted.pem")}
    given = pem_of(trustme.CA().issue_cert("localhost"))
    (tmp_path / "untrusted.pem").write_text(given["key_pem"] + given["certificate_pem"])
    common: dict[str, Any] = {"log_dir": tmp_path / "logs", "configs": configs, "host": "localhost"}
    with pytest.raises(ConfigError, match=r"listener SECURE: brokers cannot connect to each other: its key"):
        EmbeddedBroker(1, listener="SECURE", **common)
    # Clients may trust whom they like.
    with EmbeddedBroker(1, more_listeners={"SECURE": "localhost:0"}, **common):
        pass
    common["configs"] = settings(tmp_path)
    with EmbeddedBroker(1, listener="SECURE", **common) as broker:
        assert broker.broker.endpoints[0].security_protocol.name == "SSL"


def test_the_listener_of_the_brokers_of_a_cluster_is_in_plaintext(folder: Path) -> None:
    configs = settings(folder) | {"listener.security.protocol.map": "SECURE:SSL"}
    with pytest.raises(
        ConfigError, match=r"listener SECURE: .* not with SSL; others of more_listeners may have it"
    ):
        EmbeddedCluster(1, listener="SECURE", host="localhost", configs=configs)


def test_sasl_over_tls(folder: Path) -> None:
    """The user's name is that of SASL, whatever certificate the client shows."""
    sasl = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.secure.plain.sasl.jaas.config": (
            'org.apache.kafka.common.security.plain.PlainLoginModule required user_bob="b0b";'
        ),
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:bob;User:ANONYMOUS",
    }
    with EmbeddedCluster(
        1, more_listeners={"SECURE": "localhost:0"}, configs=settings(folder) | sasl
    ) as cluster:
        cluster.create_topic("topic", partitions=1)
        errors: list[Any] = []
        user = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "bob"}
        common = client(folder, "mallory") | user | {"sasl.password": "b0b", "message.timeout.ms": 20_000}
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers_of("SECURE"), **common})
        producer.produce("topic", b"yes", on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(30) == 0
        assert errors == [None]

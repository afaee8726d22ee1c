"""Kafka's own Java client at a TLS listener, with a certificate, over each version of TLS."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from ctrlchan import EmbeddedCluster
from tests.kafka.jars import SHORT_LIVED, java_command
from tests.unit.broker.test_tls_listeners import settings
from tests.unit.server.tls_serving import certificate, pem_of

pytestmark = pytest.mark.long

PRODUCER = "kafka.tools.ConsoleProducer"
TIMEOUT = 120.0  # s, for a JVM on a busy machine


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_a_java_client_with_a_certificate(tmp_path: Path, kafka_jars_ready: None, version: str) -> None:
    given = pem_of(certificate("alice"))
    # Kafka reads keys of PKCS#8 alone.
    key = load_pem_private_key(given["key_pem"].encode(), None)
    key_pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    (tmp_path / "alice.pem").write_text(key_pem + given["certificate_pem"])
    client = tmp_path / "client.properties"
    configs = settings(tmp_path) | {"listener.name.secure.ssl.client.auth": "required"}
    client.write_text(
        "security.protocol=SSL\n"
        f"ssl.enabled.protocols={version}\n"
        "ssl.truststore.type=PEM\n"
        f"ssl.truststore.location={configs['ssl.truststore.location']}\n"
        "ssl.keystore.type=PEM\n"
        f"ssl.keystore.location={tmp_path / 'alice.pem'}\n"
    )
    with EmbeddedCluster(1, more_listeners={"SECURE": "localhost:0"}, configs=configs) as cluster:
        cluster.create_topic("topic", partitions=1)
        secured = cluster.bootstrap_servers_of("SECURE")
        arguments = ["--bootstrap-server", secured, "--topic", "topic", "--producer.config", str(client)]
        ran = subprocess.run(
            java_command(PRODUCER, *arguments, options=SHORT_LIVED),
            input="one\ntwo\n",
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
        )
        assert ran.returncode == 0, ran.stderr
        assert [record.value for record in cluster.records("topic", at_least=2)] == [b"one", b"two"]

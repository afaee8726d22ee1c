"""A cluster for tests with security: its users produce and consume with the settings that it gives them."""

from __future__ import annotations

import subprocess
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer

from ctrlchan import Acl, EmbeddedCluster
from tests.kafka.jars import java_command
from tests.kafka.waiting import wait_until

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its schemas so
    from kafka import KafkaConsumer, KafkaProducer

TOPIC, GROUP = "orders", "shop"
USERS = {"alice": 'a "quoted" s3cret', "bob": "s3cret"}
PROTOCOLS = ["SSL", "SASL_PLAINTEXT", "SASL_SSL"]
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


@pytest.fixture(scope="module", params=PROTOCOLS)
def cluster(request: pytest.FixtureRequest) -> Iterator[EmbeddedCluster]:
    acls = [
        Acl("alice", "ALL", topic="ord", prefixed=True),
        Acl("alice", "ALL", group="*"),
        Acl("bob", "READ", topic=TOPIC),
        Acl("bob", "READ", group=GROUP),
    ]
    with EmbeddedCluster(2, security=request.param, users=USERS, acls=acls) as cluster:
        cluster.create_topic(TOPIC, partitions=2, replication_factor=2)
        yield cluster


def produced(settings: dict[str, Any], value: str) -> str | None:
    """Produce one record; return the name of its error, or None."""
    errors: list[KafkaError | None] = []
    producer = Producer({**settings, "log_level": 0})
    producer.produce(TOPIC, value, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(60) == 0
    return None if errors[0] is None else errors[0].name()


def test_confluent_kafka(cluster: EmbeddedCluster) -> None:
    with_sasl = "sasl.mechanism" in cluster.client_settings()
    for mechanism in MECHANISMS if with_sasl else MECHANISMS[:1]:
        assert produced(cluster.client_settings("confluent", mechanism=mechanism), mechanism) is None
        assert mechanism.encode() in {record.value for record in cluster.records(TOPIC)}
    consumer = Consumer(
        {
            **cluster.client_settings("confluent", user="bob"),
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
        }
    )
    try:
        consumer.subscribe([TOPIC])
        message = wait_until(lambda: consumer.poll(1.0), timeout=60, what="bob reads")
        assert message.error() is None
    finally:
        consumer.close()


def test_kafka_python(cluster: EmbeddedCluster) -> None:
    producer = KafkaProducer(**cluster.client_settings("kafka-python", user="alice"))
    try:
        producer.send(TOPIC, b"of kafka-python").get(60)
    finally:
        producer.close()
    consumer = KafkaConsumer(
        TOPIC,
        group_id=GROUP,
        auto_offset_reset="earliest",
        consumer_timeout_ms=60_000,
        **cluster.client_settings("kafka-python", user="bob"),
    )
    try:
        assert any(message.value == b"of kafka-python" for message in consumer)
    finally:
        consumer.close()


def test_java(kafka_jars_ready: None, cluster: EmbeddedCluster, tmp_path: Path) -> None:
    settings = cluster.client_settings("java", user="alice")
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{key}={value}\n".replace("\\", "\\\\") for key, value in settings.items()))
    command = java_command(
        "org.apache.kafka.tools.TopicCommand",
        *("--bootstrap-server", cluster.bootstrap_servers, "--command-config", str(file), "--list"),
    )
    listed = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert listed.stdout.split() == [TOPIC], listed.stdout + listed.stderr


def test_what_is_not_allowed_is_refused_until_it_is(cluster: EmbeddedCluster) -> None:
    settings = cluster.client_settings("confluent", user="bob")
    assert produced(settings, "no") == "TOPIC_AUTHORIZATION_FAILED"
    cluster.allow(Acl("bob", "WRITE", topic=TOPIC))
    assert produced(settings, "yes") is None
    values = [record.value for record in cluster.records(TOPIC)]
    assert b"yes" in values
    assert b"no" not in values


def test_who_proves_nothing_is_refused(cluster: EmbeddedCluster) -> None:
    """A wrong password, or no certificate."""
    settings = cluster.client_settings("confluent", user="bob")
    if "sasl.password" in settings:
        settings["sasl.password"] = "wr0ng"
    else:
        settings = {
            key: value for key, value in settings.items() if "certificate" not in key and "key" not in key
        }
    assert produced({**settings, "message.timeout.ms": 4_000}, "of nobody") == "_MSG_TIMED_OUT"
    assert b"of nobody" not in {record.value for record in cluster.records(TOPIC)}

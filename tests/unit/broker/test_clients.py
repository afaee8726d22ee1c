"""Real clients against embedded brokers with 100,000 partitions: kafka-python and librdkafka."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

from ctrlchan import EmbeddedCluster
from ctrlchan._codec import (
    UPDATE_METADATA,
    ListColumn,
    Partitions,
    StringColumn,
    Topics,
    encode_head,
    encode_request_header,
    update_metadata_body,
)
from ctrlchan.state import brokers_from
from tests.kafka.waiting import wait_until
from tests.kafka.wire import exchange

TOPICS, EACH = 1_000, 100
CONTROLLER = 2


@pytest.fixture(scope="module")
def kafka_python() -> ModuleType:
    with warnings.catch_warnings():
        # It reads its schemas through a deprecated function of the standard library.
        warnings.simplefilter("ignore", DeprecationWarning)
        import kafka

    logging.getLogger("kafka").setLevel(logging.ERROR)
    return kafka  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    """Three brokers with 100,000 partitions; broker (t + p) % 3 + 1 leads partition p of topic t."""
    rows = TOPICS * EACH
    topic_row = np.repeat(np.arange(TOPICS, dtype=np.int32), EACH)
    partition = np.tile(np.arange(EACH, dtype=np.int32), TOPICS)
    replicas = ((topic_row + partition)[:, None] + np.arange(3)) % 3 + 1
    lists = ListColumn(
        np.arange(rows, dtype=np.int32) * 3, np.full(rows, 3, np.int32), replicas.astype(np.int32).reshape(-1)
    )
    with EmbeddedCluster(3, log_dir=None, cluster_id="test-cluster") as cluster:
        shared_body = update_metadata_body(
            8,
            Topics(StringColumn.from_strings(topic(number) for number in range(TOPICS))),
            Partitions(
                topic_row=topic_row,
                partition=partition,
                controller_epoch=np.ones(rows, np.int32),
                leader=replicas[:, 0].astype(np.int32),
                leader_epoch=topic_row,
                partition_epoch=np.zeros(rows, np.int32),
                recovery_state=np.zeros(rows, np.int32),
                isr=lists,
                replicas=lists,
            ),
            brokers_from(cluster.brokers),
        )
        header = encode_request_header(2, UPDATE_METADATA, 8, 0, b"2")
        frame = header + encode_head(UPDATE_METADATA, 8, CONTROLLER, 1) + shared_body.to_bytes()
        for broker in cluster.brokers:
            endpoint = broker.endpoints[0]
            assert exchange(endpoint.host, endpoint.port, frame)[-3:] == bytes(3)
        yield cluster


def topic(number: int) -> str:
    return f"topic-{number:04}"


def addresses(cluster: EmbeddedCluster) -> list[tuple[int, str]]:
    return [(broker.id, f"{(e := broker.endpoints[0]).host}:{e.port}") for broker in cluster.brokers]


def expected(number: int, partition: int) -> tuple[int, list[int]]:
    """(leader, replicas)."""
    brokers = [(number + partition + place) % 3 + 1 for place in range(3)]
    return brokers[0], brokers


SAMPLE = [(number, partition) for number in range(0, TOPICS, 37) for partition in range(0, EACH, 13)]


def test_librdkafka_reads_all_topics(cluster: EmbeddedCluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 2})
    listed = admin.list_topics(timeout=60)
    assert (len(listed.topics), listed.controller_id) == (TOPICS, CONTROLLER)
    assert listed.cluster_id == "test-cluster"
    assert sum(len(one.partitions) for one in listed.topics.values()) == TOPICS * EACH
    assert {f"{one.host}:{one.port}" for one in listed.brokers.values()} == {a for _, a in addresses(cluster)}
    for number, partition in SAMPLE:
        one = listed.topics[topic(number)].partitions[partition]
        assert one.error is None
        assert (one.leader, one.replicas) == expected(number, partition)
        assert one.isrs == one.replicas


def test_librdkafka_describes_the_cluster(cluster: EmbeddedCluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 2})
    described: Any = admin.describe_cluster().result(timeout=60)
    assert (described.cluster_id, described.controller.id) == ("test-cluster", CONTROLLER)
    assert sorted(node.id for node in described.nodes) == [1, 2, 3]


def test_kafka_python_reads_all_topics(cluster: EmbeddedCluster, kafka_python: ModuleType) -> None:
    client = kafka_python.KafkaAdminClient(bootstrap_servers=addresses(cluster)[0][1])
    try:
        described = {one["name"]: one for one in client.describe_topics()}
        assert len(described) == TOPICS
        for number, partition in SAMPLE:
            one = described[topic(number)]["partitions"][partition]
            assert (one["error_code"], one["partition_index"], one["leader_epoch"]) == (0, partition, number)
            assert (one["leader_id"], one["replica_nodes"]) == expected(number, partition)
            assert one["isr_nodes"] == one["replica_nodes"]
        described_cluster = client.describe_cluster()
        assert (described_cluster["cluster_id"], described_cluster["controller_id"]) == (
            "test-cluster",
            CONTROLLER,
        )
    finally:
        client.close()


def test_kafka_python_asks_each_broker_for_one_topic(
    cluster: EmbeddedCluster, kafka_python: ModuleType
) -> None:
    for _, address in addresses(cluster):
        client = kafka_python.KafkaAdminClient(bootstrap_servers=address)
        try:
            (one,) = client.describe_topics([topic(7)])
            assert [p["leader_id"] for p in one["partitions"]] == [expected(7, p)[0] for p in range(EACH)]
        finally:
            client.close()


def test_librdkafkas_producer_reports_that_records_are_not_stored(cluster: EmbeddedCluster) -> None:
    delivered: list[Any] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 2})
    producer.produce(topic(7), b"x", partition=0, on_delivery=lambda error, _: delivered.append(error))
    producer.flush(30)
    assert [error.name() for error in delivered] == ["UNSUPPORTED_VERSION"]


def test_librdkafkas_group_consumer_reports_that_there_are_no_groups(cluster: EmbeddedCluster) -> None:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "log_level": 2})
    try:
        consumer.subscribe([topic(7)])
        error: Any = wait_until(lambda: consumer.poll(1.0), what="the consumer reports an error").error()
        assert error.name() == "_UNSUPPORTED_FEATURE"
        assert "JoinGroup failed" in error.str()
    finally:
        consumer.close()


def test_librdkafkas_consumer_reports_that_records_are_not_stored(cluster: EmbeddedCluster) -> None:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "log_level": 2})
    try:
        consumer.assign([TopicPartition(topic(7), 0, 0)])
        error: Any = wait_until(lambda: consumer.poll(1.0), what="the consumer reports an error").error()
        assert error.name() == "UNSUPPORTED_VERSION"
        assert "Fetch from broker" in error.str()
    finally:
        consumer.close()


def test_librdkafka_describes_the_configs_of_a_topic(cluster: EmbeddedCluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 2})
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic(7))
    configs = admin.describe_configs([resource])[resource].result(timeout=60)
    assert configs["cleanup.policy"].value == "delete"
    assert configs["cleanup.policy"].is_default


@pytest.mark.parametrize(
    ("kind", "name", "key"),
    [
        (ConfigResource.Type.TOPIC, topic(7), "retention.ms"),
        (ConfigResource.Type.BROKER, "1", "leader.replication.throttled.rate"),
    ],
)
def test_librdkafka_reports_that_configs_cannot_be_changed(
    cluster: EmbeddedCluster, kind: Any, name: str, key: str
) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 2})
    entry = ConfigEntry(key, "5", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(kind, name, incremental_configs=[entry])
    with pytest.raises(KafkaException) as raised:
        admin.incremental_alter_configs([resource])[resource].result(timeout=60)
    assert raised.value.args[0].name() == "_UNSUPPORTED_FEATURE"


@pytest.mark.parametrize("acks", [1, "all"])
def test_kafka_pythons_producer_reports_that_records_are_not_stored(
    cluster: EmbeddedCluster, kafka_python: ModuleType, acks: Any
) -> None:
    producer = kafka_python.KafkaProducer(
        bootstrap_servers=addresses(cluster)[0][1], acks=acks, enable_idempotence=False
    )
    try:
        with pytest.raises(kafka_python.errors.UnsupportedVersionError):
            producer.send(topic(7), b"x").get(timeout=30)
    finally:
        producer.close(timeout=5)


def test_kafka_pythons_group_consumer_reports_that_there_are_no_groups(
    cluster: EmbeddedCluster, kafka_python: ModuleType
) -> None:
    consumer = kafka_python.KafkaConsumer(
        topic(7), bootstrap_servers=addresses(cluster)[0][1], group_id="g", consumer_timeout_ms=30_000
    )
    try:
        with pytest.raises(kafka_python.errors.IncompatibleBrokerVersion, match="JoinGroupRequest"):
            next(consumer)
    finally:
        consumer.close()


def test_kafka_pythons_consumer_reports_that_fetch_is_not_supported(
    cluster: EmbeddedCluster, kafka_python: ModuleType
) -> None:
    consumer = kafka_python.KafkaConsumer(
        bootstrap_servers=addresses(cluster)[0][1], consumer_timeout_ms=30_000
    )
    try:
        partition = kafka_python.TopicPartition(topic(7), 0)
        consumer.assign([partition])
        consumer.seek(partition, 0)
        with pytest.raises(kafka_python.errors.UnsupportedVersionError):
            next(consumer)
    finally:
        consumer.close()

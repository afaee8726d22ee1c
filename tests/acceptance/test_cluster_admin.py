"""A cluster without ZooKeeper and its administration by a real client: confluent-kafka's AdminClient."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ElectionType, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)

from ctrlchan import TEMPORARY, EmbeddedCluster
from ctrlchan.errors import KafkaError
from tests.kafka.waiting import wait_until

SECONDS = 30.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(2, log_dir=TEMPORARY, configs={"num.partitions": "3"}) as running:
        yield running


@pytest.fixture
def admin(cluster: EmbeddedCluster) -> Any:
    return AdminClient({"bootstrap.servers": cluster.bootstrap_servers})


def only(futures: dict[Any, Future[Any]]) -> Any:
    """Return the one result. Raises KafkaException."""
    (future,) = futures.values()
    return future.result(SECONDS)


def error_of(futures: dict[Any, Future[Any]]) -> str:
    """Return the name of the error of the one result."""
    with pytest.raises(KafkaException) as raised:
        only(futures)
    return str(raised.value.args[0].name())


def partitions(admin: Any, topic: str) -> Any:
    return admin.list_topics(timeout=SECONDS).topics[topic].partitions


def configs(admin: Any, kind: str, name: str) -> dict[str, str]:
    entries = only(admin.describe_configs([ConfigResource(kind, name)]))
    return {name: entry.value for name, entry in entries.items()}


def alter(admin: Any, kind: str, name: str, config: str, value: str | None) -> Any:
    operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    entry = ConfigEntry(config, value, incremental_operation=operation)
    return admin.incremental_alter_configs([ConfigResource(kind, name, incremental_configs=[entry])])


def test_clients_see_the_brokers_and_one_of_them_as_controller(admin: Any) -> None:
    metadata = admin.list_topics(timeout=SECONDS)
    assert sorted(metadata.brokers) == [1, 2]
    assert metadata.controller_id in metadata.brokers


def test_a_topic_is_created_described_altered_and_deleted(admin: Any) -> None:
    assert only(admin.create_topics([NewTopic("life", 2, 1, config={"retention.ms": "60000"})])) is None
    # Without waiting: the answer came when the metadata had the topic.
    assert sorted(partitions(admin, "life")) == [0, 1]
    assert error_of(admin.create_topics([NewTopic("life", 2, 1)])) == "TOPIC_ALREADY_EXISTS"
    assert configs(admin, "topic", "life")["retention.ms"] == "60000"
    only(alter(admin, "topic", "life", "segment.ms", "1234567"))
    only(alter(admin, "topic", "life", "retention.ms", None))
    described = configs(admin, "topic", "life")
    assert (described["segment.ms"], described["retention.ms"]) == ("1234567", "604800000")
    assert error_of(alter(admin, "topic", "life", "segment.ms", "soon")) == "INVALID_CONFIG"
    assert error_of(alter(admin, "topic", "none", "segment.ms", "1")) == "UNKNOWN_TOPIC_OR_PART"
    only(admin.create_partitions([NewPartitions("life", 5)]))
    wait_until(lambda: len(partitions(admin, "life")) == 5, what="every broker has the new partitions")
    assert error_of(admin.create_partitions([NewPartitions("life", 4)])) == "INVALID_PARTITIONS"
    only(admin.delete_topics(["life"], operation_timeout=SECONDS))
    wait_until(lambda: "life" not in admin.list_topics(timeout=SECONDS).topics, what="the topic is gone")
    assert error_of(admin.delete_topics(["life"])) == "UNKNOWN_TOPIC_OR_PART"


def test_nothing_is_created_when_a_request_is_only_checked(admin: Any) -> None:
    only(admin.create_topics([NewTopic("checked", 1, 1)], validate_only=True))
    assert "checked" not in admin.list_topics(timeout=SECONDS).topics
    assert error_of(admin.create_topics([NewTopic("many", 1, 3)])) == "INVALID_REPLICATION_FACTOR"
    assert error_of(admin.create_topics([NewTopic("bad/name", 1, 1)])) == "TOPIC_EXCEPTION"


def test_configs_of_brokers_are_dynamic(admin: Any) -> None:
    only(alter(admin, "broker", "1", "log.retention.ms", "7000000"))
    assert configs(admin, "broker", "1")["log.retention.ms"] == "7000000"
    assert configs(admin, "broker", "2")["log.retention.ms"] != "7000000"


def test_a_topic_is_created_for_a_producer(cluster: EmbeddedCluster, admin: Any) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    producer.produce("automatic", b"value")
    assert producer.flush(SECONDS) == 0
    assert len(partitions(admin, "automatic")) == 3
    records = cluster.records("automatic", at_least=1)
    assert [record.value for record in records] == [b"value"]


def test_leaders_move_on_demand_and_when_a_broker_dies(cluster: EmbeddedCluster, admin: Any) -> None:
    only(admin.create_topics([NewTopic("led", 1, 2)]))
    leader = partitions(admin, "led")[0].leader
    cluster.move_leader("led", 0, 3 - leader)
    wait_until(lambda: partitions(admin, "led")[0].leader == 3 - leader, what="the other broker leads")
    with pytest.raises(KafkaError, match="has no replica"):
        cluster.move_leader("led", 0, 7)
    asked = admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition("led", 0)]).result(SECONDS)
    (error,) = asked.values()
    assert error.name() == "ELECTION_NOT_NEEDED"
    cluster.kill_broker(3 - leader)
    wait_until(lambda: partitions(admin, "led")[0].leader == leader, what="the broker that is left leads")
    cluster.start_broker(3 - leader)
    assert sorted(admin.list_topics(timeout=SECONDS).brokers) == [1, 2]


def test_topics_and_records_are_there_after_a_restart(tmp_path: Path) -> None:
    with EmbeddedCluster(1, log_dir=tmp_path) as cluster:
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        producer.produce("kept", b"value")
        assert producer.flush(SECONDS) == 0
    with EmbeddedCluster(1, log_dir=tmp_path) as cluster:
        assert [record.value for record in cluster.records("kept", at_least=1)] == [b"value"]

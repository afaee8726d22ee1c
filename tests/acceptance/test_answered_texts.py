"""Texts of answers on which programs rely, on an EmbeddedCluster and on real Kafka as the reference."""

from __future__ import annotations

import re
import time
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import ElectionType, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from ctrlchan.errors import ErrorCode
from tests.acceptance.clients import TIMEOUT
from tests.acceptance.either_cluster import EitherCluster
from tests.kafka.waiting import wait_until
from tests.unit.broker.log.batches import PlainRecord, batch_of
from tests.unit.controller.server.requests import connection, part, timeout

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

PRODUCE = 0


@pytest.fixture
def admin(either: EitherCluster) -> Any:
    return AdminClient({"bootstrap.servers": either.bootstrap})


def text_of(asked: Future[Any]) -> tuple[str, str]:
    """Return name and text of the error that the answer has."""
    with pytest.raises(KafkaException) as raised:
        asked.result(TIMEOUT)
    error: KafkaError = raised.value.args[0]
    return error.name(), error.str()


def wait_for_leader(admin: Any, topic: str, *others: int) -> int:
    """Wait until the broker that is asked names a leader of partition 0, which is none of the others."""

    def leader() -> int | None:
        partition = admin.list_topics(topic, timeout=TIMEOUT).topics[topic].partitions.get(0)
        return None if partition is None or partition.leader in (-1, *others) else int(partition.leader)

    return wait_until(leader, what=f"{topic} has a leader")


def test_timestamps_out_of_range(either: EitherCluster, admin: Any) -> None:
    topic = either.create("timestamps", 1, 1, message_timestamp_before_max_ms="10000")
    now = int(time.time() * 1000)
    batch = batch_of([PlainRecord(n, timestamp_delta=n) for n in range(3)])
    address = either.bootstrap.split(",")[wait_for_leader(admin, topic) - 1]
    data = part(PRODUCE, 9, "PartitionProduceData", index=0, records=batch.encoded())
    fields = {
        "transactional_id": None,
        "acks": 1,
        "timeout": timeout(30),
        "topic_data": (part(PRODUCE, 9, "TopicProduceData", name=topic, partition_data=(data,)),),
    }
    with connection(address) as client:

        def answered() -> Any:
            """The broker that named the leader may know the topic before the leader does."""
            (answer,) = client.ask(PRODUCE, 9, fields).responses[0].partition_responses
            return None if answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else answer

        answer = wait_until(answered, what="the leader knows the topic")
    assert answer.error_code == 32
    assert answer.error_message == "One or more records have been rejected due to invalid timestamp"
    for index, one in enumerate(answer.record_errors):
        found = re.fullmatch(
            r"Timestamp (\d+) of message with offset (\d) is out of range. "
            r"The timestamp should be within \[(\d+), -?\d+\]",
            one.batch_index_error_message,
        )
        assert found is not None, one
        timestamp, offset, earliest = map(int, found.groups())
        assert (timestamp, offset) == (batch.base_timestamp + index, index)
        assert earliest >= now - 10_000
    assert len(answer.record_errors) == 3


def test_elections(either: EitherCluster, admin: Any) -> None:
    topic = "electing"
    # The client has to find no new controller.
    leader, other, *_ = sorted({1, 2, 3} - {admin.list_topics(timeout=TIMEOUT).controller_id})
    new = NewTopic(topic, 1, replica_assignment=[[leader, other]])
    admin.create_topics([new])[topic].result(TIMEOUT)
    either.wait_until_whole(topic, 1, 2)

    def elect(kind: ElectionType, name: str) -> tuple[str, str]:
        one = TopicPartition(name, 0)
        error = admin.elect_leaders(kind, [one]).result(TIMEOUT)[one]
        assert error is not None
        return error.name(), error.str()

    not_needed = ("ELECTION_NOT_NEEDED", "Leader election not needed for topic partition.")
    assert elect(ElectionType.PREFERRED, topic) == not_needed
    assert elect(ElectionType.UNCLEAN, topic) == not_needed
    unknown = ("UNKNOWN_TOPIC_OR_PART", "The partition does not exist.")
    assert elect(ElectionType.PREFERRED, "no-such-topic") == unknown
    either.kill_broker(leader)
    try:
        wait_for_leader(admin, topic, leader)
        failed = f"Failed to elect leader for partition {topic}-0 under strategy "
        assert elect(ElectionType.PREFERRED, topic) == (
            "PREFERRED_LEADER_NOT_AVAILABLE",
            f"{failed}PreferredReplicaPartitionLeaderElectionStrategy",
        )
    finally:
        either.start_broker(leader)


def test_topics_and_partitions(either: EitherCluster, admin: Any) -> None:
    topic = either.create("counted", 3, 1)

    def create(name: str, replication_factor: int = 1) -> tuple[str, str]:
        one = NewTopic(name, 1, replication_factor)
        return text_of(admin.create_topics([one], validate_only=True)[name])

    assert create(topic) == ("TOPIC_ALREADY_EXISTS", f"Topic '{topic}' already exists.")
    assert create("never", 4) == (
        "INVALID_REPLICATION_FACTOR",
        "Replication factor: 4 larger than available brokers: 3.",
    )

    def grow(count: int, assignment: list[list[int]] | None = None, name: str = topic) -> tuple[str, str]:
        new = NewPartitions(name, count, **({"replica_assignment": assignment} if assignment else {}))
        return text_of(admin.create_partitions([new], validate_only=True)[name])

    assert grow(1) == (
        "INVALID_PARTITIONS",
        "Topic currently has 3 partitions, which is higher than the requested 1.",
    )
    assert grow(3) == ("INVALID_PARTITIONS", "Topic already has 3 partitions.")
    assert grow(2, name="an-unknown-topic") == (
        "UNKNOWN_TOPIC_OR_PART",
        "The topic 'an-unknown-topic' does not exist.",
    )
    wrong = "INVALID_REPLICA_ASSIGNMENT"
    inconsistent = "Inconsistent replication factor between partitions, partition 0 has 1 while partitions "
    assert grow(4, [[1, 2]]) == (wrong, f"{inconsistent}[3] have replication factors [2], respectively.")
    assert grow(5, [[1], [1, 2]]) == (wrong, f"{inconsistent}[4] have replication factors [2], respectively.")
    assert grow(4, [[12]]) == (wrong, "Unknown broker(s) in replica assignment: 12.")
    assert grow(4, [[1, 1]]) == (
        wrong,
        "Duplicate brokers not allowed in replica assignment: 1, 1 for partition id 3.",
    )


def test_configs(either: EitherCluster, admin: Any) -> None:
    topic = either.create("configured", 1, 1)

    def alter(*changes: tuple[str, str, AlterConfigOpType]) -> tuple[str, str]:
        entries = [ConfigEntry(name, value, incremental_operation=kind) for name, value, kind in changes]
        one = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        return text_of(admin.incremental_alter_configs([one])[one])

    of_topic = f"Invalid config value for resource ConfigResource(type=TOPIC, name='{topic}')"
    assert alter(("min.cleanable.dirty.ratio", "1.1", AlterConfigOpType.SET)) == (
        "INVALID_CONFIG",
        f"{of_topic}: Invalid value 1.1 for configuration min.cleanable.dirty.ratio: "
        "Value must be no more than 1",
    )
    name, text = alter(("compression.type", "zip", AlterConfigOpType.SET))
    assert (name, text[: len(of_topic)]) == ("INVALID_CONFIG", of_topic)
    name, text = alter(("compression.type", "gzip", AlterConfigOpType.APPEND))
    assert text.startswith("Config value append is not allowed for config")
    name, text = alter(("compression.type", "gzip", AlterConfigOpType.SUBTRACT))
    assert text.startswith("Config value subtract is not allowed for config")

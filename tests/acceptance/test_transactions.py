"""Transactions of confluent-kafka on an EmbeddedCluster that stores records, and on real Kafka."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from ctrlchan.internal_topics import TRANSACTIONS_TOPIC, coordinator_partition
from tests.acceptance.clients import TIMEOUT, producing, send_all
from tests.acceptance.either_cluster import EitherCluster
from tests.kafka.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"
#: How librdkafka says that another producer has taken the transactional id.
FENCED: Final = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)


def transactional(either: EitherCluster, transactional_id: str, **settings: object) -> Any:
    """A producer that has been initialised; ``_`` in names of settings is a dot."""
    producer = Producer(
        {
            "bootstrap.servers": either.bootstrap,
            "transactional.id": transactional_id,
            "linger.ms": 0,
            "log_level": 0,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )
    producer.init_transactions(TIMEOUT)
    return producer


@contextmanager
def reader(either: EitherCluster, isolation: str, group: str = "reader") -> Iterator[Any]:
    consumer = Consumer(
        {
            "bootstrap.servers": either.bootstrap,
            "group.id": group,
            "isolation.level": isolation,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 2,
        }
    )
    try:
        yield consumer
    finally:
        consumer.close()


def values(either: EitherCluster, topic: str, partitions: int = 1, isolation: str = COMMITTED) -> list[bytes]:
    """Return what a consumer reads until it waits for more in each partition."""
    found: list[bytes] = []
    ended: set[int] = set()
    with reader(either, isolation) as consumer:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        while len(ended) < partitions:
            message = consumer.poll(TIMEOUT)
            assert message is not None, f"{topic}: the consumer hears nothing"
            if message.error() is None:
                found.append(message.value())
            elif message.error().code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
            else:
                raise KafkaException(message.error())
    return sorted(found)


def send(producer: Any, topic: str, *records: bytes, partition: int = 0) -> None:
    for record in records:
        producer.produce(topic, record, partition=partition)
    assert producer.flush(TIMEOUT) == 0


def committed_offset(either: EitherCluster, group: str, topic: str, partition: int = 0) -> int:
    admin: Any = AdminClient({"bootstrap.servers": either.bootstrap, "log_level": 2})
    asked = [ConsumerGroupTopicPartitions(group, [TopicPartition(topic, partition)])]
    (future,) = admin.list_consumer_group_offsets(asked).values()
    (found,) = future.result(TIMEOUT).topic_partitions
    offset: int = found.offset
    return offset


def ends_with(call: Any, codes: Sequence[int]) -> None:
    """Call a method that must fail with one of these errors of Kafka or librdkafka."""
    with pytest.raises(KafkaException) as failure:
        call()
    assert failure.value.args[0].code() in codes


def test_a_committed_transaction_is_seen_as_a_whole(either: EitherCluster) -> None:
    topic = either.create("committed", 3)
    producer = transactional(either, "commits")
    for number in range(5):
        producer.begin_transaction()
        for partition in range(3):
            send(producer, topic, b"%d-%d" % (number, partition), partition=partition)
        seen = values(either, topic, 3)
        assert seen == sorted(b"%d-%d" % (n, p) for n in range(number) for p in range(3))
        producer.commit_transaction(TIMEOUT)
    wait_until(
        lambda: len(values(either, topic, 3)) == 15, timeout=TIMEOUT, what="the last transaction is seen"
    )
    assert values(either, topic, 3, UNCOMMITTED) == values(either, topic, 3)


def test_aborted_records_are_not_seen(either: EitherCluster) -> None:
    topic = either.create("aborted", 2)
    producer = transactional(either, "aborts")
    for number in range(6):
        producer.begin_transaction()
        send(producer, topic, b"%d" % number, b"%d" % number, partition=number % 2)
        if number % 3:
            producer.abort_transaction(TIMEOUT)
        else:
            producer.commit_transaction(TIMEOUT)
    wait_until(
        lambda: values(either, topic, 2) == [b"0", b"0", b"3", b"3"],
        timeout=TIMEOUT,
        what="the committed records are seen",
    )
    assert len(values(either, topic, 2, UNCOMMITTED)) == 12


def test_an_empty_transaction(either: EitherCluster) -> None:
    topic = either.create("empty", 1)
    producer = transactional(either, "empties")
    for _ in range(2):
        producer.begin_transaction()
        producer.commit_transaction(TIMEOUT)
        producer.begin_transaction()
        producer.abort_transaction(TIMEOUT)
    producer.begin_transaction()
    send(producer, topic, b"one")
    producer.commit_transaction(TIMEOUT)
    wait_until(lambda: values(either, topic) == [b"one"], timeout=TIMEOUT, what="the record is seen")


def test_the_second_producer_of_an_id_fences_the_first(either: EitherCluster) -> None:
    topic = either.create("fenced", 1)
    first = transactional(either, "two-producers")
    first.begin_transaction()
    send(first, topic, b"of the first")
    # It aborts what the first one has begun.
    second = transactional(either, "two-producers")
    second.begin_transaction()
    send(second, topic, b"of the second")
    ends_with(lambda: first.commit_transaction(TIMEOUT), FENCED)
    second.commit_transaction(TIMEOUT)
    wait_until(
        lambda: values(either, topic) == [b"of the second"], timeout=TIMEOUT, what="the second's record"
    )


def test_a_fenced_producer_cannot_send(either: EitherCluster) -> None:
    topic = either.create("zombie", 1)
    first = transactional(either, "zombies")
    first.begin_transaction()
    second = transactional(either, "zombies")
    first.produce(topic, b"too late", partition=0)
    ends_with(lambda: first.commit_transaction(TIMEOUT), FENCED)
    second.begin_transaction()
    send(second, topic, b"in time")
    second.commit_transaction(TIMEOUT)
    wait_until(lambda: values(either, topic) == [b"in time"], timeout=TIMEOUT, what="the record is seen")
    assert values(either, topic, isolation=UNCOMMITTED) == [b"in time"]


def test_offsets_belong_to_the_transaction(either: EitherCluster) -> None:
    source, target = either.create("source", 1), either.create("target", 1)
    with producing(either.bootstrap) as plain:
        send_all(plain, source, [b"%d" % number for number in range(10)], 0)
    producer = transactional(either, "copies")
    with reader(either, COMMITTED, "copiers") as consumer:
        consumer.subscribe([source])
        messages: list[Any] = []

        def has_all() -> bool:
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                messages.append(message)
            return len(messages) == 10

        wait_until(has_all, timeout=TIMEOUT, what="the consumer has the records")
        for part, commits in ((messages[:4], True), (messages[4:], False), (messages[4:7], True)):
            before = committed_offset(either, "copiers", source)
            producer.begin_transaction()
            send(producer, target, *(b"copy of " + message.value() for message in part))
            offsets = [TopicPartition(source, 0, part[-1].offset() + 1)]
            producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), TIMEOUT)
            assert committed_offset(either, "copiers", source) == before
            if commits:
                producer.commit_transaction(TIMEOUT)
                expected = part[-1].offset() + 1
            else:
                producer.abort_transaction(TIMEOUT)
                expected = before
            wait_until(
                lambda expected=expected: committed_offset(either, "copiers", source) == expected,  # type: ignore[misc]
                timeout=TIMEOUT,
                what=f"the group's offset is {expected}",
            )
            # Waits while the transaction's offsets are not decided.
            (stable,) = consumer.committed([TopicPartition(source, 0)], TIMEOUT)
            assert stable.offset == expected
    copies = [b"copy of %d" % number for number in range(7)]
    wait_until(lambda: values(either, target) == copies, timeout=TIMEOUT, what="the copies are seen")


def test_a_transaction_that_takes_too_long_is_aborted(either: EitherCluster) -> None:
    topic = either.create("timed-out", 1)
    producer = transactional(either, "sleeper", transaction_timeout_ms=1_000, message_timeout_ms=1_000)
    producer.begin_transaction()
    send(producer, topic, b"abandoned")
    with producing(either.bootstrap) as plain:
        send_all(plain, topic, [b"plain"], 0)
    # The plain record is behind the transaction's: it is seen when the transaction has ended.
    wait_until(
        lambda: values(either, topic) == [b"plain"], timeout=TIMEOUT, what="the transaction is aborted"
    )
    ends_with(lambda: producer.commit_transaction(TIMEOUT), (*FENCED, KafkaError.INVALID_TXN_STATE))
    again = transactional(either, "sleeper")
    again.begin_transaction()
    send(again, topic, b"awake")
    again.commit_transaction(TIMEOUT)
    wait_until(lambda: values(either, topic) == [b"awake", b"plain"], timeout=TIMEOUT, what="both are seen")


@pytest.mark.parametrize("commits", [True, False], ids=["commit", "abort"])
def test_the_coordinator_dies_in_the_middle(either: EitherCluster, commits: bool) -> None:
    name = f"killed-coordinator-{commits}".lower()
    topic = either.create(name, 3)
    producer = transactional(either, name)
    producer.begin_transaction()
    for partition in range(3):
        send(producer, topic, b"first", partition=partition)
    admin: Any = AdminClient({"bootstrap.servers": either.bootstrap, "log_level": 2})
    partitions = len(
        admin.list_topics(TRANSACTIONS_TOPIC, timeout=TIMEOUT).topics[TRANSACTIONS_TOPIC].partitions
    )
    coordinator = either.leader(TRANSACTIONS_TOPIC, coordinator_partition(name, partitions))
    either.kill_broker(coordinator)
    try:
        for partition in range(3):
            send(producer, topic, b"second", partition=partition)
        if commits:
            producer.commit_transaction(TIMEOUT)
        else:
            producer.abort_transaction(TIMEOUT)
        producer.begin_transaction()
        send(producer, topic, b"third")
        producer.commit_transaction(TIMEOUT)
    finally:
        either.start_broker(coordinator)
    either.wait_until_whole(topic, 3)
    either.wait_until_whole(TRANSACTIONS_TOPIC, partitions)
    expected = sorted([b"third", *([b"first", b"second"] * 3 if commits else [])])
    wait_until(lambda: values(either, topic, 3) == expected, timeout=TIMEOUT, what="the records are seen")


def test_many_producers_at_once(either: EitherCluster) -> None:
    topic = either.create("many", 3)
    producers = [transactional(either, f"many-{number}") for number in range(8)]
    for turn in range(3):
        for producer in producers:
            producer.begin_transaction()
        for number, producer in enumerate(producers):
            send(producer, topic, b"%d-%d" % (turn, number), partition=number % 3)
        for number, producer in enumerate(producers):
            if (turn + number) % 2:
                producer.commit_transaction(TIMEOUT)
            else:
                producer.abort_transaction(TIMEOUT)
    expected = sorted(b"%d-%d" % (turn, n) for turn in range(3) for n in range(8) if (turn + n) % 2)
    wait_until(lambda: values(either, topic, 3) == expected, timeout=TIMEOUT, what="the committed are seen")

"""confluent-kafka on an EmbeddedCluster that stores records, and on real Kafka as the reference."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from tests.acceptance.clients import TIMEOUT, producing, send_all, take
from tests.acceptance.either_cluster import EitherCluster
from tests.kafka.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

#: Its methods have no types.
SPEC: Any = OffsetSpec
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture
def admin(either: EitherCluster) -> Any:
    return AdminClient({"bootstrap.servers": either.bootstrap})


@contextmanager
def consumer_of(either: EitherCluster, group: str, **settings: object) -> Iterator[Any]:
    """A consumer that begins with the earliest record and commits nothing by itself; ``_`` is a dot."""
    consumer = Consumer(
        {
            "bootstrap.servers": either.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 500,
            **{
                name if name == "log_level" else name.replace("_", "."): value
                for name, value in settings.items()
            },
        }
    )
    try:
        yield consumer
    finally:
        consumer.close()


def only(futures: dict[Any, Future[Any]]) -> Any:
    """Return the one result. Raises KafkaException."""
    (future,) = futures.values()
    return future.result(TIMEOUT)


def numbered(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last)]


def fill(either: EitherCluster, topic: str, partitions: int, count: int) -> None:
    """Produce ``count`` records to each partition."""
    with producing(either.bootstrap) as producer:
        for partition in range(partitions):
            send_all(producer, topic, numbered(0, count), partition)


def poll_all(consumers: list[Any], wanted: Callable[[], bool], what: str) -> list[Any]:
    """Poll all consumers in turn until the condition is true; return their messages."""
    found = []
    deadline = time.monotonic() + TIMEOUT
    while not wanted():
        assert time.monotonic() < deadline, f"{what}: not within {TIMEOUT:g} s"
        for consumer in consumers:
            message = consumer.poll(0.05)
            if message is not None and message.error() is None:
                found.append(message)
    return found


@pytest.mark.parametrize("codec", CODECS)
def test_an_idempotent_producer(either: EitherCluster, codec: str) -> None:
    topic = either.create(f"idempotent-{codec}", 1)
    producer = Producer(
        {
            "bootstrap.servers": either.bootstrap,
            "enable.idempotence": True,
            "compression.type": codec,
            "linger.ms": 5,
        }
    )
    failed: list[KafkaError] = []
    for number in range(5_000):
        producer.produce(
            topic,
            key=b"%d" % (number % 7),
            value=b"%d " % number * 20,
            headers=[("n", b"%d" % number), ("empty", None)],
            timestamp=1_000_000 + number,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
        producer.poll(0)
    assert producer.flush(TIMEOUT) == 0
    assert failed == []
    with consumer_of(either, "none", check_crcs=True) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        messages: list[Any] = []
        while len(messages) < 5_000:
            got = consumer.consume(1_000, TIMEOUT)
            assert got, f"{len(messages)} of 5,000 records"
            messages += got
    assert [int(one.value().split()[0]) for one in messages] == list(range(5_000))
    assert [one.timestamp()[1] for one in messages] == list(range(1_000_000, 1_005_000))
    assert messages[77].headers() == [("n", b"77"), ("empty", None)]
    assert messages[77].key() == b"0"
    assert {one.leader_epoch() for one in messages} == {0}


def test_what_a_producer_is_refused(either: EitherCluster) -> None:
    topic = either.create("refusing", 1, max_message_bytes="2000", min_insync_replicas="3")
    producer = Producer({"bootstrap.servers": either.bootstrap, "message.timeout.ms": 20_000, "acks": "all"})
    errors: dict[str, Any] = {}

    def send(name: str, to: str, partition: int, value: bytes) -> None:
        producer.produce(
            to, value, partition=partition, on_delivery=lambda error, _: errors.update({name: error})
        )
        # Else a batch would have both records, and be refused as a whole.
        assert producer.flush(TIMEOUT) == 0

    send("large", topic, 0, b"x" * 3_000)
    send("good", topic, 0, b"x")
    send("topic", "no-such-topic", 0, b"x")
    names = {name: None if error is None else error.name() for name, error in errors.items()}
    assert names["large"] == "MSG_SIZE_TOO_LARGE"
    assert names["good"] is None
    assert names["topic"] in ("_UNKNOWN_TOPIC", "UNKNOWN_TOPIC_OR_PART", "_MSG_TIMED_OUT")


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_partitions_move_when_members_come_and_go(either: EitherCluster, strategy: str) -> None:
    topic = either.create(f"group-{strategy}", 6)
    fill(either, topic, 6, 50)
    settings = {"partition_assignment_strategy": strategy}
    with ExitStack() as stack:
        consumers: list[Any] = []
        messages: list[Any] = []

        def are_shared() -> bool:
            shares = [{(p.topic, p.partition) for p in one.assignment()} for one in consumers]
            return all(shares) and sum(map(len, shares)) == len(set().union(*shares)) == 6

        for number in range(3):
            consumer = stack.enter_context(
                consumer_of(
                    either, f"g-{strategy}", enable_auto_commit=True, auto_commit_interval_ms=100, **settings
                )
            )
            consumer.subscribe([topic])
            consumers.append(consumer)
            messages += poll_all(consumers, are_shared, f"{number + 1} members share the partitions")
        consumers.pop(0).close()
        messages += poll_all(consumers, are_shared, "two members share the partitions")

        def places() -> set[tuple[int, int]]:
            return {(one.partition(), one.offset()) for one in messages}

        deadline = time.monotonic() + TIMEOUT
        while len(places()) < 300:
            assert time.monotonic() < deadline
            messages += [m for one in consumers for m in one.consume(100, 0.1) if m.error() is None]
        assert places() == {(partition, offset) for partition in range(6) for offset in range(50)}


def test_a_static_member_keeps_its_partitions(either: EitherCluster, admin: Any) -> None:
    topic = either.create("static", 4)
    settings = {"session_timeout_ms": 30_000}
    with consumer_of(either, "static", group_instance_id="a", **settings) as a:
        a.subscribe([topic])
        # It leaves with its end only, and a static member does not: its partitions wait for it.
        b: Any = Consumer(
            {
                "bootstrap.servers": either.bootstrap,
                "group.id": "static",
                "group.instance.id": "b",
                "session.timeout.ms": 30_000,
            }
        )
        b.subscribe([topic])
        poll_all([a, b], lambda: len(a.assignment()) == len(b.assignment()) == 2, "both have partitions")
        before = {one.partition for one in b.assignment()}
        kept = {one.partition for one in a.assignment()}
        b.close()
        described = only(admin.describe_consumer_groups(["static"]))
        assert {one.group_instance_id for one in described.members} == {"a", "b"}
        with consumer_of(either, "static", group_instance_id="b", **settings) as again:
            again.subscribe([topic])
            poll_all([a, again], lambda: len(again.assignment()) == 2, "the member is back")
            assert {one.partition for one in again.assignment()} == before
            assert {one.partition for one in a.assignment()} == kept


def test_seek_pause_and_watermarks(either: EitherCluster) -> None:
    topic = either.create("sought", 2)
    fill(either, topic, 2, 100)
    with consumer_of(either, "none") as consumer:
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), TIMEOUT) == (0, 100)
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        assert take(consumer, 5) == numbered(0, 5)
        consumer.seek(TopicPartition(topic, 0, 90))
        assert take(consumer, 10) == numbered(90, 100)
        consumer.incremental_assign([TopicPartition(topic, 1, 95)])
        assert take(consumer, 5) == numbered(95, 100)
        consumer.pause([TopicPartition(topic, 1)])
        with producing(either.bootstrap) as producer:
            send_all(producer, topic, [b"paused"], 1)
            send_all(producer, topic, [b"active"], 0)
        assert take(consumer, 1) == [b"active"]
        assert consumer.poll(1.0) is None
        consumer.resume([TopicPartition(topic, 1)])
        assert take(consumer, 1) == [b"paused"]
        consumer.incremental_unassign([TopicPartition(topic, 0)])
        assert [(one.partition, one.offset) for one in consumer.position([TopicPartition(topic, 1)])] == [
            (1, 101)
        ]


def test_an_offset_that_is_not_there(either: EitherCluster) -> None:
    topic = either.create("out-of-range", 1)
    fill(either, topic, 1, 10)
    with consumer_of(either, "none", auto_offset_reset="error") as consumer:
        consumer.assign([TopicPartition(topic, 0, 500)])
        message = consumer.poll(TIMEOUT)
        assert message.error().name() == "_AUTO_OFFSET_RESET"
        assert "out of range" in message.error().str().lower()
    with consumer_of(either, "none") as consumer:
        consumer.assign([TopicPartition(topic, 0, 500)])
        assert take(consumer, 1) == [b"0"]


def test_offsets_by_time(either: EitherCluster, admin: Any) -> None:
    topic = either.create("timed", 1)
    producer = Producer({"bootstrap.servers": either.bootstrap})
    for number in range(1_000):
        producer.produce(topic, b"x", timestamp=1_000_000 + 10 * number)
        if number % 100 == 99:
            assert producer.flush(TIMEOUT) == 0
    with consumer_of(either, "none") as consumer:

        def offset_at(time: int) -> int:
            (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, time)], TIMEOUT)
            return int(found.offset)

        assert [offset_at(one) for one in (0, 1_000_001, 1_005_000)] == [0, 1, 500]
        assert offset_at(1_009_991) == OFFSET_END

    def listed(spec: Any) -> tuple[int, int]:
        found = only(admin.list_offsets({TopicPartition(topic, 0): spec}))
        return found.offset, found.timestamp

    assert listed(SPEC.earliest()) == (0, -1)
    assert listed(SPEC.latest()) == (1_000, -1)
    assert listed(SPEC.for_timestamp(1_002_345)) == (235, 1_002_350)
    assert listed(SPEC.max_timestamp()) == (999, 1_009_990)


def test_commits(either: EitherCluster) -> None:
    topic = either.create("committed", 2)
    fill(either, topic, 2, 10)
    both = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    with consumer_of(either, "commits") as consumer:
        consumer.subscribe([topic])
        messages = poll_all([consumer], lambda: len(consumer.assignment()) == 2, "partitions are assigned")
        while len(messages) < 20:
            messages += consumer.consume(20 - len(messages), TIMEOUT)
        consumer.commit(
            message=next(m for m in messages if (m.partition(), m.offset()) == (0, 4)), asynchronous=False
        )
        assert [one.offset for one in consumer.committed(both, TIMEOUT)] == [5, -1001]
        consumer.commit(offsets=[TopicPartition(topic, 1, 7, metadata="seven")], asynchronous=False)
        committed = consumer.committed(both, TIMEOUT)
        assert [(one.offset, one.metadata or "") for one in committed] == [(5, ""), (7, "seven")]
    with consumer_of(either, "commits") as consumer:
        consumer.subscribe([topic])
        rest = take(consumer, 8)
    assert sorted(rest) == sorted(numbered(5, 10) + numbered(7, 10))


def test_a_pattern_finds_new_topics(either: EitherCluster) -> None:
    either.create("pattern-1", 1)
    fill(either, "pattern-1", 1, 3)
    with consumer_of(either, "pattern", topic_metadata_refresh_interval_ms=500) as consumer:
        consumer.subscribe(["^pattern-.*"])
        assert take(consumer, 3) == numbered(0, 3)
        either.create("pattern-2", 1)
        fill(either, "pattern-2", 1, 2)
        assert take(consumer, 2) == numbered(0, 2)


def test_groups_are_administrated(either: EitherCluster, admin: Any) -> None:
    topic, group = either.create("administrated", 2), "administrated"
    fill(either, topic, 2, 10)
    with consumer_of(either, group, client_id="a-client") as consumer:
        consumer.subscribe([topic])
        take(consumer, 20)
        consumer.commit(asynchronous=False)
        described = only(admin.describe_consumer_groups([group]))
        assert (described.state, described.partition_assignor) == (ConsumerGroupState.STABLE, "range")
        (member,) = described.members
        assert member.client_id == "a-client"
        assert sorted(one.partition for one in member.assignment.topic_partitions) == [0, 1]
        used = admin.delete_consumer_groups([group])
        with pytest.raises(KafkaException) as raised:
            only(used)
        assert raised.value.args[0].name() == "NON_EMPTY_GROUP"

    def is_empty() -> bool:
        found = admin.list_consumer_groups(states={ConsumerGroupState.EMPTY}).result(TIMEOUT)
        return group in [one.group_id for one in found.valid]

    wait_until(is_empty, what="the group is empty")

    def offsets() -> dict[int, int]:
        found = only(admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]))
        return {one.partition: one.offset for one in found.topic_partitions}

    assert offsets() == {0: 10, 1: 10}
    changed = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 1, 4)])
    only(admin.alter_consumer_group_offsets([changed]))
    assert offsets() == {0: 10, 1: 4}
    only(admin.delete_consumer_groups([group]))
    assert offsets() == {}


def test_records_are_deleted(either: EitherCluster, admin: Any) -> None:
    topic = either.create("deleted", 1)
    fill(either, topic, 1, 10)
    deleted = only(admin.delete_records([TopicPartition(topic, 0, 6)]))
    assert deleted.low_watermark == 6
    with consumer_of(either, "none") as consumer:
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), TIMEOUT) == (6, 10)
        consumer.assign([TopicPartition(topic, 0, 0)])
        assert take(consumer, 4) == numbered(6, 10)


def test_the_largest_timestamp_may_be_of_a_deleted_record(either: EitherCluster, admin: Any) -> None:
    topic = either.create("largest", 1)
    partition = TopicPartition(topic, 0)
    with producing(either.bootstrap) as producer:
        for timestamp in (1_000, 9_000, 2_000):
            producer.produce(topic, b"value", partition=0, timestamp=timestamp)
            producer.flush(TIMEOUT)

    def largest() -> tuple[int, int]:
        found = only(admin.list_offsets({partition: SPEC.max_timestamp()}))
        return found.offset, found.timestamp

    assert largest() == (1, 9_000)
    assert only(admin.delete_records([TopicPartition(topic, 0, 2)])).low_watermark == 2
    assert largest() == (1, 9_000)


def test_topics_and_the_cluster_are_described(either: EitherCluster, admin: Any) -> None:
    topic = either.create("described", 2)
    described = only(admin.describe_topics(TopicCollection([topic])))
    assert [(len(one.replicas), len(one.isr)) for one in described.partitions] == [(3, 3), (3, 3)]
    assert not described.is_internal
    cluster = admin.describe_cluster().result(TIMEOUT)
    assert sorted(one.id for one in cluster.nodes) == [1, 2, 3]
    assert cluster.controller.id in (1, 2, 3)


def test_a_producer_and_a_group_go_on_when_brokers_die_in_turn(either: EitherCluster) -> None:
    topic = either.create("rolling", 6, min_insync_replicas="2")
    numbers = count()
    delivered: list[int] = []
    consumed: dict[tuple[int, int], int] = {}
    producer = Producer({"bootstrap.servers": either.bootstrap, "enable.idempotence": True, "log_level": 2})
    with consumer_of(either, "rolling", log_level=2) as consumer:
        consumer.subscribe([topic])

        def work(until: Callable[[], bool], what: str) -> None:
            """Produce and consume until the condition holds, for at least 500 records."""
            first = len(delivered)
            deadline = time.monotonic() + 2 * TIMEOUT
            while len(delivered) < first + 500 or not until():
                assert time.monotonic() < deadline, f"{what}: not in time"
                if len(producer) < 200:
                    producer.produce(
                        topic,
                        b"%d" % next(numbers),
                        on_delivery=lambda error, m: (
                            delivered.append(int(m.value() or b"")) if error is None else None
                        ),
                    )
                producer.poll(0.001)
                read(0)

        def read(timeout: float) -> None:
            for message in consumer.consume(500, timeout):
                if message.error() is None:
                    consumed[message.partition(), message.offset()] = int(message.value())

        def has_consumed(wanted: int) -> bool:
            return len(consumed) >= wanted

        work(partial(has_consumed, 1), "records are consumed")
        for broker in (1, 2, 3):
            either.kill_broker(broker)
            wanted = len(consumed) + 300
            work(partial(has_consumed, wanted), f"broker {broker} is dead")
            either.start_broker(broker)
            either.wait_until_whole(topic, 6)
        assert producer.flush(TIMEOUT) == 0
        deadline = time.monotonic() + TIMEOUT
        while len(consumed) < len(delivered) and time.monotonic() < deadline:
            read(0.2)
    assert sorted(delivered) == sorted(consumed.values())
    assert len(delivered) == len(set(delivered))

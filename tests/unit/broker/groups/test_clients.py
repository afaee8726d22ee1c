"""Real consumers and producers with brokers that store records: librdkafka and kafka-python."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from ctrlchan import EmbeddedCluster
from ctrlchan.internal_topics import coordinator_partition
from tests.kafka.waiting import wait_until

DEADLINE = 90.0
PARTITIONS = 4


class Cluster:
    """Brokers that store records, with a controller of their own."""

    def __init__(self, folder: Path, count: int = 1) -> None:
        self.brokers = EmbeddedCluster(
            count,
            log_dir=folder,
            configs={"offsets.topic.num.partitions": "3", "group.min.session.timeout.ms": "100"},
        )
        self.count = count
        self.admin = self.new_admin()

    @property
    def address(self) -> str:
        return self.brokers.bootstrap_servers

    def new_admin(self) -> Any:
        return AdminClient({"bootstrap.servers": self.address, "log_level": 2})

    def create(self, topic: str) -> str:
        self.admin.create_topics([NewTopic(topic, PARTITIONS, self.count)])[topic].result(DEADLINE)
        return topic

    def produce(self, topic: str, count: int, **settings: Any) -> None:
        """Produce `count` records, one after another in the partitions in turn."""
        producer = Producer({"bootstrap.servers": self.address, "log_level": 2, "linger.ms": 0, **settings})
        errors: list[Any] = []
        for number in range(count):
            producer.produce(
                topic,
                str(number),
                partition=number % PARTITIONS,
                on_delivery=lambda error, _: errors.append(error) if error else None,
            )
        assert producer.flush(DEADLINE) == 0
        assert errors == []

    @contextmanager
    def consumer(self, group: str, **settings: Any) -> Iterator[Any]:
        consumer = Consumer(
            {
                "bootstrap.servers": self.address,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 30_000,
                "heartbeat.interval.ms": 100,
                "fetch.wait.max.ms": 50,
                "log_level": 2,
                **settings,
            }
        )
        try:
            yield consumer
        finally:
            consumer.close()

    def members(self, group: str) -> dict[str, list[int]]:
        """Member id -> partitions of a Stable group, by DescribeGroups; {} in other states."""
        found = self.admin.describe_consumer_groups([group])[group].result(DEADLINE)
        if found.state.name != "STABLE":
            return {}
        return {
            member.member_id: sorted(one.partition for one in member.assignment.topic_partitions)
            for member in found.members
        }

    def close(self) -> None:
        self.brokers.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("logs"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def kafka_python() -> ModuleType:
    with warnings.catch_warnings():
        # It reads its schemas through a deprecated function of the standard library.
        warnings.simplefilter("ignore", DeprecationWarning)
        import kafka

    logging.getLogger("kafka").setLevel(logging.ERROR)
    return kafka  # type: ignore[no-any-return]


def poll_until(consumers: list[Any], condition: Callable[[], bool], what: str) -> None:
    """Poll all consumers until the condition holds."""

    def poll() -> bool:
        for consumer in consumers:
            consumer.poll(0.02)
        return condition()

    wait_until(poll, timeout=DEADLINE, what=what)


def take(consumers: list[Any], count: int) -> list[int]:
    """The next `count` values that the consumers get, sorted."""
    values: list[int] = []

    def poll() -> bool:
        for consumer in consumers:
            while (message := consumer.poll(0.05)) is not None:
                if message.error() is None:
                    values.append(int(message.value()))
        return len(values) >= count

    wait_until(poll, timeout=DEADLINE, what=f"{count} records")
    return sorted(values)


def test_two_consumers_share_a_topic_until_one_leaves(cluster: Cluster) -> None:
    topic = cluster.create("shared")
    with cluster.consumer("shared-group") as first:
        first.subscribe([topic])
        poll_until([first], lambda: len(first.assignment()) == PARTITIONS, "all partitions")
        with cluster.consumer("shared-group") as second:
            second.subscribe([topic])
            poll_until(
                [first, second],
                lambda: [len(one.assignment()) for one in (first, second)] == [2, 2],
                "two partitions for each",
            )
            assert sorted(cluster.members("shared-group").values()) == [[0, 1], [2, 3]]
            cluster.produce(topic, 20)
            assert take([first, second], 20) == list(range(20))
        poll_until([first], lambda: len(first.assignment()) == PARTITIONS, "all partitions again")


def test_a_consumer_goes_on_after_its_commit(cluster: Cluster) -> None:
    topic = cluster.create("resumed")
    cluster.produce(topic, 12)
    with cluster.consumer("resuming") as first:
        first.subscribe([topic])
        assert take([first], 12) == list(range(12))
        first.commit(asynchronous=False)
    cluster.produce(topic, 4)
    with cluster.consumer("resuming") as second:
        second.subscribe([topic])
        assert take([second], 4) == list(range(4))
        second.commit(asynchronous=False)
    with cluster.consumer("resuming") as third:
        committed = third.committed([TopicPartition(topic, one) for one in range(PARTITIONS)], DEADLINE)
        assert [one.offset for one in committed] == [4, 4, 4, 4]


def test_a_static_member_returns_to_its_partitions(cluster: Cluster) -> None:
    topic = cluster.create("static")
    rebalances: list[list[int]] = []
    with cluster.consumer("static-group", **{"group.instance.id": "stays"}) as stays:
        stays.subscribe(
            [topic], on_assign=lambda _, assigned: rebalances.append([one.partition for one in assigned])
        )
        with cluster.consumer("static-group", **{"group.instance.id": "returns"}) as returns:
            returns.subscribe([topic])
            poll_until(
                [stays, returns],
                lambda: [len(one.assignment()) for one in (stays, returns)] == [2, 2],
                "two partitions for each",
            )
        before, members = len(rebalances), cluster.members("static-group")
        with cluster.consumer("static-group", **{"group.instance.id": "returns"}) as returns:
            returns.subscribe([topic])
            poll_until([stays, returns], lambda: len(returns.assignment()) == 2, "its partitions")
            assert sorted(cluster.members("static-group").values()) == sorted(members.values())
            assert len(rebalances) == before
        # A static member that closes does not leave.
        assert len(cluster.members("static-group")) == 2


def test_groups_live_on_when_the_broker_is_killed(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    try:
        topic = cluster.create("restarted")
        cluster.produce(topic, 8)
        with cluster.consumer("survivors") as consumer:
            consumer.subscribe([topic])
            assert take([consumer], 8) == list(range(8))
            consumer.commit(asynchronous=False)
            cluster.brokers.kill_broker(1)
            cluster.brokers.start_broker(1)
            cluster.produce(topic, 4)
            assert take([consumer], 4) == list(range(4))
            consumer.commit(asynchronous=False)
            assert list(cluster.members("survivors").values()) == [[0, 1, 2, 3]]
    finally:
        cluster.close()


@pytest.mark.long
def test_another_broker_takes_the_groups_over(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, 3)
    try:
        topic = cluster.create("replicated")
        cluster.produce(topic, 8, acks="all")
        with cluster.consumer("moved") as consumer:
            consumer.subscribe([topic])
            assert take([consumer], 8) == list(range(8))
            consumer.commit(asynchronous=False)
            found = cluster.admin.describe_consumer_groups(["moved"])["moved"].result(DEADLINE)
            cluster.brokers.kill_broker(found.coordinator.id)
            cluster.produce(topic, 4, acks="all")
            assert take([consumer], 4) == list(range(4))
            consumer.commit(asynchronous=False)
            # librdkafka's admin client does not look for another coordinator.
            admin = cluster.new_admin()
            moved = admin.describe_consumer_groups(["moved"])["moved"].result(DEADLINE)
            assert moved.coordinator.id != found.coordinator.id
            assert [member.member_id for member in moved.members] == [one.member_id for one in found.members]
            committed = consumer.committed(
                [TopicPartition(topic, one) for one in range(PARTITIONS)], DEADLINE
            )
            assert [one.offset for one in committed] == [3, 3, 3, 3]
    finally:
        cluster.close()


@pytest.mark.long
def test_the_coordinator_of_an_active_group_moves(tmp_path: Path) -> None:
    """Members read, commit and join while the leadership of their partition goes from broker to broker."""
    cluster = Cluster(tmp_path, 3)
    try:
        topic = cluster.create("wandering")
        partition = coordinator_partition("wanderers", 3)
        expected = 0

        def commit(consumers: list[Any]) -> None:
            for consumer in consumers:
                wait_until(lambda: committed(consumer), timeout=DEADLINE, what="a commit")  # noqa: B023

        def committed(consumer: Any) -> bool:
            try:
                consumer.commit(asynchronous=False)
            except KafkaException as failure:
                error = failure.args[0]
                assert error.retriable() or error.name() in ("_NO_OFFSET", "NOT_COORDINATOR"), error
                return bool(error.name() == "_NO_OFFSET")
            return True

        with cluster.consumer("wanderers") as first, cluster.consumer("wanderers") as second:
            consumers = [first, second]
            for consumer in consumers:
                consumer.subscribe([topic])
            poll_until(
                consumers,
                lambda: [len(one.assignment()) for one in consumers] == [2, 2],
                "two partitions for each",
            )
            for turn in range(6):
                cluster.brokers.move_leader("__consumer_offsets", partition, 1 + turn % 3)
                cluster.produce(topic, 8, acks="all")
                expected += 2
                assert take(consumers, 8) == list(range(8))
                commit(consumers)
            # The group was loaded by each broker: nobody had to join again.
            admin = cluster.new_admin()
            found = admin.describe_consumer_groups(["wanderers"])["wanderers"].result(DEADLINE)
            assert (found.coordinator.id, len(found.members)) == (3, 2)
            with cluster.consumer("wanderers") as third:
                third.subscribe([topic])
                third.poll(0.1)
                cluster.brokers.move_leader("__consumer_offsets", partition, 1)
                consumers.append(third)
                poll_until(
                    consumers,
                    lambda: sorted(len(one.assignment()) for one in consumers) == [1, 1, 2],
                    "partitions for all three",
                )
                ends = [TopicPartition(topic, one) for one in range(PARTITIONS)]
                assert [one.offset for one in third.committed(ends, DEADLINE)] == [expected] * PARTITIONS
    finally:
        cluster.close()


def test_admin_clients_see_and_change_groups(cluster: Cluster) -> None:
    topic = cluster.create("administered")
    cluster.produce(topic, 4)
    admin, group = cluster.admin, "administered-group"
    with cluster.consumer(group) as consumer:
        consumer.subscribe([topic])
        take([consumer], 4)
        consumer.commit(asynchronous=False)
        with pytest.raises(KafkaException, match="NON_EMPTY_GROUP"):
            admin.delete_consumer_groups([group])[group].result(DEADLINE)
    listed = admin.list_consumer_groups().result(DEADLINE).valid
    assert group in {one.group_id for one in listed}
    offsets = [TopicPartition(topic, 1, 77)]
    request = [ConsumerGroupTopicPartitions(group, offsets)]
    admin.alter_consumer_group_offsets(request)[group].result(DEADLINE)
    found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(DEADLINE)
    assert {one.partition: one.offset for one in found.topic_partitions} == {0: 1, 1: 77, 2: 1, 3: 1}
    admin.delete_consumer_groups([group])[group].result(DEADLINE)
    found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(DEADLINE)
    assert found.topic_partitions == []


def test_kafka_pythons_consumers_share_a_topic(cluster: Cluster, kafka_python: ModuleType) -> None:
    topic = cluster.create("python")
    cluster.produce(topic, 8)

    def consumer() -> Any:
        return kafka_python.KafkaConsumer(
            topic,
            bootstrap_servers=cluster.address,
            group_id="python-group",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=100,
        )

    first = consumer()
    second = None
    try:
        got: list[int] = []

        def poll(consumers: list[Any], condition: Callable[[], bool], what: str) -> None:
            def once() -> bool:
                for one in consumers:
                    # After shorter calls, which end amid a rebalance, kafka-python forgets its assignment.
                    got.extend(int(row.value) for rows in one.poll(500).values() for row in rows)
                return condition()

            wait_until(once, timeout=DEADLINE, what=what)

        poll([first], lambda: len(got) == 8, "all records")
        first.commit()
        second = consumer()
        poll(
            [first, second],
            lambda: [len(one.assignment()) for one in (first, second)] == [2, 2],
            "two partitions for each",
        )
        assert sorted(got) == list(range(8))
        ends = [kafka_python.TopicPartition(topic, one) for one in range(PARTITIONS)]
        assert [second.committed(one) for one in ends] == [2, 2, 2, 2]
    finally:
        first.close()
        if second is not None:
            second.close()


def test_an_idempotent_producer_gets_an_id(cluster: Cluster) -> None:
    topic = cluster.create("idempotent")
    cluster.produce(topic, 40, **{"enable.idempotence": True})
    with cluster.consumer("idempotent-group") as consumer:
        consumer.subscribe([topic])
        assert take([consumer], 40) == list(range(40))

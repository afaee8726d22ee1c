"""Throttled replicas: what leaders and followers leave out while a replication quota is exceeded."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ctrlchan.broker.config.log_config import ALL_REPLICAS, LogConfig
from ctrlchan.broker.log._log import Log
from ctrlchan.broker.quota._replication_quota import ReplicationQuota
from ctrlchan.broker.quota.replication import throttled_rates
from ctrlchan.broker.replica._partitions import Partition, PartitionTable
from ctrlchan.broker.replica.fetcher import ReplicaFetchers
from ctrlchan.config import table
from tests.kafka.waiting import wait_until
from tests.simulation._operating_system import SimulatedClock
from tests.unit.broker.log.made_batches import batch
from tests.unit.broker.replica.fetching import (
    BATCH,
    BROKER,
    EPOCH,
    FOLLOWER,
    VALUE,
    Answer,
    Asked,
    Broker,
    Fetcher,
    broker_in,
)
from tests.unit.broker.replica.test_fetcher import SOON

REPLICAS = (BROKER, FOLLOWER)
THROTTLED = LogConfig(leader_throttled_replicas=ALL_REPLICAS)
#: A response of version 12 with one partition of the topic ``t`` without records: size field, throttle time,
#: error, session, topics, name, partitions, offsets, no aborted transactions, replica, no records, and tags.
EMPTY_ANSWER = 4 + 4 + 2 + 4 + 1 + 2 + 1 + 30 + 1 + 4 + 1 + 1 + 1 + 1


def of_topic(**values: str) -> LogConfig:
    return LogConfig().with_configs({name.replace("_", "."): value for name, value in values.items()})


# -- the rate


def test_a_quota_is_exceeded_until_time_has_passed() -> None:
    clock = SimulatedClock(1_000_000)
    quota = ReplicationQuota(samples=10, clock=clock)

    def sleep(ms: int) -> None:
        clock.advance(ms * 1_000_000)

    quota.limit(100)
    assert not quota.is_exceeded
    sleep(1500)
    quota.record(1)
    quota.record(149)
    assert not quota.is_exceeded
    quota.record(1)
    assert quota.byte_rate == 151 / 1.5
    assert quota.is_exceeded
    sleep(500)
    assert quota.byte_rate == 151 / 2
    assert not quota.is_exceeded
    sleep(500)
    quota.record(99)
    assert quota.byte_rate == 250 / 2.5
    assert not quota.is_exceeded
    quota.record(1)
    assert quota.is_exceeded
    sleep(2000)
    assert quota.byte_rate == 251 / 4.5
    assert not quota.is_exceeded


def test_a_bound_changes() -> None:
    quota = ReplicationQuota(clock=SimulatedClock(1))
    quota.record(2**40)
    assert not quota.is_exceeded
    quota.limit(0)
    assert quota.is_exceeded
    quota.limit(2**41)
    assert not quota.is_exceeded
    quota.limit(1)
    quota.limit(None)
    assert not quota.is_exceeded


def test_rates_are_parsed() -> None:
    leader, follower = table.LEADER_REPLICATION_THROTTLED_RATE, table.FOLLOWER_REPLICATION_THROTTLED_RATE
    moves = table.REPLICA_ALTER_LOG_DIRS_IO_MAX_BYTES_PER_SECOND
    assert throttled_rates({}) == (None, None, None)
    assert throttled_rates({leader.name: "5", follower.name: "0", moves.name: "7"}) == (5, 0, 7)


# -- which replicas


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("", [False, False, False]),
        ("*", [True, True, True]),
        (f"0:{BROKER},2:{BROKER},1:{FOLLOWER}", [True, False, True]),
        (f"00:0{BROKER}", [True, False, False]),
    ],
)
def test_which_replicas_are_throttled(tmp_path: Path, value: str, expected: list[bool]) -> None:
    config = of_topic(follower_replication_throttled_replicas=value)
    with broker_in(tmp_path) as broker:
        partitions = [broker.lead("t", index=index, config=config) for index in range(3)]
        assert [one.follower_is_throttled for one in partitions] == expected
        for one in partitions:
            one.update_config(LogConfig())
        assert [one.follower_is_throttled for one in partitions] == [False] * 3
        close(broker)


# -- the leader


def close(broker: Broker) -> None:
    for partition in broker.table.partitions():
        if partition.log is not None:
            partition.log.close_files()


class WatchedQuota(ReplicationQuota):
    """Counts who has asked whether it is exceeded."""

    asked = 0

    @property
    def is_exceeded(self) -> bool:
        self.asked += 1
        return super().is_exceeded


@pytest.fixture
def quota() -> WatchedQuota:
    return WatchedQuota(clock=SimulatedClock(1_000_000))


@pytest.fixture
def leader(tmp_path: Path, quota: ReplicationQuota) -> Iterator[Broker]:
    with broker_in(tmp_path, leader_quota=quota) as broker:
        yield broker
        close(broker)


def exceed(quota: ReplicationQuota) -> None:
    quota.record(1)
    quota.limit(0)
    assert quota.is_exceeded


def fetch_both(leader: Broker, replica: int = FOLLOWER) -> list[int]:
    """Return how many batches each of two partitions is answered with."""
    with Fetcher(leader.server) as fetcher:
        answer = fetcher.fetch(Asked("t"), Asked("u"), replica=replica)
    assert [one.error for one in answer.partitions.values()] == [0, 0]
    return [len(one.batches) for one in answer.partitions.values()]


def lead_both(leader: Broker, isr: tuple[int, ...]) -> None:
    leader.lead("t", 1, replicas=REPLICAS, isr=isr)
    leader.lead("u", 1, replicas=REPLICAS, isr=isr, config=THROTTLED)


def test_a_quota_that_is_not_exceeded_leaves_nothing_out(leader: Broker, quota: ReplicationQuota) -> None:
    lead_both(leader, (BROKER,))
    quota.limit(10**9)
    assert fetch_both(leader) == [1, 1]


def test_throttled_partitions_are_left_out(leader: Broker, quota: ReplicationQuota) -> None:
    lead_both(leader, (BROKER,))
    exceed(quota)
    assert fetch_both(leader) == [1, 0]


def test_no_partition_has_records_where_all_are_throttled(leader: Broker, quota: ReplicationQuota) -> None:
    for topic in ("t", "u"):
        leader.lead(topic, 1, replicas=REPLICAS, isr=(BROKER,), config=THROTTLED)
    exceed(quota)
    assert fetch_both(leader) == [0, 0]


def test_a_follower_in_sync_is_not_throttled(leader: Broker, quota: ReplicationQuota) -> None:
    lead_both(leader, REPLICAS)
    exceed(quota)
    assert fetch_both(leader) == [1, 1]


def test_a_consumer_is_not_throttled(leader: Broker, quota: ReplicationQuota) -> None:
    for topic in ("t", "u"):
        leader.lead(topic, 1, config=THROTTLED)
    exceed(quota)
    assert fetch_both(leader, replica=-1) == [1, 1]


def test_a_throttled_follower_waits(leader: Broker, quota: ReplicationQuota) -> None:
    """Records that it may not get end no wait, of an older segment neither; those of others do."""
    config = replace(THROTTLED, segment_bytes=BATCH)
    partition = leader.lead("t", 3, replicas=REPLICAS, isr=(BROKER,), config=config)
    other = leader.lead("u", replicas=REPLICAS, isr=(BROKER,))
    exceed(quota)
    with Fetcher(leader.server) as fetcher:
        fetcher.send(Asked("t"), Asked("u"), replica=FOLLOWER, max_wait_ms=60_000)
        wait_until(lambda: leader.api.counters()["waiting"] == 1, what="the request waits")
        leader.append(partition)
        time.sleep(0.05)
        assert leader.api.counters()["waiting"] == 1
        leader.append(other)
        answer = fetcher.receive()
        assert [len(one.batches) for one in answer.partitions.values()] == [0, 1]
        # In sync it has its records at once.
        partition.set_isr(REPLICAS, 2)
        answer = fetcher.fetch(Asked("t"), replica=FOLLOWER, max_wait_ms=60_000)
        assert len(answer.partitions["t", 0].batches) > 0


def test_what_a_leader_counts(leader: Broker, quota: ReplicationQuota) -> None:
    """The throttled partitions of a response, those in sync, too, with all fields around them."""
    leader.lead("t", 2, replicas=REPLICAS, isr=REPLICAS, config=THROTTLED)
    leader.lead("u", 3, replicas=REPLICAS, isr=(BROKER,))

    def counted(*asked: Asked, replica: int = FOLLOWER) -> float:
        before = quota.byte_rate
        with Fetcher(leader.server, 12) as fetcher:
            answer: Answer = fetcher.fetch(*asked, replica=replica)
        assert not any(one.error for one in answer.partitions.values())
        return quota.byte_rate - before

    assert counted(Asked("u")) == 0
    assert counted(Asked("t"), replica=-1) == 0
    # One byte more for the size of the records.
    assert counted(Asked("t")) == EMPTY_ANSWER + 1 + 2 * BATCH
    assert counted(Asked("u"), Asked("t")) == EMPTY_ANSWER + 1 + 2 * BATCH
    assert counted(Asked("t", offset=2)) == EMPTY_ANSWER


# -- the follower


class Following:
    """A follower of a leader in the same process."""

    def __init__(self, leader: Broker, quota: ReplicationQuota) -> None:
        self.leader = leader
        self.table = PartitionTable(FOLLOWER)
        address = "127.0.0.1", leader.server.ports["PLAINTEXT"]
        self.fetchers = ReplicaFetchers(FOLLOWER, lambda _: address, lambda *_: None, SOON, quota=quota)

    def follow(self, topic: str, config: LogConfig) -> Partition:
        partition = self.table.open(topic, 0)
        partition.make_follower(
            Log(self.leader.folder / f"{topic}-follower", config), BROKER, EPOCH, 1, REPLICAS
        )
        self.fetchers.follow(partition)
        return partition

    def close(self) -> None:
        self.fetchers.stop()
        for partition in self.table.partitions():
            if partition.log is not None:
                partition.log.close_files()
        self.table.close()


@pytest.fixture
def following(tmp_path: Path, quota: ReplicationQuota) -> Iterator[Following]:
    with broker_in(tmp_path) as leader:
        following = Following(leader, quota)
        yield following
        following.close()
        close(leader)


def test_a_follower_leaves_out_what_is_throttled(following: Following, quota: ReplicationQuota) -> None:
    throttled = LogConfig(follower_throttled_replicas=frozenset({(0, FOLLOWER)}))
    leader = following.leader
    for topic in ("t", "u"):
        leader.lead(topic, 2, replicas=REPLICAS)
    exceed(quota)
    t, u = following.follow("t", throttled), following.follow("u", LogConfig())

    def end_of(partition: Partition) -> int:
        return -1 if partition.log is None else partition.log.end_offset

    wait_until(lambda: end_of(u) == 2, what="the other partition is copied")
    assert end_of(t) == 0
    quota.limit(10**6)
    wait_until(lambda: end_of(t) == 2, what="the partition is copied")
    # What was not throttled does not count; one byte is from the start.
    assert quota.byte_rate == 1 + 2 * BATCH
    # In sync it is not left out.
    wait_until(lambda: t.high_watermark == 2, what="the follower is in sync")
    quota.limit(0)
    partition = leader.table.get("t", 0)
    assert partition is not None
    assert partition.append(batch([VALUE])).result(20)[0] == 0
    wait_until(lambda: end_of(t) == 3, what="a record of a partition in sync")


def test_a_follower_that_may_fetch_nothing_pauses(following: Following, quota: WatchedQuota) -> None:
    leader = following.leader
    leader.lead("t", 1, replicas=REPLICAS)
    exceed(quota)
    partition = following.follow("t", LogConfig(follower_throttled_replicas=ALL_REPLICAS))
    before = quota.asked
    wait_until(lambda: quota.asked >= before + 3, what="the follower has paused twice")
    assert leader.api.counters()["requests"] == 0
    quota.limit(None)
    wait_until(lambda: partition.log is not None and partition.log.end_offset == 1, what="a record")

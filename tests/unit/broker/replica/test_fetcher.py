"""Followers: logs that are copied from a leader, and truncated where they differ from it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ctrlchan.broker.config.log_config import LogConfig
from ctrlchan.broker.config.parts import FetcherSettings
from ctrlchan.broker.handlers import list_offsets
from ctrlchan.broker.log._log import Log
from ctrlchan.broker.metadata.jvm_order import string_hashes
from ctrlchan.broker.replica._partitions import Partition, PartitionTable
from ctrlchan.broker.replica.fetcher import ReplicaFetchers, _FetcherThread
from ctrlchan.broker.replica.thread_choice import thread_of
from ctrlchan.server._processor import TakenRequest
from ctrlchan.server.request_handler import RequestHandler
from tests.kafka.waiting import wait_until
from tests.unit.broker.log.made_batches import batch, headers
from tests.unit.broker.replica.fetching import BROKER, EPOCH, FOLLOWER, VALUE, Broker, broker_in
from tests.unit.server.serving import handling

REPLICAS = (BROKER, FOLLOWER)
SOON = FetcherSettings(max_wait_ms=100, backoff_ms=10)


class Cluster:
    """A leader with a server, and a follower in the same process."""

    def __init__(self, leader: Broker, folder: Path) -> None:
        self.leader = leader
        self.folder = folder
        self.table = PartitionTable(FOLLOWER)
        self.address: tuple[str, int] | None = ("127.0.0.1", leader.server.ports["PLAINTEXT"])
        self.fetchers = ReplicaFetchers(FOLLOWER, lambda _broker: self.address, self.truncate, SOON)
        core: Any = SimpleNamespace(id=BROKER, partitions=leader.table)
        self.handler = RequestHandler(core, {list_offsets.API.key: list_offsets.API})

    def truncate(self, topic: str, index: int, offset: int) -> None:
        partition = self.table.get(topic, index)
        assert partition is not None
        assert partition.log is not None
        partition.log.truncate_to(offset)

    def handle(self, request: TakenRequest) -> None:
        answer = self.handler.serve(request.frame, request.context)
        assert isinstance(answer, tuple)
        request.answer(answer)

    def follow(
        self, topic: str, log: Log | None = None, *, epoch: int = EPOCH, partition_epoch: int = 1
    ) -> Partition:
        partition = self.table.open(topic, 0)
        if log is None:
            log = partition.log or Log(self.folder / f"{topic}-follower", LogConfig())
        partition.make_follower(log, BROKER, epoch, partition_epoch, REPLICAS)
        self.fetchers.follow(partition)
        return partition


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with broker_in(tmp_path) as leader:
        cluster = Cluster(leader, tmp_path)
        with handling(leader.server, cluster.handle):
            yield cluster
            cluster.fetchers.stop()
        for partition in [*cluster.table.partitions(), *leader.table.partitions()]:
            if partition.log is not None:
                partition.log.close_files()
        cluster.table.close()


def batches(partition: Partition) -> list[tuple[int, int]]:
    return headers(partition.read(partition.log.start_offset if partition.log else 0, 1 << 20))


def same(one: Partition, other: Partition) -> bool:
    assert one.log is not None
    assert other.log is not None
    ends = one.log.end_offset, one.log.leader_epochs(), one.high_watermark
    return ends == (other.log.end_offset, other.log.leader_epochs(), other.high_watermark)


def test_a_follower_has_what_the_leader_has(cluster: Cluster) -> None:
    orders = cluster.leader.lead("orders", 3, replicas=REPLICAS)
    users = cluster.leader.lead("users", 1, replicas=REPLICAS)
    followers = [cluster.follow("orders"), cluster.follow("users")]
    # The producer's answer waits for the follower.
    assert orders.append(batch([VALUE, VALUE])).result(20)[0] == 0
    wait_until(lambda: same(orders, followers[0]) and same(users, followers[1]), what="equal logs")
    assert orders.high_watermark == 5
    assert batches(followers[0]) == batches(orders)
    size = len(orders.read(0, 1 << 20))
    assert orders.log is not None
    orders.log.increment_start_offset(4)
    wait_until(
        lambda: followers[0].log and followers[0].log.start_offset == 4, what="the deletion of records"
    )
    wait_until(lambda: orders.low_watermark == 4, what="the low watermark")
    figures = cluster.fetchers.figures()
    assert figures.bytes == sum(len(one.read(0, 1 << 20)) for one in (users,)) + size
    assert figures.requests > 2
    assert {(topic, lag) for (topic, *_), lag in figures.lags.items()} == {("orders", 0), ("users", 0)}
    # What was copied is counted after the end of the thread, too.
    cluster.fetchers.unfollow("orders", 0)
    cluster.fetchers.unfollow("users", 0)
    after = cluster.fetchers.figures()
    assert (after.bytes, after.lags) == (figures.bytes, {})
    assert after.requests >= figures.requests


def test_what_a_follower_has_is_flushed_where_the_topic_says_so(cluster: Cluster) -> None:
    orders = cluster.leader.lead("orders", 1, replicas=REPLICAS)
    log = Log(cluster.folder / "orders-follower", LogConfig(flush_messages=1))
    follower = cluster.follow("orders", log)
    # Its own fetch says that it has the record.
    assert orders.append(batch([VALUE])).result(20)[0] == 0
    assert log.recovery_point == log.end_offset == 2
    assert follower.log is log


def test_a_log_that_differs_is_truncated(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ctrlchan.broker")
    orders = cluster.leader.lead("orders", 3, replicas=REPLICAS)
    assert orders.log is not None
    log = Log(cluster.folder / "other", LogConfig())
    log.append_as_follower(batch([VALUE], base_offset=0, leader_epoch=EPOCH))
    for offset, epoch in [(1, EPOCH + 1), (2, EPOCH + 1), (3, EPOCH + 2), (4, EPOCH + 4)]:
        log.append_as_follower(batch([b"other"], base_offset=offset, leader_epoch=epoch))
    orders.make_leader(orders.log, EPOCH + 5, 2, REPLICAS, (BROKER,))
    cluster.leader.append(orders)
    follower = cluster.follow("orders", log, epoch=EPOCH + 5)
    wait_until(lambda: same(orders, follower), what="equal logs")
    assert follower.read(0, 1 << 20) == orders.read(0, 1 << 20)
    lines = [line for line in caplog.messages if "is truncated to offset" in line]
    assert lines
    context = f"[ReplicaFetcher replicaId={FOLLOWER}, leaderId={BROKER}, fetcherId=0] "
    assert all(line.startswith(context) for line in lines)


def test_a_log_that_the_leader_has_nothing_for_begins_anew(cluster: Cluster) -> None:
    orders = cluster.leader.lead("orders", 5)
    assert orders.log is not None
    orders.log.increment_start_offset(4)
    orders.make_leader(orders.log, EPOCH, 2, REPLICAS, (BROKER,))
    follower = cluster.follow("orders")
    wait_until(lambda: same(orders, follower), what="equal logs")
    assert batches(follower) == [(4, 1)]


def test_a_log_that_is_longer_than_its_leaders(cluster: Cluster) -> None:
    orders = cluster.leader.lead("orders", 2, replicas=REPLICAS)
    log = Log(cluster.folder / "longer", LogConfig())
    for offset in range(4):
        log.append_as_follower(batch([VALUE], base_offset=offset, leader_epoch=EPOCH))
    follower = cluster.follow("orders", log)
    wait_until(lambda: same(orders, follower), what="equal logs")
    assert log.end_offset == 2


def test_a_leader_that_is_not_there_yet(cluster: Cluster) -> None:
    address, cluster.address = cluster.address, None
    follower = cluster.follow("orders")
    cluster.address = ("127.0.0.1", 1)
    orders = cluster.leader.lead("orders", 1, replicas=REPLICAS)
    cluster.address = address
    wait_until(lambda: same(orders, follower), what="equal logs")


def test_a_partition_of_another_epoch_waits_for_the_controller(cluster: Cluster) -> None:
    orders = cluster.leader.lead("orders", 1, replicas=REPLICAS)
    assert orders.log is not None
    orders.make_leader(orders.log, EPOCH + 1, 2, REPLICAS, REPLICAS)
    cluster.leader.append(orders)
    users = cluster.leader.lead("users", 1, replicas=REPLICAS)
    old, follower = cluster.follow("orders"), cluster.follow("users")
    wait_until(lambda: same(users, follower), what="equal logs")
    assert old.log is not None
    assert old.log.end_offset == 0
    cluster.follow("orders", epoch=EPOCH + 1, partition_epoch=2)
    wait_until(lambda: same(orders, old), what="equal logs")


def test_a_log_that_is_not_followed_does_not_change(cluster: Cluster) -> None:
    orders = cluster.leader.lead("orders", 1, replicas=REPLICAS)
    follower = cluster.follow("orders")
    wait_until(lambda: same(orders, follower), what="equal logs")
    cluster.fetchers.unfollow("orders", 0)
    assert follower.log is not None
    follower.make_leader(follower.log, EPOCH + 1, 2, (FOLLOWER,), (FOLLOWER,))
    cluster.leader.append(orders)
    Broker.append(follower)
    assert follower.log.leader_epochs()[-1][0] == EPOCH + 1
    cluster.fetchers.stop()
    cluster.follow("users")
    assert follower.log.end_offset == 2


def test_a_log_begins_with_the_batch_in_which_its_leaders_log_begins(cluster: Cluster) -> None:
    orders = cluster.leader.lead("orders", 1)
    assert orders.log is not None
    cluster.leader.append(orders, VALUE, VALUE, VALUE, VALUE)
    orders.log.increment_start_offset(3)
    orders.make_leader(orders.log, EPOCH, 2, REPLICAS, (BROKER,))
    follower = cluster.follow("orders")
    wait_until(lambda: same(orders, follower), what="equal logs")
    wait_until(lambda: follower.log and follower.log.start_offset == 3, what="the deletion of records")
    assert follower.read(3, 1 << 20) == orders.read(3, 1 << 20)


def test_a_partition_with_many_records_does_not_hold_up_others(cluster: Cluster) -> None:
    # An answer has room for one batch.
    settings = replace(SOON, max_bytes=1, partition_max_bytes=1)
    thread = _FetcherThread(FOLLOWER, BROKER, 0, lambda _broker: cluster.address, cluster.truncate, settings)
    followers = []
    for topic in ("busy", "orders"):
        cluster.leader.lead(topic, 3, replicas=REPLICAS)
        followers.append(cluster.table.open(topic, 0))
        log = Log(cluster.folder / f"{topic}-follower", LogConfig())
        followers[-1].make_follower(log, BROKER, EPOCH, 1, REPLICAS)
        thread.follow(followers[-1])
    for _ in range(4):
        asked = thread._next()
        thread._apply(asked, thread._fetch(asked))
    thread._close()
    assert [follower.log and follower.log.end_offset for follower in followers] == [2, 2]


def test_a_partition_that_fails_does_not_hold_up_others(cluster: Cluster) -> None:
    def fails(topic: str, partition: int, offset: int) -> None:
        if topic == "orders":
            raise OSError("the disk fails")
        cluster.truncate(topic, partition, offset)

    cluster.fetchers = ReplicaFetchers(FOLLOWER, lambda _broker: cluster.address, fails, SOON)
    log = Log(cluster.folder / "other", LogConfig())
    log.append_as_follower(batch([VALUE], base_offset=0, leader_epoch=EPOCH - 1))
    cluster.leader.lead("orders", 1, replicas=REPLICAS)
    users = cluster.leader.lead("users", 1, replicas=REPLICAS)
    cluster.follow("orders", log)
    follower = cluster.follow("users")
    wait_until(lambda: same(users, follower), what="equal logs")
    assert log.end_offset == 1


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_partitions_are_spread_as_by_kafka(threads: int) -> None:
    topics = ["orders", "überweisungen", "a-topic.with_all"]
    [*hashes] = string_hashes(topics).astype(np.int32).tolist()
    for topic, hashed in zip(topics, hashes, strict=True):
        for index in range(20):
            wrapped = int(np.array([31 * hashed + index]).astype(np.int32)[0])
            assert thread_of(topic, index, threads) == abs(wrapped) % threads


def test_threads_of_a_leader_can_become_more_and_less(cluster: Cluster) -> None:
    names = [f"topic-{number}" for number in range(4)]
    leaders = [cluster.leader.lead(name, 1, replicas=REPLICAS) for name in names]
    followers = [cluster.follow(name) for name in names]
    for count in (3, 1, 2):
        cluster.fetchers.resize(count)
        running = {one.name for one in threading.enumerate()}
        assert {f"fetcher-{BROKER}-{thread_of(name, 0, count)}" for name in names} <= running
        for leader in leaders:
            cluster.leader.append(leader)
        wait_until(lambda: all(map(same, leaders, followers)), what=f"equal logs with {count} threads")

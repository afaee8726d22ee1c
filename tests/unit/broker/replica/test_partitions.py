"""Partitions from Python: who leads, appends that wait for followers, the ISR."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

from ctrlchan.broker.config.log_config import LogConfig
from ctrlchan.broker.log._batches import Origin
from ctrlchan.broker.log._log import READ_HIGH_WATERMARK, Log
from ctrlchan.broker.replica._partitions import Partition, PartitionTable, WantedIsr
from ctrlchan.errors import ErrorCode, KafkaError
from tests.unit.broker.log.made_batches import batch, headers

OURS, OTHER, THIRD = 1, 2, 3
SOON = 20.0
TOPIC_ID = bytes(range(16))


class Rig:
    """A table, its calls back, and logs in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.wanted: queue.Queue[WantedIsr] = queue.Queue()
        self.failed: queue.Queue[Partition] = queue.Queue()
        self.table = PartitionTable(
            OURS,
            isr_wanted=lambda _, wanted: self.wanted.put(wanted),
            storage_failed=self.failed.put,
            max_lag_ms=1000,
        )

    def log(self, **config: int | str) -> Log:
        return Log(self.folder / "t-0", LogConfig(**config))  # type: ignore[arg-type]

    def leader(self, *replicas: int, isr: tuple[int, ...] | None = None, **config: int | str) -> Partition:
        partition = self.table.open("t", 0, TOPIC_ID)
        replicas = (OURS, *replicas)
        partition.make_leader(self.log(**config), 5, 7, replicas, replicas if isr is None else isr)
        return partition


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path)
    yield rig
    rig.table.close()


def fetched(partition: Partition, replica: int, offset: int, now_ms: int = 10**13) -> None:
    partition.update_follower(replica, offset, -1, now_ms)


def test_partitions_are_found_opened_once_and_removed(rig: Rig) -> None:
    names = [(f"topic{n % 100}", n // 100) for n in range(1000)]
    opened = [rig.table.open(*name) for name in names]
    assert [rig.table.open(*name) for name in names] == opened
    assert [rig.table.get(*name) for name in names] == opened
    assert len(rig.table) == 1000
    assert rig.table.partitions() == opened
    for name in names[::2]:
        rig.table.remove(*name)
    rig.table.remove("unknown", 0)
    assert [rig.table.get(*name) for name in names] == [
        None if n % 2 == 0 else one for n, one in enumerate(opened)
    ]
    first = opened[1]
    assert (first.topic, first.partition, first.topic_id) == ("topic1", 0, bytes(16))
    assert (first.leader, first.leader_epoch, first.is_leader, first.log) == (-1, -1, False, None)
    rig.table.open("topic1", 0, TOPIC_ID)
    assert first.topic_id == TOPIC_ID
    rig.table.open("topic1", 0, bytes(16))
    assert first.topic_id == TOPIC_ID


def test_a_single_replica_acknowledges_at_once(rig: Rig) -> None:
    partition = rig.leader()
    assert (partition.leader, partition.leader_epoch, partition.partition_epoch) == (OURS, 5, 7)
    for n in range(3):
        appended = partition.append(batch([b"a", b"b"]))
        assert appended.done()
        assert appended.result() == (0, 2 * n, -1)
    assert partition.high_watermark == 6
    assert partition.counters == (6, 3 * len(batch([b"a", b"b"])), 0, 0, 0)
    assert headers(partition.read(0, 10**6, isolation=READ_HIGH_WATERMARK)) == [(0, 2), (2, 2), (4, 2)]
    assert partition.log is not None
    assert partition.log.leader_epochs() == [(5, 0)]


def test_an_append_waits_for_the_followers_in_the_isr(rig: Rig) -> None:
    partition = rig.leader(OTHER, THIRD)
    first = partition.append(batch([b"a"]))
    second = partition.append(batch([b"b", b"c"]))
    assert not first.done()
    assert partition.append(batch([b"d"]), required_acks=1).result() == (0, 3, -1)
    fetched(partition, OTHER, 4)
    assert partition.high_watermark == 0
    fetched(partition, THIRD, 1)
    assert first.result(SOON) == (0, 0, -1)
    assert partition.high_watermark == 1
    assert not second.done()
    fetched(partition, THIRD, 4)
    assert second.result(SOON) == (0, 1, -1)
    assert partition.followers() == [(OTHER, 4, True), (THIRD, 4, True)]


def test_an_append_ends_with_its_time(rig: Rig) -> None:
    partition = rig.leader(OTHER)
    late = partition.append(batch([b"a"]), timeout_ms=60_000)
    assert partition.append(batch([b"b"]), timeout_ms=1).result(SOON) == (ErrorCode.REQUEST_TIMED_OUT, 1, -1)
    assert not late.done()
    assert partition.append(batch([b"c"]), timeout_ms=0).result(SOON) == (ErrorCode.REQUEST_TIMED_OUT, 2, -1)


def resign(rig: Rig, partition: Partition) -> None:
    log = partition.log
    assert log is not None
    partition.make_follower(log, OTHER, 6, 8, (OURS, OTHER))
    assert (partition.leader, partition.is_leader, partition.isr) == (OTHER, False, ())


def remove(rig: Rig, partition: Partition) -> None:
    rig.table.remove("t", 0)


def take_offline(rig: Rig, partition: Partition) -> None:
    partition.set_offline()
    assert partition.is_offline
    with pytest.raises(KafkaError) as raised:
        partition.read(0, 1)
    assert raised.value.code == ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize(
    ("end", "error"),
    [
        (resign, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (remove, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (take_offline, ErrorCode.KAFKA_STORAGE_ERROR),
    ],
)
def test_appends_fail_when_leadership_ends(rig: Rig, end: object, error: ErrorCode) -> None:
    partition = rig.leader(OTHER)
    waiting = partition.append(batch([b"a"]))
    assert callable(end)
    end(rig, partition)
    assert waiting.result(SOON)[0] == error
    assert partition.append(batch([b"b"])).result() == (error, -1, -1)
    with pytest.raises(KafkaError) as raised:
        fetched(partition, OTHER, 1)
    assert raised.value.code == error


def test_the_isr_may_be_too_small(rig: Rig) -> None:
    partition = rig.leader(OTHER, THIRD, isr=(OURS, OTHER), min_insync_replicas=2)
    waiting = partition.append(batch([b"a"]))
    partition.set_isr((OURS,), 8)
    # The high watermark stays while the ISR is too small.
    assert partition.high_watermark == 0
    assert partition.append(batch([b"b"])).result()[0] == ErrorCode.NOT_ENOUGH_REPLICAS
    assert partition.append_records(batch([b"b"])).result().log_start_offset == 0
    assert partition.append(batch([b"b"]), required_acks=1).result() == (0, 1, -1)
    assert not waiting.done()
    partition.set_isr((OURS, OTHER), 7)
    assert partition.isr == (OURS,)
    partition.set_isr((OURS, OTHER), 9)
    fetched(partition, OTHER, 2)
    assert waiting.result(SOON) == (0, 0, -1)


def test_the_isr_may_shrink_after_the_append(rig: Rig) -> None:
    partition = rig.leader(OTHER, min_insync_replicas=2)
    waiting = partition.append(batch([b"a"]))
    partition.set_isr((OURS,), 8)
    assert partition.log is not None
    partition.log.update_high_watermark(1)
    # The next look at what waits comes with the next append that waits.
    partition._complete_appends()
    assert waiting.result() == (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, 0, -1)


def test_more_in_sync_replicas_than_there_are_replicas_cannot_be_demanded(rig: Rig) -> None:
    partition = rig.leader(min_insync_replicas=3)
    assert partition.append(batch([b"a"])).result() == (0, 0, -1)


def test_a_follower_joins_the_isr_when_it_has_caught_up(rig: Rig) -> None:
    partition = rig.leader(OTHER, THIRD, isr=(OURS,))
    partition.append(batch([b"a", b"b"])).result(SOON)
    fetched(partition, OTHER, 1)
    assert rig.wanted.empty()
    fetched(partition, OTHER, 2)
    # With the epochs of the state that it was made from, whatever the controller has sent since.
    assert rig.wanted.get(timeout=SOON) == WantedIsr((OURS, OTHER), 5, 7)
    assert partition.isr_is_pending
    # The high watermark waits for a follower that may be in the ISR already.
    waiting = partition.append(batch([b"c"]))
    assert not waiting.done()
    # One change at a time
    fetched(partition, THIRD, 3)
    assert rig.wanted.empty()
    partition.set_isr((OURS, OTHER), 8, 4)
    assert partition.isr_is_pending
    partition.set_isr((OURS, OTHER), 8, 5)
    assert partition.isr == (OURS, OTHER)
    assert partition.followers() == [(OTHER, 2, True), (THIRD, 3, False)]
    fetched(partition, OTHER, 3)
    assert waiting.result(SOON) == (0, 2, -1)
    fetched(partition, THIRD, 3)
    assert rig.wanted.get(timeout=SOON) == WantedIsr((OURS, OTHER, THIRD), 5, 8)
    partition.keep_isr(5, 7)  # an answer to an earlier request
    assert partition.isr_is_pending
    partition.keep_isr(5, 8)
    assert not partition.isr_is_pending
    rig.table.set_live_brokers([OURS, OTHER])
    fetched(partition, THIRD, 3)
    assert not partition.isr_is_pending


def test_followers_that_lag_leave_the_isr(rig: Rig) -> None:
    partition = rig.leader(OTHER, THIRD)
    now = 10**13
    waiting = partition.append(batch([b"a"]))
    fetched(partition, OTHER, 1, now)
    fetched(partition, THIRD, 0, now)
    rig.table.shrink_isrs(now + 1000)
    # The last time that ``THIRD`` had everything is when this broker became leader, long ago.
    assert rig.wanted.get(timeout=SOON) == WantedIsr((OURS, OTHER), 5, 7)
    rig.table.shrink_isrs(now + 1000)
    assert rig.wanted.empty()
    assert not waiting.done()
    # A live follower that had everything a moment ago is waited for outside of the ISR too.
    rig.table.set_live_brokers([OURS, OTHER])
    partition.set_isr((OURS, OTHER), 8)
    assert waiting.result(SOON) == (0, 0, -1)


def test_an_older_partition_epoch_changes_nothing(rig: Rig) -> None:
    partition = rig.leader(OTHER)
    log = partition.log
    assert log is not None
    partition.make_follower(log, OTHER, 9, 6, (OURS, OTHER))
    partition.make_leader(log, 9, 6, (OURS,), (OURS,))
    assert (partition.leader_epoch, partition.replicas, partition.is_leader) == (5, (OURS, OTHER), True)


def test_a_new_leader_epoch_begins_at_the_end_of_the_log(rig: Rig) -> None:
    partition = rig.leader(OTHER)
    partition.append(batch([b"a"]), required_acks=1).result()
    fetched(partition, OTHER, 1)
    log = partition.log
    assert log is not None
    partition.make_leader(log, 6, 8, (OURS, OTHER), (OURS, OTHER))
    assert log.leader_epochs() == [(5, 0), (6, 1)]
    # The same leader again knows where its followers are.
    assert partition.followers() == [(OTHER, 1, True)]
    partition.make_follower(log, OTHER, 7, 9, (OURS, OTHER))
    assert partition.followers() == []
    partition.make_leader(log, 8, 10, (OURS, OTHER), (OURS, OTHER))
    assert partition.followers() == [(OTHER, -1, True)]
    with pytest.raises(KafkaError) as raised:
        fetched(partition, THIRD, 1)
    assert raised.value.code == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_only_failures_that_nobody_expects_are_counted_as_such(rig: Rig) -> None:
    """As by Kafka: a batch that is too large or damaged, and a broker that does not lead, are expected."""
    partition = rig.leader(max_message_bytes=100)
    large = batch([b"x" * 100])
    assert partition.append_records(large).result().error_code == ErrorCode.MESSAGE_TOO_LARGE
    damaged = bytearray(batch([b"x"]))
    damaged[-1] ^= 1
    assert partition.append_records(bytes(damaged)).result().error_code == ErrorCode.CORRUPT_MESSAGE
    assert partition.counters == (0, 0, 0, len(large), 0)
    partition.update_config(LogConfig(cleanup_compact=True))
    assert partition.append_records(batch([b"x"])).result().error_code == ErrorCode.INVALID_RECORD
    assert partition.counters == (0, 0, 1, len(large), 0)


def test_settings_of_the_topic_count(rig: Rig) -> None:
    partition = rig.leader(max_message_bytes=100)
    refused = partition.append_records(batch([b"x" * 100])).result()
    assert (refused.error_code, refused.log_start_offset) == (ErrorCode.MESSAGE_TOO_LARGE, -1)
    partition.update_config(LogConfig(message_timestamp_type="LogAppendTime"))
    _, _, append_time = partition.append(batch([b"x" * 100])).result()
    assert append_time > 10**12
    partition.update_config(LogConfig(cleanup_compact=True))
    refused = partition.append_records(batch([b"x", b"y"])).result()
    assert (refused.error_code, refused.base_offset) == (ErrorCode.INVALID_RECORD, -1)
    assert [index for index, _ in refused.record_errors] == [0, 1]
    assert refused.error_message
    assert refused.log_start_offset == 0
    # Coordinators append to compacted topics too.
    assert partition.append(batch([b"x"]), origin=Origin.COORDINATOR).result()[0] == ErrorCode.INVALID_RECORD


def test_a_failed_log_is_reported(rig: Rig) -> None:
    partition = rig.leader()
    assert partition.log is not None
    partition.log.close_files()
    assert partition.append(batch([b"a"])).result()[0] == ErrorCode.KAFKA_STORAGE_ERROR
    assert rig.failed.get(timeout=SOON) is partition


def test_appends_of_many_threads_are_all_acknowledged(rig: Rig) -> None:
    partition = rig.leader(OTHER)
    results: list[Future[tuple[int, int, int]]] = []

    def append() -> None:
        results.extend(partition.append(batch([b"a"])) for _ in range(50))

    threads = [threading.Thread(target=append) for _ in range(4)]
    for thread in threads:
        thread.start()
    ended = threading.Event()

    def follow() -> None:
        assert partition.log is not None
        while not ended.is_set():
            fetched(partition, OTHER, partition.log.end_offset)

    follower = threading.Thread(target=follow)
    follower.start()
    for thread in threads:
        thread.join()
    offsets = sorted(result.result(SOON)[1] for result in results)
    ended.set()
    follower.join()
    assert offsets == list(range(200))


def test_the_end_of_the_table_ends_appends(rig: Rig) -> None:
    waiting = rig.leader(OTHER).append(batch([b"a"]))
    rig.table.close()
    assert waiting.result(SOON)[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER

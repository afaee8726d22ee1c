"""Markers that this broker appends to its own partitions."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ctrlchan.broker.config.log_config import LogConfig
from ctrlchan.broker.log._batches import read_header
from ctrlchan.broker.log._log import READ_LAST_STABLE_OFFSET, Log
from ctrlchan.broker.replica._partitions import Partition, PartitionTable
from ctrlchan.errors import ErrorCode
from tests.unit.broker.log.batches import CONTROL, LOG_APPEND_TIME, TRANSACTIONAL, PlainBatch, PlainRecord
from tests.unit.broker.log.made_batches import headers, transactional_batch

OURS, OTHER = 1, 2
SOON = 20.0


@pytest.fixture
def table() -> Iterator[PartitionTable]:
    table = PartitionTable(OURS)
    yield table
    table.close()


def lead(table: PartitionTable, folder: Path, *others: int, **config: int | str) -> Partition:
    partition = table.open("t", 0)
    replicas = (OURS, *others)
    partition.make_leader(Log(folder / "t-0", LogConfig(**config)), 5, 7, replicas, replicas)  # type: ignore[arg-type]
    return partition


def send(partition: Partition, sequence: int, *, producer_id: int = 7, epoch: int = 0) -> None:
    data = transactional_batch(producer_id, epoch, sequence)
    error, *_ = partition.append(data, required_acks=1).result()
    assert error == 0


def mark(
    partition: Partition,
    *,
    producer_id: int = 7,
    epoch: int = 0,
    commit: bool = True,
    coordinator_epoch: int = 3,
) -> int:
    appended = partition.append_marker(producer_id, epoch, commit, coordinator_epoch, timeout_ms=20_000)
    return appended.result(SOON).error_code


@pytest.mark.parametrize("commit", [False, True])
@pytest.mark.parametrize("log_append_time", [False, True])
def test_a_marker_is_kafkas(
    table: PartitionTable, tmp_path: Path, commit: bool, log_append_time: bool
) -> None:
    partition = lead(
        table,
        tmp_path,
        compression_type="gzip",
        cleanup_compact=True,
        message_timestamp_type="LogAppendTime" if log_append_time else "CreateTime",
    )
    before = int(1000 * time.time())
    appended = partition.append_marker(2**40 + 7, 300, commit, 2**20, timeout_ms=0)
    assert appended.done()
    result = appended.result()
    data = partition.read(0, 10**6)
    now = read_header(data).max_timestamp
    assert before <= now <= int(1000 * time.time())
    assert (result.error_code, result.base_offset, result.append_time) == (
        0,
        0,
        now if log_append_time else -1,
    )
    record = PlainRecord(0, 0, struct.pack(">hh", 0, commit), struct.pack(">hi", 0, 2**20))
    assert data == (
        PlainBatch(
            record.encoded(),
            1,
            leader_epoch=5,
            attributes=TRANSACTIONAL | CONTROL | (LOG_APPEND_TIME if log_append_time else 0),
            base_timestamp=now,
            max_timestamp=now,
            producer_id=2**40 + 7,
            producer_epoch=300,
        ).encoded()
    )
    assert len(data) == 78


def test_a_marker_ends_a_transaction(table: PartitionTable, tmp_path: Path) -> None:
    partition = lead(table, tmp_path)
    log = partition.log
    assert log is not None
    send(partition, 0)
    send(partition, 0, producer_id=8)
    assert log.stable_offset == 0
    assert mark(partition, commit=False) == 0
    assert (log.stable_offset, partition.high_watermark) == (1, 3)
    assert mark(partition, producer_id=8) == 0
    assert log.stable_offset == 4
    assert [one[:3] for one in log.aborted_entries(0, 4)] == [(7, 0, 2)]
    assert headers(partition.read(0, 10**6, isolation=READ_LAST_STABLE_OFFSET)) == [(n, 1) for n in range(4)]


def test_a_marker_without_records_sets_the_epoch(table: PartitionTable, tmp_path: Path) -> None:
    partition = lead(table, tmp_path)
    log = partition.log
    assert log is not None
    send(partition, 0)
    assert mark(partition) == 0
    assert mark(partition, epoch=2, commit=False, coordinator_epoch=4) == 0
    [state] = log.producer_states()
    assert (state.epoch, state.coordinator_epoch, state.txn_first_offset, state.batches) == (2, 4, -1, [])
    assert log.aborted_entries(0, 10) == []
    assert (log.end_offset, log.stable_offset) == (3, 3)


def test_a_marker_of_the_past_is_refused(table: PartitionTable, tmp_path: Path) -> None:
    partition = lead(table, tmp_path)
    assert mark(partition, epoch=2, coordinator_epoch=4) == 0
    assert mark(partition, epoch=1, coordinator_epoch=9) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert mark(partition, epoch=3, coordinator_epoch=3) == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert mark(partition, epoch=2, coordinator_epoch=4) == 0
    assert partition.counters == (2, 2 * 78, 2, 0, 0)


@pytest.mark.parametrize(("producer_id", "epoch"), [(-1, 0), (-(2**63), 0), (7, -1)])
def test_no_marker_is_made_without_a_producer(
    table: PartitionTable, tmp_path: Path, producer_id: int, epoch: int
) -> None:
    partition = lead(table, tmp_path)
    assert mark(partition, producer_id=producer_id, epoch=epoch) == ErrorCode.UNKNOWN_SERVER_ERROR
    assert partition.high_watermark == 0


def test_errors_of_the_partition(table: PartitionTable, tmp_path: Path) -> None:
    partition = lead(table, tmp_path, OTHER, min_insync_replicas=2)
    partition.set_isr((OURS,), 8)
    assert mark(partition) == ErrorCode.NOT_ENOUGH_REPLICAS
    log = partition.log
    assert log is not None
    partition.make_follower(log, OTHER, 6, 9, (OURS, OTHER))
    assert mark(partition) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    partition.set_offline()
    assert mark(partition) == ErrorCode.KAFKA_STORAGE_ERROR
    assert mark(table.open("u", 0)) == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_marker_waits_for_the_followers(table: PartitionTable, tmp_path: Path) -> None:
    partition = lead(table, tmp_path, OTHER)
    appended = partition.append_marker(7, 0, True, 3, timeout_ms=20_000)
    assert not appended.done()
    late = partition.append_marker(8, 0, True, 3, timeout_ms=1)
    assert late.result(SOON).error_code == ErrorCode.REQUEST_TIMED_OUT
    assert partition.append_marker(9, 0, True, 3, required_acks=1, timeout_ms=1).result().error_code == 0
    partition.update_follower(OTHER, 3, -1, 10**13)
    assert appended.result(SOON)[:2] == (0, 0)
    lost = partition.append_marker(7, 0, True, 3, timeout_ms=20_000)
    partition.set_offline()
    assert lost.result(SOON).error_code == ErrorCode.KAFKA_STORAGE_ERROR

"""The producers of a log: duplicates, snapshots, transactions that readers wait for."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from ctrlchan.broker.config.log_config import LogConfig
from ctrlchan.broker.log import _log
from ctrlchan.broker.log._log import Log
from ctrlchan.errors import ErrorCode, KafkaError
from tests.unit.broker.log.batches import CONTROL, TRANSACTIONAL, PlainBatch, PlainRecord
from tests.unit.broker.log.made_batches import batch, checked, headers

SMALL = LogConfig(segment_bytes=800, index_interval_bytes=0)
VALUE = b"0123456789ab"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "orders-0"


def opened(folder: Path, *, clean: bool = False) -> Log:
    """Return a log whose producers never expire: their records are of 1970."""
    return Log(folder, SMALL, clean=clean, producer_expiration_ms=2**62)


def send(log: Log, sequence: int, *, producer_id: int = 7, epoch: int = 0, count: int = 1) -> tuple[int, int]:
    data = batch([VALUE] * count, producer_id=producer_id, producer_epoch=epoch, sequence=sequence)
    return log.append_as_leader(checked(data), 0)


def snapshots(folder: Path) -> list[int]:
    return sorted(int(path.stem) for path in folder.glob("*.snapshot"))


def test_a_batch_that_comes_again_is_not_written_again(folder: Path) -> None:
    log = Log(folder, LogConfig())
    assert send(log, 0, count=3) == (0, 2)
    assert send(log, 3) == (3, 3)
    size = log.size
    assert send(log, 0, count=3) == (0, 2)
    assert send(log, 3) == (3, 3)
    assert (log.size, log.end_offset) == (size, 4)
    with pytest.raises(KafkaError) as raised:
        send(log, 5)
    assert raised.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, 0, epoch=1) == (4, 4)
    with pytest.raises(KafkaError) as raised:
        send(log, 4)
    assert raised.value.code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert log.end_offset == 5


@pytest.mark.parametrize("end", ["clean", "unclean", "no snapshots", "damaged snapshots"])
def test_producers_are_known_after_a_restart(folder: Path, end: str) -> None:
    log = Log(folder, SMALL)
    for sequence in range(25):
        send(log, sequence)
    assert log.segment_offsets() == [0, 10, 20]
    assert snapshots(folder) == [10, 20]
    if end == "unclean":
        log.close_files()
    else:
        log.close()
        assert snapshots(folder) == [10, 20, 25]
    for path in folder.glob("*.snapshot"):
        if end == "no snapshots":
            path.unlink()
        if end == "damaged snapshots":
            path.write_bytes(path.read_bytes()[:-1] + b"x")
    log = opened(folder, clean=end in ("clean", "damaged snapshots"))
    [producer] = log.producer_states()
    assert (producer.producer_id, producer.batches[-1].last_sequence) == (7, 24)
    assert send(log, 24) == (24, 24)
    assert send(log, 25) == (25, 25)


def test_a_clean_log_without_snapshots_is_not_read(folder: Path) -> None:
    log = Log(folder, SMALL)
    for sequence in range(25):
        send(log, sequence)
    log.close()
    for path in folder.glob("*.snapshot"):
        path.unlink()
    log = Log(folder, SMALL, clean=True)
    assert log.producer_states() == []
    assert snapshots(folder) == [10, 20, 25]


def test_snapshots_of_no_segment_are_removed_at_the_start(folder: Path) -> None:
    log = opened(folder)
    for sequence in range(25):
        send(log, sequence)
    log.close()
    for offset in (5, 15):
        (folder / f"{offset:020d}.snapshot").write_bytes((folder / f"{20:020d}.snapshot").read_bytes())
    log = opened(folder, clean=True)
    # The last one, of the close in order, is above the active segment's begin, and stays.
    assert snapshots(folder) == [10, 20, 25]
    [producer] = log.producer_states()
    assert producer.batches[-1].last_sequence == 24


def test_truncation_takes_producers_back(folder: Path) -> None:
    log = Log(folder, SMALL)
    for sequence in range(25):
        send(log, sequence)
    log.truncate_to(13)
    [producer] = log.producer_states()
    assert producer.batches[-1].last_sequence == 12
    assert send(log, 13) == (13, 13)
    log.truncate_fully(50)
    assert log.producer_states() == []
    assert snapshots(folder) == []
    assert send(log, 99) == (50, 50)


def test_truncation_without_producers_reads_no_snapshot(folder: Path) -> None:
    log = Log(folder, SMALL)
    for _ in range(25):
        log.append_as_leader(checked(batch([VALUE])), 0)
    assert snapshots(folder) == [10, 20]
    # A snapshot that is read and damaged is deleted.
    damaged = folder / f"{10:020d}.snapshot"
    damaged.write_bytes(b"damaged")
    log.truncate_to(13)
    assert damaged.read_bytes() == b"damaged"
    assert log.producer_states() == []
    assert send(log, 0) == (13, 13)
    log.close()
    [producer] = opened(folder).producer_states()
    assert producer.batches[-1].last_offset == 13


def test_retention_deletes_snapshots(folder: Path) -> None:
    log = Log(folder, SMALL)
    for sequence in range(25):
        send(log, sequence)
    log.update_high_watermark(25)
    log.increment_start_offset(20)
    log.delete_old_segments(now_ms=0)
    assert snapshots(folder) == [20]
    log.delete_files(now_ms=2**62)
    assert sorted(path.suffix for path in folder.iterdir()) == [
        "",
        ".index",
        ".log",
        ".snapshot",
        ".timeindex",
    ]


def test_producers_expire(folder: Path) -> None:
    log = Log(folder, SMALL, producer_expiration_ms=5000)
    send(log, 0)  # at 1000
    log.remove_expired_producers(now_ms=5999)
    assert len(log.producer_states()) == 1
    log.remove_expired_producers(now_ms=6000)
    assert len(log.producer_states()) == 0


def transactional(base_offset: int, producer_id: int, sequence: int) -> bytes:
    return batch(
        [VALUE], base_offset=base_offset, leader_epoch=0, producer_id=producer_id, producer_epoch=0,
        sequence=sequence, attributes=TRANSACTIONAL,
    )  # fmt: skip


def marker(base_offset: int, producer_id: int, *, commit: bool) -> bytes:
    record = PlainRecord(0, key=struct.pack(">hh", 0, commit), value=struct.pack(">hi", 0, 1)).encoded()
    return PlainBatch(
        record, 1, base_offset=base_offset, leader_epoch=0, attributes=TRANSACTIONAL | CONTROL,
        producer_id=producer_id, producer_epoch=0,
    ).encoded()  # fmt: skip


@pytest.mark.parametrize("restart", [None, True, False])
def test_readers_of_committed_records_wait_for_transactions(folder: Path, restart: bool | None) -> None:
    log = Log(folder, SMALL)
    log.append_as_follower(batch([VALUE], leader_epoch=0))
    log.append_as_follower(transactional(1, 7, 0) + transactional(2, 8, 0))
    assert log.update_high_watermark(3) == 3
    assert log.stable_offset == 1

    def readable() -> int:
        return len(headers(log.read_file_range(0, 1 << 20, isolation=_log.READ_LAST_STABLE_OFFSET).read()))

    assert readable() == 1
    log.append_as_follower(marker(3, 7, commit=False))
    # The marker is not replicated yet.
    assert (log.stable_offset, readable()) == (1, 1)
    log.update_high_watermark(4)
    assert (log.stable_offset, readable()) == (2, 2)
    log.append_as_follower(marker(4, 8, commit=True))
    if restart is not None:
        if restart:
            log.close()
        else:
            log.close_files()
        log = opened(folder, clean=restart)
    log.update_high_watermark(5)
    assert (log.stable_offset, readable()) == (5, 5)
    # Producer 7 aborted; producer 8 was in its transaction then.
    assert (folder / "00000000000000000000.txnindex").read_bytes() == struct.pack(">hqqqq", 0, 7, 1, 3, 2)
    assert [one[:2] for one in log.aborted_entries(0, 5)] == [(7, 1)]
    assert [one[:2] for one in log.aborted_entries(4, 5)] == []
    log.truncate_to(3)
    assert (folder / "00000000000000000000.txnindex").read_bytes() == b""
    assert log.stable_offset == 1

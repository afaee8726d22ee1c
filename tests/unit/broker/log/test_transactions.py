"""The transactions of a log: what consumers of READ_COMMITTED may read, and the index of aborted ones."""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctrlchan.broker.config.log_config import LogConfig
from ctrlchan.broker.log._log import Log
from ctrlchan.broker.log._producer_snapshots import load_snapshot
from ctrlchan.broker.log._producers import ProducerStates
from ctrlchan.broker.metrics.replicas import has_late_transaction
from ctrlchan.errors import ErrorCode, KafkaError
from tests.unit.broker.descriptors import no_descriptors
from tests.unit.broker.log.batches import TRANSACTIONAL, PlainRecord, batch_of
from tests.unit.broker.log.made_batches import batch
from tests.unit.broker.log.producers import PlainProducer, PlainStates
from tests.unit.broker.log.test_log_producers import marker, opened
from tests.unit.broker.log.test_producers import append, data_batch, marker_batch

ENTRY = struct.Struct(">hqqqq")


class PlainTransactions:
    """A plain twin: the batches of a log, each of a producer; a marker has an outcome."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, bool | None]] = []

    def pairs(self, end: int) -> list[tuple[int, int, int | None, bool | None]]:
        """Return (producer, first offset, offset of the marker, outcome) of transactions below ``end``."""
        open_: dict[int, int] = {}
        found: list[tuple[int, int, int | None, bool | None]] = []
        for offset, (producer, commit) in enumerate(self.batches[:end]):
            if commit is None:
                open_.setdefault(producer, offset)
            elif producer in open_:
                found.append((producer, open_.pop(producer), offset, commit))
        return found + [(producer, first, None, None) for producer, first in open_.items()]

    def stable_offset(self, high_watermark: int) -> int:
        waiting = [
            first
            for _, first, end, _ in self.pairs(len(self.batches))
            if end is None or end >= high_watermark
        ]
        return min([high_watermark, *waiting])

    def aborted(self) -> list[tuple[int, int, int, int]]:
        """Return the entries of the index, in the order of the markers."""
        found = []
        for producer, first, end, commit in self.pairs(len(self.batches)):
            if end is not None and commit is False:
                others = [begun for _, begun, until, _ in self.pairs(end + 1) if until is None]
                found.append((producer, first, end, min([end + 1, *others])))
        return sorted(found, key=lambda one: one[2])


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, 9)),
        st.tuples(st.just("commit"), st.integers(0, 9)),
        st.tuples(st.just("abort"), st.integers(0, 9)),
        st.tuples(st.just("watermark"), st.integers(0, 40)),
        st.tuples(st.just("truncate"), st.integers(0, 40)),
        st.tuples(st.just("restart"), st.integers(0, 1)),
    ),
    max_size=60,
)


@settings(max_examples=60, deadline=None)
@given(steps=STEPS)
def test_the_last_stable_offset_is_that_of_a_plain_twin(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    folder = tmp_path_factory.mktemp("log") / "t-0"
    log, twin = opened(folder), PlainTransactions()
    try:
        for step, number in steps:
            end = len(twin.batches)
            if step == "send":
                log.append_as_follower(transactional(end, number))
                twin.batches.append((number, None))
            elif step in ("commit", "abort"):
                log.append_as_follower(marker(end, number, commit=step == "commit"))
                twin.batches.append((number, step == "commit"))
            elif step == "watermark":
                # It never falls, as that of a leader.
                log.update_high_watermark(max(log.high_watermark, min(number, end)))
            elif step == "truncate" and log.high_watermark <= number < end:
                # A snapshot does not have the transactions that have ended above the high watermark.
                log.update_high_watermark(number)
                log.truncate_to(number)
                del twin.batches[number:]
            elif step == "restart":
                if number:
                    log.close()
                else:
                    log.close_files()
                log = opened(folder, clean=bool(number))
                log.update_high_watermark(end)
            assert log.stable_offset == twin.stable_offset(log.high_watermark)
        assert [tuple(one) for one in log.aborted_entries(0, 2**62)] == twin.aborted()
    finally:
        log.close_files()


def test_a_follower_that_gets_no_descriptor_for_an_abort_takes_the_batches_later(tmp_path: Path) -> None:
    log = opened(tmp_path / "t-0")
    log.append_as_follower(transactional(0, 7))
    fetched = transactional(1, 8) + marker(2, 7, commit=False) + marker(3, 8, commit=True)
    with no_descriptors():
        with pytest.raises(KafkaError) as raised:
            log.append_as_follower(fetched)
        assert raised.value.code == ErrorCode.NOT_ENOUGH_REPLICAS
        # What aborts nothing needs no file.
        log.append_as_follower(transactional(1, 8))
    log.truncate_to(1)
    assert (log.end_offset, log.offline) == (1, False)
    log.append_as_follower(fetched)
    assert log.end_offset == 4
    (aborted,) = log.aborted_entries(0, 9)
    assert (aborted.producer_id, aborted.first_offset, aborted.last_offset) == (7, 0, 2)
    log.close()


def transactional(offset: int, producer_id: int) -> bytes:
    return batch(
        [b"x"], base_offset=offset, leader_epoch=0, producer_id=producer_id, producer_epoch=0,
        sequence=offset, attributes=TRANSACTIONAL,
    )  # fmt: skip


# -- snapshots


def snapshot_of(*transactions: tuple[int, int]) -> bytes:
    """Return a snapshot of producers with the first offset of their transaction, -1 without one."""
    plain = PlainStates()
    for producer_id, first_offset in transactions:
        plain.producers[producer_id] = PlainProducer(0, 0, 2**50, first_offset)
    return plain.snapshot()


def test_transactions_of_a_snapshot_are_ordered() -> None:
    offsets = {producer: (producer * 7919) % 1000 for producer in range(1, 1000)}
    states = ProducerStates()
    load_snapshot(states, snapshot_of(*offsets.items(), (5000, -1)), 0)
    for producer in sorted(offsets, key=lambda one: offsets[one]):
        assert states.first_undecided_offset() == offsets[producer]
        assert append(states, marker_batch(producer, 2000)).completed_txn == (offsets[producer], False)
    assert states.first_undecided_offset() == -1


def test_a_damaged_snapshot_leaves_no_transaction_open() -> None:
    states = ProducerStates()
    load_snapshot(states, snapshot_of((7, 500), (8, 900)), 0)
    # The same producer again, and a transaction above the end of the log.
    load_snapshot(states, snapshot_of((7, 2**62)), 0)
    assert states.first_undecided_offset() == 900
    append(states, marker_batch(8, 1000))
    assert append(states, data_batch(9, 0, 1001, attributes=TRANSACTIONAL)).error == 0
    assert states.first_undecided_offset() == 1001
    append(states, marker_batch(9, 1002))
    assert states.first_undecided_offset() == 2**62
    append(states, marker_batch(7, 1003))
    assert states.first_undecided_offset() == -1
    states.clear()
    assert append(states, data_batch(9, 0, 1, attributes=TRANSACTIONAL)).error == 0
    assert states.first_undecided_offset() == 1


# -- the index


def log_with_index(folder: Path, entries: list[tuple[int, int, int, int]]) -> Log:
    """Return a log of one batch, with this index."""
    log = Log(folder, LogConfig())
    log.append_as_follower(batch([b"x"], leader_epoch=0))
    log.close()
    index = folder / f"{0:020d}.txnindex"
    index.write_bytes(b"".join(ENTRY.pack(0, *entry) for entry in entries))
    return Log(folder, LogConfig(), clean=True)


@pytest.mark.parametrize("count", [1, 63, 64, 65, 200, 1000])
def test_the_index_is_searched(tmp_path: Path, count: int) -> None:
    # Transactions of two records and a marker.
    entries = [(n % 7, 3 * n, 3 * n + 2, 3 * n + 3) for n in range(count)]
    log = log_with_index(tmp_path / "t-0", entries)
    for first in {
        0,
        1,
        2,
        3,
        189,
        190,
        191,
        192,
        193,
        3 * count - 4,
        3 * count - 1,
        3 * count,
        3 * count + 9,
    }:
        for size in (1, 3, 10, 10_000):
            found = [tuple(one) for one in log.aborted_entries(first, first + size)]
            assert found == [one for one in entries if one[2] >= first and one[1] < first + size]


def test_a_long_transaction_is_found_behind_short_ones(tmp_path: Path) -> None:
    short = [(n, n, n + 1, 5) for n in range(10, 500, 2)]
    entries = [*short, (7, 5, 600, 601), *((n, n, n + 1, n + 2) for n in range(602, 700, 2))]
    log = log_with_index(tmp_path / "t-0", entries)
    assert [tuple(one) for one in log.aborted_entries(20, 22)] == [
        (20, 20, 21, 5),
        (7, 5, 600, 601),
    ]


def test_an_index_that_does_not_ascend_is_made_anew(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    log = opened(folder)
    for offset in range(0, 40, 2):
        log.append_as_follower(transactional(offset, 7) + marker(offset + 1, 7, commit=False))
    entries = log.aborted_entries(0, 100)
    assert len(entries) == 20
    log.close()
    for path in folder.glob("*.txnindex"):
        data = path.read_bytes()
        path.write_bytes(data[-ENTRY.size :] + data[: -ENTRY.size])
    assert opened(folder, clean=True).aborted_entries(0, 100) == entries


def open_indexes(folder: Path) -> list[int]:
    """Return the descriptors of this process that are transaction indexes of the folder."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            target = os.readlink(f"/proc/self/fd/{name}")
            if target.startswith(str(folder)) and target.endswith(".txnindex"):
                found.append(int(name))
    return found


def test_the_index_is_flushed_with_its_segment(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    log = opened(folder)
    log.append_as_follower(transactional(0, 7) + marker(1, 7, commit=True))
    assert open_indexes(folder) == []
    log.append_as_follower(transactional(2, 7) + marker(3, 7, commit=False))
    [index] = open_indexes(folder)
    # A pipe cannot be flushed.
    reading, writing = os.pipe()
    os.dup2(writing, index)
    with pytest.raises(KafkaError):
        log.flush()
    log.close_files()
    os.close(reading)
    os.close(writing)
    assert open_indexes(folder) == []
    again = opened(folder, clean=True)
    assert [one.last_offset for one in again.aborted_entries(0, 9)] == [3]


def test_an_index_that_grows_and_is_cut_is_searched(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    log = Log(folder, LogConfig(), producer_expiration_ms=2**62)

    def add(first: int, end: int) -> None:
        for offset in range(first, end, 2):
            log.append_as_follower(transactional(offset, 7) + marker(offset + 1, 7, commit=False))

    def check(end: int) -> None:
        for first in range(0, end, 37):
            found = [one.first_offset for one in log.aborted_entries(first, first + 5)]
            assert found == [n for n in range(0, end, 2) if n + 1 >= first and n < first + 5]

    add(0, 400)
    check(400)
    log.truncate_to(256)
    check(256)
    add(256, 700)
    check(700)
    log.truncate_to(130)
    add(130, 300)
    check(300)
    log.close_files()


def test_a_follower_takes_a_marker_and_what_follows_it_at_once(tmp_path: Path) -> None:
    """The marker ends the transaction before its producer's next batch is looked at, as on the leader."""
    log = opened(tmp_path / "t-0")
    log.append_as_follower(transactional(0, 7))
    plain = batch([b"y"], base_offset=2, leader_epoch=0, producer_id=7, producer_epoch=0, sequence=1)
    assert log.append_as_follower(marker(1, 7, commit=True) + plain) == (1, 2)
    log.update_high_watermark(3)
    assert log.stable_offset == 3
    [producer] = log.producer_states()
    assert producer.txn_first_offset == -1
    assert [one.last_offset for one in producer.batches] == [0, 2]
    log.close()


def late_log(folder: Path) -> Log:
    """Return a log with two open transactions, with records of 1,000 and of 5,000 ms."""
    log = opened(folder)
    log.append_as_follower(batch_of([PlainRecord(0)], base_timestamp=1).encoded())
    for producer, offset, timestamp in ((7, 1, 1_000), (8, 2, 5_000)):
        records = batch_of(
            [PlainRecord(0)], base_offset=offset, base_timestamp=timestamp, producer_id=producer,
            producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL,
        )  # fmt: skip
        log.append_as_follower(records.encoded())
    log.update_high_watermark(log.end_offset)
    return log


def test_a_late_transaction(tmp_path: Path) -> None:
    folder = tmp_path / "orders-0"
    log = late_log(folder)
    for reloads in (False, True):
        if reloads:
            log.close()
            log = opened(folder, clean=True)
            log.update_high_watermark(log.end_offset)
        assert not has_late_transaction(log, 1_000)
        assert has_late_transaction(log, 1_001)
    log.append_as_follower(marker_batch(7, 3).encoded())
    log.update_high_watermark(log.end_offset)
    assert not has_late_transaction(log, 5_000)
    assert has_late_transaction(log, 5_001)
    log.append_as_follower(marker_batch(8, 4).encoded())
    log.update_high_watermark(log.end_offset)
    assert not has_late_transaction(log, 2**62)


def test_a_late_transaction_goes_with_its_records(tmp_path: Path) -> None:
    log = late_log(tmp_path / "orders-0")
    log.truncate_to(2)
    assert has_late_transaction(log, 1_001)
    log.truncate_to(1)
    assert not has_late_transaction(log, 2**62)
    log = late_log(tmp_path / "orders-1")
    assert has_late_transaction(log, 1_001)
    log.truncate_fully(0)
    assert not has_late_transaction(log, 2**62)

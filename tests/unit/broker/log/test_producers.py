"""The state of a partition's producers, against a plain twin; snapshots and their files."""

from __future__ import annotations

import struct
from pathlib import Path

import crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ctrlchan.broker.log._batches import Origin
from ctrlchan.broker.log._producer_snapshots import encode_snapshot, load_snapshot, write_snapshot
from ctrlchan.broker.log._producers import Appended, CachedBatch, ProducerState, ProducerStates
from ctrlchan.errors import ErrorCode
from tests.unit.broker.log.batches import CONTROL, TRANSACTIONAL, PlainBatch, PlainRecord, batch_of
from tests.unit.broker.log.producers import LAST_SEQUENCE, PlainStates

ABORT, COMMIT = 0, 1
APPENDED = Appended(0, None, None)
OUT_OF_ORDER = Appended(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, None, None)


def data_batch(
    producer_id: int, sequence: int, offset: int, count: int = 1, epoch: int = 0, timestamp: int = 1000,
    attributes: int = 0,
) -> PlainBatch:  # fmt: skip
    """Return a batch as the log has it. Its records are not read."""
    return PlainBatch(
        b"", count, offset, attributes=attributes, max_timestamp=timestamp, producer_id=producer_id,
        producer_epoch=epoch, base_sequence=sequence,
    )  # fmt: skip


def marker_batch(
    producer_id: int, offset: int, kind: int = COMMIT, coordinator_epoch: int = 0, epoch: int = 0,
    timestamp: int = 1000,
) -> PlainBatch:  # fmt: skip
    """Return the control batch that ends a transaction."""
    record = PlainRecord(0, 0, struct.pack(">hh", 0, kind), struct.pack(">hi", 0, coordinator_epoch))
    return batch_of(
        [record], base_offset=offset, base_timestamp=timestamp, producer_id=producer_id,
        producer_epoch=epoch, attributes=CONTROL | TRANSACTIONAL,
    )  # fmt: skip


def append(states: ProducerStates, batch: PlainBatch, origin: Origin = Origin.CLIENT) -> Appended:
    return states.append_batch(batch.encoded(), origin)


# -- the rules


def test_a_batch_is_appended_once() -> None:
    states = ProducerStates()
    assert append(states, data_batch(7, 0, 100, 3)) == APPENDED
    again = append(states, data_batch(7, 0, 500, 3))
    assert again == Appended(0, CachedBatch(0, 2, 100, 102, 1000), None)
    assert states.producers() == [ProducerState(7, 0, -1, 1000, -1, [CachedBatch(0, 2, 100, 102, 1000)])]


def test_the_last_five_batches_are_known() -> None:
    states = ProducerStates()
    for sequence in range(6):
        assert append(states, data_batch(7, sequence, 10 * sequence)) == APPENDED
    assert append(states, data_batch(7, 0, 99)) == OUT_OF_ORDER
    for sequence in range(1, 6):
        duplicate = append(states, data_batch(7, sequence, 99)).duplicate
        assert duplicate is not None
        assert duplicate.first_offset == 10 * sequence


@pytest.mark.parametrize(("sequence", "count"), [(0, 2), (1, 1), (0, 4), (2, 1), (4, 1)])
def test_part_of_a_batch_is_no_duplicate(sequence: int, count: int) -> None:
    states = ProducerStates()
    append(states, data_batch(7, 0, 0, 3))
    assert append(states, data_batch(7, sequence, 3, count)) == OUT_OF_ORDER


def test_an_unknown_producer_begins_anywhere() -> None:
    states = ProducerStates()
    assert append(states, data_batch(7, 1234, 0)) == APPENDED
    assert append(states, data_batch(7, 1236, 1)) == OUT_OF_ORDER
    assert append(states, data_batch(7, 1235, 1)) == APPENDED


def test_sequence_numbers_begin_again_after_the_largest() -> None:
    states = ProducerStates()
    assert append(states, data_batch(7, LAST_SEQUENCE - 1, 0, 2)) == APPENDED
    assert append(states, data_batch(7, 0, 2, 2)) == APPENDED
    states = ProducerStates()
    assert append(states, data_batch(7, LAST_SEQUENCE - 1, 0, 5)) == APPENDED
    [state] = states.producers()
    assert state.batches == [CachedBatch(LAST_SEQUENCE - 1, 2, 0, 4, 1000)]
    assert append(states, data_batch(7, LAST_SEQUENCE - 1, 9, 5)).duplicate == state.batches[0]
    assert append(states, data_batch(7, 3, 5)) == APPENDED


def test_epochs() -> None:
    states = ProducerStates()
    append(states, data_batch(7, 5, 0, epoch=3))
    old = data_batch(7, 6, 1, epoch=2)
    for origin in (Origin.CLIENT, Origin.COORDINATOR):
        assert append(states, old, origin) == Appended(ErrorCode.INVALID_PRODUCER_EPOCH, None, None)
    assert append(states, data_batch(7, 6, 1, epoch=4)) == OUT_OF_ORDER
    assert append(states, data_batch(7, 0, 1, epoch=4)) == APPENDED
    [state] = states.producers()
    assert (state.epoch, state.batches) == (4, [CachedBatch(0, 0, 1, 1, 1000)])
    # A follower stores what its leader has stored.
    assert append(states, old, Origin.REPLICATION) == APPENDED
    assert states.producers()[0].epoch == 2


def test_sequences_begin_again_with_the_epoch_of_a_marker() -> None:
    states = ProducerStates()
    for sequence in (0, 1):
        assert append(states, data_batch(7, sequence, sequence, attributes=TRANSACTIONAL)) == APPENDED
    assert append(states, marker_batch(7, 2, ABORT, epoch=1), Origin.COORDINATOR).completed_txn == (0, True)
    for epoch in (1, 2):
        assert append(states, data_batch(7, 2, 3, epoch=epoch, attributes=TRANSACTIONAL)) == OUT_OF_ORDER
    old = append(states, data_batch(7, 2, 3, attributes=TRANSACTIONAL))
    assert old == Appended(ErrorCode.INVALID_PRODUCER_EPOCH, None, None)
    assert append(states, data_batch(7, 0, 3, epoch=1, attributes=TRANSACTIONAL)) == APPENDED
    [state] = states.producers()
    assert (state.epoch, state.batches) == (1, [CachedBatch(0, 0, 3, 3, 1000)])
    assert states.first_undecided_offset() == 3


def test_what_follows_the_largest_sequence_is_0() -> None:
    states = ProducerStates()
    assert append(states, data_batch(7, LAST_SEQUENCE, 735, epoch=15), Origin.REPLICATION) == APPENDED
    assert append(states, data_batch(7, 1, 1235, epoch=15)) == OUT_OF_ORDER
    assert append(states, data_batch(7, 0, 1235, epoch=15)) == APPENDED


def test_offsets_of_groups_have_any_sequence() -> None:
    states = ProducerStates()
    for offset in (99, 100):
        batch = data_batch(7, -1, offset, attributes=TRANSACTIONAL)
        assert append(states, batch, Origin.COORDINATOR) == APPENDED
    assert states.first_undecided_offset() == 99


def test_batches_without_a_producer_change_nothing() -> None:
    states = ProducerStates()
    assert append(states, data_batch(-1, -1, 0)) == APPENDED
    assert len(states) == 0


def test_transactions() -> None:
    states = ProducerStates()
    assert append(states, data_batch(7, 0, 10, 2, attributes=TRANSACTIONAL)) == APPENDED
    assert append(states, data_batch(8, 0, 12, 2, attributes=TRANSACTIONAL)) == APPENDED
    assert append(states, data_batch(7, 2, 14)) == Appended(ErrorCode.INVALID_TXN_STATE, None, None)
    assert states.first_undecided_offset() == 10
    states.remove_expired(2**62)
    assert len(states) == 2
    assert append(states, marker_batch(7, 14, ABORT, 5), Origin.COORDINATOR).completed_txn == (10, True)
    assert states.first_undecided_offset() == 12
    assert append(states, marker_batch(8, 15, COMMIT), Origin.REPLICATION).completed_txn == (12, False)
    assert states.first_undecided_offset() == -1
    # Without records there is no transaction to complete.
    assert append(states, marker_batch(7, 16, COMMIT, 5), Origin.COORDINATOR) == APPENDED
    fenced = append(states, marker_batch(7, 17, COMMIT, 4), Origin.COORDINATOR)
    assert fenced == Appended(ErrorCode.TRANSACTION_COORDINATOR_FENCED, None, None)
    assert append(states, marker_batch(7, 17, COMMIT, 4), Origin.REPLICATION) == APPENDED


@pytest.mark.parametrize(
    "record",
    [
        PlainRecord(0, 0, None, struct.pack(">hi", 0, 0)),
        PlainRecord(0, 0, struct.pack(">h", 0), struct.pack(">hi", 0, 0)),
        PlainRecord(0, 0, struct.pack(">hh", 0, 2), struct.pack(">hi", 0, 0)),
        PlainRecord(0, 0, struct.pack(">hh", -1, 0), struct.pack(">hi", 0, 0)),
        PlainRecord(0, 0, struct.pack(">hh", 0, 0), struct.pack(">h", 0)),
        PlainRecord(0, 0, struct.pack(">hh", 0, 0), struct.pack(">hi", -1, 0)),
        PlainRecord(0, 0, struct.pack(">hh", 0, 0), None),
    ],
)
def test_wrong_markers(record: PlainRecord) -> None:
    batch = batch_of([record], producer_id=7, producer_epoch=0, attributes=CONTROL)
    states = ProducerStates()
    assert append(states, batch, Origin.REPLICATION).error == ErrorCode.INVALID_RECORD
    assert len(states) == 0


def test_not_a_batch() -> None:
    for data in (b"", bytes(100), data_batch(7, 0, 0).encoded()[:-1]):
        with pytest.raises(ValueError, match="no whole batch"):
            ProducerStates().append_batch(data, Origin.CLIENT)


# -- against the twin


class ProducersMachine(RuleBasedStateMachine):
    """Random batches, expiry and snapshots; after each step the states and the snapshot are the twin's."""

    @initialize(stride=st.sampled_from([1, 16, 1000, 2**33]))
    def begin(self, stride: int) -> None:
        self.stride = stride
        self.states = ProducerStates(1000)
        self.twin = PlainStates(1000)
        self.offset = 0
        self.clock = 0

    def both(self, batch: PlainBatch, origin: Origin, marker: tuple[bool, int, int] | None = None) -> None:
        assert append(self.states, batch, origin) == self.twin.append(batch, origin, marker)
        self.offset += batch.count

    @rule(
        producer=st.integers(-1, 30),
        sequence=st.sampled_from([None, None, None, 0, 1, LAST_SEQUENCE - 1, -1]),
        count=st.integers(1, 4),
        epoch=st.sampled_from([None, None, None, 0, 1, 2]),
        origin=st.sampled_from([Origin.CLIENT, Origin.CLIENT, Origin.COORDINATOR, Origin.REPLICATION]),
        transactional=st.sampled_from([0, 0, TRANSACTIONAL]),
        back=st.integers(0, 6),
    )
    def data(
        self, producer: int, sequence: int | None, count: int, epoch: int | None, origin: Origin,
        transactional: int, back: int,
    ) -> None:  # fmt: skip
        producer_id = producer * self.stride if producer >= 0 else -1
        known = self.twin.producers.get(producer_id)
        if epoch is None:
            epoch = max(0, known.epoch) if known else 0
        if sequence is None:
            sequence = 0
            if known and known.batches:
                # The next number, or an old batch again.
                old = known.batches[-back] if 0 < back <= len(known.batches) else None
                if old:
                    sequence, count = old.first_sequence, old.last_offset - old.first_offset + 1
                else:
                    sequence = (known.batches[-1].last_sequence + 1) % 2**31
        if sequence == -1 and origin == Origin.CLIENT:
            return  # refused by the checks of the batch
        self.clock += 10
        self.both(
            data_batch(producer_id, sequence, self.offset, count, epoch, self.clock, transactional), origin
        )

    @rule(
        producer=st.integers(0, 30),
        kind=st.sampled_from([ABORT, COMMIT]),
        coordinator_epoch=st.integers(0, 2),
        epoch=st.integers(0, 2),
        origin=st.sampled_from([Origin.COORDINATOR, Origin.REPLICATION]),
    )
    def marker(self, producer: int, kind: int, coordinator_epoch: int, epoch: int, origin: Origin) -> None:
        self.clock += 10
        batch = marker_batch(producer * self.stride, self.offset, kind, coordinator_epoch, epoch, self.clock)
        self.both(batch, origin, (kind == ABORT, coordinator_epoch, self.clock))

    @rule(producer=st.integers(0, 30))
    def empty_marker(self, producer: int) -> None:
        batch = data_batch(producer * self.stride, -1, self.offset, 0, attributes=CONTROL)
        self.both(batch, Origin.REPLICATION)

    @rule(ahead=st.integers(0, 1500))
    def expire(self, ahead: int) -> None:
        self.states.remove_expired(self.clock + ahead)
        self.twin.expire(self.clock + ahead)

    @rule()
    def many(self) -> None:
        for producer in range(31, 60):
            self.both(data_batch(producer * self.stride, 0, self.offset, timestamp=self.clock), Origin.CLIENT)

    @rule()
    def clear(self) -> None:
        self.states.clear()
        self.twin.producers.clear()

    @invariant()
    def same(self) -> None:
        assert self.states.producers() == self.twin.states()
        assert encode_snapshot(self.states) == self.twin.snapshot()
        assert len(self.states) == len(self.twin.producers)
        undecided = [p.txn_first_offset for p in self.twin.producers.values() if p.txn_first_offset != -1]
        assert self.states.first_undecided_offset() == min(undecided, default=-1)


TestProducersMachine = ProducersMachine.TestCase


# -- snapshots


def snapshot_of(*entries: tuple[int, ...], version: int = 1, count: int | None = None) -> bytes:
    """Return a snapshot made by hand."""
    body = struct.pack(">i", len(entries) if count is None else count)
    body += b"".join(struct.pack(">qhiqiqiq", *entry) for entry in entries)
    return struct.pack(">hI", version, crc32c.crc32c(body)) + body


ENTRY = (7, 1, 12, 102, 2, 5000, 3, 100)
IDLE = (8, 0, -1, -1, 0, 1, -1, -1)


def test_a_snapshot_is_loaded() -> None:
    states = ProducerStates(1000)
    load_snapshot(states, snapshot_of(ENTRY, IDLE), 5999)
    assert states.producers() == [ProducerState(7, 1, 3, 5000, 100, [CachedBatch(10, 12, 100, 102, 5000)])]
    assert encode_snapshot(states) == snapshot_of(ENTRY)
    assert append(states, data_batch(7, 10, 500, 3, 1, attributes=TRANSACTIONAL)).duplicate is not None
    states = ProducerStates(1000)
    load_snapshot(states, snapshot_of(IDLE), 1000)
    assert states.producers() == [ProducerState(8, 0, -1, 1, -1, [])]
    load_snapshot(states, snapshot_of(), 1000)
    assert len(states) == 1


def test_every_wrong_snapshot_is_refused() -> None:
    data = snapshot_of(ENTRY, IDLE)
    states = ProducerStates()
    wrong = [data[:size] for size in range(len(data))]
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        wrong.append(bytes(flipped))
    wrong += [data + b"\0", snapshot_of(version=2), snapshot_of(ENTRY, count=2), snapshot_of(count=-1)]
    wrong += [snapshot_of(count=2**31 - 1), snapshot_of(ENTRY, (-1, *ENTRY[1:]))]
    for each in wrong:
        with pytest.raises(ValueError, match="snapshot"):
            load_snapshot(states, each, 0)
    assert len(states) == 0


@given(
    st.tuples(
        st.integers(0, 2**63 - 1),
        st.integers(-(2**15), 2**15 - 1),
        st.integers(-(2**31), 2**31 - 1),
        st.integers(0, 2**63 - 1),
        st.integers(-(2**31), 2**31 - 1),
        st.integers(0, 2**63 - 1),
        st.integers(-(2**31), 2**31 - 1),
        st.integers(-1, 2**63 - 1),
    )
)
def test_any_numbers_in_a_snapshot(entry: tuple[int, ...]) -> None:
    states = ProducerStates(2**63 - 1)
    load_snapshot(states, snapshot_of(entry), 0)
    assert encode_snapshot(states) == snapshot_of(entry)
    append(states, data_batch(entry[0], 0, 0))


# -- files


def test_a_snapshot_is_written_once_for_an_offset(tmp_path: Path) -> None:
    states = ProducerStates()
    append(states, data_batch(7, 0, 9))
    states.end_offset = 10
    write_snapshot(states, tmp_path)
    [path] = tmp_path.iterdir()
    assert path.name == "00000000000000000010.snapshot"
    assert path.read_bytes() == encode_snapshot(states)
    path.unlink()
    write_snapshot(states, tmp_path)
    assert list(tmp_path.iterdir()) == []
    states.end_offset = 11
    write_snapshot(states, tmp_path)
    [path] = tmp_path.iterdir()
    assert (path.stem, states.snapshot_offset) == (f"{11:020d}", 11)


def test_a_snapshot_that_cannot_be_written(tmp_path: Path) -> None:
    states = ProducerStates()
    states.end_offset = 5
    with pytest.raises(FileNotFoundError):
        write_snapshot(states, tmp_path / "missing")
    assert states.snapshot_offset == 0

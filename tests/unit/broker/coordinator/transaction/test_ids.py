"""Transactional ids of a loaded log: which stay bytes until they are used, and that nobody notices it."""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator, Sequence
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctrlchan.broker.coordinator._record_batches import take_idle_batches
from ctrlchan.broker.coordinator.common.topic import Record, StoredBatch
from ctrlchan.broker.coordinator.record_batches import encode_batch, read_batches
from ctrlchan.broker.coordinator.transaction._values import state_number, take_idle
from ctrlchan.broker.coordinator.transaction.ids import TransactionalIds
from ctrlchan.broker.coordinator.transaction.loading import load_transactions
from ctrlchan.broker.coordinator.transaction.records import (
    read_key,
    read_value,
    record_of,
    tombstone_of,
    transaction_key,
)
from ctrlchan.broker.coordinator.transaction.requests import TransactionListing
from ctrlchan.broker.coordinator.transaction.states import EXPIRABLE, TransactionState
from ctrlchan.broker.coordinator.transaction.transaction import Transaction, Transition
from ctrlchan.errors import DecodeError
from ctrlchan.log_context import ContextLogger
from tests.unit.broker.coordinator.support import START_MS
from tests.unit.broker.coordinator.transaction.support import FIRST, MemoryTopic, Rig

LOG = ContextLogger(logging.getLogger(__name__), "")

Pair = tuple[bytes | None, bytes | None]

STATES = [
    TransactionState.EMPTY,
    TransactionState.ONGOING,
    TransactionState.PREPARE_COMMIT,
    TransactionState.COMPLETE_COMMIT,
    TransactionState.COMPLETE_ABORT,
]


def record(
    name: str, state: TransactionState, *, update_ms: int = START_MS, start_ms: int | None = None
) -> Record:
    if start_ms is None:
        start_ms = -1 if state is TransactionState.EMPTY else START_MS - 1
    partitions = frozenset() if state in EXPIRABLE else frozenset({FIRST})
    return record_of(name, Transition(state, 10, 10, 3, -1, 60_000, partitions, start_ms, update_ms))


def fields(transaction: Transaction) -> tuple[object, ...]:
    return (
        transaction.transactional_id,
        transaction.producer_id,
        transaction.epoch,
        transaction.timeout_ms,
        transaction.state,
        transaction.partitions,
        transaction.update_ms,
        transaction.start_ms,
    )


def reference(records: Sequence[Pair]) -> dict[str, Transaction]:
    """Return what the records leave, read one by one."""
    found: dict[str, Transaction] = {}
    for key, value in records:
        if key is None:
            continue
        try:
            name = read_key(key)
            if isinstance(name, int):
                continue
            transaction = None if value is None else read_value(name, value)
        except DecodeError:
            continue
        found.pop(name, None)
        if transaction is not None:
            found[name] = transaction
    return found


@st.composite
def pairs(draw: st.DrawFn) -> Pair:
    name = draw(st.sampled_from(["a", "b", "c", "ü", ""]))
    if draw(st.integers(0, 4)) == 0:
        key, value = tombstone_of(name)
    else:
        start = draw(st.sampled_from([None, -1, 0, START_MS]))
        update = START_MS + draw(st.integers(0, 2))
        key, value = record(name, draw(st.sampled_from(STATES)), update_ms=update, start_ms=start)
    damaged = [bytearray(key), bytearray(value or b"")]
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        part = damaged[draw(st.integers(0, 1))]
        if part:
            part[draw(st.integers(0, len(part) - 1))] = draw(st.sampled_from([0, 1, 5, 127, 128, 255]))
    if draw(st.integers(0, 9)) == 0:
        damaged[1] = damaged[1][: draw(st.integers(0, 37))] + draw(st.binary(max_size=3))
    return (
        None if draw(st.integers(0, 30)) == 0 else bytes(damaged[0]),
        None if value is None else bytes(damaged[1]),
    )


@settings(max_examples=300)
@given(st.lists(pairs(), max_size=12), st.integers(1, 4))
def test_a_log_leaves_what_its_records_say_one_by_one(records: list[Pair], each: int) -> None:
    batches = [StoredBatch(at, records[at : at + each]) for at in range(0, len(records), each)]
    loaded = load_transactions(0, lambda _: batches, lambda: True, LOG)
    expected = reference(records)
    assert list(loaded) == list(expected)
    ids = TransactionalIds(loaded)
    assert list(ids.states()) == [one.state for one in expected.values()]
    by_update = sorted(expected.items(), key=lambda item: item[1].update_ms)
    assert list(ids.expirable()) == [name for name, one in by_update if one.state in EXPIRABLE]
    assert [fields(one) for one in ids.in_states(set(TransactionState))] == [
        fields(one) for one in expected.values()
    ]
    for name, one in expected.items():
        used = ids.get(name)
        assert used is not None
        assert fields(used) == fields(one)
        assert ids.find(name) is used is ids.get(name)


@pytest.mark.parametrize("state", STATES)
def test_ids_without_an_open_transaction_stay_bytes(state: TransactionState) -> None:
    ids: dict[str, Transaction | bytes] = {}
    one, tombstone = record("id", state), tombstone_of("id")
    taken = take_idle(ids, [one, tombstone], 0)
    assert taken == (2 if state in EXPIRABLE else 0)
    assert ids == {}
    assert take_idle(ids, [tombstone, one], 0) == (2 if state in EXPIRABLE else 1)
    if state in EXPIRABLE:
        (value,) = ids.values()
        assert isinstance(value, bytes)
        assert state_number(value) == state.number


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b""),
        (b"", None),
        (b"\0\0\0", None),
        (b"\0\1\0\0", None),
        (b"\0\0\0\2a", None),
        (b"\0\0\0\1ab", None),
        (b"\0\0\xff\xff", None),
        (transaction_key("id"), b""),
        (transaction_key("id"), bytes(36)),
        (transaction_key("id"), struct.pack(">hqhibiqq", 1, 1, 0, 1, 0, -1, 0, -1)),
        (transaction_key("id"), struct.pack(">hqhibiqq", 0, -1, 0, 1, 0, -1, 0, -1)),
        (transaction_key("id"), struct.pack(">hqhibiqq", 0, 1, -1, 1, 0, -1, 0, -1)),
        (transaction_key("id"), struct.pack(">hqhibiqq", 0, 1, 0, 1, 6, -1, 0, -1)),
        (transaction_key("id"), struct.pack(">hqhibiqq", 0, 1, 0, 1, -1, -1, 0, -1)),
        (transaction_key("id"), struct.pack(">hqhibiqq", 0, 1, 0, 1, 4, 1, 0, 0)),
        # It has begun without a start: the time of the last update counts.
        (transaction_key("id"), struct.pack(">hqhibiqq", 0, 1, 0, 1, 4, 0, 0, -1)),
    ],
)
def test_other_records_are_not_taken(key: bytes | None, value: bytes | None) -> None:
    ids: dict[str, Transaction | bytes] = {}
    good = record("good", TransactionState.EMPTY)
    assert take_idle(ids, [good, (key, value), good], 0) == 1
    assert take_idle(ids, [good, (key, value), good], 2) == 3
    assert take_idle(ids, (), 0) == 0
    assert list(ids) == ["good"]


def test_wrong_types_are_refused() -> None:
    with pytest.raises(TypeError):
        take_idle({}, [(transaction_key("id"), "text")], 0)  # type: ignore[list-item]
    with pytest.raises(TypeError):
        take_idle(None, [], 0)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        state_number(None)  # type: ignore[arg-type]


def test_many_batches_are_read_in_their_order() -> None:
    data = b"".join(
        struct.pack(">q", at) + encode_batch([tombstone_of(str(at))], 1)[8:] for at in range(2_500)
    )
    read = list(read_batches(data))
    assert [offset for offset, _ in read] == list(range(1, 2_501))
    assert [batch.first_offset for _, batch in read] == list(range(2_500))
    assert {type(batch) for _, batch in read} == {StoredBatch}
    with pytest.raises(DecodeError):
        list(read_batches(data[:-1]))


def written(batches: Sequence[Sequence[Record]]) -> bytes:
    """Return the batches as they are in a log."""
    parts, offset = [], 0
    for records in batches:
        parts.append(struct.pack(">q", offset) + encode_batch(records, 1)[8:])
        offset += len(records)
    return b"".join(parts)


@settings(max_examples=300)
@given(st.lists(pairs(), max_size=12), st.integers(1, 4))
def test_whole_batches_are_taken_natively(records: list[Pair], each: int) -> None:
    keyed = [Record(key, value) for key, value in records if key is not None]
    batches = [keyed[at : at + each] for at in range(0, len(keyed), each)]
    data = written(batches)
    yielded = []

    def read(ids: dict[str, Transaction | bytes]) -> Iterator[StoredBatch]:
        for offset, batch in read_batches(data, None, partial(take_idle_batches, ids)):
            yielded.append(offset)
            yield batch

    loaded = load_transactions(0, read, lambda: True, LOG)
    singly = load_transactions(0, lambda _: (one for _, one in read_batches(data)), lambda: True, LOG)
    assert {name: type(one) for name, one in loaded.items()} == {
        name: type(one) for name, one in singly.items()
    }
    expected = reference([(one.key, one.value) for one in keyed])
    assert list(loaded) == list(singly) == list(expected)
    ids = TransactionalIds(loaded)
    for name, one in expected.items():
        used = ids.get(name)
        assert used is not None
        assert fields(used) == fields(one)
    assert not batches or yielded[-1] == len(keyed)


def test_a_batch_with_another_record_is_not_taken_in_part() -> None:
    good, other = record("good", TransactionState.EMPTY), record("open", TransactionState.ONGOING)
    data = written([[Record(*good)], [Record(*good)], [Record(*good), Record(*other)]])
    ids: dict[str, Transaction | bytes] = {}
    size = len(data)
    taken = take_idle_batches(ids, data, 0, 1)
    assert (taken[1], list(ids)) == (1, ["good"])
    position, after = take_idle_batches(ids, data, 0, 10)
    assert (0 < position < size, after) == (True, 2)
    ids.clear()
    assert take_idle_batches(ids, data, position, 10) == (position, -1)
    assert take_idle_batches(ids, data[: position - 1], taken[0], 10) == (taken[0], -1)  # cut
    assert take_idle_batches(ids, b"", 0, 10) == (0, -1)
    assert ids == {}
    with pytest.raises(TypeError):
        take_idle_batches(None, data, 0, 1)  # type: ignore[arg-type]


def _loaded(*names: str, update_ms: int = START_MS) -> Rig:
    topic = MemoryTopic()
    rig = Rig(topic=topic)
    by_partition: dict[int, list[StoredBatch]] = {}
    for name in names:
        batches = by_partition.setdefault(rig.coordinator.partition_for(name), [])
        pair = record(name, TransactionState.COMPLETE_ABORT, update_ms=update_ms)
        batches.append(StoredBatch(len(batches), [pair]))
    rig = Rig(topic=MemoryTopic(by_partition))
    rig.coordinator.elected(1 - rig.number, 5)
    return rig


def test_requests_find_ids_that_were_not_used() -> None:
    names = [f"id-{number}" for number in range(20)]
    rig = _loaded(*names)
    assert rig.coordinator.figures().transactional_ids["CompleteAbort"] == 20
    listed = rig.coordinator.list(("CompleteAbort",), (), -1)[2]
    assert sorted(listed) == sorted(TransactionListing(name, 10, "CompleteAbort") for name in names)
    assert rig.coordinator.list(("Ongoing",), (), -1)[2] == []
    assert rig.coordinator.list((), (11,), -1)[2] == []
    described = rig.coordinator.describe("id-3")
    assert (described.state, described.producer_id, described.epoch) == ("CompleteAbort", 10, 3)
    assert rig.add(FIRST, producer=(10, 3), transactional_id="id-4") == 0
    assert rig.init("id-5").epoch == 4
    assert rig.coordinator.figures().transactional_ids["Ongoing"] == 1


def test_ids_that_were_not_used_expire() -> None:
    names = [f"id-{number}" for number in range(20)]
    week = 7 * 24 * 3_600_000
    rig = _loaded(*names, update_ms=START_MS - week + 60_000)
    assert rig.init("id-7").epoch == 4
    rig.advance(59_000)
    assert len(rig.coordinator.list((), (), -1)[2]) == 20
    rig.advance(2_000)
    assert [one.transactional_id for one in rig.coordinator.list((), (), -1)[2]] == ["id-7"]

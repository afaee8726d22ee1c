"""Twins of Kafka's TransactionLogTest, and records that nobody should have written."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctrlchan.broker.coordinator.common.partitions import TopicPartition
from ctrlchan.broker.coordinator.transaction.records import (
    read_key,
    read_value,
    record_of,
    tombstone_of,
    transaction_key,
)
from ctrlchan.broker.coordinator.transaction.states import TransactionState
from ctrlchan.broker.coordinator.transaction.transaction import Transition
from ctrlchan.errors import DecodeError, EncodeError
from tests.unit.broker.coordinator.transaction.support import FIRST, ID, SECOND

STORED = [
    state
    for state in TransactionState
    if state not in (TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE)
]


def transition(state: TransactionState, *partitions: TopicPartition, start_ms: int = 700) -> Transition:
    return Transition(state, 1334, -1, 7, -1, 30_000, frozenset(partitions), start_ms, 500)


def test_the_bytes_of_an_empty_id() -> None:
    record = record_of("id", transition(TransactionState.EMPTY, start_ms=-1))
    assert record.key == b"\x00\x00\x00\x02id"
    assert record.value == bytes.fromhex(
        "0000"  # version
        "0000000000000536"  # producer id
        "0007"  # epoch
        "00007530"  # timeout
        "00"  # Empty
        "ffffffff"  # no partitions: null
        "00000000000001f4"  # last update
        "ffffffffffffffff"  # start
    )


def test_the_bytes_of_partitions() -> None:
    record = record_of("id", transition(TransactionState.ONGOING, TopicPartition("t", 3)))
    assert record.value == bytes.fromhex(
        "0000 0000000000000536 0007 00007530"
        "01"  # Ongoing
        "00000001 0001 74 00000001 00000003"
        "00000000000001f4 00000000000002bc"
    )
    complete = record_of("id", transition(TransactionState.COMPLETE_ABORT))
    assert complete.value is not None
    assert complete.value[16:21] == bytes.fromhex("05 00000000")


@given(
    st.sampled_from(STORED),
    st.sets(st.builds(TopicPartition, st.text(max_size=5), st.integers(0, 2**31 - 1)), max_size=6),
)
def test_read_write_messages(state: TransactionState, partitions: set[TopicPartition]) -> None:
    if state is TransactionState.EMPTY:
        partitions = set()
    record = record_of(ID, transition(state, *partitions))
    assert read_key(record.key) == ID
    assert record.value is not None
    read = read_value(ID, record.value)
    assert (read.transactional_id, read.producer_id, read.epoch) == (ID, 1334, 7)
    assert (read.timeout_ms, read.state, read.partitions) == (30_000, state, frozenset(partitions))
    assert (read.update_ms, read.start_ms) == (500, 700)
    assert (read.last_producer_id, read.last_epoch, read.pending) == (-1, -1, None)


def test_a_tombstone() -> None:
    assert tombstone_of(ID) == (transaction_key(ID), None)


TOPIC = frozenset({TopicPartition("topic", 0)})
FLEXIBLE = bytes.fromhex(
    "0001 0000000000000064 0032 000001f4 04"
    "02 06 746f706963 02 00000000 00"  # one topic, one partition, no tagged fields
    "00000000000003e8 00000000000002ee 00"
)


def test_deserialize_highest_supported_transaction_log_value() -> None:
    read = read_value(ID, FLEXIBLE)
    assert (read.producer_id, read.epoch, read.timeout_ms) == (100, 50, 500)
    assert (read.state, read.partitions) == (TransactionState.COMPLETE_COMMIT, TOPIC)
    assert (read.update_ms, read.start_ms) == (1000, 750)
    null = FLEXIBLE[:17] + b"\0" + FLEXIBLE[-17:]
    assert read_value(ID, null).partitions == frozenset()


def test_deserialize_future_transaction_log_value() -> None:
    tagged = bytes.fromhex("02 00 05 0003 666f6f 01 04 00000fa0")
    later = FLEXIBLE[:29] + tagged + FLEXIBLE[30:-1] + tagged
    read = read_value(ID, later)
    assert (read.partitions, read.update_ms, read.start_ms) == (TOPIC, 1000, 750)


def test_read_txn_record_key_can_read_unknown_message() -> None:
    assert read_key(struct.pack(">h", 32_767) + b"anything") == 32_767


def test_ids_that_are_too_long() -> None:
    assert read_key(transaction_key("x" * 32_767)) == "x" * 32_767
    with pytest.raises(EncodeError):
        transaction_key("x" * 32_768)


VALUE = record_of(ID, transition(TransactionState.ONGOING, FIRST, SECOND)).value or b""


@pytest.mark.parametrize("value", [VALUE, FLEXIBLE], ids=["version 0", "version 1"])
def test_values_that_end_too_early(value: bytes) -> None:
    for size in range(len(value)):
        with pytest.raises(DecodeError):
            read_value(ID, value[:size])


@pytest.mark.parametrize(
    ("place", "what"),
    [
        (slice(0, 2), "0002"),  # version
        (slice(0, 2), "ffff"),
        (slice(2, 10), "ffffffffffffffff"),  # producer id
        (slice(10, 12), "ffff"),  # epoch
        (slice(16, 17), "06"),  # Dead
        (slice(16, 17), "07"),  # PrepareEpochFence
        (slice(16, 17), "08"),
        (slice(16, 17), "ff"),
        (slice(17, 21), "7fffffff"),  # topics
        (slice(21, 23), "ffff"),  # a topic without a name
        (slice(29, 33), "7fffffff"),  # partitions
        (slice(29, 33), "ffffffff"),
    ],
)
def test_damaged_values(place: slice, what: str) -> None:
    damaged = bytearray(VALUE)
    damaged[place] = bytes.fromhex(what)
    with pytest.raises(DecodeError):
        read_value(ID, bytes(damaged))


@given(st.binary(max_size=80))
def test_garbage_is_read_or_refused(data: bytes) -> None:
    for read in (read_key, lambda value: read_value(ID, value)):
        try:
            read(data)
        except DecodeError:
            continue


def test_a_transaction_without_a_start_has_begun_with_its_last_update() -> None:
    for state in (TransactionState.ONGOING, TransactionState.PREPARE_COMMIT):
        record = record_of(ID, transition(state, FIRST, start_ms=-1))
        assert record.value is not None
        assert read_value(ID, record.value).start_ms == 500

"""The records of ``__transaction_state``: Kafka's formats of keys and values.

A value of None is a tombstone. Written: version 0 of both. Read: versions 0 and 1 of the value; version 1 is
flexible, and newer releases write it.

    TransactionLogKey    transactional id string
    TransactionLogValue  producer id int64, producer epoch int16, timeout in ms int32, state int8,
                         partitions: null when Empty, else topic string and partition ids int32,
                         time of the last update int64, time of the start int64

Source: the JSON schemas of these names, and ``kafka.coordinator.transaction.TransactionLog``.
"""

from __future__ import annotations

import struct
from typing import Final

from ctrlchan.broker.coordinator.common.partitions import TopicPartition
from ctrlchan.broker.coordinator.common.topic import Record
from ctrlchan.broker.coordinator.common.wire import Reader
from ctrlchan.broker.coordinator.transaction._values import encode_value
from ctrlchan.broker.coordinator.transaction.states import TransactionState, state_of
from ctrlchan.broker.coordinator.transaction.transaction import NO_START, Transaction, Transition
from ctrlchan.errors import DecodeError, EncodeError

__all__ = ["read_key", "read_value", "record_of", "tombstone_of", "transaction_key"]

_KEY: Final = 0
_KEY_VERSION: Final = b"\0\0"
_LONGEST: Final = 2**15 - 1
_WRITTEN_VALUE: Final = 0
_HIGHEST_VALUE: Final = 1

#: Version, producer id, epoch, timeout, state, number of topics.
_HEAD: Final = struct.Struct(">hqhibi")
#: Of the last update, of the start.
_TIMES: Final = struct.Struct(">qq")

_NO_PARTITIONS: Final[frozenset[TopicPartition]] = frozenset()


def transaction_key(transactional_id: str) -> bytes:
    """Return the key of a transactional id. Raises EncodeError when it is longer than 32,767 bytes."""
    data = transactional_id.encode("utf-8", "replace")
    if len(data) > _LONGEST:
        raise EncodeError(f"a transactional id of {len(data)} bytes")
    return _KEY_VERSION + len(data).to_bytes(2, "big") + data


def record_of(transactional_id: str, to: Transition) -> Record:
    """Return the record of a change. Raises EncodeError for an id that is too long."""
    value = encode_value(
        to.producer_id,
        to.epoch,
        to.timeout_ms,
        to.state.number,
        to.partitions,
        to.update_ms,
        to.start_ms,
    )
    return Record(transaction_key(transactional_id), value)


def tombstone_of(transactional_id: str) -> Record:
    """Return the record that removes a transactional id."""
    return Record(transaction_key(transactional_id), None)


def read_key(data: bytes) -> str | int:
    """Return the transactional id of a key, or the version of a key of a later Kafka. Raises DecodeError."""
    if data[:2] == _KEY_VERSION and int.from_bytes(data[2:4], "big") == len(data) - 4 <= _LONGEST:
        return data[4:].decode("utf-8", "replace")  # as all keys are, unless they are damaged
    reader = Reader(data)
    version = reader.integer("h")
    return reader.string() if version == _KEY else version


def read_value(transactional_id: str, data: bytes) -> Transaction:
    """Return what the value of a record says. Raises DecodeError for other bytes and unknown versions.

    Bytes after the last field are ignored, as Kafka does.
    """
    try:
        version, producer_id, epoch, timeout_ms, number, count = _HEAD.unpack_from(data)
        if version == _WRITTEN_VALUE and count <= 0:  # most records: no transaction is open
            partitions = _NO_PARTITIONS
            update_ms, start_ms = _TIMES.unpack_from(data, _HEAD.size)
            return _checked(
                transactional_id, producer_id, epoch, timeout_ms, number, partitions, update_ms, start_ms
            )
    except struct.error:
        pass  # another version, or damaged: the reader says what is missing
    reader = Reader(data)
    version = reader.integer("h")
    if not 0 <= version <= _HIGHEST_VALUE:
        raise DecodeError(f"version {version} of a value is not known")
    reader.flexible = version > _WRITTEN_VALUE
    producer_id, epoch, timeout_ms = reader.integer("q"), reader.integer("h"), reader.integer("i")
    number = reader.integer("b")
    partitions = _read_partitions(reader)
    update_ms, start_ms = reader.integer("q"), reader.integer("q")
    reader.tagged_fields()
    return _checked(transactional_id, producer_id, epoch, timeout_ms, number, partitions, update_ms, start_ms)


def _read_partitions(reader: Reader) -> frozenset[TopicPartition]:
    partitions: set[TopicPartition] = set()
    for _ in range(reader.nullable_count() or 0):
        topic = reader.string()
        partitions.update(TopicPartition(topic, reader.integer("i")) for _ in range(reader.count()))
        reader.tagged_fields()
    return frozenset(partitions)


def _checked(
    transactional_id: str,
    producer_id: int,
    epoch: int,
    timeout_ms: int,
    number: int,
    partitions: frozenset[TopicPartition],
    update_ms: int,
    start_ms: int,
) -> Transaction:
    state = state_of(number)
    if state is None or state is TransactionState.DEAD or state is TransactionState.PREPARE_EPOCH_FENCE:
        raise DecodeError(f"state {number} is not known")  # Kafka never writes the last two
    if producer_id < 0 or epoch < 0:
        raise DecodeError(f"producer id {producer_id} with epoch {epoch}")
    if state is TransactionState.EMPTY:
        partitions = _NO_PARTITIONS
    elif start_ms == NO_START:
        start_ms = update_ms  # it has begun: only Empty ids have no start
    return Transaction(
        transactional_id, producer_id, epoch, timeout_ms, update_ms, state, partitions, start_ms
    )

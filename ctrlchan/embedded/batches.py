"""Makes a batch of records of format 2, and finds the partition of a key as Kafka's producer does.

The layouts are in ``broker/log/records.py``. Source: ``BuiltInPartitioner`` of Kafka 3.9.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from ctrlchan.broker.log.records import batch_of
from ctrlchan.varints import encode_uvarint

__all__ = ["NO_PRODUCER", "Header", "Producer", "encode_records", "partition_of"]

#: A header of a record.
Header = tuple[str, bytes | None]

_NULL: Final = b"\x01"  # the varint -1


class Producer(NamedTuple):
    """An idempotent producer. Its first batch in a partition has sequence 0; without an id there are none."""

    id: int
    epoch: int
    sequence: int = 0


NO_PRODUCER: Final = Producer(-1, -1, -1)

_MASK: Final = 0xFFFFFFFF
_SEED: Final = 0x9747B28C
_FACTOR: Final = 0x5BD1E995


def encode_records(
    values: Sequence[bytes | None],
    key: bytes | None,
    headers: Sequence[Header],
    timestamp: int,
    producer: Producer = NO_PRODUCER,
) -> bytes:
    """Return an uncompressed batch, one record for each value; all have the key and the headers.

    `timestamp`: of every record, in milliseconds since 1970. `producer`: a broker appends its batch once,
    however often it is sent.
    """
    shared = encode_uvarint(2 * len(headers)) + b"".join(
        _bytes(name.encode()) + _bytes(value) for name, value in headers
    )
    parts: list[bytes] = []
    for index, value in enumerate(values):
        body = b"".join((b"\0\0", encode_uvarint(2 * index), _bytes(key), _bytes(value), shared))
        parts += (encode_uvarint(2 * len(body)), body)
    return batch_of(
        b"".join(parts),
        len(values),
        timestamp,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        base_sequence=producer.sequence,
    )


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition of a key: its murmur2 hash without the sign, modulo the number of partitions."""
    return (_murmur2(key) & 0x7FFFFFFF) % partitions


def _bytes(data: bytes | None) -> bytes:
    return _NULL if data is None else encode_uvarint(2 * len(data)) + data


def _murmur2(data: bytes) -> int:
    """Return ``Utils.murmur2`` as an unsigned number of 32 bits."""
    value = _SEED ^ len(data)
    whole = len(data) & ~3
    for position in range(0, whole, 4):
        word = int.from_bytes(data[position : position + 4], "little") * _FACTOR & _MASK
        word = (word ^ word >> 24) * _FACTOR & _MASK
        value = (value * _FACTOR & _MASK) ^ word
    if whole < len(data):
        value = (value ^ int.from_bytes(data[whole:], "little")) * _FACTOR & _MASK
    value = (value ^ value >> 13) * _FACTOR & _MASK
    return value ^ value >> 15

"""Checks the records of a Produce as far as their first batches: number, format, codec, transactions.

All else is checked where they are appended. Source: ``ProduceRequest.validateRecords``,
``ByteBufferLogInputStream``.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from ctrlchan.errors import ErrorCode

__all__ = [
    "FORMAT_2_FROM",
    "ZSTD_FROM",
    "BatchProducer",
    "begins_as_batch",
    "error_of_records",
    "has_unknown_codec",
    "is_transactional",
    "transactional_producer",
]

#: Versions of Produce from which on records have format 2, and may be compressed by zstd.
FORMAT_2_FROM: Final = 3
ZSTD_FROM: Final = 7

#: Base offset, length, leader epoch, magic, CRC, attributes of a batch.
_HEAD: Final = struct.Struct(">qiibIh")
#: Producer id, producer epoch, base sequence, and where they are.
_PRODUCER: Final = struct.Struct(">qhi")
_PRODUCER_AT: Final = 43
_LEAST_LENGTH: Final = 14  # of a batch of any format
_OFFSET_AND_LENGTH: Final = 12
_HEADER_LENGTH: Final = 49  # of a batch of format 2
_COMPRESSION, _TRANSACTIONAL, _ZSTD = 0x07, 0x10, 4
_FORMAT: Final = 2


class BatchProducer(NamedTuple):
    """What the header of a batch says of its producer."""

    id: int
    epoch: int
    base_sequence: int


def begins_as_batch(records: bytes) -> bool:
    """Whether length and format of the first batch, if there is one, are possible."""
    if len(records) < _OFFSET_AND_LENGTH:
        return True
    length = int.from_bytes(records[8:12], "big", signed=True)
    return length >= _LEAST_LENGTH and (len(records) <= 16 or records[16] <= 2)


def is_transactional(records: bytes) -> bool:
    """Whether the first batch is whole, of format 2 and part of a transaction."""
    return bool(_attributes(records) & _TRANSACTIONAL)


def transactional_producer(records: bytes) -> BatchProducer | None:
    """Return the producer of a whole batch, or None if the batch is no part of a transaction."""
    if not is_transactional(records):
        return None
    producer = BatchProducer(*_PRODUCER.unpack_from(records, _PRODUCER_AT))
    return producer if producer.id >= 0 else None


def has_unknown_codec(records: bytes) -> bool:
    """Whether the first batch is whole, of format 2 and compressed by a codec that does not exist."""
    return _attributes(records) & _COMPRESSION > _ZSTD


def _attributes(records: bytes) -> int:
    """Return the attributes of the first batch, or 0 if it is not of format 2 or not whole."""
    if len(records) < _HEAD.size:
        return 0
    _, length, _, magic, _, attributes = _HEAD.unpack_from(records)
    is_whole = length <= len(records) - _OFFSET_AND_LENGTH
    return int(attributes) if magic == _FORMAT and is_whole else 0


def error_of_records(records: bytes, version: int) -> int:
    """Return what is wrong with the number and the kind of batches (``ProduceRequest.validateRecords``).

    ``version``: from 3 on.
    """
    try:
        size = _batch_size(records)
        if not size:
            return ErrorCode.INVALID_RECORD
        _, _, _, magic, _, attributes = _HEAD.unpack_from(records)
        if magic != _FORMAT:
            return ErrorCode.INVALID_RECORD
        if version < ZSTD_FROM and attributes & _COMPRESSION == _ZSTD:
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        return ErrorCode.INVALID_RECORD if _batch_size(records[size:]) else ErrorCode.NONE
    except ValueError:
        return ErrorCode.CORRUPT_MESSAGE


def _batch_size(data: bytes) -> int:
    """Return the size of the first batch, or 0 if it is not whole. Raises ValueError if it is no batch.

    Source: ``ByteBufferLogInputStream``.
    """
    if len(data) < _OFFSET_AND_LENGTH:
        return 0
    length = int.from_bytes(data[8:12], "big", signed=True)
    if length < _LEAST_LENGTH:
        raise ValueError(f"a batch of {length} bytes")
    if len(data) <= _OFFSET_AND_LENGTH + 4:
        return 0
    magic = data[_OFFSET_AND_LENGTH + 4]
    if magic > 2:
        raise ValueError(f"a batch of format {magic}")
    if len(data) - _OFFSET_AND_LENGTH < length:
        return 0
    if magic == 2 and length < _HEADER_LENGTH:
        raise ValueError(f"a batch of {length} bytes")
    return _OFFSET_AND_LENGTH + length

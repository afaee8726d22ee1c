"""Batches off the hot path: their records are read, and uncompressed batches are written.

All have format 2; an entry of format 0 or 1 is read as such a batch (``old_formats/_as_batch.pyx``).

Layout of a batch: base offset int64, length int32 (of what follows), leader epoch int32, magic int8 (2),
CRC-32C uint32 (of what follows), attributes int16, last offset delta int32, base timestamp int64, max
timestamp int64, producer id int64, producer epoch int16, base sequence int32, records int32, records.

Layout of a record: length varint, attributes int8, timestamp delta varlong, offset delta varint, key, value,
number of headers varint, and key and value of each header. Bytes have their size before them, as a varint;
-1: null.

Source: ``DefaultRecordBatch`` and ``DefaultRecord`` of Kafka 3.9.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Final, NamedTuple

from ctrlchan.broker.log import compression
from ctrlchan.broker.log._batches import BatchHeader, crc32c_of, read_header
from ctrlchan.broker.log.old_formats._as_batch import as_batch
from ctrlchan.errors import ErrorCode, KafkaError

__all__ = [
    "FORMAT_2",
    "HEADER_BYTES",
    "MAGIC_AT",
    "Record",
    "as_format_2",
    "batch_of",
    "checksum_of",
    "offsets_and_timestamps",
    "read_records",
    "records_of",
]

HEADER_BYTES: Final = 61
#: Where the format of a batch is.
MAGIC_AT: Final = 16
COMPRESSION: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
DELETE_HORIZON: Final = 0x40

_HEAD: Final = struct.Struct(">qiibI")
_REST: Final = struct.Struct(">hiqqqhii")
#: Leader epoch, magic and CRC count in the length of a batch; base offset and length do not.
_LENGTH_BEFORE_REST: Final = _HEAD.size - 12
#: The format of batches; formats 0 and 1 have entries.
FORMAT_2: Final = 2
#: The first byte that the CRC of a batch covers.
_CHECKED_FROM: Final = 21
_NONE: Final = -1


class Record(NamedTuple):
    """One record. ``encoded``: its bytes with the length before them."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[bytes, bytes | None]]
    encoded: memoryview


def batch_of(
    records: bytes,
    count: int,
    timestamp: int,
    *,
    attributes: int = 0,
    producer_id: int = _NONE,
    producer_epoch: int = _NONE,
    base_sequence: int = _NONE,
) -> bytes:
    """Return an uncompressed batch of encoded records.

    ``timestamp``: of every record, in milliseconds since 1970. The log that appends the batch assigns its
    offsets and its leader epoch.
    """
    rest = _REST.pack(
        attributes, count - 1, timestamp, timestamp, producer_id, producer_epoch, base_sequence, count
    )
    rest += records
    return _HEAD.pack(0, _LENGTH_BEFORE_REST + len(rest), _NONE, FORMAT_2, crc32c_of(rest)) + rest


def records_of(header: BatchHeader, batch: bytes) -> memoryview:
    """Return the bytes of a batch's records, decompressed. Raises KafkaError CORRUPT_MESSAGE."""
    codec = header.attributes & COMPRESSION
    records = memoryview(batch)[HEADER_BYTES:]
    try:
        return compression.decompress(codec, bytes(records)) if codec else records
    except (KeyError, compression.CorruptError, compression.TooLargeError) as error:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE, f"records that cannot be decompressed: {error}"
        ) from error


def checksum_of(batch: bytes) -> int:
    """Return the CRC that the header of a whole batch should have."""
    if batch[MAGIC_AT] < FORMAT_2:
        return zlib.crc32(memoryview(batch)[MAGIC_AT:])
    return crc32c_of(memoryview(batch)[_CHECKED_FROM:])


def as_format_2(batch: bytes) -> bytes:
    """Return a batch as it is, or an entry of format 0 or 1 as an uncompressed batch of format 2.

    Raises KafkaError CORRUPT_MESSAGE for an entry with records that cannot be read.
    """
    return as_batch(batch).batch if len(batch) > MAGIC_AT and batch[MAGIC_AT] < FORMAT_2 else batch


def read_records(batch: bytes) -> Iterator[Record]:
    """Yield the records of a batch. Raises KafkaError CORRUPT_MESSAGE where they do not fit into it."""
    batch = as_format_2(batch)
    header = read_header(batch)
    data = records_of(header, batch)
    append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME else None
    position = 0
    try:
        for _ in range(header.record_count):
            length, begin = _varint(data, position)
            end = begin + length
            if length < 0 or end > len(data):
                raise IndexError
            delta, at = _varint(data, begin + 1)
            offset, at = _varint(data, at)
            key, at = _bytes(data, at, end)
            value, at = _bytes(data, at, end)
            count, at = _varint(data, at)
            headers = []
            for _ in range(count):
                name, at = _bytes(data, at, end)
                content, at = _bytes(data, at, end)
                headers.append((name or b"", content))
            if at != end:
                raise IndexError
            timestamp = header.base_timestamp + delta if append_time is None else append_time
            yield Record(header.base_offset + offset, timestamp, key, value, headers, data[position:end])
            position = end
    except IndexError as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "records that do not fit into their batch") from error


def offsets_and_timestamps(batch: bytes) -> Iterator[tuple[int, int]]:
    """Yield offset and timestamp of each record of a batch. Raises KafkaError CORRUPT_MESSAGE."""
    return ((record.offset, record.timestamp) for record in read_records(batch))


def _bytes(data: memoryview, position: int, end: int) -> tuple[bytes | None, int]:
    """Return the bytes that follow a size field, and the position of their end."""
    size, position = _varint(data, position)
    if size < 0:
        return None, position
    if position + size > end:
        raise IndexError
    return bytes(data[position : position + size]), position + size


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    """Return a zigzag number of variable length, and where it ends."""
    value = shift = 0
    while True:
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        if shift > 63:
            raise IndexError

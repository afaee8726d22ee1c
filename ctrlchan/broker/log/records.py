"""Offsets and timestamps of the records in one batch, for ListOffsets.

Layout of a record of format 2: length varint, attributes int8, timestamp delta varlong, offset delta varint,
and more that is skipped.
"""

from __future__ import annotations

from collections.abc import Iterator

from ctrlchan.broker.log import compression
from ctrlchan.broker.log._batches import read_header
from ctrlchan.errors import ErrorCode, KafkaError

__all__ = ["offsets_and_timestamps"]

_HEADER_BYTES = 61
_COMPRESSION = 0x07
_LOG_APPEND_TIME = 0x08


def offsets_and_timestamps(batch: bytes) -> Iterator[tuple[int, int]]:
    """Yield offset and timestamp of each record of a batch. Raises KafkaError CORRUPT_MESSAGE."""
    header = read_header(batch)
    codec = header.attributes & _COMPRESSION
    try:
        records = memoryview(batch)[_HEADER_BYTES:]
        if codec:
            records = compression.decompress(codec, bytes(records))
        position = 0
        for _ in range(header.record_count):
            length, position = _varint(records, position)
            end = position + length
            delta, after = _varint(records, position + 1)
            offset, after = _varint(records, after)
            if length < 0 or after > end:
                raise IndexError
            timestamp = header.base_timestamp + delta
            yield (
                header.base_offset + offset,
                header.max_timestamp if header.attributes & _LOG_APPEND_TIME else timestamp,
            )
            position = end
    except (IndexError, KeyError, compression.CorruptError, compression.TooLargeError) as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "records that do not fit into their batch") from error


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

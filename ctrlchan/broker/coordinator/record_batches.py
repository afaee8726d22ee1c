"""The record batches of coordinators: written, and read as Kafka or a cleaner left them.

The layouts of batches and records are in ``log/records.py``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Final

from ctrlchan.broker.coordinator._record_batches import encode_batch, read_plain_batches
from ctrlchan.broker.coordinator.common.topic import StoredBatch
from ctrlchan.broker.log import compression
from ctrlchan.broker.log._batches import BatchHeader, crc32c_of, read_header, read_key_values
from ctrlchan.broker.log.records import FORMAT_2, HEADER_BYTES, as_format_2, records_of
from ctrlchan.errors import DecodeError, KafkaError

__all__ = ["Take", "compressed", "encode_batch", "read_batches"]

#: How small a batch may be: an entry of format 0.
_LEAST_BYTES: Final = 26
#: Batches that are in memory at once.
_AT_ONCE: Final = 1_000

#: Of a batch: its length, and the attributes, with which the CRC before them begins.
_LENGTH_AT, _CHECKED_FROM = 8, 21
_LENGTH, _CRC, _ATTRIBUTES = struct.Struct(">i"), struct.Struct(">I"), struct.Struct(">h")
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20
#: The key of a control record: version int16, type int16.
_CONTROL_KEY: Final = struct.Struct(">hh")
_COMMIT: Final = 1

#: Takes at most so many batches from a position of the bytes on; returns the position behind them, and the
#: offset after them, or -1.
Take = Callable[[bytes, int, int], tuple[int, int]]


def compressed(batch: bytes, codec: int) -> bytes:
    """Return a batch of ``encode_batch`` with its records compressed by a codec (1 to 4)."""
    records = compression.compress(codec, batch[HEADER_BYTES:])
    result = bytearray(batch[:HEADER_BYTES] + records)
    _LENGTH.pack_into(result, _LENGTH_AT, len(result) - _LENGTH_AT - _LENGTH.size)
    [attributes] = _ATTRIBUTES.unpack_from(result, _CHECKED_FROM)
    _ATTRIBUTES.pack_into(result, _CHECKED_FROM, attributes | codec)
    _CRC.pack_into(result, _CHECKED_FROM - _CRC.size, crc32c_of(bytes(result[_CHECKED_FROM:])))
    return bytes(result)


def read_batches(
    data: bytes, skip: Callable[[int, DecodeError], None] | None = None, take: Take | None = None
) -> Iterator[tuple[int, StoredBatch]]:
    """Yield each batch after the offset that follows it. Raises DecodeError for other bytes.

    `skip` is called, instead, for a batch whose records cannot be read, with its first offset. `take` is
    asked first; an empty batch stands for those that it takes at once.
    """
    position = 0
    while position < len(data):
        if take is not None:
            position, after = take(data, position, _AT_ONCE)
            if after >= 0:
                yield after, StoredBatch(after, ())
                continue
        plain, position = read_plain_batches(data, position, _AT_ONCE)
        if plain:
            yield from plain
            continue
        try:
            header = read_header(data, position)
        except ValueError as error:
            raise DecodeError(str(error)) from error
        end = position + header.size
        if not 0 <= header.magic <= FORMAT_2 or header.size < _LEAST_BYTES or end > len(data):
            raise DecodeError(f"no batch at {position} of {len(data)} bytes")
        batch = data[position:end]
        position = end
        try:
            stored = _stored(header, batch)
        except DecodeError as error:
            if skip is None:
                raise
            skip(header.base_offset, error)
            stored = StoredBatch(header.base_offset, ())
        yield header.base_offset + header.last_offset_delta + 1, stored


def _stored(header: BatchHeader, batch: bytes) -> StoredBatch:
    try:
        if header.magic < FORMAT_2:
            batch = as_format_2(batch)
            header = read_header(batch)
        pairs = read_key_values(records_of(header, batch), header.record_count)
        if pairs is None:
            raise DecodeError(f"the batch at offset {header.base_offset}: records that do not fit into it")
        commits = None
        if header.attributes & _CONTROL:
            # A compacted log may have control batches without a record; they end nothing.
            kinds = [_CONTROL_KEY.unpack_from(key)[1] for key, _ in pairs if key is not None]
            commits = _COMMIT in kinds if kinds else None
            pairs = []
    except (KafkaError, struct.error) as error:
        raise DecodeError(f"the batch at offset {header.base_offset}: {error}") from error
    return StoredBatch(
        header.base_offset,
        pairs,
        header.producer_id,
        bool(header.attributes & _TRANSACTIONAL),
        commits,
    )

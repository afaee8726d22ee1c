"""Makes records comparable: without the clocks of brokers, and without what another library compresses."""

from __future__ import annotations

import struct
from typing import Final

from ctrlchan.broker.log import compression
from ctrlchan.broker.log.old_formats import wrappers
from tests.unit.broker.log.batches import CONTROL, LOG_APPEND_TIME
from tests.unit.broker.log.old_formats.entries import APPEND_TIME

__all__ = ["comparable"]

#: Base offset and length, of batches and of older entries.
_BEGIN: Final = struct.Struct(">qi")
_LENGTH: Final = slice(8, 12)
_MAGIC_AT: Final = 16
_CODEC: Final = 7

_BATCH_CRC, _TIMESTAMPS, _MAX_TIMESTAMP = slice(17, 21), slice(27, 43), slice(35, 43)
_BATCH_ATTRIBUTES_AT: Final = 22
_HEADER_BYTES: Final = 61

_ENTRY_CRC, _TIMESTAMP = slice(12, 16), slice(18, 26)
_ENTRY_ATTRIBUTES_AT: Final = 17
_LZ4_HEAD_BYTES: Final = 7
#: A null key and the size of the value.
_PAIR_BYTES: Final = 8


def comparable(data: bytes) -> bytes:
    """Return the batches and entries of an answer without the begin of a last one, which clients ignore.

    Markers of transactions are without their times, others without the append time of the broker, and all
    that was compressed is decompressed, without its sizes.
    """
    found, at = [], 0
    while len(data) - at >= _BEGIN.size:
        _, length = _BEGIN.unpack_from(data, at)
        end = at + _BEGIN.size + length
        if length < 0 or end > len(data):
            break
        one = data[at:end]
        found.append(_batch(one) if one[_MAGIC_AT] > 1 else _entry(one))
        at = end
    return b"".join(found)


def _without(data: bytes, *fields: slice) -> bytes:
    plain = bytearray(data)
    for field in fields:
        plain[field] = bytes(field.stop - field.start)
    return bytes(plain)


def _batch(batch: bytes) -> bytes:
    attributes = batch[_BATCH_ATTRIBUTES_AT]
    if attributes & CONTROL:
        batch = _without(batch, _BATCH_CRC, _TIMESTAMPS)
    elif attributes & LOG_APPEND_TIME:
        batch = _without(batch, _BATCH_CRC, _MAX_TIMESTAMP)
    codec = attributes & _CODEC
    if not codec:
        return batch
    payload = bytes(compression.decompress(codec, batch[_HEADER_BYTES:]))
    return _without(batch[:_HEADER_BYTES], _LENGTH, _BATCH_CRC) + payload


def _entry(entry: bytes) -> bytes:
    magic, attributes = entry[_MAGIC_AT], entry[_ENTRY_ATTRIBUTES_AT]
    if magic and attributes & APPEND_TIME:
        entry = _without(entry, _ENTRY_CRC, _TIMESTAMP)
    codec = attributes & _CODEC
    if not codec:
        return entry
    head = (_TIMESTAMP.stop if magic else _TIMESTAMP.start) + _PAIR_BYTES
    carried = bytes(wrappers.decompress(codec, magic, entry[head:]))
    # Of LZ4 the head, whose checksum differs between formats 0 and 1.
    frame = entry[head : head + _LZ4_HEAD_BYTES] if codec == compression.LZ4 else b""
    return _without(entry[: head - 4], _LENGTH, _ENTRY_CRC) + frame + comparable(carried)

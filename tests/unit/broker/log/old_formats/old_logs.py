"""Segments of formats 0 and 1, whose records kafka-python has written."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

from ctrlchan.broker.log.compression import LZ4, SNAPPY
from ctrlchan.broker.log.old_formats import wrappers
from tests.unit.broker.log.kafka_python import LegacyRecordBatchBuilder
from tests.unit.broker.log.old_formats.entries import APPEND_TIME, OldEntry

__all__ = ["CODECS", "entries", "segment_file", "with_offset"]

#: What an entry may be compressed by: nothing, gzip, snappy, LZ4.
CODECS = (0, 1, 2, 3)
#: Those that kafka-python needs other packages for.
_HERE = (SNAPPY, LZ4)
_OFFSET_AND_SIZE = 12
_MAGIC_AT = 4

#: The key and the value of a record, and its timestamp.
Pairs = Sequence[tuple[bytes | None, bytes | None, int]]


def entries(magic: int, codec: int, first_offset: int, pairs: Pairs, *, append_time: int = -1) -> bytes:
    """Return an entry for each record, or with a codec one that carries them all.

    ``append_time``: the timestamp of all records, as a broker sets it. kafka-python leaves the offset and the
    timestamp of an entry that carries others to the broker.
    """
    if codec in _HERE:
        carried = _plain(magic, 0 if magic else first_offset, 0, pairs)
        data = OldEntry(wrappers.compress(codec, magic, carried), None, magic, attributes=codec).encoded()
    else:
        # In format 1 offsets inside of another entry count from 0.
        data = _plain(magic, 0 if codec and magic else first_offset, codec, pairs)
    if not codec:
        assert append_time < 0
        return data
    record = bytearray(data[_OFFSET_AND_SIZE:])
    if magic:
        largest = max(timestamp for _, _, timestamp in pairs) if append_time < 0 else append_time
        record[_MAGIC_AT + 1] |= 0 if append_time < 0 else APPEND_TIME
        struct.pack_into(">q", record, _MAGIC_AT + 2, largest)
        struct.pack_into(">I", record, 0, zlib.crc32(record[_MAGIC_AT:]))
    return with_offset(data[:_OFFSET_AND_SIZE] + record, first_offset + len(pairs) - 1)


def _plain(magic: int, first_offset: int, codec: int, pairs: Pairs) -> bytes:
    builder = LegacyRecordBatchBuilder(magic, codec, 1 << 30)
    for number, (key, value, timestamp) in enumerate(pairs):
        assert builder.append(first_offset + number, timestamp, key, value, []) is not None
    return bytes(builder.build())


def with_offset(entry: bytes, offset: int) -> bytes:
    """Return an entry with another offset, which its CRC does not cover."""
    return struct.pack(">q", offset) + entry[8:]


def segment_file(folder: Path, base_offset: int, data: bytes) -> Path:
    """Write a segment without indexes; return its file."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{base_offset:020}.log"
    path.write_bytes(data)
    return path

"""Entries of formats 0 and 1 made by hand, and a plain reader of them."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Any

from ctrlchan.broker.log.old_formats import wrappers

__all__ = ["APPEND_TIME", "OldEntry", "read_entries", "wrapped"]

#: The attribute of format 1: the timestamp is that of the append.
APPEND_TIME = 0x08


def _sized(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


@dataclass(frozen=True)
class OldEntry:
    """One entry, and wrong fields on demand. A field that is None gets the right value."""

    value: bytes | None = b"value"
    key: bytes | None = b"key"
    magic: int = 1
    offset: int = 0
    timestamp: int = 1000
    attributes: int = 0
    crc: int | None = None
    size: int | None = None
    #: The record from the size of the key on.
    pair: bytes | None = None

    def encoded(self) -> bytes:
        """Return the bytes of the entry."""
        rest = struct.pack(">bB", self.magic, self.attributes)
        if self.magic:
            rest += struct.pack(">q", self.timestamp)
        rest += _sized(self.key) + _sized(self.value) if self.pair is None else self.pair
        crc = zlib.crc32(rest) if self.crc is None else self.crc
        size = len(rest) + 4 if self.size is None else self.size
        return struct.pack(">qiI", self.offset, size, crc) + rest


def wrapped(
    entries: list[OldEntry], codec: int, *, after: bytes = b"", payload: bytes | None = None, **fields: Any
) -> OldEntry:
    """Return an entry that carries others. ``after``: bytes behind them; ``payload``: in place of all."""
    magic = fields.setdefault("magic", entries[0].magic if entries else 1)
    fields.setdefault("offset", entries[-1].offset if entries else 0)
    fields["attributes"] = fields.get("attributes", 0) | codec
    data = b"".join(entry.encoded() for entry in entries) + after
    value = wrappers.compress(codec, magic, data) if payload is None else payload
    return OldEntry(value, None, **fields)


def read_entries(data: bytes) -> list[OldEntry]:
    """Return the whole entries at the begin of ``data``, with what others carry in their place.

    Their sizes and CRCs are checked.
    """
    found, at = [], 0
    while len(data) - at >= 12:
        offset, size = struct.unpack_from(">qi", data, at)
        record = data[at + 12 : at + 12 + size]
        if len(record) < size:
            break
        at += 12 + size
        crc, magic, attributes = struct.unpack_from(">IbB", record)
        assert zlib.crc32(record[4:]) == crc
        timestamp, position = -1, 6
        if magic:
            [timestamp] = struct.unpack_from(">q", record, position)
            position += 8
        pair = []
        for _ in range(2):
            [length] = struct.unpack_from(">i", record, position)
            position += 4
            pair.append(None if length < 0 else record[position : position + length])
            position += max(length, 0)
        assert position == len(record)
        one = OldEntry(pair[1], pair[0], magic, offset, timestamp, attributes)
        codec = attributes & 7
        if not codec:
            found.append(one)
            continue
        assert one.key is None
        assert one.value is not None
        inner = read_entries(bytes(wrappers.decompress(codec, magic, one.value)))
        base = offset - inner[-1].offset if magic else 0
        found += [
            OldEntry(each.value, each.key, magic, base + each.offset, each.timestamp, each.attributes | codec)
            for each in inner
        ]
    return found

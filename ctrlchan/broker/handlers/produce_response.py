"""Writes a response to Produce, in all versions. Layout: see ``_produce.pyx``."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final

from ctrlchan.broker.handlers.current_leaders import UNKNOWN, CurrentLeader
from ctrlchan.broker.replica._partitions import ProduceResult
from ctrlchan.varints import encode_uvarint

__all__ = ["Key", "ProduceResponse"]

_THROTTLE_FROM: Final = 1
_APPEND_TIME_FROM: Final = 2
_START_OFFSET_FROM: Final = 5
_RECORD_ERRORS_FROM: Final = 8
_FLEXIBLE_FROM: Final = 9

#: Topic and partition.
Key = tuple[str, int]


class ProduceResponse:
    """Writes responses of one version."""

    def __init__(self, version: int) -> None:
        self._version = version
        self._flexible = version >= _FLEXIBLE_FROM

    def encode(
        self, results: Mapping[Key, ProduceResult], leaders: Mapping[Key, CurrentLeader], endpoints: bytes
    ) -> tuple[bytes, int]:
        """Return a response, and the size of the tagged fields that end it."""
        topics: dict[str, list[tuple[int, ProduceResult, CurrentLeader]]] = {}
        for key, result in results.items():
            topics.setdefault(key[0], []).append((key[1], result, leaders.get(key, UNKNOWN)))
        parts = [self._count(len(topics))]
        for name, partitions in topics.items():
            parts += [self._text(name), self._count(len(partitions))]
            parts += [self._partition(*partition) for partition in partitions]
            parts.append(self._tags())
        if self._version >= _THROTTLE_FROM:
            # The request handler writes another throttle time in its place.
            parts.append(bytes(4))
        parts.append(tags := self._tags(endpoints))
        return b"".join(parts), len(tags)

    def _partition(self, index: int, result: ProduceResult, leader: CurrentLeader) -> bytes:
        data = struct.pack(">ihq", index, result.error_code, result.base_offset)
        if self._version >= _APPEND_TIME_FROM:
            data += struct.pack(">q", result.append_time)
        if self._version >= _START_OFFSET_FROM:
            data += struct.pack(">q", result.log_start_offset)
        if self._version >= _RECORD_ERRORS_FROM:
            data += self._count(len(result.record_errors))
            for number, message in result.record_errors:
                data += struct.pack(">i", number) + self._text(message) + self._tags()
            data += self._text(result.error_message)
        return data + self._tags(b"" if leader == UNKNOWN else struct.pack(">iix", *leader))

    def _count(self, count: int) -> bytes:
        return encode_uvarint(count + 1) if self._flexible else struct.pack(">i", count)

    def _text(self, text: str | None) -> bytes:
        data = b"" if text is None else text.encode()
        size = -1 if text is None else len(data)
        return (encode_uvarint(size + 1) if self._flexible else struct.pack(">h", size)) + data

    def _tags(self, field: bytes = b"") -> bytes:
        """Return the tagged fields where the version has them: none, or field 0."""
        if not self._flexible:
            return b""
        return b"\x01\x00" + encode_uvarint(len(field)) + field if field else b"\x00"

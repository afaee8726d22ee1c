"""Produce and Fetch requests and answers, as the simulated clients need them: few versions, made for speed.

tests/conformance compares the product's answers with Kafka's own classes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

PRODUCE, FETCH = 0, 1
PRODUCE_VERSIONS: Final = (3, 8, 9)
FETCH_VERSIONS: Final = (4, 7, 10, 11, 12)
PRODUCE_FLEXIBLE, FETCH_FLEXIBLE = 9, 12
LATEST_EPOCH: Final = -1

#: (topic, partition, records)
Part = tuple[str, int, bytes]


def uvarint(number: int) -> bytes:
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)
    return bytes(data)


def header(key: int, version: int, correlation_id: int, *, flexible: bool) -> bytes:
    return struct.pack(">hhih3s", key, version, correlation_id, 3, b"sim") + (b"\0" if flexible else b"")


class Reader:
    """Reads the fields of a message in order. Raises ValueError where it ends too early."""

    def __init__(self, data: bytes, at: int, *, flexible: bool) -> None:
        self.data, self.at, self.flexible = data, at, flexible

    def unpack(self, fields: str) -> tuple[int, ...]:
        size = struct.calcsize(fields)
        return struct.unpack(fields, self.take(size))

    def take(self, size: int) -> bytes:
        if size < 0 or self.at + size > len(self.data):
            raise ValueError(f"{size} bytes at {self.at} of {len(self.data)}")
        self.at += size
        return self.data[self.at - size : self.at]

    def uvarint(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def length(self, fixed: str = ">i") -> int:
        """Return the length of a string (``>h``) or an array (``>i``), -1 for null."""
        return self.uvarint() - 1 if self.flexible else self.unpack(fixed)[0]

    def name(self) -> str:
        return self.take(self.length(">h")).decode()

    def tags(self) -> None:
        if self.flexible:
            for _ in range(self.uvarint()):
                self.uvarint()
                self.take(self.uvarint())

    def end(self) -> None:
        if self.at != len(self.data):
            raise ValueError(f"{len(self.data) - self.at} bytes behind the answer")


def array(count: int, *, flexible: bool) -> bytes:
    return uvarint(count + 1) if flexible else struct.pack(">i", count)


def text(value: str, *, flexible: bool) -> bytes:
    data = value.encode()
    return (uvarint(len(data) + 1) if flexible else struct.pack(">h", len(data))) + data


# -- Produce


def produce_request(
    version: int, correlation_id: int, parts: Sequence[Part], acks: int, timeout_ms: int
) -> bytes:
    flexible = version >= PRODUCE_FLEXIBLE
    tags = b"\0" if flexible else b""
    out = [header(PRODUCE, version, correlation_id, flexible=flexible)]
    # No transactional id.
    out.append((b"\0" if flexible else b"\xff\xff") + struct.pack(">hi", acks, timeout_ms))
    out.append(array(len(parts), flexible=flexible))
    for topic, index, records in parts:
        size = uvarint(len(records) + 1) if flexible else struct.pack(">i", len(records))
        out += [text(topic, flexible=flexible), array(1, flexible=flexible), struct.pack(">i", index)]
        out += [size, records, tags, tags]
    out.append(tags)
    return b"".join(out)


@dataclass(slots=True)
class ProduceRequest:
    version: int
    correlation_id: int
    acks: int
    timeout_ms: int
    parts: list[Part]


def read_produce_request(frame: bytes) -> ProduceRequest:
    """Read what ``produce_request`` has written."""
    _, version, correlation_id, size = struct.unpack_from(">hhih", frame)
    read = Reader(frame, 10 + size, flexible=version >= PRODUCE_FLEXIBLE)
    read.tags()
    read.length(">h")
    acks, timeout_ms = read.unpack(">hi")
    parts = []
    for _ in range(read.length()):
        topic = read.name()
        for _ in range(read.length()):
            (index,) = read.unpack(">i")
            parts.append((topic, index, read.take(read.length())))
            read.tags()
        read.tags()
    read.tags()
    read.end()
    return ProduceRequest(version, correlation_id, acks, timeout_ms, parts)


#: Topic, partition, error, base offset
Produced = tuple[str, int, int, int]


def produce_answer(request: ProduceRequest, results: Sequence[tuple[int, int]]) -> bytes:
    """Return the answer of a handler thread: error and base offset of each part."""
    flexible = request.version >= PRODUCE_FLEXIBLE
    tags = b"\0" if flexible else b""
    out = [struct.pack(">i", request.correlation_id), tags, array(len(results), flexible=flexible)]
    for (topic, index, _), (error, offset) in zip(request.parts, results, strict=True):
        out += [text(topic, flexible=flexible), array(1, flexible=flexible)]
        out.append(struct.pack(">ihqq", index, error, offset, -1))
        if request.version >= 5:
            out.append(struct.pack(">q", -1))
        if request.version >= 8:
            out.append(b"\1\0" if flexible else struct.pack(">ih", 0, -1))
        out += [tags, tags]
    return b"".join([*out, struct.pack(">i", 0), tags])


def read_produce_answer(version: int, answer: bytes) -> list[Produced]:
    flexible = version >= PRODUCE_FLEXIBLE
    read = Reader(answer, 4, flexible=flexible)
    read.tags()
    found = []
    for _ in range(read.length()):
        topic = read.name()
        for _ in range(read.length()):
            index, error, offset, _time = read.unpack(">ihqq")
            if version >= 5:
                read.unpack(">q")
            if version >= 8:
                for _ in range(read.length()):
                    raise ValueError("record errors")
                if read.length(">h") >= 0:
                    raise ValueError("an error message")
            read.tags()
            found.append((topic, index, error, offset))
        read.tags()
    read.unpack(">i")
    read.tags()
    read.end()
    return found


# -- Fetch


@dataclass(slots=True)
class Wanted:
    """One partition of a Fetch."""

    topic: str
    index: int
    offset: int
    max_bytes: int


def fetch_request(
    version: int,
    correlation_id: int,
    wanted: Sequence[Wanted],
    *,
    max_wait_ms: int,
    min_bytes: int,
    max_bytes: int,
    session: int = 0,
    epoch: int = LATEST_EPOCH,
) -> bytes:
    flexible = version >= FETCH_FLEXIBLE
    tags = b"\0" if flexible else b""
    out = [header(FETCH, version, correlation_id, flexible=flexible)]
    out.append(struct.pack(">iiiib", -1, max_wait_ms, min_bytes, max_bytes, 0))
    if version >= 7:
        out.append(struct.pack(">ii", session, epoch))
    out.append(array(len(wanted), flexible=flexible))
    for one in wanted:
        out += [text(one.topic, flexible=flexible), array(1, flexible=flexible), struct.pack(">i", one.index)]
        if version >= 9:
            out.append(struct.pack(">i", -1))
        out.append(struct.pack(">q", one.offset))
        if version >= 12:
            out.append(struct.pack(">i", -1))
        if version >= 5:
            out.append(struct.pack(">q", -1))
        out += [struct.pack(">i", one.max_bytes), tags, tags]
    if version >= 7:
        out.append(array(0, flexible=flexible))
    if version >= 11:
        out.append(text("", flexible=flexible))
    out.append(tags)
    return b"".join(out)


@dataclass(slots=True)
class Fetched:
    """One partition of an answer."""

    topic: str
    index: int
    error: int
    high_watermark: int
    start_offset: int
    records: bytes


def read_fetch_answer(version: int, answer: bytes) -> tuple[int, int, list[Fetched]]:
    """Return error, session and partitions."""
    read = Reader(answer, 4, flexible=version >= FETCH_FLEXIBLE)
    read.tags()
    read.unpack(">i")
    error, session = read.unpack(">hi") if version >= 7 else (0, 0)
    found = []
    for _ in range(read.length()):
        topic = read.name()
        for _ in range(read.length()):
            index, code, high_watermark, _stable = read.unpack(">ihqq")
            (start,) = read.unpack(">q") if version >= 5 else (-1,)
            if read.length() > 0:
                raise ValueError("aborted transactions")
            if version >= 11:
                read.unpack(">i")
            size = read.length()
            records = read.take(size) if size > 0 else b""
            read.tags()
            found.append(Fetched(topic, index, code, high_watermark, start, records))
        read.tags()
    read.tags()
    read.end()
    return error, session, found


# -- record batches


_BATCH: Final = struct.Struct(">qiibIhiqqqhii")


@dataclass(slots=True)
class Batch:
    """What the checks need of a record batch. ``values``: of its records."""

    base_offset: int
    leader_epoch: int
    producer_id: int
    sequence: int
    values: list[bytes]

    @property
    def end_offset(self) -> int:
        return self.base_offset + len(self.values)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        shift += 7
        at += 1
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at


def read_batches(data: bytes) -> list[Batch]:
    """Return all batches; the bytes must end with a whole one. Raises ValueError, also for a wrong record."""
    found, at = [], 0
    while at < len(data):
        if len(data) - at < _BATCH.size:
            raise ValueError(f"half a header at byte {at}")
        base, length, epoch, magic, _crc, _attributes, last, _, _, producer, _, sequence, count = (
            _BATCH.unpack_from(data, at)
        )
        end = at + 12 + length
        if magic != 2 or end > len(data) or last != count - 1:
            raise ValueError(f"a batch of {length} bytes, magic {magic}, {count} records, at byte {at}")
        values, at = [], at + _BATCH.size
        for _ in range(count):
            size, begin = _varint(data, at)
            # No attributes, and no time or offset delta of more than a few bytes.
            _, place = _varint(data, begin + 1)
            _, place = _varint(data, place)
            _, place = _varint(data, place)
            value_size, place = _varint(data, place)
            values.append(data[place : place + value_size])
            at = begin + size
        if at != end:
            raise ValueError("records that are shorter than their batch")
        found.append(Batch(base, epoch, producer, sequence, values))
    return found

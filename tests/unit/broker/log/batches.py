"""Record batches made by hand, and a plain twin of the checks of ``_batches``."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace

import crc32c

from ctrlchan.broker.log import compression
from ctrlchan.errors import ErrorCode

#: From the attributes on; the CRC covers these fields and the records.
CHECKED = struct.Struct(">hiqqqhii")
HEAD = struct.Struct(">qiibI")

LOG_APPEND_TIME, TRANSACTIONAL, CONTROL, DELETE_HORIZON = 0x08, 0x10, 0x20, 0x40


def varint(value: int) -> bytes:
    """Return a zig-zag varint."""
    raw = (value << 1) ^ (value >> 63)
    raw &= 2**64 - 1
    out = bytearray()
    while raw >= 0x80:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


def sized(data: bytes | None) -> bytes:
    """Return bytes with their size before them; null is -1."""
    return varint(-1) if data is None else varint(len(data)) + data


@dataclass(frozen=True)
class PlainRecord:
    """One record, and wrong fields on demand."""

    offset_delta: int
    timestamp_delta: int = 0
    key: bytes | None = b"key"
    value: bytes | None = b"value"
    headers: tuple[tuple[bytes | None, bytes | None], ...] = ()
    attributes: int = 0

    def encoded(self) -> bytes:
        """Return the bytes of the record."""
        body = bytes([self.attributes]) + varint(self.timestamp_delta) + varint(self.offset_delta)
        body += sized(self.key) + sized(self.value) + varint(len(self.headers))
        body += b"".join(sized(key) + sized(value) for key, value in self.headers)
        return varint(len(body)) + body


@dataclass(frozen=True)
class PlainBatch:
    """The fields of one batch. A field that is None gets the right value."""

    records: bytes = b""
    count: int = 0
    base_offset: int = 0
    length: int | None = None
    leader_epoch: int = -1
    magic: int = 2
    crc: int | None = None
    attributes: int = 0
    last_offset_delta: int | None = None
    base_timestamp: int = 1000
    max_timestamp: int = 1000
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1

    def encoded(self) -> bytes:
        """Return the bytes of the batch."""
        delta = self.count - 1 if self.last_offset_delta is None else self.last_offset_delta
        rest = CHECKED.pack(
            self.attributes, delta, self.base_timestamp, self.max_timestamp, self.producer_id,
            self.producer_epoch, self.base_sequence, self.count,
        ) + self.records  # fmt: skip
        length = len(rest) + 9 if self.length is None else self.length
        crc = crc32c.crc32c(rest) if self.crc is None else self.crc
        return HEAD.pack(self.base_offset, length, self.leader_epoch, self.magic, crc) + rest


def batch_of(records: Sequence[PlainRecord], codec: int = 0, **fields: int) -> PlainBatch:
    """Return a batch of these records; its largest timestamp is right."""
    data = b"".join(record.encoded() for record in records)
    base = fields.setdefault("base_timestamp", 1000)
    fields.setdefault("max_timestamp", max([base + record.timestamp_delta for record in records] + [-1]))
    fields["attributes"] = fields.get("attributes", 0) | codec
    return PlainBatch(
        records=compression.compress(codec, data) if codec else data, count=len(records), **fields
    )


class Reader:
    """Reads a record; every error is a ValueError."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def take(self, size: int) -> bytes:
        if size < 0 or size > len(self.data) - self.position:
            raise ValueError("cut")
        self.position += size
        return self.data[self.position - size : self.position]

    def varint(self, most: int) -> int:
        raw = 0
        for shift in range(0, 7 * most, 7):
            [byte] = self.take(1)
            raw |= (byte & 0x7F) << shift
            if byte < 0x80:
                raw %= 2**32 if most == 5 else 2**64
                return (raw >> 1) ^ -(raw & 1)
        raise ValueError("long")

    def bytes(self) -> bytes | None:
        size = self.varint(5)
        return None if size < 0 else self.take(size)


def read_records(data: bytes, count: int) -> list[PlainRecord]:
    """Return the records, or raise ValueError."""
    outer = Reader(data)
    records = []
    for _ in range(count):
        inner = Reader(outer.take(outer.varint(5)))
        [attributes] = inner.take(1)
        timestamp_delta, offset_delta = inner.varint(10), inner.varint(5)
        key, value = inner.bytes(), inner.bytes()
        headers = []
        header_count = inner.varint(5)
        if header_count < 0:
            raise ValueError("negative count")
        for _ in range(header_count):
            header_key = inner.bytes()
            if header_key is None:
                raise ValueError("null key of a header")
            headers.append((header_key, inner.bytes()))
        if inner.position != len(inner.data):
            raise ValueError("bytes are left")
        records.append(PlainRecord(offset_delta, timestamp_delta, key, value, tuple(headers), attributes))
    if outer.position != len(outer.data):
        raise ValueError("bytes are left")
    return records


def signed(value: int) -> int:
    """Wrap as Java's long does."""
    return (value + 2**63) % 2**64 - 2**63


@dataclass(frozen=True)
class PlainRules:
    """The twin of AppendRules for an append of a client."""

    now_ms: int = 5000
    before_max_ms: int = 2**63 - 1
    after_max_ms: int = 2**63 - 1
    max_message_bytes: int = 1048588
    segment_bytes: int = 1073741824
    log_append_time: bool = False
    compacted: bool = False
    refuses_zstd: bool = False


def parse(data: bytes) -> tuple[int, PlainBatch | None, bytes]:
    """Return (error, the first batch or None, what follows it)."""
    if len(data) < 12:
        return 0, None, b""
    [length] = struct.unpack_from(">i", data, 8)
    if length < 14 or (len(data) > 16 and not 0 <= data[16] <= 2):
        return ErrorCode.CORRUPT_MESSAGE, None, b""
    if len(data) <= 16 or length + 12 > len(data):
        return 0, None, b""
    rest = data[length + 12 :]
    if data[16] == 2 and length < 49:
        return ErrorCode.CORRUPT_MESSAGE, None, b""
    if data[16] != 2:
        return 0, PlainBatch(magic=data[16]), rest
    offset, _, leader_epoch, magic, crc = HEAD.unpack_from(data)
    fields = CHECKED.unpack_from(data, 21)
    attributes, delta, base_timestamp, max_timestamp, producer_id, epoch, sequence, count = fields
    return (
        0,
        PlainBatch(
            data[61 : length + 12], count, offset, length, leader_epoch, magic, crc, attributes, delta,
            base_timestamp, max_timestamp, producer_id, epoch, sequence,
        ),
        rest,
    )  # fmt: skip


def expected_error(data: bytes, rules: PlainRules) -> int:
    """Return the error of a client's append whose records are not compressed."""
    error, batch, rest = parse(data)
    if error or batch is None or batch.magic != 2:
        return error or ErrorCode.INVALID_RECORD
    codec = batch.attributes & 7
    if rules.refuses_zstd and codec == compression.ZSTD:
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    error, second, _ = parse(rest)
    if error or second is not None or batch.base_offset != 0:
        return error or ErrorCode.INVALID_RECORD
    assert batch.length is not None
    if batch.length + 12 > rules.max_message_bytes:
        return ErrorCode.MESSAGE_TOO_LARGE
    if replace(batch, crc=None).encoded() != batch.encoded():
        return ErrorCode.CORRUPT_MESSAGE
    if codec > 4:
        return ErrorCode.UNKNOWN_SERVER_ERROR
    if batch.count < 1 or batch.last_offset_delta != batch.count - 1 or batch.attributes & CONTROL:
        return ErrorCode.INVALID_RECORD
    if batch.producer_id >= 0 and batch.base_sequence < 0:
        return ErrorCode.INVALID_RECORD
    assert codec == 0, "the twin decompresses nothing"
    try:
        records = read_records(batch.records, batch.count)
    except ValueError:
        return ErrorCode.INVALID_RECORD
    errors: set[int] = {record_error(batch, record, rules) for record in records} - {0}
    if errors:
        return max(errors, key=lambda error: error == ErrorCode.INVALID_TIMESTAMP)
    return ErrorCode.RECORD_LIST_TOO_LARGE if batch.length + 12 > rules.segment_bytes else ErrorCode.NONE


def timestamp_of(batch: PlainBatch, record: PlainRecord) -> int:
    """Return the timestamp of a record."""
    if batch.attributes & LOG_APPEND_TIME:
        return batch.max_timestamp
    return signed(batch.base_timestamp + record.timestamp_delta)


def record_error(batch: PlainBatch, record: PlainRecord, rules: PlainRules) -> int:
    """Return the error of one record."""
    if rules.compacted and record.key is None:
        return ErrorCode.INVALID_RECORD
    timestamp = timestamp_of(batch, record)
    if not rules.log_append_time and timestamp != -1:
        age = signed(rules.now_ms - timestamp)
        if age > rules.before_max_ms or signed(-age) > rules.after_max_ms:
            return ErrorCode.INVALID_TIMESTAMP
    elif batch.attributes & LOG_APPEND_TIME:
        return ErrorCode.INVALID_TIMESTAMP
    return ErrorCode.NONE

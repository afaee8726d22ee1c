"""Record batches of format 2, made by hand, and read back."""

from __future__ import annotations

import struct
import time
from collections.abc import Sequence

from ctrlchan.broker.log._batches import AppendRules, Checked, check, crc32c_of, read_header
from tests.unit.broker.log.batches import TRANSACTIONAL


def _varint(number: int) -> bytes:
    zigzag = (number << 1) ^ (number >> 63)
    data = bytearray()
    while zigzag > 0x7F:
        data.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    data.append(zigzag)
    return bytes(data)


def batch(
    values: Sequence[bytes],
    *,
    timestamp: int = 1000,
    step: int = 0,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    sequence: int = -1,
    attributes: int = 0,
) -> bytes:
    """Return an uncompressed batch of the values; the timestamps rise by ``step``."""
    records = b""
    for delta, value in enumerate(values):
        body = (
            b"\0"
            + _varint(delta * step)
            + _varint(delta)
            + _varint(-1)
            + _varint(len(value))
            + value
            + _varint(0)
        )
        records += _varint(len(body)) + body
    largest = max(timestamp, timestamp + step * (len(values) - 1))
    fields = (
        attributes,
        len(values) - 1,
        timestamp,
        largest,
        producer_id,
        producer_epoch,
        sequence,
        len(values),
    )
    rest = struct.pack(">hiqqqhii", *fields) + records
    head = struct.pack(">qiibI", base_offset, 9 + len(rest), leader_epoch, 2, crc32c_of(rest))
    return head + rest


def transactional_batch(producer_id: int, producer_epoch: int, sequence: int) -> bytes:
    """Return a batch of one record in a transaction, of now: a marker comes into the same segment."""
    return batch(
        [b"a"],
        timestamp=int(1000 * time.time()),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        sequence=sequence,
        attributes=TRANSACTIONAL,
    )


def checked(data: bytes) -> Checked:
    """Return the batches as a processor hands them to the log."""
    error, found = check(data, AppendRules(now_ms=1000))
    assert error == 0
    return found


def headers(data: bytes) -> list[tuple[int, int]]:
    """Return first offset and number of records of each batch; all of them must be whole."""
    found, position = [], 0
    while position < len(data):
        header = read_header(data, position)
        assert position + header.size <= len(data)
        found.append((header.base_offset, header.record_count))
        position += header.size
    return found

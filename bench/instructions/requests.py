"""Requests as bytes, with their headers and without their size; checks of the answers."""

from __future__ import annotations

import struct
from typing import Final

from ctrlchan.varints import encode_uvarint
from tests.unit.broker.log.batches import PlainBatch, PlainRecord

__all__ = [
    "TRANSACTIONAL",
    "batch_of",
    "check",
    "check_fetched",
    "fetch",
    "header",
    "one_partition",
    "produce",
    "text",
]

#: Milliseconds since 1970 of all records: their sizes must not depend on the time of the run.
_TIME_MS: Final = 1_700_000_000_000
TRANSACTIONAL: Final = 0x10
_RECORD_BYTES: Final = 100
#: Correlation id, tagged fields.
_RESPONSE_HEADER: Final = 5


def header(api_key: int, version: int) -> bytes:
    """Return the header of a flexible version."""
    return struct.pack(">hhih4sb", api_key, version, 7, 4, b"load", 0)


def text(value: str) -> bytes:
    """Return a compact string."""
    return encode_uvarint(len(value) + 1) + value.encode()


def one_partition(topic: str) -> bytes:
    """Return an array of one topic, up to the number of its only partition."""
    return b"\2" + text(topic) + b"\2" + struct.pack(">i", 0)


def batch_of(records: int, **fields: int) -> bytes:
    """Return a batch of records of 100 bytes; `fields`: of PlainBatch."""
    data = b"".join(
        PlainRecord(i, key=None, value=b"%0*d" % (_RECORD_BYTES, i)).encoded() for i in range(records)
    )
    return PlainBatch(data, records, base_timestamp=_TIME_MS, max_timestamp=_TIME_MS, **fields).encoded()


def produce(topic: str, batch: bytes, transactional_id: str | None = None) -> bytes:
    """Return Produce v9 with acks=1, or -1 for a transaction."""
    name = b"\0" if transactional_id is None else text(transactional_id)
    acks = 1 if transactional_id is None else -1
    records = encode_uvarint(len(batch) + 1) + batch
    return header(0, 9) + name + struct.pack(">hi", acks, 30_000) + one_partition(topic) + records + b"\0\0\0"


def fetch(topic: str, offset: int, max_bytes: int) -> bytes:
    """Return Fetch v12, which does not wait."""
    before = struct.pack(">iiiibii", -1, 0, 1, max_bytes, 0, 0, -1)
    asked = struct.pack(">iqiqi", -1, offset, -1, -1, max_bytes)
    return header(1, 12) + before + one_partition(topic) + asked + b"\0\0\1\1\0"


def check(answer: bytes, topic: str, *, begins_with_time: bool = False) -> None:
    """Raise RuntimeError unless the only partition of an answer has no error.

    ``begins_with_time``: whether the throttle time stands before the topics.
    """
    at = _RESPONSE_HEADER + 4 * begins_with_time + len(one_partition(topic))
    if answer[at : at + 2] != b"\0\0":
        raise RuntimeError(f"the broker answers {answer!r}")


def check_fetched(answer: bytes, topic: str, least: int) -> None:
    """Raise RuntimeError unless a Fetch response has no error, and `least` bytes or more."""
    # Throttle time, error, session; then the partition.
    at = _RESPONSE_HEADER + 10 + len(one_partition(topic))
    if answer[at : at + 2] != b"\0\0" or len(answer) < least:
        raise RuntimeError(f"the broker answers {answer[:100]!r}, {len(answer)} bytes instead of {least}")

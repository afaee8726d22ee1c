"""The requests of the crowds, as frames with their sizes, and what is read of the answers."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from ctrlchan.varints import encode_uvarint
from tests.unit.broker.groups.group_broker import part
from tests.unit.broker.local_broker import client_frame, read_client_response

__all__ = ["decoded", "fetch", "frame", "metadata", "part", "produce"]

#: API keys.
KEYS: Final = {
    "Produce": 0,
    "Fetch": 1,
    "Metadata": 3,
    "OffsetCommit": 8,
    "JoinGroup": 11,
    "Heartbeat": 12,
    "SyncGroup": 14,
    "InitProducerId": 22,
}
#: The versions that are sent: both sides have them.
VERSIONS: Final = {
    "Produce": 9,
    "Fetch": 12,
    "Metadata": 12,
    "OffsetCommit": 8,
    "JoinGroup": 9,
    "Heartbeat": 4,
    "SyncGroup": 5,
    "InitProducerId": 4,
}


def frame(api: str, **fields: Any) -> bytes:
    """Return a request with its size."""
    return sized(client_frame(KEYS[api], VERSIONS[api], client_id="load", **fields))


def sized(request: bytes) -> bytes:
    return struct.pack(">i", len(request)) + request


def decoded(api: str, answer: bytes) -> Any:
    """Return an answer (without its size) as kio's entity."""
    return read_client_response(KEYS[api], VERSIONS[api], answer)


def entity(api: str, kind: str, **fields: Any) -> Any:
    return part(api, VERSIONS[api], kind, **fields)


def metadata(topics: Sequence[str] | None) -> bytes:
    """``topics``: None for all."""
    return frame("Metadata", topics=topics)


_HEADER: Final = struct.Struct(">hhih4sb")
_CORRELATION_ID: Final = 77


def _raw(api: str, body: bytes) -> bytes:
    header = _HEADER.pack(KEYS[api], VERSIONS[api], _CORRELATION_ID, 4, b"load", 0)
    return sized(header + body)


def _text(value: str) -> bytes:
    return bytes([len(value) + 1]) + value.encode()


def _count(number: int) -> bytes:
    """Return the length of a compact array."""
    return encode_uvarint(number + 1)


#: Partitions of topics: name -> numbers.
Partitions: TypeAlias = Mapping[str, Sequence[int]]


def produce(partitions: Partitions, batch: bytes) -> bytes:
    """Return a Produce with acks=1 of the same batch to each partition."""
    topics = b"".join(
        _text(name)
        + _count(len(numbers))
        + b"".join(struct.pack(">i", n) + _count(len(batch)) + batch + b"\0" for n in numbers)
        + b"\0"
        for name, numbers in partitions.items()
    )
    return _raw("Produce", b"\0" + struct.pack(">hi", 1, 30_000) + _count(len(partitions)) + topics + b"\0")


def fetch(
    partitions: Partitions,
    *,
    offset: int = 0,
    max_bytes: int = 1 << 20,
    max_wait_ms: int = 500,
    min_bytes: int = 1,
    session: tuple[int, int] = (0, -1),
) -> bytes:
    """Return a Fetch from the same offset of each partition. ``session``: its id and epoch."""
    topics = b"".join(
        _text(name)
        + _count(len(numbers))
        + b"".join(struct.pack(">iiqiqib", n, -1, offset, -1, -1, max_bytes, 0) for n in numbers)
        + b"\0"
        for name, numbers in partitions.items()
    )
    head = struct.pack(">iiiibii", -1, max_wait_ms, min_bytes, 0x7FFFFFFF, 0, *session)
    return _raw("Fetch", head + _count(len(partitions)) + topics + b"\1\1\0")


def session_of(answer: bytes) -> int:
    """Return the session id of a Fetch answer, which has to be without an error."""
    error, session = struct.unpack_from(">hi", answer, 4 + 1 + 4)
    if error:
        raise RuntimeError(f"Fetch was answered with error {error}")
    return int(session)

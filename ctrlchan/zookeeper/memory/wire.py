"""ZooKeeper's requests and answers as bytes (jute), for the server's side.

Source: ``zookeeper.jute`` and ``org.apache.zookeeper.proto`` (3.8). Every read is checked: bytes that are no
request raise MalformedError.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from ctrlchan.errors import MalformedError
from ctrlchan.zookeeper.memory.tree import Stat
from ctrlchan.zookeeper.operations import Check, Create, Delete, Operation, SetData

__all__ = ["ConnectRequest", "Reader", "Writer", "frame", "read_connect", "read_multi", "read_multi_paths"]

_HEADER: Final = struct.Struct(">iBi")
_STAT: Final = struct.Struct(">qqqqiiiqiiq")

CREATE: Final = 1
DELETE: Final = 2
GET_DATA: Final = 4
SET_DATA: Final = 5
GET_CHILDREN: Final = 8
CHECK: Final = 13
CREATE2: Final = 15

_EPHEMERAL: Final = 1
_SEQUENTIAL: Final = 2


class Reader:
    """Reads the fields of a request in their order."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self) -> int:
        """Return an int32."""
        return int.from_bytes(self._take(4), "big", signed=True)

    def long(self) -> int:
        """Return an int64."""
        return int.from_bytes(self._take(8), "big", signed=True)

    def flag(self) -> bool:
        """Return a boolean."""
        return self._take(1) != b"\0"

    def buffer(self) -> bytes | None:
        """Return bytes, None for null."""
        length = self.number()
        return None if length < 0 else self._take(length)

    def text(self) -> str:
        """Return a string; null is an empty one."""
        try:
            return (self.buffer() or b"").decode()
        except UnicodeDecodeError:
            raise MalformedError("a text that is not UTF-8") from None

    def texts(self) -> list[str]:
        """Return a list of strings."""
        return [self.text() for _ in range(self.number())]

    def skip_acl(self) -> None:
        """Go past a list of ACLs."""
        for _ in range(self.number()):
            self.number()
            self.text()
            self.text()

    def _take(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._data):
            raise MalformedError("a request ends within a field")
        taken, self._at = self._data[self._at : end], end
        return taken


class Writer:
    """Writes the fields of an answer in their order."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def number(self, value: int) -> Writer:
        self._parts.append(value.to_bytes(4, "big", signed=True))
        return self

    def long(self, value: int) -> Writer:
        self._parts.append(value.to_bytes(8, "big", signed=True))
        return self

    def flag(self, value: bool) -> Writer:
        self._parts.append(b"\1" if value else b"\0")
        return self

    def buffer(self, value: bytes) -> Writer:
        self._parts += (len(value).to_bytes(4, "big"), value)
        return self

    def text(self, value: str) -> Writer:
        return self.buffer(value.encode())

    def texts(self, values: list[str]) -> Writer:
        self.number(len(values))
        for value in values:
            self.text(value)
        return self

    def stat(self, stat: Stat) -> Writer:
        self._parts.append(
            _STAT.pack(
                stat.czxid, stat.mzxid, 0, 0, stat.version, stat.children_version, 0,
                stat.ephemeral_owner, stat.data_length, stat.children, stat.pzxid,
            )
        )  # fmt: skip
        return self

    def multi_header(self, kind: int, error: int, *, done: bool = False) -> Writer:
        """Write what stands before each result of a multi, or behind the last one."""
        self._parts.append(_HEADER.pack(kind, done, error))
        return self

    def raw(self, data: bytes) -> Writer:
        self._parts.append(data)
        return self

    def done(self) -> bytes:
        """Return the bytes."""
        return b"".join(self._parts)


class ConnectRequest(NamedTuple):
    """The first frame of a connection. ``session``: 0 for a new one; ``timeout``: milliseconds."""

    timeout: int
    session: int
    password: bytes


def read_connect(data: bytes) -> ConnectRequest:
    """Decode the first frame of a connection. Raises MalformedError."""
    reader = Reader(data)
    reader.number()  # protocol version
    reader.long()  # the last transaction that the client has seen
    return ConnectRequest(reader.number(), reader.long(), reader.buffer() or b"")


def read_operation(kind: int, reader: Reader) -> Operation:
    """Decode one write. Raises MalformedError."""
    path = reader.text()
    if kind in (CREATE, CREATE2):
        data = reader.buffer()
        reader.skip_acl()
        flags = reader.number()
        if flags & ~(_EPHEMERAL | _SEQUENTIAL):
            raise MalformedError(f"nodes of kind {flags} are not served")
        return Create(path, data, bool(flags & _EPHEMERAL), bool(flags & _SEQUENTIAL))
    if kind == DELETE:
        return Delete(path, reader.number())
    if kind == SET_DATA:
        return SetData(path, reader.buffer() or b"", reader.number())
    if kind == CHECK:
        return Check(path, reader.number())
    raise MalformedError(f"operation {kind} in a multi")


def read_multi(reader: Reader) -> list[tuple[int, Operation]]:
    """Return (kind, operation) of each operation of a multi. Raises MalformedError."""
    return [(kind, read_operation(kind, reader)) for kind in _kinds(reader)]


def read_multi_paths(reader: Reader) -> list[tuple[int, str]]:
    """Return (kind, path) of each read of a multiRead. Raises MalformedError."""
    reads = []
    for kind in _kinds(reader):
        if kind not in (GET_DATA, GET_CHILDREN):
            raise MalformedError(f"operation {kind} in a multiRead")
        reads.append((kind, reader.text()))
        reader.flag()  # a watch, which servers ignore here
    return reads


def frame(body: bytes) -> bytes:
    """Return the bytes of a frame."""
    return len(body).to_bytes(4, "big") + body


def _kinds(reader: Reader) -> Iterator[int]:
    """Yield the kind of each operation of a multi; the caller reads the operation."""
    while True:
        kind, done = reader.number(), reader.flag()
        reader.number()
        if done:
            return
        yield kind

"""What a request asks of ZooKeeper's nodes: the operations of a multi, their bytes and their results.

A multi is ``MultiHeader(type, done, err)`` and the operation, for each operation, and a closing header; a
multiRead (opcode 22, ZooKeeper 3.6) is the same of reads. Source: ``MultiOperationRecord``, ``MultiResponse``
and ``ZooDefs.OpCode`` of ``org.apache.zookeeper``.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Any, Final, NamedTuple, TypeAlias

from ctrlchan.errors import ResultCode

__all__ = [
    "ANY_VERSION",
    "Check",
    "Create",
    "Delete",
    "EventKind",
    "MultiRead",
    "MultiWrite",
    "Node",
    "Operation",
    "OperationFailed",
    "SetData",
    "decode_multi",
    "decode_reads",
    "encode_acl",
    "encode_multi",
    "encode_reads",
    "encode_watches",
    "encode_write",
    "size_of_read",
]

#: The expected version of a write that no version of the node prevents.
ANY_VERSION: Final = -1

_CREATE: Final = 1
_DELETE: Final = 2
_GET_DATA: Final = 4
_SET_DATA: Final = 5
_CHECK: Final = 13
_ERROR: Final = -1
_EPHEMERAL: Final = 1
_SEQUENTIAL: Final = 2

_HEADER: Final = struct.Struct(">iBi")
_INT: Final = struct.Struct(">i")
_LONG: Final = struct.Struct(">q")
_STAT: Final = struct.Struct(">qqqqiiiqiiq")
_END: Final = _HEADER.pack(-1, True, -1)


class EventKind(IntEnum):
    """``Watcher.Event.EventType``: what the event of a watch says of its node."""

    CREATED = 1
    DELETED = 2
    CHANGED = 3
    CHILD = 4


class Node(NamedTuple):
    """The data of a node, and what its stat says.

    ``version``: of the data. ``czxid``, ``mzxid``: of the transactions that created it and changed its data.
    ``ephemeral_owner``: id of the session it ends with, 0 for a persistent node.
    """

    data: bytes
    version: int
    czxid: int
    mzxid: int
    ephemeral_owner: int


class Create(NamedTuple):
    """Create a node. ``sequential``: ZooKeeper appends ten digits to the path."""

    path: str
    data: bytes | None = None
    ephemeral: bool = False
    sequential: bool = False


class SetData(NamedTuple):
    """Replace a node's data, if it has this version."""

    path: str
    data: bytes
    version: int = ANY_VERSION


class Delete(NamedTuple):
    """Delete a node without children, if it has this version."""

    path: str
    version: int = ANY_VERSION


class Check(NamedTuple):
    """Fail the multi unless a node has this version."""

    path: str
    version: int


Operation: TypeAlias = Create | SetData | Delete | Check


class MultiRead:
    """kazoo's request of many reads at once. The answer is [bytes, offset of the first result].

    The caller decodes the answer on its own thread, so that kazoo's thread goes on reading.
    """

    __slots__ = ("body",)
    type = 22

    def __init__(self, body: bytes) -> None:
        self.body = body

    def serialize(self) -> bytes:
        """Return the request without its header."""
        return self.body

    def deserialize(self, data: bytes, offset: int) -> list[Any]:
        """Return the bytes of the answer and where its results begin."""
        return [data, offset]


class MultiWrite(MultiRead):
    """kazoo's request of many writes that are applied together or not at all; answered as ``MultiRead``.

    kazoo takes the chroot off every ``str`` in the answer to opcode 14: this answer has none.
    """

    __slots__ = ()
    type = 14


class OperationFailed(NamedTuple):
    """Which operation of a multi failed, and ZooKeeper's result of it (``ResultCode``)."""

    place: int
    code: int


def encode_reads(paths: Sequence[bytes]) -> bytes:
    """Return the body of a multiRead of the data of these paths (with the chroot)."""
    header = _HEADER.pack(_GET_DATA, False, -1)
    # The last byte is a watch, which servers ignore here.
    return b"".join([*(header + _text(path) + b"\0" for path in paths), _END])


def encode_watches(
    zxid: int, data: Sequence[bytes] = (), exists: Sequence[bytes] = (), children: Sequence[bytes] = ()
) -> bytes:
    """Return the body of SetWatches (opcode 101): watches on nodes as they were at transaction ``zxid``.

    ``data``, ``children``: paths of nodes that were there; ``exists``: of nodes that were not.
    """
    lists = [
        part for paths in (data, exists, children) for part in (_INT.pack(len(paths)), *map(_text, paths))
    ]
    return b"".join([_LONG.pack(zxid), *lists])


def size_of_read(path: bytes) -> int:
    """Return the bytes of one read in a multiRead."""
    return _HEADER.size + _INT.size + len(path) + 1


def decode_reads(data: bytes, offset: int, count: int) -> list[Node | int]:
    """Return a node or a result code (``ResultCode``) for each read of a multiRead."""
    found: list[Node | int] = []
    for _ in range(count):
        kind, _, _ = _HEADER.unpack_from(data, offset)
        offset += _HEADER.size
        if kind == _ERROR:
            found.append(_INT.unpack_from(data, offset)[0])
            offset += _INT.size
        else:
            length = max(0, _INT.unpack_from(data, offset)[0])
            offset += _INT.size
            stat = _STAT.unpack_from(data, offset + length)
            found.append(Node(data[offset : offset + length], stat[4], stat[0], stat[1], stat[7]))
            offset += length + _STAT.size
    return found


def encode_acl(acl: Sequence[Any]) -> bytes:
    """Return kazoo's ACLs as a request has them."""
    parts = [_INT.pack(len(acl))]
    for one in acl:
        parts += [_INT.pack(one.perms), _text(one.id.scheme.encode()), _text(one.id.id.encode())]
    return b"".join(parts)


def encode_write(operation: Operation, path: bytes, acl: bytes) -> bytes:
    """Return one operation of a multi. ``path``: with the chroot; ``acl``: of a node that is created."""
    match operation:
        case Create(_, data, ephemeral, sequential):
            flags = _INT.pack(_EPHEMERAL * ephemeral | _SEQUENTIAL * sequential)
            value = _INT.pack(-1) if data is None else _text(data)
            return _HEADER.pack(_CREATE, False, -1) + _text(path) + value + acl + flags
        case SetData(_, data, version):
            return _HEADER.pack(_SET_DATA, False, -1) + _text(path) + _text(data) + _INT.pack(version)
        case Delete(_, version):
            return _HEADER.pack(_DELETE, False, -1) + _text(path) + _INT.pack(version)
        case Check(_, version):
            return _HEADER.pack(_CHECK, False, -1) + _text(path) + _INT.pack(version)


def encode_multi(parts: Sequence[bytes]) -> bytes:
    """Return the body of a multi of operations that ``encode_write`` has encoded."""
    return b"".join([*parts, _END])


def decode_multi(data: bytes, offset: int) -> list[int] | OperationFailed:
    """Return for each operation of a multi the version that a SetData made (0 for others), or what failed."""
    versions: list[int] = []
    while True:
        kind, done, _ = _HEADER.unpack_from(data, offset)
        offset += _HEADER.size
        if done:
            return versions
        if kind == _ERROR:
            code = _INT.unpack_from(data, offset)[0]
            offset += _INT.size
            if code != ResultCode.OK:
                return OperationFailed(len(versions), code)
            versions.append(0)
        elif kind == _SET_DATA:
            versions.append(_STAT.unpack_from(data, offset)[4])
            offset += _STAT.size
        else:
            if kind == _CREATE:
                offset += _INT.size + _INT.unpack_from(data, offset)[0]
            versions.append(0)


def _text(data: bytes) -> bytes:
    return _INT.pack(len(data)) + data

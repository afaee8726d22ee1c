"""A ZooKeeper server as in production, and a client that reads and writes many nodes at once."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException

from bench.peers.place import LOOPBACK
from tests.kafka.jars import java_command
from tests.kafka.ports import free_port
from tests.kafka.processes import Child, Reaper

__all__ = ["Create", "Delete", "Node", "Operation", "SetData", "ZooKeeperClient", "ZooKeeperServer"]

_LOG4J: Final = Path(__file__).parents[1] / "peers" / "kafka" / "log4j.properties"
#: The znodes of 1,000,000 partitions take 1.5 GB; the server touches no memory that it does not use.
_HEAP: Final = "-Xmx6g"
#: A controller is stopped while the other one is measured; its session has to outlive that.
SESSION_TIMEOUT: Final = 3600.0
_START_SECONDS: Final = 60.0

#: Operations in one multi, and the bytes of their data: ZooKeeper takes requests of 1 MiB.
_OPERATIONS: Final = 1_000
_BYTES: Final = 600_000
#: Requests in flight.
_IN_FLIGHT: Final = 4


class Create(NamedTuple):
    path: str
    data: bytes
    ephemeral: bool = False


class SetData(NamedTuple):
    path: str
    data: bytes


class Delete(NamedTuple):
    path: str


class Node(NamedTuple):
    """``version``: of the data. ``czxid``: of the transaction that created the node."""

    data: bytes
    version: int
    czxid: int


Operation = Create | SetData | Delete


class ZooKeeperServer:
    """ZooKeeper 3.8.4 with its data in ``folder``, which writes no snapshot while it is measured.

    Every transaction is synchronised with the disk, as is ZooKeeper's default.
    """

    def __init__(self, folder: Path, reaper: Reaper, host: str = LOOPBACK) -> None:
        self.address = f"{host}:{free_port()}"
        host, port = self.address.split(":")
        folder.mkdir(parents=True)
        configuration = folder / "zoo.cfg"
        configuration.write_text(
            f"dataDir={folder / 'data'}\n"
            f"clientPort={port}\n"
            f"clientPortAddress={host}\n"
            "tickTime=2000\n"
            f"maxSessionTimeout={int(SESSION_TIMEOUT * 1000)}\n"
            "maxClientCnxns=0\n"
            "admin.enableServer=false\n"
            "snapCount=100000000\n"
        )
        options = [_HEAP, f"-Dlog4j.configuration={_LOG4J.as_uri()}"]
        command = java_command(
            "org.apache.zookeeper.server.ZooKeeperServerMain", str(configuration), options=options
        )
        self._child = Child("ZooKeeper", command, folder / "output.log", reaper)

    @property
    def pid(self) -> int:
        return self._child.pid

    def close(self) -> None:
        self._child.kill()


class ZooKeeperClient:
    """A session of the benchmark, which owns the brokers' registrations. Connects in a ``with`` block."""

    def __init__(self, address: str) -> None:
        self._kazoo = KazooClient(hosts=address, timeout=SESSION_TIMEOUT)

    def __enter__(self) -> Self:
        self._kazoo.start(timeout=_START_SECONDS)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._kazoo.stop()
        self._kazoo.close()

    def read(self, paths: Sequence[str]) -> list[Node | None]:
        """Return each node, None where there is none."""
        batches = [paths[begin : begin + _OPERATIONS] for begin in range(0, len(paths), _OPERATIONS)]
        found: list[Node | None] = []
        for part in _pipelined(self._request(_Read(batch)) for batch in batches):
            found += part
        return found

    def children(self, path: str) -> list[str]:
        names: list[str] = self._kazoo.get_children(path)
        return names

    def write(self, operations: Sequence[Operation]) -> None:
        """Apply the operations in order, in multis of up to 1,000. Raises KazooException if one fails."""
        for results in _pipelined(map(self._commit, _batches(operations))):
            failed = [result for result in results if isinstance(result, KazooException)]
            if failed:
                raise failed[0]

    def _commit(self, operations: Sequence[Operation]) -> Any:
        transaction = self._kazoo.transaction()
        for operation in operations:
            match operation:
                case Create(path, data, ephemeral):
                    transaction.create(path, data, ephemeral=ephemeral)
                case SetData(path, data):
                    transaction.set_data(path, data)
                case Delete(path):
                    transaction.delete(path)
        return transaction.commit_async()

    def _request(self, read: _Read) -> Any:
        result = self._kazoo.handler.async_result()
        self._kazoo._call(read, result)
        return result


def _pipelined(requests: Iterable[Any]) -> Iterator[Any]:
    """Yield the results of kazoo's asynchronous requests, some of which are in flight."""
    waiting: deque[Any] = deque()
    for request in requests:
        waiting.append(request)
        if len(waiting) >= _IN_FLIGHT:
            yield waiting.popleft().get()
    while waiting:
        yield waiting.popleft().get()


def _batches(operations: Sequence[Operation]) -> Iterator[list[Operation]]:
    batch: list[Operation] = []
    size = 0
    for operation in operations:
        length = len(operation.path) + (0 if isinstance(operation, Delete) else len(operation.data))
        if batch and (len(batch) >= _OPERATIONS or size + length > _BYTES):
            yield batch
            batch, size = [], 0
        batch.append(operation)
        size += length
    if batch:
        yield batch


class _Read:
    """ZooKeeper's multiRead (opcode 22) of data, in the form of kazoo's requests."""

    type = 22
    _HEADER: Final = struct.Struct(">iBi")
    _INT: Final = struct.Struct(">i")
    _GET_DATA: Final = 4
    _ERROR: Final = -1
    _STAT: Final = struct.Struct(">qqqqiiiqiiq")

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths

    def serialize(self) -> bytes:
        header = self._HEADER.pack(self._GET_DATA, False, -1)
        parts = []
        for path in self._paths:
            encoded = path.encode()
            parts += [header, self._INT.pack(len(encoded)), encoded, b"\0"]
        return b"".join([*parts, self._HEADER.pack(-1, True, -1)])

    def deserialize(self, data: bytes, offset: int) -> list[Node | None]:
        found: list[Node | None] = []
        for _ in self._paths:
            kind = self._HEADER.unpack_from(data, offset)[0]
            offset += self._HEADER.size
            length = self._INT.unpack_from(data, offset)[0]
            offset += self._INT.size
            if kind == self._ERROR:
                found.append(None)
                continue
            end = offset + max(0, length)
            czxid, _, _, _, version, *_ = self._STAT.unpack_from(data, end)
            found.append(Node(data[offset:end], version, czxid))
            offset = end + self._STAT.size
        return found

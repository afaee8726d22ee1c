"""The nodes of a NodeTree in a file, so that a cluster finds them again after a restart.

The file begins with a snapshot, if there is one: a line of JSON with the last zxid and all nodes. A line for
each transaction follows: its zxid and its writes. The nodes' data is text of Latin-1, which any bytes can be
read as. A line that was not written whole ends the file. When the transactions have more bytes than the
snapshot, a new snapshot replaces the file. One process writes to it: a second file with ``.lock`` behind its
name is locked.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO, Final

from ctrlchan.errors import ConfigError
from ctrlchan.zookeeper.memory.tree import NodeTree, TreeNode
from ctrlchan.zookeeper.operations import Create, Delete, Operation, OperationFailed, SetData

__all__ = ["TreeJournal"]

_LOG: Final = logging.getLogger("ctrlchan.zookeeper")

_NOBODY: Final = 0
#: Bytes of transactions that are never worth a snapshot.
_SMALL_BYTES: Final = 2**20


class TreeJournal:
    """Brings a tree to the state of a file, and then appends its changes.

    Raises ConfigError for a file that cannot be read or that another tree uses, and OSError.
    """

    def __init__(self, path: Path, tree: NodeTree) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path, self._tree = path, tree
        # Bytes of transactions, and how many of them a new snapshot waits for.
        self._bytes, self._limit = 0, _SMALL_BYTES
        # Whether the file misses a transaction, which could not be written.
        self._is_behind = False
        with ExitStack() as cleanup:
            lock = cleanup.enter_context(_locked(path))
            # A forked child has the file open, too.
            cleanup.callback(fcntl.flock, lock, fcntl.LOCK_UN)
            self._file = path.open("ab", buffering=0)
            cleanup.callback(lambda: self._file.close())
            self._read()
            self._write_snapshot_if_large()
            self._cleanup = cleanup.pop_all()
        tree.on_change = self._append

    def close(self) -> None:
        """Close the file, and let others have it."""
        self._cleanup.close()

    def _read(self) -> None:
        snapshot_bytes = 0
        with self._path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    break
                try:
                    value = json.loads(line)
                    if number == 1 and isinstance(value, dict):
                        _restore(self._tree, **value)
                        snapshot_bytes = len(line)
                    else:
                        _repeat(self._tree, *value)
                        self._bytes += len(line)
                except (ValueError, TypeError, KeyError, AttributeError):
                    raise ConfigError(
                        f"{self._path}: line {number} is no transaction of these nodes"
                    ) from None
        self._file.truncate(snapshot_bytes + self._bytes)
        self._limit = max(_SMALL_BYTES, snapshot_bytes)

    def _append(self, zxid: int, operations: Sequence[Operation]) -> None:
        if not self._is_behind:
            line = memoryview(_line([zxid, [_encoded(one) for one in operations]]))
            self._bytes += len(line)
            self._is_behind = True
            while line:
                line = line[self._file.write(line) :]
            self._is_behind = False
        self._write_snapshot_if_large()

    def _write_snapshot_if_large(self) -> None:
        if self._bytes <= self._limit and not self._is_behind:
            return
        try:
            self._write_snapshot()
        except OSError as error:
            if self._is_behind:
                raise
            _LOG.warning("%s: no snapshot can be written: %s", self._path, error)
            self._limit = 2 * self._bytes

    def _write_snapshot(self) -> None:
        """Replace the file by a snapshot of all nodes. Raises OSError: the file is as before."""
        nodes = [_node(path, node) for path, node in sorted(self._tree.nodes.items()) if not node.owner]
        line = _line({"zxid": self._tree.zxid, "nodes": nodes})
        new = self._path.with_name(f"{self._path.name}.new")
        with new.open("wb") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._path)
        self._file.close()
        self._file = self._path.open("ab", buffering=0)
        self._bytes, self._limit = 0, max(_SMALL_BYTES, len(line))
        self._is_behind = False


def _locked(path: Path) -> BinaryIO:
    """Return a file whose lock lasts as long as it is open. Raises ConfigError when another tree has it."""
    file = path.with_name(f"{path.name}.lock").open("ab", buffering=0)
    try:
        # Of this open file, not of the process: a process may have two clusters.
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise ConfigError(f"{path}: another cluster uses this file") from None
    except BaseException:
        file.close()
        raise
    return file


def _line(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def _node(path: str, node: TreeNode) -> list[str | int]:
    data = node.data.decode("latin-1")
    return [path, data, node.czxid, node.mzxid, node.version, node.created, node.pzxid]


def _restore(tree: NodeTree, zxid: int, nodes: list[list[Any]]) -> None:
    """Give the tree the nodes of a snapshot. Raises ValueError, TypeError, KeyError."""
    for path, data, czxid, mzxid, version, created, pzxid in nodes:
        data = data.encode("latin-1")
        tree.restore(path, TreeNode(data, czxid, mzxid, _NOBODY, version, created, pzxid))
    tree.zxid = zxid


def _repeat(tree: NodeTree, zxid: int, writes: list[list[Any]]) -> None:
    """Apply the writes of a transaction. Raises ValueError, TypeError, KeyError."""
    tree.zxid = zxid - 1
    if isinstance(tree.apply([_operation(*one) for one in writes], _NOBODY), OperationFailed):
        raise ValueError


def _encoded(operation: Operation) -> list[str | None]:
    match operation:
        case Create(path, data):
            return ["create", path, (data or b"").decode("latin-1")]
        case SetData(path, data):
            return ["set", path, data.decode("latin-1")]
    return ["delete", operation.path, None]


def _operation(kind: str, path: str, data: str | None) -> Operation:
    if kind == "delete":
        return Delete(path)
    value = (data or "").encode("latin-1")
    if kind == "create":
        return Create(path, value)
    if kind == "set":
        return SetData(path, value)
    raise ValueError(kind)

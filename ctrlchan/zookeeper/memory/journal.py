"""The writes of a NodeTree in a file, so that a cluster finds its nodes again after a restart.

One line of JSON for each transaction: its zxid and its writes. The nodes' data is text of Latin-1, which any
bytes can be read as. A line that was not written whole ends the file.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ctrlchan.errors import ConfigError
from ctrlchan.zookeeper.memory.tree import NodeTree
from ctrlchan.zookeeper.operations import Create, Delete, Operation, OperationFailed, SetData

__all__ = ["TreeJournal"]

_NOBODY: Final = 0


class TreeJournal:
    """Brings a tree to the state of a file, and then appends its changes. Raises ConfigError, OSError."""

    def __init__(self, path: Path, tree: NodeTree) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a+b")
        self._file.seek(0)
        whole = 0
        for number, line in enumerate(self._file, 1):
            if not line.endswith(b"\n"):
                break
            try:
                zxid, writes = json.loads(line)
                tree.zxid = zxid - 1
                failed = isinstance(
                    tree.apply([_operation(*one) for one in writes], _NOBODY), OperationFailed
                )
            except (ValueError, TypeError, KeyError):
                failed = True
            if failed:
                self._file.close()
                raise ConfigError(f"{path}: line {number} is no transaction of these nodes")
            whole += len(line)
        self._file.truncate(whole)
        tree.on_change = self._append

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _append(self, zxid: int, operations: Sequence[Operation]) -> None:
        writes = [_encoded(one) for one in operations]
        self._file.write(json.dumps([zxid, writes], separators=(",", ":")).encode() + b"\n")
        self._file.flush()


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

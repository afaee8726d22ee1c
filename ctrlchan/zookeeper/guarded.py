"""Writes that only the elected controller can make: each is one multi that checks ``/controller_epoch``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from ctrlchan.errors import (
    ControllerMovedError,
    IllegalStateError,
    MalformedError,
    NodeError,
    ResultCode,
    ZooKeeperError,
)
from ctrlchan.zookeeper import paths
from ctrlchan.zookeeper.operations import Check, Create, Delete, Node, Operation
from ctrlchan.zookeeper.session import ZooKeeperSession

__all__ = ["GuardedNodes", "parsed"]

_T = TypeVar("_T")


class GuardedNodes:
    """What every part of ``ClusterNodes`` shares: the session, and the guard of writes.

    ``epoch_zk_version``: the version of ``/controller_epoch`` that an election gave; None before one.
    """

    def __init__(self, session: ZooKeeperSession) -> None:
        self.session = session
        self.epoch_zk_version: int | None = None

    def guard(self) -> Check:
        """Return the operation that fails unless this is still the controller. Raises IllegalStateError."""
        if self.epoch_zk_version is None:
            raise IllegalStateError("no controller was elected here: nothing may be written")
        return Check(paths.CONTROLLER_EPOCH, self.epoch_zk_version)

    def write(self, operations: Sequence[Operation]) -> list[int]:
        """Apply all operations or none; return the version of each SetData, 0 for other operations.

        Raises ControllerMovedError when another controller was elected, NodeError with the ``index`` of the
        operation that failed.
        """
        try:
            return self.session.multi([self.guard(), *operations])[1:]
        except NodeError as error:
            if error.index == 0:
                raise self.moved() from None
            raise NodeError(error.path, error.code, index=error.index - 1) from None

    def moved(self) -> ControllerMovedError:
        """Return the error of a guard that failed."""
        return ControllerMovedError(
            f"{paths.CONTROLLER_EPOCH} is not at version {self.epoch_zk_version} any more: "
            "another controller was elected"
        )

    def create_missing(self, node_paths: Iterable[str]) -> None:
        """Create nodes without data, and the nodes above them, where they are missing.

        Raises ZooKeeperError where the chroot is missing.
        """
        for path in node_paths:
            if path == "/":
                continue
            try:
                self.write([Create(path)])
            except NodeError as error:
                parent = path.rpartition("/")[0]
                if error.code == ResultCode.NO_NODE and parent:
                    self.create_missing([parent, path])
                elif error.code == ResultCode.NO_NODE:
                    raise ZooKeeperError(f"{path} cannot be created: the chroot does not exist") from None
                elif error.code != ResultCode.NODE_EXISTS:
                    raise

    def delete_if_there(self, path: str) -> None:
        """Delete a node without children, unless there is none."""
        try:
            self.write([Delete(path)])
        except NodeError as error:
            if error.code != ResultCode.NO_NODE:
                raise

    def read_each(
        self, node_paths: Sequence[str], parse: Callable[[bytes], _T]
    ) -> tuple[list[tuple[str, Node, _T]], dict[str, str]]:
        """Return ((path, node, parsed) of each node that is there, path -> reason of the malformed)."""
        found, malformed = [], {}
        for path, node in zip(node_paths, self.session.get_many(node_paths), strict=True):
            if node is not None:
                try:
                    found.append((path, node, parse(node.data)))
                except MalformedError as error:
                    malformed[path] = str(error)
        return found, malformed

    def read_one(self, path: str, parse: Callable[[bytes], _T]) -> tuple[Node, _T] | None:
        """Return (node, parsed), None where there is none. Raises ZooKeeperError, naming path and reason."""
        node = self.session.get(path)
        return None if node is None else (node, parsed(path, node, parse))


def parsed(path: str, node: Node, parse: Callable[[bytes], _T]) -> _T:
    """Return what the data of a node say. Raises ZooKeeperError, naming path and reason."""
    try:
        return parse(node.data)
    except MalformedError as error:
        raise ZooKeeperError(f"{path}: {error}") from error

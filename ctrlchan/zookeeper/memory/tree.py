"""NodeTree: nodes, their versions, the sessions that own ephemeral nodes, and watches. No input and output.

Source: ``DataTree``, ``PrepRequestProcessor`` and ``WatchManager`` of ``org.apache.zookeeper.server`` (3.8).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from ctrlchan.errors import ResultCode
from ctrlchan.zookeeper.operations import (
    ANY_VERSION,
    Check,
    Create,
    Delete,
    EventKind,
    Operation,
    OperationFailed,
    SetData,
)

__all__ = ["NodeTree", "Stat", "TreeNode", "Watch"]

_ROOT: Final = "/"
_PERSISTENT: Final = 0


#: Called once with the event and the path. The same object is one watch, however often it is set on a path.
Watch: TypeAlias = Callable[[EventKind, str], object]


class Stat(NamedTuple):
    """``org.apache.zookeeper.data.Stat``, without the two times, which are always 0."""

    czxid: int
    mzxid: int
    version: int
    children_version: int
    ephemeral_owner: int
    data_length: int
    children: int
    pzxid: int


@dataclass(slots=True)
class TreeNode:
    """One node. ``created``: how many children it ever had, which numbers sequential ones."""

    data: bytes
    czxid: int
    mzxid: int
    owner: int
    version: int = 0
    created: int = 0
    pzxid: int = 0
    children: set[str] = field(default_factory=set)

    def stat(self) -> Stat:
        """Return what ZooKeeper says of the node."""
        return Stat(
            self.czxid,
            self.mzxid,
            self.version,
            2 * self.created - len(self.children),
            self.owner,
            len(self.data),
            len(self.children),
            self.pzxid,
        )


class _Refused(Exception):
    def __init__(self, code: ResultCode) -> None:
        super().__init__(code.name)
        self.code = code


@dataclass(slots=True)
class _Change:
    """A transaction that is being applied. ``lasting``: its writes of nodes that no session owns."""

    zxid: int
    session: int
    undo: list[Callable[[], object]] = field(default_factory=list)
    events: list[tuple[EventKind, str]] = field(default_factory=list)
    lasting: list[Operation] = field(default_factory=list)

    def note(self, operation: Operation, owner: int) -> None:
        if owner == _PERSISTENT:
            self.lasting.append(operation)


class NodeTree:
    """Nodes by path. Belongs to one thread.

    ``zxid``: the last transaction. A failed transaction changes nothing. ``on_change``: called with zxid and
    writes of each transaction, without those of ephemeral nodes, in a form that repeats them. Watches are
    called after the transaction that concerns them, and then forgotten.
    """

    def __init__(self) -> None:
        self.zxid = 0
        self.on_change: Callable[[int, Sequence[Operation]], object] | None = None
        self.nodes: dict[str, TreeNode] = {_ROOT: TreeNode(b"", 0, 0, _PERSISTENT)}
        self._ephemerals: dict[int, set[str]] = defaultdict(set)
        self._data_watches: dict[str, dict[Watch, None]] = {}
        self._child_watches: dict[str, dict[Watch, None]] = {}

    def restore(self, path: str, node: TreeNode) -> None:
        """Add a node of an earlier tree, after its parent. Raises KeyError without a parent."""
        if path != _ROOT:
            self.nodes[_parent_of(path)].children.add(path.rpartition("/")[2])
        self.nodes[path] = node

    # -- watches

    def watch_data(self, path: str, watch: Watch) -> None:
        """Call ``watch`` when the node is created, changed or deleted."""
        self._data_watches.setdefault(path, {})[watch] = None

    def watch_children(self, path: str, watch: Watch) -> None:
        """Call ``watch`` when the node gets or loses a child, or is deleted."""
        self._child_watches.setdefault(path, {})[watch] = None

    def forget(self, watch: Watch) -> None:
        """Drop a watch from all paths."""
        for watches in (self._data_watches, self._child_watches):
            for path in [path for path, those in watches.items() if watch in those]:
                del watches[path][watch]
                if not watches[path]:
                    del watches[path]

    # -- transactions

    def apply(self, operations: Sequence[Operation], session: int) -> list[str] | OperationFailed:
        """Apply all operations or none; return the path of each, which for sequential nodes is a new one."""
        change = _Change(self.zxid + 1, session)
        paths: list[str] = []
        for place, operation in enumerate(operations):
            try:
                paths.append(self._apply(operation, change))
            except _Refused as refused:
                for step in reversed(change.undo):
                    step()
                return OperationFailed(place, refused.code)
        self.zxid = change.zxid
        if change.lasting and self.on_change is not None:
            self.on_change(change.zxid, change.lasting)
        self._call(change.events)
        return paths

    def owned_by(self, session: int) -> list[str]:
        """Return the paths of the session's ephemeral nodes."""
        return sorted(self._ephemerals.get(session, ()))

    def end_session(self, session: int) -> None:
        """Delete the ephemeral nodes of a session."""
        owned = self.owned_by(session)
        if owned:
            self.apply([Delete(path) for path in owned], session)
        self._ephemerals.pop(session, None)

    def _apply(self, operation: Operation, change: _Change) -> str:
        match operation:
            case Create():
                return self._create(operation, change)
            case SetData(path, data, version):
                node = self._checked(path, version)
                before = (node.data, node.version, node.mzxid)

                def restore() -> None:
                    node.data, node.version, node.mzxid = before

                change.undo.append(restore)
                node.data, node.version, node.mzxid = data, node.version + 1, change.zxid
                change.events.append((EventKind.CHANGED, path))
                change.note(SetData(path, data), node.owner)
            case Delete(path, version):
                self._delete(path, version, change)
            case Check(path, version):
                self._checked(path, version)
        return operation.path

    def _create(self, operation: Create, change: _Change) -> str:
        parent = self._parent(operation.path)
        path = f"{operation.path}{parent.created:010d}" if operation.sequential else operation.path
        if path in self.nodes:
            raise _Refused(ResultCode.NODE_EXISTS)
        if parent.owner != _PERSISTENT:
            raise _Refused(ResultCode.NO_CHILDREN_FOR_EPHEMERALS)
        name = path.rpartition("/")[2]
        if not name:
            raise _Refused(ResultCode.BAD_ARGUMENTS)
        owner = change.session if operation.ephemeral else _PERSISTENT
        data = operation.data or b""
        self.nodes[path] = TreeNode(data, change.zxid, change.zxid, owner, pzxid=change.zxid)
        before = parent.pzxid

        def remove() -> None:
            del self.nodes[path]
            parent.children.discard(name)
            parent.created -= 1
            parent.pzxid = before
            self._ephemerals[owner].discard(path)

        change.undo.append(remove)
        parent.children.add(name)
        parent.created += 1
        parent.pzxid = change.zxid
        if owner:
            self._ephemerals[owner].add(path)
        change.events += [(EventKind.CREATED, path), (EventKind.CHILD, _parent_of(path))]
        change.note(Create(path, data), owner)
        return path

    def _delete(self, path: str, version: int, change: _Change) -> None:
        node = self._checked(path, version)
        if path == _ROOT:
            raise _Refused(ResultCode.BAD_ARGUMENTS)
        if node.children:
            raise _Refused(ResultCode.NOT_EMPTY)
        parent, name, before = self._parent(path), path.rpartition("/")[2], self._parent(path).pzxid

        def restore() -> None:
            self.nodes[path] = node
            parent.children.add(name)
            parent.pzxid = before
            if node.owner:
                self._ephemerals[node.owner].add(path)

        change.undo.append(restore)
        del self.nodes[path]
        parent.children.discard(name)
        parent.pzxid = change.zxid
        if node.owner:
            self._ephemerals[node.owner].discard(path)
        change.events += [(EventKind.DELETED, path), (EventKind.CHILD, _parent_of(path))]
        change.note(Delete(path), node.owner)

    def _checked(self, path: str, version: int) -> TreeNode:
        node = self.nodes.get(path)
        if node is None:
            raise _Refused(ResultCode.NO_NODE)
        if version not in (ANY_VERSION, node.version):
            raise _Refused(ResultCode.BAD_VERSION)
        return node

    def _parent(self, path: str) -> TreeNode:
        if not path.startswith(_ROOT):
            raise _Refused(ResultCode.BAD_ARGUMENTS)
        parent = self.nodes.get(_parent_of(path))
        if parent is None:
            raise _Refused(ResultCode.NO_NODE)
        return parent

    def _call(self, events: Iterable[tuple[EventKind, str]]) -> None:
        for kind, path in events:
            called = {} if kind is EventKind.CHILD else self._data_watches.pop(path, {})
            if kind in (EventKind.CHILD, EventKind.DELETED):
                # A watch of both kinds on a deleted node is called once.
                called |= self._child_watches.pop(path, {})
            for watch in called:
                watch(kind, path)


def _parent_of(path: str) -> str:
    return path.rpartition("/")[0] or _ROOT

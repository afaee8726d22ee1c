"""The watches of one session, which outlive its connections.

A server forgets the watches of a connection that is lost, and so does kazoo. ``SessionWatches`` keeps them in
kazoo's place. On the next connection of the same session it sets all of them again, before any other request
is sent, and names the last transaction that the client has heard of. The server answers at once for each
node that has changed since, so that no change is missed. Watches end with the session.

Source: ``ZKWatchManager`` and ``ClientCnxn.SendThread.primeConnection`` of ``org.apache.zookeeper`` (3.8).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum, auto
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionDropped
from kazoo.protocol.serialization import Exists, GetChildren, GetData
from kazoo.protocol.states import Callback

from ctrlchan.errors import ResultCode
from ctrlchan.zookeeper.operations import EventKind, encode_watches

__all__ = ["Batches", "SessionWatches", "SetWatches", "Watch", "WatchKind", "WatchingRead"]

#: Splits paths into parts that fit into one request each.
Batches: TypeAlias = Callable[[Sequence[bytes]], Iterable[Sequence[bytes]]]


class WatchKind(Enum):
    """What a watch waits for, as requests to set it again distinguish it."""

    #: A node that is there is changed or deleted.
    DATA = auto()
    #: A node that is not there is created.
    EXISTS = auto()
    #: A node gets or loses a child, or is deleted.
    CHILDREN = auto()


#: The watches that each event calls.
_CALLED: Final[Mapping[int, Sequence[WatchKind]]] = {
    EventKind.CREATED: (WatchKind.DATA, WatchKind.EXISTS),
    EventKind.CHANGED: (WatchKind.DATA, WatchKind.EXISTS),
    EventKind.DELETED: tuple(WatchKind),
    EventKind.CHILD: (WatchKind.CHILDREN,),
}


class Watch(NamedTuple):
    """``callback(path)`` is called once. Equal watches on a path are one. ``path``: without the chroot."""

    path: str
    callback: Callable[[str], object]


class SessionWatches:
    """The watches that are set, by path with the chroot. All methods belong to the connection's thread."""

    def __init__(self, client: KazooClient, batches: Batches) -> None:
        self._client = client
        self._batches = batches
        # Dictionaries, because callbacks are called in the order in which they were given.
        self._set: dict[WatchKind, dict[str, dict[Watch, None]]] = {kind: {} for kind in WatchKind}
        # Is not None while no server has answered that all watches are set again since this transaction.
        self._missed_since: int | None = None
        self._unanswered = 0

    def add(self, kind: WatchKind, path: str, watch: Watch) -> None:
        """Keep a watch that the server has, or gets with the request that is sent now."""
        self._set[kind].setdefault(path, {})[watch] = None

    def fired(self, kind: int, path: str) -> None:
        """Let kazoo's thread for callbacks call the watches that wait for this event (``EventKind``)."""
        called: dict[Watch, None] = {}
        for one in _CALLED.get(kind, ()):
            called |= self._set[one].pop(path, {})
        for watch in called:
            self._client.handler.dispatch_callback(Callback("watch", watch.callback, (watch.path,)))

    def clear(self) -> None:
        """Forget all watches: the session has ended."""
        for paths in self._set.values():
            paths.clear()
        self._missed_since = None

    def set_again(self) -> None:
        """Queue the requests that set all watches on a new connection: before any other request."""
        if self._missed_since is None:
            self._missed_since = int(self._client.last_zxid)
        bodies = [
            encode_watches(self._missed_since, **{kind.name.lower(): some})
            for kind, paths in self._set.items()
            for some in self._batches([path.encode() for path in paths])
        ]
        self._unanswered = len(bodies)
        if not bodies:
            self._missed_since = None
        for body in bodies:
            request = SetWatches(body, answered=self._answered)
            self._client._call(request, self._client.handler.async_result())

    def _answered(self, error: int) -> None:
        if error:
            # The next connection asks for the same again.
            raise ConnectionDropped(f"the watches cannot be set again: {ResultCode.name_of(error)}")
        self._unanswered -= 1
        if not self._unanswered:
            self._missed_since = None


class WatchingRead:
    """kazoo's request of a read that sets a watch. ``answered`` is called before its result is given."""

    __slots__ = ("_add", "_request", "deserialize", "type")

    def __init__(
        self,
        request: type[Exists] | type[GetData] | type[GetChildren],
        path: str,
        watches: SessionWatches,
        watch: Watch,
    ) -> None:
        # kazoo keeps no watch of a request without a ``watcher``: this one has it inside.
        self._request = request(path, watcher=True)
        self._add = partial(watches.add, path=path, watch=watch)
        self.type = request.type
        self.deserialize = request.deserialize

    def serialize(self) -> Any:
        """Return the body."""
        return self._request.serialize()

    def answered(self, error: int) -> None:
        """Keep the watch, if the server has set one."""
        if not error:
            self._add(WatchKind.CHILDREN if self.type == GetChildren.type else WatchKind.DATA)
        elif error == ResultCode.NO_NODE and self.type == Exists.type:
            self._add(WatchKind.EXISTS)


class SetWatches:
    """kazoo's request of watches on many nodes. The events of those that have changed come before the answer.

    ``sent``: called on the connection's thread before the request is written. ``answered``: called there with
    the result code.
    """

    __slots__ = ("_body", "_sent", "answered")
    type = 101

    def __init__(
        self,
        body: bytes,
        *,
        sent: Callable[[], object] = lambda: None,
        answered: Callable[[int], object] = lambda _error: None,
    ) -> None:
        self._body = body
        self._sent = sent
        self.answered = answered

    def serialize(self) -> bytes:
        """Return the body."""
        self._sent()
        return self._body

    def deserialize(self, data: bytes, offset: int) -> None:
        """Return nothing: the answer has a header only."""

"""The watches of one term: which event each node of ZooKeeper causes when it changes.

``term/failover.py`` registers them, and the handlers of single nodes do.

ZooKeeper's watches fire once. The handler of an event therefore sets the watch again before it reads, so that
no change is missed. The session keeps the watches when its connection is lost, and fires those of nodes that
have changed meanwhile. Source: the ``…Handler`` classes in ``kafka.controller.KafkaController``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from ctrlchan.controller.events.event import ControllerState
from ctrlchan.zookeeper.session import ZooKeeperSession

__all__ = ["ControllerWatches", "Put", "WatchGroup"]

#: Puts an event of this kind and name that calls the function, unless the term has ended.
Put = Callable[[ControllerState, str, Callable[[], object]], None]


class _Watched(NamedTuple):
    kind: ControllerState
    name: str
    handler: Callable[[], object]


class ControllerWatches:
    """Sets the watches of single nodes, and puts the event of each watch that fires.

    A watch that fires after the term has no effect, because ``put`` drops the event.
    """

    def __init__(self, session: ZooKeeperSession, put: Put) -> None:
        self._session = session
        self._put = put
        self._watched: dict[str, _Watched] = {}
        # Guards the next one, which ZooKeeper's threads change too.
        self._lock = threading.Lock()
        # Paths whose watch is set and has not fired.
        self._set: set[str] = set()

    def watch(self, path: str, kind: ControllerState, name: str, handler: Callable[[], object]) -> None:
        """Let a change of ``path`` cause this event. ``children`` or ``exists`` sets the watch."""
        self._watched[path] = _Watched(kind, name, handler)

    def children(self, path: str) -> list[str]:
        """Set the watch on the children of ``path``, and return them; none where there is no such node."""
        if self._claim(path):
            return self._session.watch_children(path, self._fired) or []
        return self._session.children(path) or []

    def children_of_each(self, paths: Sequence[str]) -> list[list[str]]:
        """Return ``children`` of each path, with one wait for all that have to be watched."""
        claimed = [path for path in paths if self._claim(path)]
        watched = dict(zip(claimed, self._session.watch_children_of_each(claimed, self._fired), strict=True))
        return [(watched[path] if path in watched else self._session.children(path)) or [] for path in paths]

    def exists(self, path: str) -> bool:
        """Set the watch on the node ``path``, and return whether there is one."""
        if self._claim(path):
            return self._session.watch_existence(path, self._fired)
        return self._session.get(path) is not None

    def forget(self, paths: Iterable[str]) -> None:
        """Let changes of these nodes cause no events any more."""
        for path in paths:
            self._watched.pop(path, None)

    def _claim(self, path: str) -> bool:
        """Return whether the watch has to be set. A watch that is set twice would cause two events."""
        with self._lock:
            if path in self._set:
                return False
            self._set.add(path)
            return True

    def _fired(self, path: str) -> None:
        with self._lock:
            self._set.discard(path)
        watched = self._watched.get(path)
        if watched is not None:
            self._put(*watched)


class WatchGroup:
    """Watches many nodes of one kind. One event has all nodes that have changed when it is processed.

    ``handler`` is called with their paths on the loop's thread. It sets the watches again.
    """

    def __init__(
        self,
        session: ZooKeeperSession,
        put: Put,
        kind: ControllerState,
        name: str,
        handler: Callable[[Sequence[str]], object],
    ) -> None:
        self._session = session
        self._put = put
        self._kind = kind
        self._name = name
        self._handler = handler
        # Guards the sets, which ZooKeeper's threads change too.
        self._lock = threading.Lock()
        self._wanted: set[str] = set()
        self._set: set[str] = set()
        self._changed: set[str] = set()

    def watch(self, paths: Iterable[str]) -> None:
        """Set the watches of these nodes; one that is not there is not watched."""
        with self._lock:
            wanted = list(dict.fromkeys(paths))
            self._wanted.update(wanted)
            missing = [path for path in wanted if path not in self._set]
            self._set.update(missing)
        if missing:
            found = self._session.watch_nodes(missing, self._fired)
            with self._lock:
                self._set.difference_update(
                    path for path, node in zip(missing, found, strict=True) if node is None
                )

    def read_with(self, paths: Iterable[str]) -> Callable[[str], None]:
        """Return the callback for a bulk read of these nodes, which sets their watches too."""
        with self._lock:
            read = list(paths)
            self._wanted.update(read)
            self._set.update(read)
        return self._fired

    def forget(self, paths: Iterable[str]) -> None:
        """Let changes of these nodes cause no events any more."""
        with self._lock:
            self._wanted.difference_update(paths)

    def _fired(self, path: str) -> None:
        with self._lock:
            self._set.discard(path)
            if path not in self._wanted:
                return
            first = not self._changed
            self._changed.add(path)
        if first:
            self._put(self._kind, self._name, self._handle)

    def _handle(self) -> None:
        with self._lock:
            changed = sorted(self._changed & self._wanted)
            self._changed.clear()
        if changed:
            self._handler(changed)

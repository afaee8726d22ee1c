"""ChangeNotifications: sequential nodes by which brokers tell each other that something has changed.

Every broker reads all of them, and any broker deletes old ones. Source: ``ZkNodeChangeNotificationListener``
(Kafka 3.9).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic
from typing import Final

from ctrlchan.errors import NodeError, ResultCode
from ctrlchan.zookeeper.session import ZooKeeperSession

__all__ = ["ChangeNotifications"]

#: Notifications are deleted when they are so old, in seconds.
_EXPIRATION: Final = 15 * 60.0


class ChangeNotifications:
    """The notifications below ``parents``. All methods raise ZooKeeperError."""

    def __init__(self, session: ZooKeeperSession, parents: Sequence[str]) -> None:
        self._session = session
        self._parents = tuple(parents)
        # The notifications that were read, with the time. Their numbers are no help: nodes have any names.
        self._seen: dict[str, float] = {}

    def create_parents(self) -> None:
        """Create the nodes above the notifications where they are missing."""
        for parent in self._parents:
            self._session.create_path(parent)

    def watch(self, changed: Callable[[str], object]) -> None:
        """Set the watches, and take all notifications so far as read."""
        now = monotonic()
        self._seen = dict.fromkeys(self._paths(changed), now)

    def read_new(self, changed: Callable[[str], object]) -> list[tuple[str, bytes]]:
        """Return path and data of each new notification, set the watches again, and delete old ones."""
        now = monotonic()
        found = self._paths(changed)
        fresh = [path for path in found if path not in self._seen]
        nodes = self._session.get_many(fresh)
        self._seen = {path: self._seen.get(path, now) for path in found}
        self._delete_old(now)
        return [(path, node.data) for path, node in zip(fresh, nodes, strict=True) if node is not None]

    def _paths(self, changed: Callable[[str], object]) -> list[str]:
        return [
            f"{parent}/{name}"
            for parent in self._parents
            for name in sorted(self._session.watch_children(parent, changed) or [])
        ]

    def _delete_old(self, now: float) -> None:
        for path in [path for path, read in self._seen.items() if now - read > _EXPIRATION]:
            try:
                self._session.delete(path)
            except NodeError as error:
                if error.code != ResultCode.NO_NODE:
                    raise
            del self._seen[path]

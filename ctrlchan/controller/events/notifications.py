"""Calls the listeners of a controller, on a thread of their own."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["LeaderChanges", "Listener", "Notification", "NotificationKind", "Notifier"]

_LOG: Final = logging.getLogger(__name__)

#: So many notifications may wait for slow listeners; then the oldest is dropped.
_MOST_WAITING: Final = 10_000


class NotificationKind(StrEnum):
    """What has happened."""

    ELECTED = "elected"
    RESIGNED = "resigned"
    BROKER_UP = "broker up"
    BROKER_RESTARTED = "broker restarted"
    BROKER_CHANGED = "broker changed"
    BROKER_DOWN = "broker down"
    TOPIC_CREATED = "topic created"
    PARTITIONS_ADDED = "partitions added"
    TOPIC_DELETED = "topic deleted"
    LEADERS_CHANGED = "leaders changed"
    REASSIGNMENT_FINISHED = "reassignment finished"


@dataclass(frozen=True, slots=True, eq=False)
class LeaderChanges:
    """Partitions with a new leader as columns of equal length.

    ``topics``: the names that ``topic_row`` (int32) refers to. ``partition``, ``leader`` (-1: none) and
    ``leader_epoch`` are int32.
    """

    topics: tuple[str, ...]
    topic_row: npt.NDArray[np.int32]
    partition: npt.NDArray[np.int32]
    leader: npt.NDArray[np.int32]
    leader_epoch: npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Notification:
    """One thing that has happened in the term of ``controller_epoch``.

    ``brokers``, ``topics``: ids and names, where the kind has them. ``reason``: of a resignation.
    """

    kind: NotificationKind
    controller_epoch: int
    brokers: tuple[int, ...] = ()
    topics: tuple[str, ...] = ()
    leaders: LeaderChanges | None = None
    reason: str = ""


Listener: TypeAlias = Callable[[Notification], None]


class Notifier:
    """Calls listeners with notifications, in order, on its own thread, which starts with the first listener.

    The queue is bounded: where listeners are too slow the oldest notifications are dropped, and a line of the
    log has their number. What a listener raises is logged.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._changed = threading.Condition()
        self._waiting: deque[Notification] = deque()
        self._dropped = 0
        self._listeners: tuple[Listener, ...] = ()
        self._closed = False
        self._thread: threading.Thread | None = None

    @property
    def has_listeners(self) -> bool:
        """Whether anybody listens, so that notifications need to be made."""
        return bool(self._listeners)

    def add(self, listener: Listener) -> None:
        """Call ``listener`` with all later notifications."""
        with self._changed:
            self._listeners = (*self._listeners, listener)
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()

    def notify(self, notification: Notification) -> None:
        """Queue a notification. Never blocks; thread-safe."""
        with self._changed:
            if self._thread is None or self._closed:
                return
            if len(self._waiting) >= _MOST_WAITING:
                self._waiting.popleft()
                self._dropped += 1
            self._waiting.append(notification)
            self._changed.notify()

    def close(self, timeout: float) -> None:
        """Call the listeners with what waits, and end the thread; do not wait longer than ``timeout`` s."""
        with self._changed:
            self._closed = True
            self._changed.notify()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._closed:
                    self._changed.wait()
                if not self._waiting:
                    return
                notification = self._waiting.popleft()
                dropped, self._dropped = self._dropped, 0
                listeners = self._listeners
            if dropped:
                _LOG.warning("listeners are too slow: %d notifications were dropped", dropped)
            for listener in listeners:
                try:
                    listener(notification)
                except BaseException:  # noqa: BLE001  (a listener's fault is not the controller's)
                    _LOG.exception("a listener failed with %s", notification.kind.value)

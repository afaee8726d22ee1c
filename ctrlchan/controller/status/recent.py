"""Notifications of a controller as lines for people: the last of them, and how one reads."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from ctrlchan.controller.events.notifications import LeaderChanges, Notification, NotificationKind
from ctrlchan.protocol import NO_LEADER

__all__ = ["RecentNotifications", "line_of"]

#: Names and ids that a line lists; the others are counted.
_LISTED: Final = 5


class RecentNotifications:
    """Keeps the last ``size`` notifications: ``controller.add_listener(recent)``. Thread-safe."""

    def __init__(self, size: int = 50) -> None:
        self._lines: deque[dict[str, Any]] = deque(maxlen=size)

    def __call__(self, notification: Notification) -> None:
        self._lines.append({"at": time.time(), "text": line_of(notification)})

    def describe(self) -> list[dict[str, Any]]:
        """Return ``at`` (Unix seconds) and ``text`` of each, the oldest first."""
        return list(self._lines.copy())


def line_of(notification: Notification) -> str:
    """Return one line that says what has happened."""
    kind = notification.kind
    if kind is NotificationKind.ELECTED:
        return f"elected in controller epoch {notification.controller_epoch}"
    if kind is NotificationKind.RESIGNED:
        return f"resigned: {notification.reason}" if notification.reason else "resigned"
    if kind is NotificationKind.LEADERS_CHANGED and notification.leaders is not None:
        return _leaders(notification.leaders)
    subject, _, verb = kind.value.partition(" ")
    things = notification.brokers or notification.topics
    if kind is NotificationKind.PARTITIONS_ADDED:
        return f"partitions added to {_listed(things)}"
    if kind is NotificationKind.REASSIGNMENT_FINISHED:
        return f"reassignment finished: {_listed(things)}"
    return f"{subject}{'s' if len(things) > 1 else ''} {_listed(things)} {verb}"


def _leaders(changes: LeaderChanges) -> str:
    if len(changes.leader) == 1:
        topic = changes.topics[int(changes.topic_row[0])]
        leader, epoch = int(changes.leader[0]), int(changes.leader_epoch[0])
        now = "has no leader" if leader == NO_LEADER else f"is led by broker {leader}"
        return f"{topic}-{changes.partition[0]} {now} in leader epoch {epoch}"
    leaders, counts = np.unique(changes.leader, return_counts=True)
    parts = [
        f"{count:,} without" if leader == NO_LEADER else f"{count:,} to broker {leader}"
        for leader, count in zip(leaders.tolist(), counts.tolist(), strict=True)
    ]
    return f"{len(changes.leader):,} leaders changed: {_listed(parts)}"


def _listed(things: Sequence[object]) -> str:
    more = f" and {len(things) - _LISTED:,} more" if len(things) > _LISTED else ""
    return ", ".join(map(str, things[:_LISTED])) + more

"""Notifications as lines for people."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ctrlchan.controller.events.notifications import LeaderChanges, Notification, NotificationKind
from ctrlchan.controller.status.recent import RecentNotifications, line_of


def leaders(*changes: tuple[int, int, int]) -> LeaderChanges:
    """Return (partition of topic a, leader, leader epoch) of each as columns."""
    partition, leader, epoch = np.array(changes, np.int32).T
    return LeaderChanges(("a",), np.zeros(len(changes), np.int32), partition, leader, epoch)


@pytest.mark.parametrize(
    ("kind", "values", "line"),
    [
        (NotificationKind.ELECTED, {}, "elected in controller epoch 7"),
        (NotificationKind.RESIGNED, {"reason": "it was asked to"}, "resigned: it was asked to"),
        (NotificationKind.RESIGNED, {}, "resigned"),
        (NotificationKind.BROKER_UP, {"brokers": (3,)}, "broker 3 up"),
        (NotificationKind.BROKER_DOWN, {"brokers": (3, 4)}, "brokers 3, 4 down"),
        (NotificationKind.BROKER_RESTARTED, {"brokers": (1,)}, "broker 1 restarted"),
        (NotificationKind.TOPIC_CREATED, {"topics": ("a",)}, "topic a created"),
        (
            NotificationKind.TOPIC_DELETED,
            {"topics": tuple("abcdefg")},
            "topics a, b, c, d, e and 2 more deleted",
        ),
        (NotificationKind.PARTITIONS_ADDED, {"topics": ("a",)}, "partitions added to a"),
        (NotificationKind.REASSIGNMENT_FINISHED, {"topics": ("a",)}, "reassignment finished: a"),
        (
            NotificationKind.LEADERS_CHANGED,
            {"leaders": leaders((4, 2, 9))},
            "a-4 is led by broker 2 in leader epoch 9",
        ),
        (
            NotificationKind.LEADERS_CHANGED,
            {"leaders": leaders((4, -1, 9))},
            "a-4 has no leader in leader epoch 9",
        ),
        (
            NotificationKind.LEADERS_CHANGED,
            {"leaders": leaders((0, 2, 1), (1, -1, 1), (2, 2, 1), (3, 1, 1))},
            "4 leaders changed: 1 without, 1 to broker 1, 2 to broker 2",
        ),
    ],
)
def test_a_line_says_what_has_happened(kind: NotificationKind, values: dict[str, Any], line: str) -> None:
    assert line_of(Notification(kind, 7, **values)) == line


def test_only_the_last_are_kept() -> None:
    recent = RecentNotifications(size=2)
    for broker_id in (1, 2, 3):
        recent(Notification(NotificationKind.BROKER_UP, 7, brokers=(broker_id,)))
    assert [line["text"] for line in recent.describe()] == ["broker 2 up", "broker 3 up"]

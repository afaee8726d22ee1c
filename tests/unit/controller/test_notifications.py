"""Listeners of a controller: order, failures, slow ones."""

from __future__ import annotations

import logging
import threading

import pytest

from ctrlchan.controller.events import notifications
from ctrlchan.controller.events.notifications import Notification, NotificationKind, Notifier

TIMEOUT = 30.0


def notification(number: int) -> Notification:
    return Notification(NotificationKind.BROKER_UP, 1, brokers=(number,))


def test_listeners_are_called_in_order_on_one_thread_of_their_own() -> None:
    notifier, seen = Notifier("listeners"), list[tuple[str, int]]()
    for name in ("a", "b"):
        notifier.add(
            lambda one, name=name: seen.append((f"{name} {threading.current_thread().name}", one.brokers[0]))  # type: ignore[misc]
        )
    for number in range(3):
        notifier.notify(notification(number))
    notifier.close(TIMEOUT)
    assert seen == [(f"{name} listeners", number) for number in range(3) for name in ("a", "b")]


@pytest.mark.parametrize("error", [RuntimeError("broken listener"), SystemExit("broken listener")])
def test_a_listener_that_raises_harms_nobody(caplog: pytest.LogCaptureFixture, error: BaseException) -> None:
    notifier, seen = Notifier("listeners"), list[int]()

    def broken(_: Notification) -> None:
        raise error

    notifier.add(broken)
    notifier.add(lambda one: seen.append(one.brokers[0]))
    with caplog.at_level(logging.ERROR):
        notifier.notify(notification(1))
        notifier.notify(notification(2))
        notifier.close(TIMEOUT)
    assert seen == [1, 2]
    assert "broken listener" in caplog.text


def test_the_oldest_are_dropped_when_listeners_are_too_slow(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(notifications, "_MOST_WAITING", 3)
    notifier, seen = Notifier("listeners"), list[int]()
    entered, go_on = threading.Event(), threading.Event()

    def slow(one: Notification) -> None:
        seen.append(one.brokers[0])
        entered.set()
        assert go_on.wait(TIMEOUT)

    notifier.add(slow)
    notifier.notify(notification(0))
    assert entered.wait(TIMEOUT)
    for number in range(1, 6):
        notifier.notify(notification(number))
    go_on.set()
    notifier.close(TIMEOUT)
    assert seen == [0, 3, 4, 5]
    assert "2 notifications were dropped" in caplog.text


def test_without_listeners_nothing_is_kept() -> None:
    notifier = Notifier("listeners")
    assert not notifier.has_listeners
    notifier.notify(notification(1))
    notifier.close(TIMEOUT)

"""The controller has a coordinator's topic created by a broker, and waits for none in a handler thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

import pytest

from ctrlchan.controller.server.apis.find_coordinator import _let_create
from tests.kafka.waiting import wait_until

DEADLINE = 60.0


class Core:
    """Stands for a ServerCore, whose identity alone counts."""


@pytest.fixture
def core() -> Any:
    return Core()


def ask_again(core: Any, topic: str, ask: Callable[[], None], done: threading.Event) -> None:
    """Ask until the thread before has ended."""

    def asked() -> bool:
        _let_create(core, topic, ask)
        return done.wait(0.01)

    wait_until(asked, timeout=DEADLINE, what="another thread asks")


def test_a_broker_that_does_not_answer_keeps_one_thread(core: Any) -> None:
    asked, release, again = queue.SimpleQueue[str](), threading.Event(), threading.Event()

    def hang() -> None:
        asked.put(threading.current_thread().name)
        assert release.wait(DEADLINE)

    for _ in range(10):
        _let_create(core, "first", hang)
    assert asked.get(timeout=DEADLINE) == "coordinator-topics"
    # Another topic, and another cluster, are asked for all the same.
    _let_create(core, "second", hang)
    asked.get(timeout=DEADLINE)
    other: Any = Core()
    _let_create(other, "first", hang)
    asked.get(timeout=DEADLINE)
    assert asked.empty()
    release.set()
    ask_again(core, "first", again.set, again)


def test_a_thread_that_fails_or_cannot_start_is_no_obstacle(
    core: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    done = threading.Event()

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        _let_create(core, "topic", done.set)
    assert "no broker is asked for topic: can't start new thread" in caplog.text
    assert not done.is_set()
    ask_again(core, "topic", done.set, done)

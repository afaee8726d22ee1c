"""The controller has topics created by a broker, and waits for none in a handler thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

import pytest

from ctrlchan.controller.server.apis import metadata
from ctrlchan.controller.server.asking import ask_aside
from ctrlchan.server.apis._metadata import decode_metadata
from tests.kafka.waiting import wait_until
from tests.unit.controller.server.local_server import local_server
from tests.unit.controller.server.requests import connection

DEADLINE = 60.0


class Core:
    """Stands for a ServerCore, whose identity alone counts."""


@pytest.fixture
def core() -> Any:
    return Core()


def ask_again(core: Any, topic: str, ask: Callable[[], None], done: threading.Event) -> None:
    """Ask until the thread before has ended."""

    def asked() -> bool:
        ask_aside(core, topic, ask)
        return done.wait(0.01)

    wait_until(asked, timeout=DEADLINE, what="another thread asks")


def test_a_broker_that_does_not_answer_keeps_one_thread(core: Any) -> None:
    asked, release, again = queue.SimpleQueue[str](), threading.Event(), threading.Event()

    def hang() -> None:
        asked.put(threading.current_thread().name)
        assert release.wait(DEADLINE)

    for _ in range(10):
        ask_aside(core, "first", hang)
    assert asked.get(timeout=DEADLINE) == "topics-of-clients"
    # Another topic, and another cluster, are asked for all the same.
    ask_aside(core, "second", hang)
    asked.get(timeout=DEADLINE)
    other: Any = Core()
    ask_aside(other, "first", hang)
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
        ask_aside(core, "topic", done.set)
    assert "no broker is asked for topic: can't start new thread" in caplog.text
    assert not done.is_set()
    ask_again(core, "topic", done.set, done)


def test_a_broker_creates_the_topics_of_a_metadata_request(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = queue.SimpleQueue[tuple[list[int], int, int, bytes]]()

    def keep(_core: Any, brokers: list[Any], api_key: int, version: int, body: bytes) -> None:
        asked.put(([broker.id for broker in brokers], api_key, version, body))

    monkeypatch.setattr(metadata, "ask_one", keep)
    with local_server() as server, connection(server.address()) as client:
        names = ["new", "a bad name", "neu-\u00fc", "newer"]
        for allowed in (False, True):
            answer = client.ask(3, 4, {"topics": names, "allow_auto_topic_creation": allowed})
            assert [one.error_code.value for one in answer.topics] == [3, 17, 17, 3]
        brokers, api_key, version, body = asked.get(timeout=DEADLINE)
        assert (brokers, api_key, version) == ([1, 2, 3], 3, 4)
        wanted = decode_metadata(body, 0, version)
        assert [name for _, name in wanted.topics or ()] == ["new", "newer"]
        assert wanted.allows_creation
        assert asked.empty()

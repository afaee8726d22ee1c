"""Work that requests leave which a hot handler has answered: a handler thread does it, after the answers."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue

import pytest

from ctrlchan.server.api import Buffers
from ctrlchan.server.handler_pool import HandlerPool, ListenerHandler
from ctrlchan.server.request_context import RequestContext
from ctrlchan.server.socket_server import SocketServer
from tests.unit.server._echo import EchoHandler
from tests.unit.server.serving import Client, serving

THREADS = 3


def serve(frame: bytes | memoryview, context: RequestContext) -> Buffers:
    return (frame,)


@contextmanager
def working(work: Callable[[], object] | None, threads: int = THREADS) -> Iterator[SocketServer]:
    with serving(EchoHandler()) as server:
        pool = HandlerPool(server.requests, [ListenerHandler("broker 1", serve)], threads, work)
        pool.start()
        yield server
        server.stop()
        assert pool.join(30)


def test_work_follows_the_answer() -> None:
    done: SimpleQueue[str] = SimpleQueue()
    with working(lambda: done.put(threading.current_thread().name)) as server, Client(server) as client:
        for _ in range(20):
            client.frames(b"w")
            assert client.answer() == b"w"
            assert done.get(timeout=20).startswith("kafka-request-handler-")
        assert done.empty()


def test_work_of_many_requests_is_done_once_or_more() -> None:
    done: SimpleQueue[None] = SimpleQueue()
    with working(lambda: done.put(None)) as server, Client(server) as client:
        client.frames(*[b"w"] * 500, b"q last")
        assert client.answers(500) == [b"w"] * 500
        assert client.answer() == b"q last"
        done.get(timeout=20)


def test_requests_are_handled_while_work_takes_long() -> None:
    begun, goes_on = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        assert goes_on.wait(20)

    with working(work) as server, Client(server) as client:
        client.frames(b"w")
        assert begun.wait(20)
        client.frames(b"q another thread")
        assert client.answers(2) == [b"w", b"q another thread"]
        goes_on.set()


def test_work_that_fails_is_logged_and_the_threads_go_on(caplog: pytest.LogCaptureFixture) -> None:
    done: SimpleQueue[None] = SimpleQueue()

    def work() -> None:
        done.put(None)
        raise KeyError("a defect")

    caplog.set_level(logging.ERROR, "ctrlchan.broker")
    with working(work, 1) as server, Client(server) as client:
        for _ in range(3):
            client.frames(b"w")
            assert client.answer() == b"w"
            done.get(timeout=20)
        client.frames(b"q still here")
        assert client.answer() == b"q still here"
    assert caplog.messages == ["work that answered requests have left failed"] * 3


def test_nobody_does_the_work() -> None:
    with working(None) as server, Client(server) as client:
        client.frames(b"w", b"q next")
        assert client.answers(2) == [b"w", b"q next"]


def test_the_client_goes_away_before_its_answer() -> None:
    done: SimpleQueue[None] = SimpleQueue()
    with working(lambda: done.put(None)) as server:
        with Client(server) as client:
            client.frames(b"w")
            client.reset()
        done.get(timeout=20)

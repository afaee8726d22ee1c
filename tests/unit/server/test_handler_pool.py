"""Handler threads: answers, Futures, requests without an answer, and requests that close their connection."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from concurrent.futures import Future
from queue import SimpleQueue

import pytest

from ctrlchan.errors import DecodeError
from ctrlchan.server.api import Buffers
from ctrlchan.server.handler_pool import HandlerPool
from ctrlchan.server.request_context import RequestContext
from ctrlchan.server.socket_server import Listener, SocketServer
from tests.kafka.waiting import wait_until
from tests.kafka.wire import receive_frame, send_frame

FUTURES: SimpleQueue[Future[Buffers]] = SimpleQueue()


def serve(frame: bytes, context: RequestContext) -> Buffers | Future[Buffers]:
    """Answer with the frame, its listener and its principal; some frames are special."""
    if frame == b"none":
        return ()
    if frame == b"malformed":
        raise DecodeError("no request", api="RequestHeader")
    if frame == b"broken":
        raise KeyError("a defect")
    if frame == b"later":
        future: Future[Buffers] = Future()
        FUTURES.put(future)
        return future
    return (frame, f" {context.listener} {context.client_host} {context.principal}".encode())


@pytest.fixture
def peer() -> Iterator[socket.socket]:
    server = SocketServer([Listener("PLAINTEXT", "127.0.0.1", 0)])
    pool = HandlerPool(1, server.requests, serve, 2)
    pool.start()
    server.start()
    with socket.create_connection(("127.0.0.1", server.ports["PLAINTEXT"]), timeout=30) as connection:
        wait_until(lambda: 0 < pool.idle_share <= 1, what="the time of its first wait counts")
        yield connection
        server.stop(0)
        assert pool.join(30)


def test_answers_at_once_later_and_not_at_all(peer: socket.socket) -> None:
    send_frame(peer, b"hello")
    assert receive_frame(peer) == b"hello PLAINTEXT 127.0.0.1 User:ANONYMOUS"
    # The next request is handled only after the one that has no answer.
    send_frame(peer, b"none")
    send_frame(peer, b"later")
    send_frame(peer, b"last")
    FUTURES.get(timeout=30).set_result((b"at last",))
    assert receive_frame(peer) == b"at last"
    assert receive_frame(peer) == b"last PLAINTEXT 127.0.0.1 User:ANONYMOUS"


@pytest.mark.parametrize("frame", [b"malformed", b"broken"])
def test_an_exception_closes_the_connection(
    peer: socket.socket, frame: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "ctrlchan.broker"):
        send_frame(peer, frame)
        with pytest.raises(ConnectionError):
            receive_frame(peer)
    (line,) = caplog.messages
    assert line.startswith("broker 1: closing the connection of 127.0.0.1:")


def test_a_future_with_an_exception_closes_the_connection(peer: socket.socket) -> None:
    send_frame(peer, b"later")
    FUTURES.get(timeout=30).set_exception(DecodeError("no records", api="Produce"))
    with pytest.raises(ConnectionError):
        receive_frame(peer)

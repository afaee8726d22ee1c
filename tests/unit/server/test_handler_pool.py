"""Handler threads: answers, Futures, requests without an answer, and requests that close their connection."""

from __future__ import annotations

import logging
import random
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from queue import SimpleQueue

import pytest

from ctrlchan.errors import DecodeError
from ctrlchan.server.afterwards import Answering, after_answer
from ctrlchan.server.api import Buffers, CannotAnswer
from ctrlchan.server.handler_pool import HandlerPool, ListenerHandler
from ctrlchan.server.request_context import RequestContext
from ctrlchan.server.socket_server import Listener, SocketServer
from tests.kafka.waiting import wait_until
from tests.kafka.wire import receive_frame, send_frame

FUTURES: SimpleQueue[Future[Buffers]] = SimpleQueue()
#: What is called after answers, and what shows that it was.
WORK: SimpleQueue[Callable[[], None]] = SimpleQueue()


def serve(frame: bytes | memoryview, context: RequestContext) -> Buffers | Future[Buffers]:
    """Answer with the frame, its listener and its principal; some frames are special."""
    if frame == b"none":
        return ()
    if frame == b"malformed":
        raise DecodeError("no request", api="RequestHeader")
    if frame == b"broken":
        raise KeyError("a defect")
    if frame == b"work":
        after_answer(WORK.get(timeout=30))
    if frame == b"later":
        future: Future[Buffers] = Future()
        FUTURES.put(future)
        return future
    return (frame, f" {context.listener} {context.client_host} {context.principal}".encode())


@pytest.fixture
def server() -> SocketServer:
    return SocketServer([Listener("PLAINTEXT", "127.0.0.1", 0)])


@pytest.fixture
def pool(server: SocketServer) -> HandlerPool:
    return HandlerPool(server.requests, [ListenerHandler("broker 1", serve)], 2)


@pytest.fixture
def peer(server: SocketServer, pool: HandlerPool) -> Iterator[socket.socket]:
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


def test_work_is_done_after_the_answer(peer: socket.socket, caplog: pytest.LogCaptureFixture) -> None:
    is_answered = threading.Event()
    done: SimpleQueue[str] = SimpleQueue()

    def work() -> None:
        assert is_answered.wait(30)
        after_answer(lambda: done.put("the next one at once"))
        done.put("the first one")
        raise KeyError("a defect")

    WORK.put(work)
    send_frame(peer, b"work")
    # The answer does not wait for the work, which waits for it.
    assert receive_frame(peer).startswith(b"work")
    is_answered.set()
    assert [done.get(timeout=30) for _ in range(2)] == ["the next one at once", "the first one"]
    wait_until(lambda: "work after an answer failed" in caplog.text, what="the line of the defect")
    WORK.put(lambda: done.put("again"))
    send_frame(peer, b"work")
    assert receive_frame(peer).startswith(b"work")
    assert done.get(timeout=30) == "again"


def test_work_of_other_threads_is_done_at_once() -> None:
    done = []
    after_answer(lambda: done.append(1))
    assert done == [1]
    with Answering():
        after_answer(lambda: done.append(2))
        assert done == [1]
    assert done == [1, 2]
    answering = Answering()
    answering.__enter__()
    after_answer(lambda: done.append(3))
    answering.__exit__(KeyError, KeyError("refused"), None)
    assert done == [1, 2, 3]


def test_frames_of_every_size(server: SocketServer) -> None:
    """In pieces of every size; each frame keeps its memory after its answer."""
    choose = random.Random(11)
    edges = [65536 - 4 + delta for delta in range(-5, 6)]
    sizes = [*edges, *(choose.randrange(200) for _ in range(100)), 3_000_000, *edges, 0, 1, 200_000]
    frames = [choose.randbytes(size) for size in sizes]
    kept: list[bytes | memoryview] = []

    def keep(frame: bytes | memoryview, _context: RequestContext) -> Buffers:
        kept.append(frame)
        return (frame,)

    def send(connection: socket.socket) -> None:
        stream = b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)
        at = 0
        while at < len(stream):
            step = choose.choice([1, 3, 100, 5_000, 65536, 500_000])
            connection.sendall(stream[at : at + step])
            at += step

    pool = HandlerPool(server.requests, [ListenerHandler("broker 1", keep)], 1)
    pool.start()
    server.start()
    with socket.create_connection(("127.0.0.1", server.ports["PLAINTEXT"]), timeout=30) as connection:
        sender = threading.Thread(target=send, args=[connection])
        sender.start()
        assert [receive_frame(connection) for _ in frames] == frames
        sender.join()
    server.stop(0)
    assert pool.join(30)
    assert [bytes(frame) for frame in kept] == frames


def test_a_peer_that_must_ask_another_server_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(_frame: bytes | memoryview, _context: RequestContext) -> Buffers:
        raise CannotAnswer("not the active controller")

    listeners = [Listener("SAME", "127.0.0.1", 0), Listener("SAME", "127.0.0.1", 0)]
    server = SocketServer(listeners, is_shared=True)
    handlers = [ListenerHandler("broker 1", refuse), ListenerHandler("controller 2", refuse)]
    pool = HandlerPool(server.requests, handlers, 1)
    pool.start()
    server.start()
    with caplog.at_level(logging.INFO, "ctrlchan.broker"):
        for port in server.listener_ports:
            with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
                send_frame(connection, b"hello")
                assert connection.recv(1) == b""
    server.stop(0)
    assert pool.join(30)
    assert [(one.levelname, one.getMessage().split(":")[0]) for one in caplog.records] == [
        ("INFO", "broker 1"),
        ("INFO", "controller 2"),
    ]


def _has(pool: HandlerPool, threads: int) -> bool:
    return pool.size == threads


def test_the_number_of_threads_changes(peer: socket.socket, pool: HandlerPool) -> None:
    for threads in (5, 1, 3):
        pool.resize(threads)
        wait_until(partial(_has, pool, threads), what="other threads")
        send_frame(peer, b"hello")
        assert receive_frame(peer) == b"hello PLAINTEXT 127.0.0.1 User:ANONYMOUS"
    # A thread that has a request ends after it.
    send_frame(peer, b"work")
    pool.resize(1)
    WORK.put(lambda: None)
    assert receive_frame(peer).startswith(b"work")
    wait_until(lambda: pool.size == 1, what="one thread")
    assert 0 <= pool.idle_share <= 1


def _wait_for(event: threading.Event) -> None:
    assert event.wait(30)


def _ask(server: SocketServer, frame: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", server.ports["PLAINTEXT"]), timeout=30) as connection:
        send_frame(connection, frame)
        return receive_frame(connection)


def test_a_thread_that_waits_loses_its_turn(server: SocketServer, peer: socket.socket) -> None:
    """Only one thread runs at a time, but none holds up the others."""
    go_on = threading.Event()
    WORK.put(partial(_wait_for, go_on))
    send_frame(peer, b"work")
    assert receive_frame(peer).startswith(b"work")
    for _ in range(5):
        assert _ask(server, b"hello").startswith(b"hello")
    go_on.set()


def test_threads_are_not_idle_while_a_request_waits(server: SocketServer, peer: socket.socket) -> None:
    go_on = threading.Event()
    with ThreadPoolExecutor(3) as clients:
        for _ in range(2):
            WORK.put(partial(_wait_for, go_on))
        working = [clients.submit(_ask, server, b"work") for _ in range(2)]
        assert all(one.result().startswith(b"work") for one in working)
        before = server.requests.idle_ns
        assert server.requests.idle_ns > before
        send_frame(peer, b"hello")
        wait_until(lambda: server.requests.size == 1, what="a request that no thread takes")
        before = server.requests.idle_ns
        assert server.requests.idle_ns == before
        go_on.set()
        assert receive_frame(peer).startswith(b"hello")


def test_many_clients_at_once(server: SocketServer, peer: socket.socket) -> None:
    with ThreadPoolExecutor(8) as clients:
        answers = list(clients.map(lambda number: _ask(server, b"%d" % number), range(400)))
    assert [int(answer.split()[0]) for answer in answers] == list(range(400))
    assert server.requests.size == 0

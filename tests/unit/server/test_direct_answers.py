"""Answers that handler threads send themselves: to whom, in which order, and what the processor does then."""

from __future__ import annotations

import random
import socket
import threading
import time
from queue import SimpleQueue

import pytest

from ctrlchan.server._processor import TakenRequest
from ctrlchan.server.socket_server import SocketServer
from tests.kafka.waiting import wait_until
from tests.unit.server.serving import (
    Client,
    EchoHandler,
    handling,
    serving,
    sized,
    wait_for_connections,
)

CONNECTIONS = 600


def echo(request: TakenRequest) -> None:
    request.answer(request.frame)


def bytes_out(server: SocketServer) -> int:
    return sum(row.bytes_out for row in server.counters()[0])


def test_no_answer_reaches_the_next_connection_with_the_same_descriptor() -> None:
    """Clients go away while their answers are sent; the descriptors of their connections are used again."""
    chosen = random.Random(7)
    with serving() as server, handling(server, echo), handling(server, echo):

        def ask(number: int) -> None:
            for turn in range(CONNECTIONS // 4):
                with Client(server) as client:
                    frame = b"q %d %d" % (number, turn)
                    client.frames(frame)
                    if chosen.random() < 0.5:
                        client.reset()
                    else:
                        found.append(client.answer() == frame)

        found: list[bool] = []
        threads = [threading.Thread(target=ask, args=[number]) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) > CONNECTIONS // 4
        assert all(found)
        wait_for_connections(server, 0)


def test_a_connection_that_was_closed_before_its_answer() -> None:
    taken: SimpleQueue[TakenRequest] = SimpleQueue()
    with serving() as server, handling(server, taken.put), Client(server) as next_client:
        with Client(server) as client:
            client.frames(b"q")
            request = taken.get(timeout=20)
            client.reset()
        wait_for_connections(server, 1)
        with Client(server) as newer:
            wait_for_connections(server, 2)
            request.answer(b"for the first one")
            for one in (newer, next_client):
                one.frames(b"q later")
                taken.get(timeout=20).answer(b"mine")
                assert one.answer() == b"mine"


@pytest.mark.parametrize("size", [1, 5_000, 5_000_000])
def test_an_answer_that_the_kernel_takes_in_parts(size: int) -> None:
    """The handler thread sends the first part, the processor the others."""
    with serving() as server, handling(server, lambda request: request.answer(bytes(size))):
        with Client(server, buffer=4_096) as client:
            for _ in range(3):
                client.frames(b"q")
                wait_until(lambda: bytes_out(server) > 0, what="the first bytes are sent")
                assert client.answer() == bytes(size)
        wait_until(lambda: bytes_out(server) == 3 * (4 + size), what="all bytes are counted")


@pytest.mark.parametrize("together", [True, False])
def test_requests_behind_one_that_is_answered(together: bool) -> None:
    """Whether they have arrived with it or while it is handled, some of them answered by the processor."""
    taken: SimpleQueue[TakenRequest] = SimpleQueue()
    with serving(EchoHandler()) as server, handling(server, taken.put), Client(server) as client:
        for turn in range(50):
            first, second = b"q %d" % turn, b"e %d" % turn
            client.sendall(sized(first) + (sized(second) if together else b""))
            request = taken.get(timeout=20)
            if not together:
                client.sendall(sized(second))
            request.answer(b"answer")
            assert client.answers(2) == [b"answer", second]


@pytest.mark.parametrize("size", [10, 100_000])
def test_a_peer_that_leaves_after_its_answer(size: int) -> None:
    """Also one whose request had memory of its own."""
    with serving() as server, handling(server, lambda request: request.answer(b"answer")):
        with Client(server) as client:
            client.frames(b"q" * size)
            assert client.answer() == b"answer"
            client.shutdown(socket.SHUT_WR)
            assert client.is_closed()
        wait_for_connections(server, 0)


def test_an_answer_after_a_long_time_is_activity() -> None:
    """Of a connection that would be idle for too long without it."""
    taken: SimpleQueue[TakenRequest] = SimpleQueue()
    with (
        serving(connections_max_idle_ms=1_000) as server,
        handling(server, taken.put),
        Client(server) as client,
    ):
        client.frames(b"q")
        request = taken.get(timeout=20)
        time.sleep(0.6)  # That an answer comes late is the case itself.
        answered = time.monotonic()
        request.answer(b"answer")
        assert client.answer() == b"answer"
        assert client.is_closed()
        assert time.monotonic() - answered > 0.9


def test_a_server_stops_after_an_answer() -> None:
    with serving() as server, handling(server, echo), Client(server) as client:
        client.frames(b"q")
        assert client.answer() == b"q"
        server.stop()
        assert client.is_closed()


def test_a_request_is_not_handled_before_a_pause_has_ended() -> None:
    muted = 300
    with (
        serving() as server,
        handling(server, lambda request: request.answer(request.frame, muted)),
        Client(server) as client,
    ):
        began = time.monotonic()
        client.frames(b"q 1", b"q 2")
        assert client.answers(2) == [b"q 1", b"q 2"]
        assert time.monotonic() - began > muted / 1e3

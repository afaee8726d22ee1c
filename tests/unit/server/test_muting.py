"""Connections of throttled peers: the answer at once, the next request after the throttle time."""

from __future__ import annotations

import struct
import threading
import time

from ctrlchan.server._processor import TakenRequest
from tests.kafka.waiting import wait_until
from tests.unit.server.serving import (
    Client,
    EchoHandler,
    handling,
    serving,
    still_serves,
    wait_for_connections,
)

MS = 300
LONG = 600_000


def muted(ms: int, answer: bytes = b"") -> bytes:
    return b"m" + struct.pack("=i", ms) + answer


def milliseconds_since(began: float) -> float:
    return (time.monotonic() - began) * 1000


def test_the_answer_comes_at_once_and_the_next_one_later() -> None:
    """Also where the next request has arrived already: a peer that does not wait gains nothing."""
    with serving(EchoHandler()) as server, Client(server) as client:
        began = time.monotonic()
        client.frames(muted(MS, b"throttled"), b"e next", b"e and next")
        assert client.answer() == b"throttled"
        assert milliseconds_since(began) < MS
        assert still_serves(server)
        assert client.answers(2) == [b"e next", b"e and next"]
        assert milliseconds_since(began) >= MS


def test_a_request_that_comes_while_the_connection_is_muted() -> None:
    with serving(EchoHandler()) as server, Client(server) as client:
        began = time.monotonic()
        client.frames(muted(MS))
        assert client.answer() == b""
        client.frames(b"e late")
        assert client.answer() == b"e late"
        assert milliseconds_since(began) >= MS


def test_each_answer_mutes_again() -> None:
    with serving(EchoHandler()) as server, Client(server) as client:
        began = time.monotonic()
        client.frames(*[muted(50)] * 4, b"e end")
        assert client.answers(5)[-1] == b"e end"
        assert milliseconds_since(began) >= 200


def test_no_time_is_no_muting() -> None:
    with serving(EchoHandler()) as server, Client(server) as client:
        began = time.monotonic()
        client.frames(*[muted(ms) for ms in (0, -1)] * 50, b"e end")
        client.answers(101)
        assert milliseconds_since(began) < LONG / 100


def test_a_large_answer_is_sent_while_the_connection_is_muted() -> None:
    text = bytes(range(256)) * 16_384
    with serving(EchoHandler()) as server, Client(server, buffer=4096) as client:
        client.frames(muted(LONG, text))
        assert client.answer() == text


def test_a_muted_connection_that_its_peer_closes() -> None:
    with serving(EchoHandler()) as server:
        with Client(server) as client:
            client.frames(muted(LONG), b"e never")
            client.answer()
            client.reset()
        wait_for_connections(server, 0)
        assert still_serves(server)


def test_a_server_that_stops_waits_for_no_muted_connection() -> None:
    with serving(EchoHandler()) as server, Client(server) as client:
        client.frames(muted(LONG), b"e never")
        client.answer()
        began = time.monotonic()
        server.stop(30)
        assert milliseconds_since(began) < 10_000
        assert client.is_closed()


def test_answers_of_handler_threads_mute_too() -> None:
    """Those that say nothing as well (Produce with acks=0)."""
    taken = threading.Event()

    def handle(request: TakenRequest) -> None:
        taken.set()
        if request.frame == b"q skip":
            request.skip(MS)
        else:
            request.answer(request.frame, MS)

    with serving(EchoHandler()) as server, handling(server, handle), Client(server) as client:
        for frame in (b"q skip", b"q answer"):
            taken.clear()
            began = time.monotonic()
            client.frames(frame, b"e next")
            wait_until(taken.is_set, what="the request is taken")
            if frame == b"q answer":
                assert client.answer() == frame
                assert milliseconds_since(began) < MS
            assert client.answer() == b"e next"
            assert milliseconds_since(began) >= MS

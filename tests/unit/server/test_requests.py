"""Frames in every size and cut, requests in order, and the request queue."""

from __future__ import annotations

import logging
import random
import struct
import threading

import pytest

from ctrlchan.server._processor import TakenRequest
from ctrlchan.server.request_context import ANONYMOUS, RequestContext
from ctrlchan.state import SecurityProtocol
from tests.kafka.waiting import wait_until
from tests.unit.server.serving import (
    Client,
    EchoHandler,
    handling,
    parked,
    serving,
    sized,
    still_serves,
    wait_for_connections,
)


def test_pipelined_requests_are_answered_in_order() -> None:
    with serving(EchoHandler()) as server, Client(server) as client:
        frames = [b"e%d" % i + bytes(i % 700) for i in range(5_000)]
        sender = threading.Thread(target=client.frames, args=frames)
        sender.start()
        assert client.answers(len(frames)) == frames
        sender.join()
        assert server.counters()[0][0].requests == len(frames)


def test_order_is_kept_whatever_way_a_request_goes() -> None:
    chance = random.Random(1)
    kinds = [chance.choice([b"e", b"q", b"p", b"n"]) for _ in range(400)]
    frames = [parked(1, b"%d" % i) if kind == b"p" else kind + b"%d" % i for i, kind in enumerate(kinds)]
    expected = [
        b"\x02%d" % i if kind == b"p" else kind + b"%d" % i for i, kind in enumerate(kinds) if kind != b"n"
    ]
    with (
        serving(EchoHandler()) as server,
        handling(server, lambda request: request.answer(request.frame)),
        Client(server) as client,
    ):
        client.frames(*frames)
        assert client.answers(len(expected)) == expected


def test_all_requests_are_queued_without_a_hot_handler() -> None:
    with serving() as server, Client(server) as client, handling(server, lambda c: c.answer([b"<", c.frame])):
        client.frames(b"", b"a", b"bc" * 100_000)
        assert client.answers(3) == [b"<", b"<a", b"<" + b"bc" * 100_000]


@pytest.mark.parametrize("size", [1, 3, 4095, 4096, 4097, 65_531, 65_532, 65_533, 65_536, 300_000, 5_000_000])
def test_every_size_of_frame(size: int) -> None:
    """Around the sizes of the server's buffers, between small frames."""
    frames = [b"e1", b"e" + random.Random(size).randbytes(size - 1), b"e2", b"e" * size, b"e3"]
    with serving(EchoHandler()) as server, Client(server) as client:
        sender = threading.Thread(target=client.frames, args=frames)
        sender.start()
        assert client.answers(len(frames)) == frames
        sender.join()


def test_frames_in_random_cuts() -> None:
    chance = random.Random(2)
    frames = [b"e" + chance.randbytes(chance.choice([0, 10, 5_000, 70_000])) for _ in range(300)]
    data = b"".join(map(sized, frames))
    with serving(EchoHandler()) as server, Client(server) as client:

        def send() -> None:
            position = 0
            while position < len(data):
                cut = chance.choice([1, 3, 4, 5, 1_000, 4_096, 65_536, 200_000])
                client.sendall(data[position : position + cut])
                position += cut

        sender = threading.Thread(target=send)
        sender.start()
        assert client.answers(len(frames)) == frames
        sender.join()


def test_a_sender_of_single_bytes() -> None:
    with serving(EchoHandler()) as server, Client(server) as client:
        data = sized(b"e slow") + sized(b"e slower")
        for i in range(len(data)):
            client.sendall(data[i : i + 1])
            wait_until(lambda i=i: server.counters()[0][0].bytes_in == i + 1, what="the byte arrives")  # type: ignore[misc]
        assert client.answers(2) == [b"e slow", b"e slower"]


@pytest.mark.parametrize("size", [-1, -(2**31), 1001, 2**31 - 1])
def test_a_wrong_size_closes_the_connection(size: int, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), serving(EchoHandler(), socket_request_max_bytes=1000) as server:
        with Client(server) as client:
            client.sendall(sized(b"e before") + struct.pack(">i", size) + b"e")
            assert client.answer() == b"e before"
            assert client.is_closed()
        with Client(server) as client:
            client.frames(b"e" * 1000)
            assert client.answer() == b"e" * 1000
        wait_until(lambda: caplog.messages, what="the line")
    assert f"a frame of {size:,} bytes" in caplog.text


def test_lines_about_wrong_sizes_are_limited(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), serving(EchoHandler()) as server:
        for _ in range(100):
            with Client(server) as client:
                client.sendall(b"GET / HTTP/1.1\r\n\r\n")
                assert client.is_closed()
    assert 1 <= len(caplog.messages) <= 6


def test_a_hot_handler_closes_the_connection_after_earlier_answers() -> None:
    with serving(EchoHandler()) as server, Client(server) as client:
        client.frames(b"e1", b"e2", b"c", b"e3")
        assert client.answers(2) == [b"e1", b"e2"]
        assert client.is_closed()


def test_the_next_request_waits_for_the_answer() -> None:
    """One request of a connection is in progress at a time."""
    with serving(EchoHandler()) as server, Client(server) as client:
        client.frames(b"q1", b"q2", b"e3")
        first = server.requests.take(10)
        assert first is not None
        assert first.frame == b"q1"
        assert server.requests.take(0.05) is None
        first.answer(b"1")
        second = server.requests.take(10)
        assert second is not None
        assert (second.frame, second.context) == (b"q2", first.context)
        second.skip()
        assert client.answers(2) == [b"1", b"e3"]


def test_a_full_queue_holds_requests_and_loses_none() -> None:
    with serving(queued_max_requests=3) as server:
        clients = [Client(server) for _ in range(10)]
        for i, client in enumerate(clients):
            client.frames(b"%d" % i, b"again %d" % i)
        wait_until(lambda: server.requests.held == 7, what="held requests")
        assert server.requests.size == 3
        clients.pop().reset()
        wait_for_connections(server, 9)
        with handling(server, lambda request: request.answer(request.frame)):
            for i, client in enumerate(clients):
                assert client.answers(2) == [b"%d" % i, b"again %d" % i]
        for client in clients:
            client.close()


def test_hot_requests_pass_a_full_queue() -> None:
    with (
        serving(EchoHandler(), queued_max_requests=1) as server,
        Client(server) as one,
        Client(server) as two,
    ):
        one.frames(b"q")
        two.frames(b"q")
        wait_until(lambda: server.requests.held == 1, what="a held request")
        assert still_serves(server)
        with handling(server, TakenRequest.close):
            assert one.is_closed()
            assert two.is_closed()


def test_a_request_is_ended_once() -> None:
    with serving() as server, Client(server) as client:
        client.frames(b"a")
        request = server.requests.take(10)
        assert request is not None
        with pytest.raises(TypeError):
            request.answer([b"x", 3])  # type: ignore[list-item]
        request.answer([b"x", bytearray(b"y"), memoryview(b"z"), b""])
        for end in (request.skip, request.close, lambda: request.answer(b"")):
            with pytest.raises(RuntimeError, match="ended already"):
                end()
        assert client.answer() == b"xyz"


def test_a_request_that_is_dropped_closes_its_connection() -> None:
    with serving() as server, Client(server) as client:
        client.frames(b"a")
        request = server.requests.take(10)
        assert request is not None
        del request
        assert client.is_closed()


def test_a_request_closes_its_connection() -> None:
    with serving() as server, Client(server) as client, handling(server, TakenRequest.close):
        client.frames(b"a", b"b")
        assert client.is_closed()


def test_a_request_of_a_lost_connection_is_released_when_its_handler_has_ended() -> None:
    with serving() as server:
        with Client(server) as client:
            client.frames(b"first")
            request = server.requests.take(10)
            client.reset()
        wait_for_connections(server, 0)
        with Client(server) as client:
            client.frames(b"second")
            other = server.requests.take(10)
            assert request is not None
            assert other is not None
            assert other.context.connection_id != request.context.connection_id
            request.answer(b"nobody gets this")
            other.answer(b"answer")
            assert client.answer() == b"answer"


def test_requests_of_a_connection_have_one_context() -> None:
    with serving() as server, Client(server) as client, Client(server) as other:
        contexts = []
        for one in (client, client, other):
            one.frames(b"a")
            request = server.requests.take(10)
            assert request is not None
            contexts.append(request.context)
            request.skip()
        host, port = client.getsockname()
        first, second, third = contexts
        assert first is second
        assert first == RequestContext(
            "PLAINTEXT", SecurityProtocol.PLAINTEXT, host, port, first.connection_id, ANONYMOUS
        )
        assert str(first) == f"{host}:{port} (User:ANONYMOUS)"
        assert third.client_port == other.getsockname()[1]
        assert third.connection_id > first.connection_id


def test_a_slot_that_is_used_again_has_another_context() -> None:
    with serving() as server:
        ports = []
        for _ in range(3):
            with Client(server) as client:
                client.frames(b"a")
                request = server.requests.take(10)
                assert request is not None
                assert request.context.client_port == client.getsockname()[1]
                ports.append(request.context.connection_id)
                request.close()
                assert client.is_closed()
            wait_for_connections(server, 0)
        assert len(set(ports)) == 3
        assert ports == sorted(ports)


def test_requests_are_not_made_by_hand() -> None:
    with pytest.raises(TypeError):
        TakenRequest()

"""A connection to another node: answers in pieces, too large, cut off, and of another request."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

import pytest

from ctrlchan.errors import DecodeError
from ctrlchan.peers.connection import PeerConnection
from tests.kafka.wire import receive_frame

LARGEST = 3 * 2**20
SECONDS = 30.0

Answer = Callable[[socket.socket, bytes], None]


@contextmanager
def node(answer: Answer) -> Iterator[PeerConnection]:
    """A node that answers one request with ``answer(connection, correlation id)``."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            peer, _ = server.accept()
            with peer:
                peer.settimeout(SECONDS)
                answer(peer, receive_frame(peer)[4:8])

        thread = threading.Thread(target=serve)
        thread.start()
        connection = PeerConnection(server.getsockname(), b"test", largest_answer=LARGEST)
        try:
            yield connection
        finally:
            connection.close()
            thread.join()


def exchange(connection: PeerConnection) -> tuple[bytes, int]:
    return connection.exchange(60, 0, True, b"body", monotonic() + SECONDS)


def framed(frame: bytes) -> bytes:
    return len(frame).to_bytes(4, "big") + frame


def test_an_answer_of_the_largest_size_in_pieces() -> None:
    body = bytes(range(251)) * (LARGEST // 251 + 1)

    def answer(peer: socket.socket, correlation_id: bytes) -> None:
        whole = framed((correlation_id + b"\0" + body)[:LARGEST])
        for at in range(0, len(whole), 100_003):
            peer.sendall(whole[at : at + 100_003])

    with node(answer) as connection:
        frame, offset = exchange(connection)
    assert len(frame) == LARGEST
    assert frame[offset:] == body[: LARGEST - offset]


@pytest.mark.parametrize("size", [-1, LARGEST + 1, 2**31 - 1])
def test_a_size_that_is_not_allowed(size: int) -> None:
    def answer(peer: socket.socket, _: bytes) -> None:
        peer.sendall(size.to_bytes(4, "big", signed=True))

    with node(answer) as connection, pytest.raises(DecodeError, match="the largest allowed is 3,145,728"):
        exchange(connection)


def test_an_answer_that_is_cut_off() -> None:
    def answer(peer: socket.socket, correlation_id: bytes) -> None:
        peer.sendall(framed(correlation_id + b"\0" + bytes(100))[:-1])

    with node(answer) as connection, pytest.raises(ConnectionResetError, match="has closed"):
        exchange(connection)


def test_an_answer_to_another_request() -> None:
    def answer(peer: socket.socket, _: bytes) -> None:
        peer.sendall(framed(b"\0\0\0\x63\0"))

    with node(answer) as connection, pytest.raises(DecodeError, match="an answer to request 99, not 1"):
        exchange(connection)


def test_versions() -> None:
    def answer(peer: socket.socket, correlation_id: bytes) -> None:
        entries = bytes.fromhex("0003 0000 000c  0012 0000 0004")
        peer.sendall(framed(correlation_id + bytes.fromhex("0000 00000002") + entries))

    with node(answer) as connection:
        connection.ask_versions(monotonic() + SECONDS)
        assert connection.versions == {3: (0, 12), 18: (0, 4)}

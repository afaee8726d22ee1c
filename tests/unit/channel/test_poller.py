"""epoll and its portable counterpart have the same results."""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Iterator

import pytest

from ctrlchan.channel.wire.poller import READ, WRITE, EpollPoller, Poller, PortablePoller, new_poller

KINDS = [PortablePoller] + ([EpollPoller] if hasattr(select, "epoll") else [])


@pytest.fixture(params=KINDS)
def poller(request: pytest.FixtureRequest) -> Iterator[Poller]:
    made: Poller = request.param()
    yield made
    made.close()


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    a, b = socket.socketpair()
    with a, b:
        a.setblocking(False)
        yield a, b


def test_reading_and_writing(poller: Poller, pair: tuple[socket.socket, socket.socket]) -> None:
    a, b = pair
    poller.register(a.fileno(), READ)
    assert poller.wait(0) == []
    b.send(b"x")
    assert poller.wait(1) == [(a.fileno(), READ)]
    poller.modify(a.fileno(), READ | WRITE)
    assert poller.wait(1) == [(a.fileno(), READ | WRITE)]
    a.recv(1)
    assert poller.wait(1) == [(a.fileno(), WRITE)]
    poller.unregister(a.fileno())
    assert poller.wait(0) == []


def test_events_that_are_left_out_are_returned_next(poller: Poller) -> None:
    pairs = [socket.socketpair() for _ in range(5)]
    left = {b.fileno(): b for _, b in pairs}
    for a, b in pairs:
        a.send(b"x")
        poller.register(b.fileno(), READ)
    while left:
        events = poller.wait(1, 2)
        assert events
        assert len(events) <= (2 if isinstance(poller, EpollPoller) else len(left))
        for fd, mask in events:
            assert mask == READ
            assert left.pop(fd).recv(1) == b"x"
    for a, b in pairs:
        poller.unregister(b.fileno())
        a.close()
        b.close()


def test_the_end_of_a_pipe_is_readable(poller: Poller) -> None:
    reader, writer = os.pipe()
    poller.register(reader, READ)
    os.close(writer)
    [(fd, mask)] = poller.wait(1)
    assert fd == reader
    assert mask & ~WRITE
    assert os.read(reader, 1) == b""
    poller.unregister(reader)
    os.close(reader)


def test_a_failed_connection_is_reported_in_some_way(poller: Poller) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    with socket.socket() as sock:
        sock.setblocking(False)
        sock.connect_ex(("127.0.0.1", port))
        poller.register(sock.fileno(), WRITE)
        [(fd, mask)] = poller.wait(5)
        assert fd == sock.fileno()
        assert mask
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0
        poller.unregister(sock.fileno())


def test_epoll_is_used_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(new_poller(), KINDS[-1])
    monkeypatch.delattr(select, "epoll", raising=False)
    assert isinstance(new_poller(), PortablePoller)

"""Names to addresses, and connections that are begun and finished."""

from __future__ import annotations

import errno
import select
import socket
import threading
from collections.abc import Iterator

import pytest

from ctrlchan.channel.senders.tcp import Resolver, TcpConnection


@pytest.fixture
def resolver() -> Iterator[Resolver]:
    made = Resolver()
    yield made
    made.close()


@pytest.mark.parametrize(("host", "family"), [("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6)])
def test_numeric_addresses_need_no_look_up(resolver: Resolver, host: str, family: int) -> None:
    addresses = resolver.resolve(1, host, 9092)
    assert addresses is not None
    assert addresses[0][0] == family
    assert addresses[0][1][:2] == (host, 9092)


def _collected(resolver: Resolver) -> list[tuple[int, object]]:
    found: list[tuple[int, object]] = []
    while not found:
        assert select.select([resolver.fd], [], [], 10)[0]
        found += resolver.collect()
    return found


def test_names_are_looked_up_in_a_thread(resolver: Resolver, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def getaddrinfo(host: str, port: int, **options: int) -> list[tuple[object, ...]]:
        asked.append(threading.current_thread())
        return [
            (socket.AF_INET, 0, 0, "", ("10.0.0.1", port)),
            (socket.AF_INET, 0, 0, "", ("10.0.0.2", port)),
        ]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    assert resolver.resolve(5, "broker.example", 9092) is None
    both = [(socket.AF_INET, ("10.0.0.1", 9092)), (socket.AF_INET, ("10.0.0.2", 9092))]
    assert _collected(resolver) == [(5, both)]
    assert asked[0] is not threading.main_thread()


@pytest.mark.parametrize("name", ["no-such-host.invalid", "x" * 100 + ".invalid"])
def test_a_name_that_does_not_exist_is_an_error(resolver: Resolver, name: str) -> None:
    assert resolver.resolve(6, name, 9092) is None
    [(ticket, problem)] = _collected(resolver)
    assert ticket == 6
    assert isinstance(problem, OSError)


def _begun(port: int) -> TcpConnection:
    connection = TcpConnection((socket.AF_INET, ("127.0.0.1", port)))
    assert select.select([], [connection.fd], [], 10)[1]
    return connection


def test_a_connection_has_no_delay_and_does_not_block() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        connection = _begun(server.getsockname()[1])
        assert connection.finish() == 0
        accepted, _ = server.accept()
        with accepted:
            with pytest.raises(BlockingIOError):
                connection.receive(1)
            assert connection.send(b"hello") == 5
            assert connection.send_parts([b" ", b"you"]) == 4
            assert accepted.recv(9, socket.MSG_WAITALL) == b"hello you"
        connection.close()


def test_a_refused_connection_is_an_error() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    connection = _begun(port)
    assert connection.finish() == errno.ECONNREFUSED
    connection.close()


def test_a_connection_to_itself_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as sock:
        # TCP's simultaneous open: what a port of this host may do by chance, done on purpose.
        sock.bind(("127.0.0.1", 0))
        sock.connect(sock.getsockname())
        connection = TcpConnection.__new__(TcpConnection)
        connection._socket = sock
        assert connection.finish() == errno.ECONNREFUSED

"""TLS of Python's ssl on the processors, beside the tests that run with both ways to do TLS."""

from __future__ import annotations

import gc
import os
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ctrlchan.server import tls_failures
from ctrlchan.server.python_tls import PythonTlsContext, TlsSession
from ctrlchan.server.socket_server import SocketServer
from ctrlchan.server.tls_contexts import PYTHON_TLS, tls_context_of
from ctrlchan.server.tls_failures import number_of, why_tls_failed
from tests.kafka.waiting import wait_until
from tests.unit.server.serving import Client, EchoHandler, connections, serving, wait_for_connections
from tests.unit.server.test_tls import wait_until_full
from tests.unit.server.tls_serving import TlsClient, tls_listener

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def python_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PYTHON_TLS, "1")


@pytest.fixture
def server() -> Iterator[SocketServer]:
    with serving(EchoHandler(), tls_listener()) as server:
        yield server


def sessions() -> int:
    return sum(isinstance(one, TlsSession) for one in gc.get_objects())


def echoed(client: TlsClient, frame: bytes = b"e hello") -> bool:
    client.frames(frame)
    return client.answer() == frame


def test_sessions_are_given_back_when_connections_close_and_when_the_server_stops() -> None:
    with serving(EchoHandler(), tls_listener()) as server:
        with TlsClient(server) as client, Client(server) as half:
            half.sendall(b"\x16\x03\x01\x02\x00")
            assert echoed(client)
            wait_until(lambda: sessions() == 2, what="two sessions")
        wait_for_connections(server, 0)
        assert sessions() == 0
        kept = [TlsClient(server) for _ in range(3)]
        assert all(map(echoed, kept))
        server.stop()
        assert sessions() == 0
        for client in kept:
            # The server has said goodbye: an end without it would be an SSLEOFError.
            client.tls.suppress_ragged_eofs = False  # type: ignore[attr-defined]
            assert client.tls.recv(1) == b""
            client.tls.close()


@pytest.mark.parametrize("fails", ["session", "shake_hands", "read", "write", "output"])
def test_an_exception_of_python_ends_its_connection_alone(
    server: SocketServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    def fail(*_: object) -> Any:
        raise RuntimeError(f"no {fails}")

    with TlsClient(server) as other:
        assert echoed(other)
        with monkeypatch.context() as patched:
            patched.setattr(PythonTlsContext if fails == "session" else TlsSession, fails, fail)
            with pytest.raises((ssl.SSLError, ConnectionError)), TlsClient(server) as client:
                echoed(client)
            line = "no memory" if fails == "session" else f"failed: RuntimeError: no {fails}"
            wait_until(lambda: line in caplog.text, what="a line")
            wait_until(lambda: connections(server) == 1, what="one connection")
        if fails in ("session", "shake_hands"):
            assert echoed(other)
    with TlsClient(server) as client:
        assert echoed(client)


def test_a_peer_that_does_not_read_is_not_heard(server: SocketServer) -> None:
    """What its requests are answered with stays in memory that has a limit; all of it comes in the end."""
    frames = [b"e" + bytes([number]) * 100_000 for number in range(100)]
    with TlsClient(server, buffer=20_000) as client:
        sender = threading.Thread(target=lambda: client.frames(*frames))
        sender.start()
        wait_until_full(server)
        (row,) = server.counters()[0]
        # Beside the answers that wait, what the sockets have: most requests are not read.
        assert row.bytes_in < sum(map(len, frames)) / 2
        assert client.answers(len(frames)) == frames
        sender.join()


def test_a_process_ends_with_open_connections_and_a_server_that_was_not_stopped() -> None:
    program = """
import threading, sys
from ctrlchan.server.socket_server import SocketServer, SocketServerSettings
from tests.unit.server.serving import EchoHandler
from tests.unit.server.tls_serving import TlsClient, tls_listener
server = SocketServer([tls_listener()], SocketServerSettings(num_network_threads=2), EchoHandler())
server.start()
def run(client):
    try:
        while True:
            client.frames(b"e" + bytes(100_000))
            client.answer()
    except OSError:
        pass
clients = [TlsClient(server) for _ in range(4)]
for client in clients:
    client.frames(b"e")
    client.answer()
    threading.Thread(target=run, args=[client], daemon=True).start()
print("ends")
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, cwd=ROOT
    )
    (warning,) = ran.stderr.splitlines()
    assert warning.startswith("TLS listeners use Python's ssl module")
    assert (ran.returncode, ran.stdout) == (0, "ends\n")


def test_a_record_that_is_too_large(server: SocketServer, caplog: pytest.LogCaptureFixture) -> None:
    """It is refused before all of it has come."""
    with TlsClient(server) as client:
        assert echoed(client)
        os.write(client.tls.fileno(), b"\x17\x03\x03\xff\xff" + bytes(100))
        wait_for_connections(server, 0)
    wait_until(lambda: "TLS on listener SECURE failed: " in caplog.text, what="a line")


def test_contexts_have_what_those_of_openssl_have(monkeypatch: pytest.MonkeyPatch) -> None:
    security = tls_listener().security
    python = tls_context_of("SECURE", security)
    monkeypatch.setenv(PYTHON_TLS, "0")
    openssl = tls_context_of("SECURE", security)
    assert type(python) is not type(openssl)
    for name in ("subject", "alternative_names", "expires"):
        assert getattr(python, name) == getattr(openssl, name)


def test_reasons_have_numbers_and_not_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_reasons", "_numbers"):
        monkeypatch.setattr(tls_failures, name, getattr(tls_failures, name).copy())
    first = number_of("a first reason")
    assert first < 0
    assert number_of("a first reason") == first
    assert why_tls_failed(first) == "a first reason"
    others = {number_of(f"reason {number}") for number in range(2000)}
    assert len(others) <= 1001
    assert "another reason" in why_tls_failed(number_of("one more"))

"""Peers that send records of TLS without data: new keys, requests for another handshake, warnings."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from ctrlchan.server.socket_server import SocketServer
from tests.kafka.waiting import wait_until
from tests.unit.server.forged_records import (
    ALERT,
    CLIENT_HELLO,
    DATA,
    HANDSHAKE,
    KEY_UPDATE,
    SUITES,
    ForgingClient,
)
from tests.unit.server.serving import Client, EchoHandler, serving, sized, wait_for_connections
from tests.unit.server.tls_serving import TlsClient, tls_listener

#: So many of them may come at once.
SPARE = 32
LINE = f"more than {SPARE} TLS records without data on listener SECURE"
#: A warning that means nothing: user_canceled.
WARNING = b"\1\x5a"
RECORDS = {
    "new keys": ("TLSv1_3", HANDSHAKE, KEY_UPDATE),
    "another handshake": ("TLSv1_2", HANDSHAKE, CLIENT_HELLO),
}


@pytest.fixture
def server() -> Iterator[SocketServer]:
    with serving(EchoHandler(), tls_listener(cipher_suites=SUITES)) as server:
        yield server


def echoes(client: ForgingClient) -> bool:
    client.socket.sendall(client.record(DATA, sized(b"e")))
    return client.answer() == sized(b"e")


@pytest.mark.parametrize("case", RECORDS)
def test_some_are_allowed(server: SocketServer, tmp_path: Path, case: str) -> None:
    version, kind, content = RECORDS[case]
    with ForgingClient(Client(server), version, tmp_path) as client:
        assert echoes(client)
        client.socket.sendall(b"".join(client.record(kind, content) for _ in range(SPARE)))
        if version == "TLSv1_3":
            # It has new keys, as have the bytes that come back.
            assert echoes(client)
        else:
            with suppress(ssl.SSLError):
                echoes(client)
        assert server.counters()[0][0].connections == 1


@pytest.mark.parametrize("case", RECORDS)
@pytest.mark.parametrize("turns", [1, 3])
def test_a_flood_ends_the_connection(
    server: SocketServer, tmp_path: Path, caplog: pytest.LogCaptureFixture, case: str, turns: int
) -> None:
    """Also with requests in between. Others are served meanwhile."""
    version, kind, content = RECORDS[case]
    with ForgingClient(Client(server), version, tmp_path) as client, suppress(ConnectionError):
        for _ in range(turns):
            for _ in range(10_000 // turns):
                client.socket.sendall(client.record(kind, content))
            client.socket.sendall(client.record(DATA, sized(b"e")))
    wait_until(lambda: LINE in caplog.text, what="a line")
    wait_for_connections(server, 0)
    with TlsClient(server) as other:
        other.frames(b"e still here")
        assert other.answer() == b"e still here"


def test_a_flood_of_warnings_ends_the_connection(
    server: SocketServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """OpenSSL itself bounds those without data between them."""
    with ForgingClient(Client(server), "TLSv1_2", tmp_path) as client, suppress(ConnectionError):
        for _ in range(100):
            client.socket.sendall(client.record(ALERT, WARNING) + client.record(DATA, sized(b"e")))
        wait_until(lambda: LINE in caplog.text, what="a line")
    wait_for_connections(server, 0)

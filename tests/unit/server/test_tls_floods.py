"""Peers that send records of TLS without data: new keys, requests for another handshake, warnings."""

from __future__ import annotations

import select
import ssl
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from ctrlchan.server.socket_server import SocketServer
from tests.kafka.waiting import wait_until
from tests.soak.processes import MEASURES_MEMORY
from tests.unit.server.forged_records import (
    ALERT,
    CLIENT_HELLO,
    DATA,
    HANDSHAKE,
    KEY_UPDATE,
    SUITES,
    ForgingClient,
)
from tests.unit.server.serving import (
    Client,
    EchoHandler,
    connections,
    serving,
    sized,
    wait_for_connections,
)
from tests.unit.server.tls_serving import TlsClient, client_context, tls_listener

pytestmark = pytest.mark.usefixtures("each_tls")

#: So many of them may come at once.
SPARE = 32
LINE = f"more than {SPARE} TLS records without data on listener SECURE"
#: A warning that means nothing: user_canceled.
WARNING = b"\1\x5a"
#: Half handshakes, how many a processor keeps, and the most bytes that one may take.
MANY, KEPT, MOST_OF_ONE = 5_000, 1_000, 128 * 1024
RECORDS = {
    "new keys": ("TLSv1_3", HANDSHAKE, KEY_UPDATE),
    "another handshake": ("TLSv1_2", HANDSHAKE, CLIENT_HELLO),
}


@pytest.fixture
def server(each_tls: str) -> Iterator[SocketServer]:
    with serving(EchoHandler(), tls_listener(cipher_suites=SUITES)) as server:
        yield server


def hello() -> bytes:
    """Return the first message of a client."""
    outgoing = ssl.MemoryBIO()
    tls = client_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


@pytest.mark.parametrize(
    "kept",
    [
        pytest.param(50, id="half a ClientHello"),
        # The server signs for each of them.
        pytest.param(None, marks=pytest.mark.long, id="no Finished"),
    ],
)
def test_thousands_of_half_handshakes(server: SocketServer, kept: int | None) -> None:
    """5,000 come: no more than 1,000 are kept, in bounded memory, which those that come later use again."""
    begin = hello()[:kept]
    process = psutil.Process()
    sizes = [process.memory_info().rss]
    for many in (MANY, MANY // 4):
        clients: deque[Client] = deque()
        for number in range(many):
            client = Client(server)
            client.sendall(begin)
            clients.append(client)
            if len(clients) > KEPT + 100:
                # The server has closed the oldest ones.
                clients.popleft().close()
            if number % 500 == 0:
                with TlsClient(server) as other:
                    other.frames(b"e meanwhile")
                    assert other.answer() == b"e meanwhile"
        sizes.append(process.memory_info().rss)
        # Those that wait for their first byte, or for a turn of the processor, come on top.
        wait_until(lambda: connections(server) <= KEPT + 1, what="no more than 1,000")
        while clients:
            clients.popleft().close()
        wait_for_connections(server, 0)
    if MEASURES_MEMORY:
        assert sizes[1] - sizes[0] < KEPT * MOST_OF_ONE
        assert sizes[2] - sizes[1] < KEPT * MOST_OF_ONE / 4


@pytest.mark.long
def test_a_handshake_a_byte_a_second(server: SocketServer, caplog: pytest.LogCaptureFixture) -> None:
    """Each byte is activity: without a limit of its own a handshake would last for ever."""
    began = time.monotonic()
    with Client(server) as client:
        for byte in hello():
            client.sendall(bytes([byte]))
            # The peer waits a second for the end of the connection.
            if select.select([client], [], [], 1)[0]:
                break
        assert client.recv(1) == b""
        assert 29 < time.monotonic() - began < 60
    assert "its TLS handshake on listener SECURE has not ended within 30 s" in caplog.text
    wait_for_connections(server, 0)


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

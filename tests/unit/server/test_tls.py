"""TLS on the processors: handshakes, frames, large answers, names of clients, and peers that misbehave."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from ctrlchan.server._processor import TakenRequest
from ctrlchan.server.socket_server import SocketServer
from tests.kafka.waiting import wait_until
from tests.unit.server.serving import (
    Client,
    EchoHandler,
    connections,
    handling,
    parked,
    serving,
    sized,
    wait_for_connections,
)
from tests.unit.server.tls_serving import TlsClient, client_context, issued, tls_listener

pytestmark = pytest.mark.usefixtures("each_tls")

VERSIONS = ("TLSv1_2", "TLSv1_3")


@pytest.fixture
def server(each_tls: str) -> Iterator[SocketServer]:
    with serving(EchoHandler(), tls_listener()) as server:
        yield server


def handshakes(server: SocketServer) -> tuple[int, int]:
    (row,) = server.counters()[0]
    return row.handshakes, row.failed_handshakes


def wait_until_full(server: SocketServer) -> None:
    """Wait until the server sends no more: the sockets' buffers are full, and nobody reads."""
    before = 0

    def is_full() -> bool:
        nonlocal before
        (row,) = server.counters()[0]
        former, before = before, row.bytes_out
        return 0 < former == row.bytes_out

    wait_until(is_full, what="the buffers are full")


def still_serves(server: SocketServer) -> bool:
    with TlsClient(server) as client:
        client.frames(b"e still here")
        return client.answer() == b"e still here"


@pytest.mark.parametrize("version", VERSIONS)
def test_frames_over_each_version(server: SocketServer, version: str) -> None:
    with TlsClient(server, client_context(version=version)) as client:
        assert client.tls.version() == version.replace("_", ".")
        client.frames(b"e one", b"n", b"e two")
        assert client.answers(2) == [b"e one", b"e two"]
        for size in (0, 1, 16_384, 16_385, 1_000_000):
            client.frames(b"e" + bytes(size))
            assert client.answer() == b"e" + bytes(size)
    assert handshakes(server) == (1, 0)


def test_many_frames_in_one_record(server: SocketServer) -> None:
    """More than a processor handles in one turn: the rest is in OpenSSL, where no poller sees it."""
    frames = [b"e %d" % number for number in range(3000)]
    with TlsClient(server) as client:
        for begin in range(0, 3000, 1000):
            client.frames(*frames[begin : begin + 1000])
        assert client.answers(3000) == frames


@pytest.mark.parametrize("version", VERSIONS)
def test_frames_in_small_records(server: SocketServer, version: str) -> None:
    with TlsClient(server, client_context(version=version)) as client:
        client.tls.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in sized(b"e slowly"):
            client.tls.send(bytes([byte]))
        assert client.answer() == b"e slowly"


def test_requests_of_handler_threads_while_more_arrive(server: SocketServer) -> None:
    def handle(request: TakenRequest) -> None:
        time.sleep(0.05)
        request.answer(b"from Python: " + request.frame)

    with handling(server, handle), TlsClient(server) as client:
        client.frames(b"q1", b"e2", b"q3", b"e4")
        answers = client.answers(4)
    assert answers == [b"from Python: q1", b"e2", b"from Python: q3", b"e4"]


def test_a_parked_request(server: SocketServer) -> None:
    with TlsClient(server) as client:
        client.frames(parked(30), b"e after")
        assert len(client.answer()) > 0
        assert client.answer() == b"e after"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_large_file_range_to_a_slow_reader(tmp_path: Path, version: str) -> None:
    size = 20_000_000
    file = tmp_path / "records"
    content = os.urandom(1_000_000) * 20
    file.write_bytes(content)
    with serving(EchoHandler(), tls_listener(), socket_send_buffer_bytes=20_000) as server:
        descriptor = os.open(file, os.O_RDONLY)
        try:
            with TlsClient(server, client_context(version=version), buffer=20_000) as client:
                request = b"f" + struct.pack("=qqq", descriptor, 5, size - 10)
                client.frames(request, b"e after")
                wait_until_full(server)
                answer = client.answer()
                assert client.answer() == b"e after"
        finally:
            os.close(descriptor)
    assert answer[1:-1] == content[5:-5]


def test_a_file_that_is_too_short(server: SocketServer, tmp_path: Path) -> None:
    file = tmp_path / "short"
    file.write_bytes(bytes(100))
    descriptor = os.open(file, os.O_RDONLY)
    try:
        with TlsClient(server) as client:
            client.frames(b"f" + struct.pack("=qqq", descriptor, 0, 1000))
            with pytest.raises((ConnectionError, ssl.SSLError)):
                client.answer()
    finally:
        os.close(descriptor)
    assert still_serves(server)


def test_large_answers_to_clients_that_do_not_read(server: SocketServer) -> None:
    """Several connections whose sockets are full; each gets all of its bytes in the end."""
    clients = [TlsClient(server, buffer=20_000) for _ in range(5)]
    bodies = [b"e" + os.urandom(2_000_000) for _ in clients]

    def send(client: TlsClient, body: bytes) -> None:
        client.frames(body, body[:1000])

    threads = [threading.Thread(target=send, args=pair) for pair in zip(clients, bodies, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for client, body in zip(clients, bodies, strict=True):
        assert client.answers(2) == [body, body[:1000]]
        client.tls.close()
    wait_for_connections(server, 0)


def test_goodbye_is_answered_with_goodbye(server: SocketServer) -> None:
    with TlsClient(server) as client:
        client.frames(b"e last")
        assert client.answer() == b"e last"
        raw = client.tls.unwrap()
        assert raw.recv(1) == b""
        raw.close()


def test_the_server_says_goodbye(server: SocketServer) -> None:
    with TlsClient(server) as client:
        client.frames(b"c")
        # An end without close_notify would be an SSLEOFError here.
        client.tls.suppress_ragged_eofs = False  # type: ignore[attr-defined]
        assert client.tls.recv(1) == b""


def test_requests_of_a_client_that_has_gone_are_handled(server: SocketServer) -> None:
    with TlsClient(server) as client:
        client.frames(*[b"n" + bytes(100)] * 20)
    wait_until(lambda: server.counters()[0][0].requests == 20, what="all requests")


#: A frame that fills one record with its size.
FULL = b"n" + bytes(16_384 - 4 - 1)


def test_requests_before_the_end_of_a_connection_are_handled(server: SocketServer) -> None:
    """Full records are read together; the end that follows them is seen before their requests are handled."""
    with TlsClient(server) as client:
        client.frames(FULL, FULL, FULL)
        client.tls.unwrap().close()
    wait_until(lambda: server.counters()[0][0].requests == 3, what="all requests")
    wait_for_connections(server, 0)


def test_requests_before_a_damaged_record_are_handled(
    server: SocketServer, caplog: pytest.LogCaptureFixture
) -> None:
    with TlsClient(server) as client:
        client.frames(FULL, FULL)
        os.write(client.tls.fileno(), b"\x17\x03\x03\x00\x20" + bytes(32))
        wait_for_connections(server, 0)
    assert server.counters()[0][0].requests == 2
    wait_until(lambda: "TLS on listener SECURE failed: " in caplog.text, what="a line")
    assert caplog.text.count("TLS on listener SECURE failed: ") == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_frames_that_fill_records(server: SocketServer, version: str) -> None:
    frames = [b"e" + bytes([number]) * (size - 5) for number, size in enumerate((16_384, 32_768, 65_536) * 8)]
    with TlsClient(server, client_context(version=version)) as client:
        client.frames(*frames)
        assert client.answers(len(frames)) == frames


def test_bytes_are_counted_as_without_tls(server: SocketServer) -> None:
    with TlsClient(server) as client:
        client.frames(b"e" + bytes(1_000_000))
        client.answer()
        (row,) = server.counters()[0]
        assert (row.requests, row.bytes_in) == (1, 1_000_005)
        wait_until(lambda: server.counters()[0][0].bytes_out == 1_000_005, what="all bytes are counted")


# -- the names of clients


def contexts_of(server: SocketServer, client: TlsClient) -> str:
    """Return the context of a request that a handler thread gets."""
    found: list[str] = []

    def handle(request: TakenRequest) -> None:
        context = request.context
        found.append(f"{context.principal} {context.security_protocol.name} {context.listener}")
        request.answer(b"")

    with handling(server, handle):
        client.frames(b"q")
        client.answer()
    return found[0]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("client_auth", ["requested", "required"])
def test_a_client_with_a_certificate(client_auth: str, version: str) -> None:
    rules = "RULE:^CN=(.*?),OU=.*$/$1/U"
    with (
        serving(EchoHandler(), tls_listener(client_auth, rules)) as server,
        TlsClient(server, client_context("alice", version)) as client,
    ):
        assert contexts_of(server, client) == "User:ALICE SSL SECURE"


def test_a_client_without_a_certificate_is_anonymous() -> None:
    with serving(EchoHandler(), tls_listener("requested")) as server, TlsClient(server) as client:
        assert contexts_of(server, client) == "User:ANONYMOUS SSL SECURE"


def test_nobody_is_asked_for_a_certificate_by_default(server: SocketServer) -> None:
    context = client_context()
    trustme.CA().issue_cert("localhost").configure_cert(context)
    with TlsClient(server, context) as client:
        assert contexts_of(server, client) == "User:ANONYMOUS SSL SECURE"


def test_the_host_in_a_clients_certificate_does_not_count() -> None:
    context = client_context()
    issued("alice", "another.example").configure_cert(context)
    with serving(EchoHandler(), tls_listener("required")) as server, TlsClient(server, context) as client:
        assert contexts_of(server, client) == "User:CN=alice,OU=tests,O=ctrlchan SSL SECURE"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_client_that_is_refused_gets_the_reason(version: str) -> None:
    """He may have nothing to send, and read late."""
    context = client_context(version=version)
    trustme.CA().issue_cert("localhost").configure_cert(context)
    with serving(EchoHandler(), tls_listener("required")) as server:

        def read_late() -> bytes:
            with TlsClient(server, context) as client:
                wait_until(lambda: handshakes(server) == (0, 1), what="a failed handshake")
                return client.tls.recv(1)

        with pytest.raises(ssl.SSLError, match="unknown ca"):
            read_late()


def is_refused(server: SocketServer, context: ssl.SSLContext) -> bool:
    """Return whether the server refuses a client; with TLS 1.3 he hears of it after his handshake."""
    try:
        with TlsClient(server, context) as client:
            client.frames(b"e")
            client.answer()
    except (ssl.SSLError, ConnectionError):
        return True
    return False


@pytest.mark.parametrize("version", VERSIONS)
def test_a_certificate_is_required(version: str) -> None:
    with serving(EchoHandler(), tls_listener("required")) as server:
        assert is_refused(server, client_context(version=version))
        wait_until(lambda: handshakes(server) == (0, 1), what="a failed handshake")


def test_a_certificate_of_another_authority(caplog: pytest.LogCaptureFixture) -> None:
    context = client_context()
    trustme.CA().issue_cert("localhost").configure_cert(context)
    with serving(EchoHandler(), tls_listener("requested")) as server:
        assert is_refused(server, context)
        wait_until(
            lambda: "on listener SECURE failed: certificate verify failed (" in caplog.text, what="a line"
        )


def test_the_first_request_of_a_named_peer_is_hot_as_all_others() -> None:
    """A handler thread finds the name, and the hot handler answers."""
    seen: list[bytes] = []

    def handle(request: TakenRequest) -> None:
        seen.append(bytes(request.frame))
        request.answer(b"")

    with (
        serving(EchoHandler(), tls_listener("required")) as server,
        handling(server, handle),
        TlsClient(server, client_context("alice")) as client,
    ):
        client.frames(b"e one", b"e two")
        assert client.answers(2) == [b"e one", b"e two"]
    assert seen == []


def test_a_name_without_a_rule_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    with (
        serving(EchoHandler(), tls_listener("required", "RULE:^CN=bob.*$/bob/")) as server,
        handling(server, lambda request: request.answer(b"")),
    ):
        with TlsClient(server, client_context("alice")) as client:
            client.frames(b"e one")
            with pytest.raises((ConnectionError, ssl.SSLError)):
                client.answer()
        with TlsClient(server, client_context("bob")) as client:
            client.frames(b"e one")
            assert client.answer() == b"e one"
    assert "no rule of ssl.principal.mapping.rules matches it" in caplog.text
    assert "CN=alice" in caplog.text


def test_a_resumed_session_has_the_name_of_the_first() -> None:
    with serving(EchoHandler(), tls_listener("required")) as server:
        context = client_context("alice", "TLSv1_2")
        with TlsClient(server, context) as client:
            first = contexts_of(server, client)
            session = client.tls.session
        with TlsClient(server, context, session=session) as client:
            assert client.tls.session_reused
            assert contexts_of(server, client) == first
    assert "CN=alice" in first


# -- peers that misbehave


@pytest.mark.parametrize(
    ("sent", "line"),
    [
        (sized(b"\0\x12\0\3\0\0\0\1"), "has TLS, and the client does not use it"),
        (b"GET / HTTP/1.1\r\n\r\n", "has TLS, and the client speaks HTTP"),
        (b"\xff\xfe\xfd\xfc", "its first bytes are no TLS handshake"),
        (b"\x16\x03\x01\x00\x05hello", "on listener SECURE failed: "),
        (b"\x16\x03\x01\xff\xff" + bytes(70_000), "on listener SECURE failed: "),
    ],
)
def test_garbage_in_place_of_a_handshake(
    server: SocketServer, caplog: pytest.LogCaptureFixture, sent: bytes, line: str
) -> None:
    with Client(server) as client:
        try:
            client.sendall(sent)
            while client.recv(100):
                continue
        except ConnectionError:
            pass
    wait_until(lambda: line in caplog.text, what="a line")
    assert handshakes(server) == (0, 1)
    assert still_serves(server)


def test_tls_on_a_plaintext_port(caplog: pytest.LogCaptureFixture) -> None:
    with serving(EchoHandler()) as server:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            TlsClient(server)
        wait_until(lambda: "this listener has no TLS" in caplog.text, what="a line")


def hello_of_a_client() -> bytes:
    """Return the first message of a handshake."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = client_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


def test_a_handshake_a_byte_at_a_time(server: SocketServer) -> None:
    with Client(server) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in hello_of_a_client():
            client.sendall(bytes([byte]))
        assert client.recv(1) == b"\x16"
    assert still_serves(server)


#: A warning in plaintext: close_notify.
GOODBYE = b"\x15\x03\x03\0\2\1\0"


@pytest.mark.parametrize("before", [b"", hello_of_a_client()])
def test_a_peer_that_says_goodbye_in_the_middle(server: SocketServer, before: bytes) -> None:
    with Client(server) as client:
        client.sendall(before + GOODBYE)
        wait_until(lambda: handshakes(server) == (0, 1), what="a failed handshake")
    wait_for_connections(server, 0)
    assert still_serves(server)


@pytest.mark.parametrize("kept", [0, 1, 5, 100, None])
def test_a_peer_that_leaves_in_the_middle(server: SocketServer, kept: int | None) -> None:
    for reset in (False, True):
        client = Client(server)
        client.sendall(hello_of_a_client()[:kept])
        time.sleep(0.02)
        if reset:
            client.reset()
        else:
            client.close()
    wait_for_connections(server, 0)
    assert still_serves(server)


def test_damaged_records_after_the_handshake(server: SocketServer, caplog: pytest.LogCaptureFixture) -> None:
    with TlsClient(server) as client:
        client.frames(b"e")
        client.answer()
        os.write(client.tls.fileno(), b"\x17\x03\x03\x00\x20" + bytes(32))
        with pytest.raises((ssl.SSLError, ConnectionError)):
            client.answer()
    wait_until(lambda: "TLS on listener SECURE failed: " in caplog.text, what="a line")
    assert still_serves(server)


def test_unfinished_handshakes_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    """The oldest one of too many is closed; a client that shakes hands at once is served meanwhile."""
    hello = hello_of_a_client()[:50]
    many = 1010
    with serving(EchoHandler(), tls_listener()) as server:
        clients = []
        for _ in range(many):
            client = Client(server)
            client.sendall(hello)
            clients.append(client)
        wait_until(lambda: handshakes(server)[1] == many - 1000, what="ten closed handshakes")
        assert clients[0].is_closed()
        assert still_serves(server)
        assert connections(server) <= 1001
        for client in clients:
            client.close()
    assert "TLS handshakes on listener SECURE are unfinished" in caplog.text


def test_an_idle_connection_is_closed_before_and_after_its_handshake() -> None:
    with (
        serving(EchoHandler(), tls_listener(), connections_max_idle_ms=2000) as server,
        Client(server) as silent,
        answered_client(server) as client,
    ):
        assert silent.is_closed()
        assert client.tls.recv(1) == b""


def answered_client(server: SocketServer) -> TlsClient:
    """Return a client that has an answer; one that a busy machine made idle for too long is replaced."""

    def tried() -> TlsClient | None:
        try:
            client = TlsClient(server)
        except OSError:
            return None
        try:
            client.frames(b"e")
            client.answer()
        except OSError:
            client.tls.close()
            return None
        return client

    return wait_until(tried, what="a client has its answer in time")


def openssl_client(server: SocketServer, *options: str) -> subprocess.Popen[bytes]:
    """Start OpenSSL's own client, which does what Python's ssl cannot."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("the command openssl is not installed")
    return subprocess.Popen(
        [openssl, "s_client", "-connect", f"127.0.0.1:{server.ports['SECURE']}", *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def test_renegotiation_is_refused(server: SocketServer) -> None:
    with openssl_client(server, "-tls1_2") as process:
        output, _ = process.communicate(b"R\n", 60)
    assert b"no renegotiation" in output.lower()
    assert still_serves(server)


def test_key_updates(server: SocketServer) -> None:
    """The peer wants new keys, also of the server, which answers that with its next bytes."""
    with openssl_client(server, "-tls1_3", "-msg") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        seen = b""

        def wait_for(text: bytes, count: int = 1) -> None:
            nonlocal seen
            while seen.count(text) < count:
                part = os.read(process.stdout.fileno(), 65536) if process.stdout is not None else b""
                assert part, seen[-500:]
                seen += part

        wait_for(b"NewSessionTicket")
        for number in range(1, 4):
            process.stdin.write(b"K\n")
            process.stdin.flush()
            wait_for(b"KEYUPDATE", number)
        process.stdin.write(sized(b"e with new keys"))
        process.stdin.flush()
        wait_for(b"e with new keys")
        # The client's, and the answer to the last one
        assert seen.count(b", KeyUpdate") >= 4
        process.stdin.close()

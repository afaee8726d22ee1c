"""Which requests the page answers: names of the server, other sites, methods, sizes, paths."""

from __future__ import annotations

import socket
from contextlib import suppress

import pytest

from ctrlchan.errors import ConfigError
from ctrlchan.page.request_checks import MAX_BODY
from ctrlchan.page.server import _MAX_CONNECTIONS, PageServer
from tests.kafka.waiting import wait_until
from tests.unit.page.serving import Client, serving

OWN = (
    "127.0.0.1",
    "127.0.0.1:80",
    "127.0.0.1:65535",
    "localhost",
    "LocalHost:8080",
    "[::1]:8080",
    "10.1.2.3:1",
)
FOREIGN = (
    "",
    "evil.example",
    "evil.example:8080",
    "127.0.0.1.evil.example",
    "localhost.evil.example",
    "evil.example#127.0.0.1",
    "evil.example/127.0.0.1",
    "127.0.0.1@evil.example",
    "evil.example@127.0.0.1",
    "@127.0.0.1",
    "127.0.0.1:x",
    "127.0.0.1:99999",
    "[::1",
    "0x7f000001",
    "127.1",
    "127.0.0.1, evil.example",
)
READS = ("/", "/main.js", "/api/views", "/api/topics", "/status.json", "/metrics", "/nothing")
CHANGES = ("/api/topics", "/api/topics/delete", "/api/messages")


@pytest.mark.parametrize("host", OWN)
def test_addresses_and_localhost_are_the_page(host: str) -> None:
    with serving() as client:
        assert client.get("/api/views", Host=host).status == 200


@pytest.mark.parametrize("host", FOREIGN)
def test_every_other_name_is_refused(host: str) -> None:
    with serving() as client:
        for path in READS:
            answer = client.get(path, Host=host)
            assert (answer.status, set(answer.value)) == (403, {"error"}), path
        for path in CHANGES:
            assert client.post(path, {}, Host=host).status == 403


def test_two_hosts_and_none_are_refused() -> None:
    with serving() as client:
        for lines in (b"", b"Host: 127.0.0.1\r\nHost: evil.example\r\n"):
            assert raw(client, b"GET /api/views HTTP/1.1\r\n" + lines + b"\r\n").startswith(b"HTTP/1.0 403")
        line = b"GET http://evil.example/api/views HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
        assert raw(client, line).startswith(b"HTTP/1.0 404")


def raw(client: Client, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", client.port), timeout=30) as connection:
        connection.sendall(request)
        parts = []
        while part := connection.recv(65536):
            parts.append(part)
    return b"".join(parts)


def test_the_name_that_is_asked_for_is_the_page() -> None:
    with serving(host="localhost") as client:
        assert client.get("/api/views", Host=f"localhost:{client.port}").status == 200
        assert client.get("/api/views", Host=f"other:{client.port}").status == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": ""},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "https://127.0.0.1:PORT"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
        {"Sec_Fetch_Site": "something"},
        {"Origin": "http://127.0.0.1:PORT", "Sec_Fetch_Site": "cross-site"},
    ],
    ids=str,
)
def test_requests_of_other_sites_are_refused(headers: dict[str, str]) -> None:
    with serving() as client:
        sent = {name: value.replace("PORT", str(client.port)) for name, value in headers.items()}
        for path in (*READS[1:], *CHANGES):
            assert client.get(path, **sent).status == 403, path
        for path in CHANGES:
            assert client.post(path, {}, **sent).status == 403, path


def test_the_page_itself_may_do_both_and_a_link_leads_to_it() -> None:
    with serving() as client:
        own = {"Origin": f"http://127.0.0.1:{client.port}", "Sec_Fetch_Site": "same-origin"}
        assert client.get("/api/views", **own).status == 200
        assert client.post("/api/topics", {}, **own).value == {"error": "topic is missing"}
        assert client.get("/", Sec_Fetch_Site="cross-site").status == 200


@pytest.mark.parametrize(
    "kind",
    ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonp"],
)
def test_a_change_is_json(kind: str) -> None:
    with serving() as client:
        for path in CHANGES:
            assert client.send("POST", path, b'{"topic":"a"}', {"Content-Type": kind}).status == 415


def test_bodies_are_bounded() -> None:
    json = {"Content-Type": "application/json"}
    with serving() as client:
        for length, status in (
            (str(MAX_BODY + 1), 413),
            ("9" * 5_000, 413),
            ("-1", 411),
            ("x", 411),
            ("", 411),
        ):
            request = (
                f"POST /api/topics HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {json['Content-Type']}\r\n"
            )
            request += f"Content-Length: {length}\r\n\r\n"
            assert raw(client, request.encode()).startswith(f"HTTP/1.0 {status}".encode()), length
        chunked = {**json, "Transfer-Encoding": "chunked"}
        assert client.send("POST", "/api/topics", b"2\r\n{}\r\n0\r\n\r\n", chunked).status == 411
        for body in (b"", b"[]", b"{", b"\xff", b"[" * 100_000, b'"topic"'):
            assert client.send("POST", "/api/topics", body, json).status == 400, body[:10]


def test_a_body_that_is_cut_is_an_error() -> None:
    request = b"POST /api/topics HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    with serving() as client, socket.create_connection(("127.0.0.1", client.port), timeout=30) as connection:
        connection.sendall(request + b"Content-Length: 10\r\n\r\n{")
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(100).startswith(b"HTTP/1.0 408")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "EVIL"])
def test_reads_are_get(method: str) -> None:
    with serving() as client:
        for path in ("/", "/page.css", "/api/views", "/api/topic", "/status.json", "/metrics"):
            assert client.send(method, path).status == 405, path
        assert client.get("/api/topics/delete").status == 405
        if method != "POST":
            assert client.send(method, "/api/topics").status == 405


def test_no_answer_may_be_framed_read_or_guessed() -> None:
    with serving() as client:
        for path in READS:
            headers = client.get(path).headers
            policy = headers["Content-Security-Policy"].split("; ")
            assert policy[:4] == [
                "default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'"
            ]  # fmt: skip
            assert {"frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'"} <= set(policy)
            assert headers["X-Content-Type-Options"] == "nosniff"
            assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
            assert headers["Cache-Control"] == "no-store"
            assert not any(name.startswith("Access-Control") for name in headers)


@pytest.mark.parametrize(
    "path",
    [
        "/../../pyproject.toml",
        "/%2e%2e/page.css",
        "/assets/page.css",
        "/index.html",
        "/page.css/",
        "/..",
    ],
)
def test_only_the_files_of_the_page_are_served(path: str) -> None:
    with serving() as client:
        assert client.get(path).status == 404


def test_a_controller_alone_shows_nothing_else() -> None:
    with serving(None) as client:
        assert client.get("/api/views").value == {"views": ["controller"], "bootstrap_servers": None}
        for path in ("/api/topics", "/api/messages?topic=a", "/api/groups"):
            assert client.get(path).status == 404
        for path in CHANGES:
            assert client.post(path, {"topic": "a"}).status == 404


def test_an_error_in_the_page_is_an_answer(caplog: pytest.LogCaptureFixture) -> None:
    def describe() -> dict[str, object]:
        raise ZeroDivisionError("secret")

    with serving(describe=describe) as client:
        answer = client.get("/status.json")
    assert answer.status == 500
    assert b"secret" not in answer.body
    assert "ZeroDivisionError" in caplog.text


def test_connections_are_bounded() -> None:
    with serving() as client:
        idle = [
            socket.create_connection(("127.0.0.1", client.port), timeout=30) for _ in range(_MAX_CONNECTIONS)
        ]
        try:
            # The one that is too many is closed, with or without a reset.
            another = socket.create_connection(("127.0.0.1", client.port), timeout=30)
            with another, suppress(ConnectionResetError):
                assert another.recv(1) == b""
        finally:
            for one in idle:
                one.close()
        wait_until(lambda: served(client), what="the page answers again")


def served(client: Client) -> bool:
    try:
        return client.get("/api/views").status == 200
    except OSError:
        return False


def test_old_connections_are_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctrlchan.page.server._CONNECTION_SECONDS", 0.0)
    with serving() as client, socket.create_connection(("127.0.0.1", client.port), timeout=30) as slow:
        slow.sendall(b"GET / HTTP/1.1\r\nHost: 127")
        assert slow.recv(100) == b""


def test_a_port_in_use_is_one_line() -> None:
    with (
        serving() as client,
        pytest.raises(ConfigError, match=rf"127\.0\.0\.1:{client.port}: Address already"),
    ):
        PageServer(dict, None, port=client.port)  # type: ignore[arg-type]

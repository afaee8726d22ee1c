"""SASL through sockets and handler threads: who a request comes from, and what the log says."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kio.schema.errors import ErrorCode as KioError

from ctrlchan.errors import ProtocolError
from ctrlchan.protocol import SecurityProtocol
from ctrlchan.server.api import Buffers
from ctrlchan.server.handler_pool import HandlerPool, ListenerHandler
from ctrlchan.server.request_context import RequestContext
from ctrlchan.server.socket_server import Listener, SocketServer, SocketServerSettings
from tests.unit.broker.local_broker import client_frame, read_client_response
from tests.unit.server.security.sasl_clients import (
    AUTHENTICATE,
    HANDSHAKE,
    USERS,
    bearer,
    sasl_listener,
    unsecured_token,
)
from tests.unit.server.serving import Client

SECURE = Listener("SECURE", "127.0.0.1", 0, SecurityProtocol.SASL_PLAINTEXT)


def serve(frame: bytes | memoryview, context: RequestContext) -> Buffers:
    return (f"{context.principal} ".encode(), frame)


@contextmanager
def secured(**settings: Any) -> Iterator[SocketServer]:
    server = SocketServer([SECURE], SocketServerSettings(**settings), sasl={"SECURE": sasl_listener()})
    pool = HandlerPool(server.requests, [ListenerHandler("broker 1", serve)], 2)
    pool.start()
    server.start()
    try:
        yield server
    finally:
        server.stop(0)
        assert pool.join(30)


def log_in(client: Client, mechanism: str, *tokens: bytes) -> Any:
    client.frames(client_frame(HANDSHAKE, 1, mechanism=mechanism))
    client.answer()
    for token in tokens:
        client.frames(client_frame(AUTHENTICATE, 2, auth_bytes=token))
        answer = read_client_response(AUTHENTICATE, 2, client.answer())
    return answer


def test_users_of_several_connections() -> None:
    with secured() as server, Client(server) as alice, Client(server) as bob, Client(server) as token:
        log_in(alice, "PLAIN", b"\0alice\0alice-secret")
        log_in(bob, "PLAIN", f"\0bób,=\0{USERS['bób,=']}".encode())
        log_in(token, "OAUTHBEARER", bearer(unsecured_token(sub="carol")))
        for client, name in ((alice, "alice"), (bob, "bób,="), (token, "carol"), (alice, "alice")):
            client.frames(b"request")
            assert client.answer() == f"User:{name} request".encode()


def test_a_refusal_is_logged_without_secrets(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ctrlchan.broker")
    with secured() as server:
        for _ in range(20):
            with Client(server) as client:
                answer = log_in(client, "PLAIN", b"\0alice\0not-her-password")
                assert answer.error_code == KioError.sasl_authentication_failed
                assert client.is_closed()
    lines = [one.getMessage() for one in caplog.records if one.levelno == logging.INFO]
    assert 0 < len(lines) < 10
    assert "broker 1: failed authentication with 127.0.0.1:" in lines[0]
    assert not any("not-her" in line or "secret" in line for line in lines)


def test_a_line_break_of_a_peer_stays_out_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ctrlchan.broker")
    with secured() as server, Client(server) as client:
        log_in(client, "OAUTHBEARER", bearer(unsecured_token(), "x\nbroker 1: all is well"))
        assert client.is_closed()
    assert not any("\n" in one.getMessage() for one in caplog.records)
    assert any("x\\nbroker 1: all is well" in one.getMessage() for one in caplog.records)


def test_a_request_that_cannot_be_read_is_logged_apart(caplog: pytest.LogCaptureFixture) -> None:
    """Lines about refused peers do not use up the limit of the others."""

    def refuse(_frame: bytes | memoryview, _context: RequestContext) -> Buffers:
        raise ProtocolError("a defect")

    server = SocketServer([SECURE], sasl={"SECURE": sasl_listener()})
    pool = HandlerPool(server.requests, [ListenerHandler("broker 1", refuse)], 1)
    pool.start()
    server.start()
    caplog.set_level(logging.INFO, "ctrlchan.broker")
    try:
        for _ in range(10):
            with Client(server) as client:
                client.frames(b"garbage")
                assert client.is_closed()
        with Client(server) as client:
            log_in(client, "PLAIN", b"\0alice\0alice-secret")
            client.frames(b"request")
            assert client.is_closed()
    finally:
        server.stop(0)
        assert pool.join(30)
    assert any("a defect" in one.getMessage() for one in caplog.records)


def test_the_time_limit_is_that_of_idle_connections_where_that_is_less(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with secured(connections_max_idle_ms=300) as server, Client(server) as client:
        client.sendall(b"\0")
        assert client.is_closed()
        assert server.counters()[0][0].not_authenticated + server.counters()[0][0].idle_closed == 1

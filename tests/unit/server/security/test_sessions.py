"""SASL on a processor: nothing passes before authentication, sessions end and are renewed.

The clock is simulated. With ``test_sasl_server.py`` the twins of Kafka's SaslAuthenticatorTest. Left out:
what is about Kafka's own client, logins and callback handlers, and changed credentials of a login.
"""

from __future__ import annotations

import re

import pytest
from kio.schema.errors import ErrorCode as KioError

from tests.unit.broker.local_broker import client_frame, read_client_response
from tests.unit.server._echo import EchoHandler
from tests.unit.server.security.sasl_clients import (
    API_VERSIONS,
    AUTHENTICATE,
    HANDSHAKE,
    METADATA,
    USERS,
    sasl_listener,
)
from tests.unit.server.security.simulated_server import ALICE, SimulatedClient, SimulatedServer
from tests.unit.server.serving import sized

LARGEST = 524_288
BOB = f"\0bób,=\0{USERS['bób,=']}".encode()


@pytest.fixture
def server() -> SimulatedServer:
    return SimulatedServer(sasl_listener())


@pytest.fixture
def limited() -> SimulatedServer:
    """Sessions of five seconds."""
    return SimulatedServer(sasl_listener(max_session_ms=5000))


def test_requests_pass_when_the_peer_is_authenticated(server: SimulatedServer) -> None:
    client = SimulatedClient(server)
    client.send(client_frame(API_VERSIONS, 0))
    assert client.answer().startswith(b"User:ANONYMOUS \0\x12")
    client.log_in()
    # The first is answered on the processor, the second one by a handler thread.
    client.send(b"e hot", b"q cold")
    assert client.answers() == [b"e hot", b"User:alice q cold"]
    client.send(b"q " + bytes(LARGEST + 1))
    assert len(client.answer()) > LARGEST
    counters = server.counters
    assert (counters.authenticated, counters.authentications_failed, counters.cannot_renew) == (1, 0, 0)


def test_a_listener_without_sasl_is_as_before() -> None:
    server = SimulatedServer(None)
    client = SimulatedClient(server)
    client.send(b"q now")
    assert client.answer() == b"User:ANONYMOUS q now"
    assert server.counters.authenticated == 0


def test_no_request_passes_before(server: SimulatedServer) -> None:
    for frames in ([b"e hot"], [client_frame(HANDSHAKE, 1, mechanism="PLAIN"), b"e hot"]):
        client = SimulatedClient(server)
        client.send(*frames)
        server.run(0.2)
        assert client.is_closed
        assert not any(b"hot" in answer for answer in client.answers())


def test_frames_that_come_together_are_handled_in_order(server: SimulatedServer) -> None:
    client = SimulatedClient(server)
    client.send(
        client_frame(HANDSHAKE, 1, mechanism="PLAIN"),
        client_frame(AUTHENTICATE, 2, auth_bytes=ALICE),
        b"e hot",
        b"q cold",
    )
    assert client.answers()[2:] == [b"e hot", b"User:alice q cold"]


def test_a_byte_at_a_time(server: SimulatedServer) -> None:
    client = SimulatedClient(server)
    frames = [client_frame(HANDSHAKE, 1, mechanism="PLAIN"), client_frame(AUTHENTICATE, 2, auth_bytes=ALICE)]
    for byte in b"".join(map(sized, [*frames, b"e hot"])):
        client.send_bytes(bytes([byte]))
    assert client.answers()[2:] == [b"e hot"]


# -- peers that fail


def test_the_answer_to_a_refused_peer_waits(server: SimulatedServer) -> None:
    client = SimulatedClient(server)
    client.handshake()
    client.send(client_frame(AUTHENTICATE, 2, auth_bytes=b"\0alice\0wrong"))
    server.run(0.1)
    assert not client.is_closed
    assert client.answers() == []
    # Nothing that comes meanwhile is read.
    client.send(client_frame(AUTHENTICATE, 2, auth_bytes=ALICE))
    server.run(0.001)
    body = read_client_response(AUTHENTICATE, 2, client.answer())
    assert body.error_code == KioError.sasl_authentication_failed
    assert client.is_closed
    assert server.counters.authentications_failed == 1
    (line,) = server.lines
    assert re.fullmatch(
        r"failed authentication with \S+:\d+ \(User:ANONYMOUS\) at listener SASL_PLAINTEXT: "
        "PLAIN: Authentication failed: Invalid username or password",
        line,
    )


def test_the_wait_holds_up_nobody(server: SimulatedServer) -> None:
    refused = [SimulatedClient(server) for _ in range(100)]
    for one in refused:
        one.handshake()
        one.send(client_frame(AUTHENTICATE, 2, auth_bytes=b"\0alice\0wrong"))
    client = SimulatedClient(server)
    client.log_in()
    assert not any(one.is_closed for one in refused)
    server.run(0.101)
    assert all(one.is_closed for one in refused)
    client.send(b"e still")
    assert client.answer() == b"e still"


def test_a_delay_of_nothing() -> None:
    server = SimulatedServer(sasl_listener(), refusal_ms=0)
    client = SimulatedClient(server)
    client.send(client_frame(METADATA, 12, topics=None))
    assert client.is_closed


def test_a_refused_peer_that_leaves(server: SimulatedServer) -> None:
    client = SimulatedClient(server)
    client.handshake()
    client.send(client_frame(AUTHENTICATE, 2, auth_bytes=b"\0alice\0wrong"))
    server.system.reset(client.number)
    server.run(0.2)
    assert server.counters.connections == 0


@pytest.mark.parametrize("size", [LARGEST + 1, 2**31 - 1, -1, 0x48545450])
def test_a_frame_that_is_too_large(server: SimulatedServer, size: int) -> None:
    client = SimulatedClient(server)
    client.send_bytes(size.to_bytes(4, "big", signed=True))
    assert client.is_closed
    assert server.counters.authentications_failed == 1


def test_the_largest_frame(server: SimulatedServer) -> None:
    client = SimulatedClient(server)
    client.handshake()
    frame = client_frame(AUTHENTICATE, 2, auth_bytes=b"")[:-2]
    # A compact length of three bytes, and no tagged fields.
    size = LARGEST - len(frame) - 4
    token = bytes(size)
    length = size + 1
    encoded = bytes([length & 127 | 128, length >> 7 & 127 | 128, length >> 14])
    client.send(frame + encoded + token + b"\0")
    server.run(0.101)
    body = read_client_response(AUTHENTICATE, 2, client.answer())
    assert body.error_message == "Invalid SASL/PLAIN response: expected 3 tokens, got 4"


def test_a_small_limit_of_requests_holds_before_authentication_too() -> None:
    server = SimulatedServer(sasl_listener(), max_request_bytes=1000)
    client = SimulatedClient(server)
    client.send_bytes((1001).to_bytes(4, "big"))
    assert client.is_closed


# -- time and memory


@pytest.mark.parametrize("begins", [False, True])
def test_a_peer_that_takes_too_long(server: SimulatedServer, begins: bool) -> None:
    client = SimulatedClient(server)
    if begins:
        client.handshake()
    server.skip(29.9)
    assert not client.is_closed
    server.skip(0.2)
    assert client.is_closed
    assert server.counters.not_authenticated == 1
    assert server.counters.authentications_failed == 0


def test_a_byte_a_second(server: SimulatedServer) -> None:
    """Each byte is activity: without a limit the connection would stay for ever."""
    client = SimulatedClient(server)
    frame = sized(client_frame(HANDSHAKE, 1, mechanism="SCRAM-SHA-512" * 10))
    for byte in frame[:31]:
        if not client.is_closed:
            client.send_bytes(bytes([byte]))
            server.skip(1)
    assert client.is_closed


def test_an_authenticated_peer_may_take_its_time(server: SimulatedServer) -> None:
    client = SimulatedClient(server)
    server.skip(29)
    client.log_in()
    server.skip(60)
    client.send(b"e slow")
    assert client.answer() == b"e slow"


def test_a_peer_whose_frame_is_handled_when_its_time_has_passed(server: SimulatedServer) -> None:
    client = SimulatedClient(server)
    server.held = []
    client.send(client_frame(HANDSHAKE, 1, mechanism="PLAIN"))
    server.skip(31)
    assert client.is_closed
    (request,) = server.held
    server.held = None
    server.handle(request)
    server.run()
    assert server.counters.connections == 0
    other = SimulatedClient(server)
    other.log_in()


def test_thousands_of_peers_that_send_nothing(server: SimulatedServer) -> None:
    clients = [server.system.connect(1000) for _ in range(5000)]
    server.run()
    assert server.counters.connections == 5000
    client = SimulatedClient(server)
    client.log_in()
    server.skip(31)
    assert all(server.system.is_closed(one) for one in clients)
    assert not client.is_closed


def test_half_frames_of_many_peers_have_bounded_memory(server: SimulatedServer) -> None:
    """Of 64 MiB, which a frame of almost 512 KiB fills 128 times, and each client closes for itself alone."""
    half = (LARGEST).to_bytes(4, "big") + bytes(LARGEST - 1)
    clients = [SimulatedClient(server) for _ in range(140)]
    for one in clients:
        one.send_bytes(half)
    closed = sum(one.is_closed for one in clients)
    assert 12 <= closed < 100
    # A peer whose frames come whole is served all the same.
    client = SimulatedClient(server)
    client.log_in()
    # The memory is free again with its connections.
    server.skip(31)
    assert server.counters.connections == 1
    again = SimulatedClient(server)
    again.send_bytes(half)
    assert not again.is_closed


def test_half_frames_of_authenticated_peers_are_not_counted(server: SimulatedServer) -> None:
    clients = [SimulatedClient(server) for _ in range(140)]
    for one in clients:
        one.log_in()
        one.send_bytes((LARGEST).to_bytes(4, "big") + bytes(LARGEST - 1))
    assert not any(one.is_closed for one in clients)


# -- sessions


def expired(server: SimulatedServer, client: SimulatedClient) -> bool:
    """Send a request; return whether its session has ended."""
    client.send(b"e hot")
    answers = client.answers()
    assert answers == ([] if client.is_closed else [b"e hot"])
    return client.is_closed


def test_a_session_ends(limited: SimulatedServer) -> None:
    client = SimulatedClient(limited)
    limited.skip(3)
    client.log_in()
    limited.skip(5)
    assert not expired(limited, client)
    limited.skip(0.001)
    assert expired(limited, client)
    assert limited.counters.sessions_expired == 1


def test_an_old_client_has_a_session_too(limited: SimulatedServer) -> None:
    client = SimulatedClient(limited)
    client.send(client_frame(HANDSHAKE, 0, mechanism="PLAIN"), ALICE)
    assert client.answers()[1] == b""
    assert limited.counters.cannot_renew == 1
    limited.skip(5.1)
    assert expired(limited, client)


@pytest.mark.parametrize("after", [1.0, 4.0, 5.1, 60.0])
def test_a_session_is_renewed(limited: SimulatedServer, after: float) -> None:
    """Also when it has ended already: only another request closes the connection."""
    client = SimulatedClient(limited)
    client.log_in()
    limited.skip(after)
    client.log_in()
    limited.skip(4.9)
    assert not expired(limited, client)
    limited.skip(0.2)
    assert expired(limited, client)
    counters = limited.counters
    assert (counters.authenticated, counters.renewed, counters.sessions_expired) == (1, 1, 1)


def test_requests_around_a_renewal(limited: SimulatedServer) -> None:
    client = SimulatedClient(limited)
    client.log_in()
    limited.skip(4)
    client.send(
        b"e before",
        client_frame(HANDSHAKE, 1, mechanism="PLAIN"),
        client_frame(AUTHENTICATE, 2, auth_bytes=ALICE),
        b"q after",
    )
    answers = client.answers()
    assert (answers[0], answers[3]) == (b"e before", b"User:alice q after")


def test_a_session_is_renewed_once_a_second(limited: SimulatedServer) -> None:
    client = SimulatedClient(limited)
    client.log_in()
    client.log_in()
    limited.skip(0.999)
    # The broker's own API answers it, with ILLEGAL_SASL_STATE.
    frame = client_frame(HANDSHAKE, 1, mechanism="PLAIN")
    client.send(frame)
    assert client.answer() == b"User:alice " + frame
    limited.skip(0.001)
    client.log_in()
    assert limited.counters.renewed == 2


def test_a_handshake_that_comes_too_early_does_not_save_a_session(limited: SimulatedServer) -> None:
    short = SimulatedServer(sasl_listener(max_session_ms=100))
    client = SimulatedClient(short)
    client.log_in()
    client.log_in()
    short.skip(0.5)
    client.send(client_frame(HANDSHAKE, 1, mechanism="PLAIN"))
    assert client.is_closed
    assert short.counters.sessions_expired == 1


def test_a_session_without_an_end_cannot_be_renewed(server: SimulatedServer) -> None:
    client = SimulatedClient(server)
    client.log_in()
    server.skip(100)
    frame = client_frame(HANDSHAKE, 1, mechanism="PLAIN")
    client.send(frame)
    assert client.answer() == b"User:alice " + frame


@pytest.mark.parametrize("token", [BOB, b"\0alice\0wrong"])
def test_a_renewal_that_fails_closes_the_connection(limited: SimulatedServer, token: bytes) -> None:
    client = SimulatedClient(limited)
    client.log_in()
    client.handshake()
    client.send(client_frame(AUTHENTICATE, 2, auth_bytes=token))
    limited.run(0.101)
    body = read_client_response(AUTHENTICATE, 2, client.answer())
    assert body.error_code == KioError.sasl_authentication_failed
    assert client.is_closed
    counters = limited.counters
    assert (counters.renewals_failed, counters.authentications_failed) == (1, 0)
    assert limited.lines[0].startswith("failed re-authentication with")


def test_no_request_passes_during_a_renewal(limited: SimulatedServer) -> None:
    client = SimulatedClient(limited)
    client.log_in()
    client.handshake()
    client.send(b"e hot")
    limited.run(0.101)
    assert client.is_closed
    assert client.answers() == []


def test_a_renewal_has_the_same_limits(limited: SimulatedServer) -> None:
    slow, large = SimulatedClient(limited), SimulatedClient(limited)
    for client in (slow, large):
        client.log_in()
        client.handshake()
    large.send_bytes((LARGEST + 1).to_bytes(4, "big"))
    assert large.is_closed
    limited.skip(31)
    assert slow.is_closed


# -- the end


@pytest.mark.parametrize("state", ["idle", "refused", "queued"])
def test_the_server_stops(state: str) -> None:
    server = SimulatedServer(sasl_listener())
    client = SimulatedClient(server)
    client.handshake()
    if state == "queued":
        server.held = []
    if state != "idle":
        client.send(client_frame(AUTHENTICATE, 2, auth_bytes=b"\0alice\0wrong"))
    server.threads.stop(0)
    for _ in range(5):
        server.threads.turn(0)
    assert client.is_closed
    assert client.answers() == []
    for request in server.held or ():
        server.handle(request)


def test_the_answer_of_an_authenticated_peer_is_given_once(server: SimulatedServer) -> None:
    client = SimulatedClient(server)
    client.log_in()
    server.held = []
    client.send(b"q cold")
    (request,) = server.held
    assert request.authenticator is None
    with pytest.raises(RuntimeError, match="authenticated already"):
        request.authenticated(b"", request.context)
    request.skip()


def test_an_echo_handler_sees_nothing_of_sasl() -> None:
    hot = EchoHandler()
    server = SimulatedServer(sasl_listener(), hot)
    client = SimulatedClient(server)
    client.send(b"p" + (600_000).to_bytes(4, "little"))
    assert hot.parked == 0

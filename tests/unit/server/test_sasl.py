"""SASL without a socket: PLAIN and SCRAM in every version, and peers that fail."""

from __future__ import annotations

import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode as KioError
from kio.serial import entity_reader, entity_writer
from scramp import ScramClient, ScramMechanism

from ctrlchan.errors import ProtocolError
from ctrlchan.server.api import Buffers
from ctrlchan.server.asyncio_server import AuthenticationFailed
from ctrlchan.server.request_context import Principal
from ctrlchan.server.sasl import MECHANISMS, SaslServer, ScramCredential
from tests.unit.broker.local_broker import CORRELATION_ID, client_frame, read_client_response

USERS = {"alice": "alice-secret", "bób,=": "p=,wörd"}
HANDSHAKE, AUTHENTICATE, API_VERSIONS, METADATA = 17, 36, 18, 3
SCRAM = ["SCRAM-SHA-256", "SCRAM-SHA-512"]


class Users:
    """Derives SCRAM credentials when they are asked for."""

    def password(self, username: str) -> str | None:
        return USERS.get(username)

    def scram(self, mechanism: str, username: str) -> ScramCredential | None:
        if username not in USERS:
            return None
        made = ScramMechanism(mechanism).make_auth_info(USERS[username], 4096, b"0123456789ab")
        return ScramCredential(*made)


def joined(answer: Buffers | None) -> bytes:
    assert answer is not None
    return b"".join(answer)


class Client:
    """Sends frames to a SaslServer; ``version`` of SaslAuthenticate, None: tokens without a header."""

    def __init__(self, version: int | None, mechanisms: tuple[str, ...] = MECHANISMS) -> None:
        self.server = SaslServer(mechanisms, Users())
        self.version = version

    def handshake(self, mechanism: str) -> Any:
        handshake_version = 0 if self.version is None else 1
        frame = client_frame(HANDSHAKE, handshake_version, mechanism=mechanism)
        return read_client_response(
            HANDSHAKE, handshake_version, joined(self.server.receive(memoryview(frame)))
        )

    def token(self, token: bytes) -> bytes:
        if self.version is None:
            return joined(self.server.receive(memoryview(token)))
        body = self.authenticate(token)
        assert body.error_code == KioError.none
        assert body.error_message is None
        return bytes(body.auth_bytes)

    def authenticate(self, token: bytes) -> Any:
        assert self.version is not None
        frame = client_frame(AUTHENTICATE, self.version, auth_bytes=token)
        answer = self.server.receive(memoryview(frame))
        return read_client_response(AUTHENTICATE, self.version, joined(answer))


VERSIONS = [None, 0, 1, 2]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("user", USERS)
def test_plain(version: int | None, user: str) -> None:
    client = Client(version)
    answer = client.handshake("PLAIN")
    assert (answer.error_code, answer.mechanisms) == (KioError.none, MECHANISMS)
    assert client.token(f"\0{user}\0{USERS[user]}".encode()) == b""
    assert client.server.done
    assert client.server.principal == Principal.user(user)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("mechanism", SCRAM)
@pytest.mark.parametrize("user", USERS)
def test_scram(version: int | None, mechanism: str, user: str) -> None:
    client = Client(version)
    client.handshake(mechanism)
    scram = ScramClient([mechanism], user, USERS[user])
    scram.set_server_first(client.token(scram.get_client_first().encode()).decode())
    assert not client.server.done
    scram.set_server_final(client.token(scram.get_client_final().encode()).decode())
    assert client.server.done
    assert client.server.principal == Principal.user(user)


def test_a_session_does_not_expire() -> None:
    client = Client(1)
    client.handshake("PLAIN")
    assert client.authenticate(b"\0alice\0alice-secret").session_lifetime.total_seconds() == 0


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize(
    ("token", "message"),
    [
        (b"\0alice\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0nobody\0alice-secret", "Authentication failed: Invalid username or password"),
        (b"\0\0alice-secret", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"alice", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (
            b"carol\0alice\0alice-secret",
            "Authentication failed: Client requested an authorization id that is different from username",
        ),
    ],
)
def test_plain_is_refused(version: int, token: bytes, message: str) -> None:
    client = Client(version)
    client.handshake("PLAIN")
    frame = client_frame(AUTHENTICATE, version, auth_bytes=token)
    with pytest.raises(AuthenticationFailed, match="PLAIN") as failed:
        client.server.receive(memoryview(frame))
    body = read_client_response(AUTHENTICATE, version, joined(failed.value.response))
    assert body.error_code == KioError.sasl_authentication_failed
    assert body.error_message == message
    assert not client.server.done
    assert "secret" not in str(failed.value)


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("nobody", "alice-secret")])
def test_scram_is_refused(version: int, user: str, password: str) -> None:
    """An unknown user is refused at the first message already, with the same text."""
    client = Client(version)
    client.handshake("SCRAM-SHA-256")
    scram = ScramClient(["SCRAM-SHA-256"], user, password)
    token = scram.get_client_first().encode()
    if user == "alice":
        scram.set_server_first(client.token(token).decode())
        token = scram.get_client_final().encode()
    with pytest.raises(AuthenticationFailed) as failed:
        client.authenticate(token)
    body = read_client_response(AUTHENTICATE, version, joined(failed.value.response))
    assert body.error_code == KioError.sasl_authentication_failed
    assert body.error_message == (
        "Authentication failed during authentication due to invalid credentials with SASL mechanism "
        "SCRAM-SHA-256"
    )


def test_a_refusal_without_headers_has_no_answer() -> None:
    client = Client(None)
    client.handshake("PLAIN")
    with pytest.raises(AuthenticationFailed) as failed:
        client.token(b"\0alice\0wrong")
    assert failed.value.response == ()


@pytest.mark.parametrize("version", [0, 1])
def test_a_mechanism_that_is_not_enabled(version: int) -> None:
    server = SaslServer(["SCRAM-SHA-512"], Users())
    frame = client_frame(HANDSHAKE, version, mechanism="PLAIN")
    with pytest.raises(AuthenticationFailed) as failed:
        server.receive(memoryview(frame))
    body = read_client_response(HANDSHAKE, version, joined(failed.value.response))
    assert body.error_code == KioError.unsupported_sasl_mechanism
    assert body.mechanisms == ("SCRAM-SHA-512",)


def test_api_versions_is_left_to_the_servers_handler() -> None:
    client = Client(2)
    for version in (3, 0):
        fields = {"client_software_name": "a", "client_software_version": "1"} if version == 3 else {}
        assert client.server.receive(memoryview(client_frame(API_VERSIONS, version, **fields))) is None
    client.handshake("PLAIN")
    client.token(b"\0alice\0alice-secret")
    assert client.server.done


@pytest.mark.parametrize("begun", [False, True])
def test_other_requests_before_the_end_of_authentication(begun: bool) -> None:
    client = Client(2)
    if begun:
        client.handshake("PLAIN")
    with pytest.raises(AuthenticationFailed):
        client.server.receive(memoryview(client_frame(METADATA, 12, topics=None)))
    assert not client.server.done


def test_a_frame_that_cannot_be_read() -> None:
    for frame in (b"", b"\0", b"\0\x11\0\1" + bytes(4), client_frame(HANDSHAKE, 1, mechanism="PLAIN")[:-2]):
        with pytest.raises(ProtocolError):
            SaslServer(MECHANISMS, Users()).receive(memoryview(frame))


@given(frames=st.lists(st.binary(max_size=80), max_size=4), begin=st.sampled_from(["", *MECHANISMS]))
def test_garbage_is_a_protocol_error_and_never_authenticates(frames: list[bytes], begin: str) -> None:
    for version in (None, 2):
        client = Client(version)
        if begin:
            client.handshake(begin)
        for frame in frames:
            try:
                client.server.receive(memoryview(frame))
            except ProtocolError:
                break
        assert not client.server.done


def test_the_schemas_are_those_of_kio() -> None:
    """Our own reading and writing of the two messages agrees with kio's in every version."""
    for key, version in ((HANDSHAKE, 0), (HANDSHAKE, 1), (AUTHENTICATE, 0), (AUTHENTICATE, 2)):
        request: Any = load_request_schema(key, version)
        response: Any = load_response_schema(key, version)
        assert request.__version__ == response.__version__ == version
    frame = client_frame(AUTHENTICATE, 2, auth_bytes=b"x" * 300)
    buffer = io.BytesIO()
    schema: Any = load_request_schema(AUTHENTICATE, 2)
    entity_writer(schema)(buffer, schema(auth_bytes=b"x" * 300))
    assert frame.endswith(buffer.getvalue())
    assert int.from_bytes(frame[4:8], "big") == CORRELATION_ID
    assert entity_reader(schema)(buffer.getvalue(), 0)[0].auth_bytes == b"x" * 300

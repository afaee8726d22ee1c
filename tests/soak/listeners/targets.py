"""The listeners that are attacked, the users who may log in there, and a client that is served."""

from __future__ import annotations

import base64
import random
import secrets
import socket
import ssl
import struct
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Final

from ctrlchan.errors import ErrorCode
from ctrlchan.security.scram_client import ScramClient, ScramError
from tests.soak.processes import PATIENCE
from tests.unit.server.security.sasl_clients import bearer, unsecured_token
from tests.unit.server.serving import sized

__all__ = [
    "PROBE",
    "Credentials",
    "Login",
    "Refused",
    "Stream",
    "Target",
    "api_versions",
    "authenticate_frame",
    "check_served",
    "frames_of_login",
    "handshake_frame",
    "is_served",
    "open_stream",
    "probe",
    "receive_frame",
    "sized",
]

#: The correlation id of a request that only an authenticated peer may send.
PROBE: Final = 0x5EC2E7
_HOUR: Final = 3600

#: A socket, with TLS or without.
Stream = socket.socket


class Refused(Exception):
    """The server has closed the connection, or has refused the login."""


class Target:
    """A listener: where it is, and how clients connect to it. ``contexts``: of clients that it accepts."""

    def __init__(
        self,
        name: str,
        port: int,
        contexts: Sequence[ssl.SSLContext] = (),
        mechanisms: Sequence[str] = (),
        host: str = "127.0.0.1",
    ) -> None:
        self.name = name
        self.address = host, port
        self.contexts = tuple(contexts)
        self.mechanisms = tuple(mechanisms)


@dataclass(frozen=True)
class Login:
    """Who logs in. ``is_known``: whether the server must let him in; otherwise it must not."""

    mechanism: str
    user: str
    password: str
    is_known: bool = True
    by_token: bool = False

    def tokens(self, bearer_token: str) -> Generator[bytes, bytes]:
        """Yield the messages of a client; each answer is sent in. Raises ScramError."""
        if self.mechanism == "PLAIN":
            yield f"\0{self.user}\0{self.password}".encode()
        elif self.mechanism == "OAUTHBEARER":
            token = bearer_token if self.is_known else unsecured_token(sub=None, exp=None, iat=None)
            # A refusal is no error yet: the client must take note of it.
            if (yield bearer(token)):
                yield b"\1"
                raise ScramError("the token is refused")
        else:
            client = ScramClient(self.mechanism, self.user, self.password, tokenauth=self.by_token)
            first = yield client.first.encode()
            last = yield client.answer(_text(first)).encode()
            client.check(_text(last))


@dataclass(frozen=True)
class Credentials:
    """Passwords by user, the id and the password of a delegation token, and the clock of the server."""

    users: dict[str, str]
    token: tuple[str, str] | None
    now_ms: Callable[[], int]
    bearer_token: str = field(init=False)

    def __post_init__(self) -> None:
        now = self.now_ms() // 1000
        object.__setattr__(self, "bearer_token", unsecured_token(iat=now - _HOUR, exp=now + 24 * _HOUR))

    def logins(self, mechanism: str) -> list[Login]:
        """Return the logins by a mechanism that the server must take. Bearer tokens are alice's."""
        if mechanism == "OAUTHBEARER":
            return [Login(mechanism, "alice", "")]
        found = [Login(mechanism, user, password) for user, password in self.users.items()]
        if self.token is not None and mechanism.startswith("SCRAM"):
            found.append(Login(mechanism, *self.token, by_token=True))
        return found

    def strangers(self, mechanism: str) -> list[Login]:
        """Return logins that the server must refuse, whatever is done to their messages."""
        names = [*self.users, "nobody", ""] if mechanism != "OAUTHBEARER" else ["alice"]
        found = [Login(mechanism, name, secrets.token_hex(8), is_known=False) for name in names]
        if self.token is not None and mechanism.startswith("SCRAM"):
            found.append(Login(mechanism, self.token[0], secrets.token_hex(8), is_known=False, by_token=True))
        return found

    def secrets(self) -> set[str]:
        """Return what must never be seen in a log or an output."""
        passwords = {*self.users.values(), *(self.token or ())[1:], self.bearer_token}
        encoded = {base64.b64encode(one.encode()).decode().rstrip("=") for one in passwords}
        # A repr of bytes has letters beyond ASCII as escapes.
        return passwords | encoded | {repr(one.encode())[2:-1] for one in passwords}


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ScramError(str(error)) from None


# -- frames


def _header(key: int, version: int, correlation_id: int) -> bytes:
    return struct.pack(">hhih", key, version, correlation_id, 4) + b"fuzz"


def handshake_frame(version: int, mechanism: str) -> bytes:
    """Return a SaslHandshake."""
    return _header(17, version, 1) + struct.pack(">h", len(mechanism)) + mechanism.encode()


def authenticate_frame(version: int | None, token: bytes) -> bytes:
    """Return a SaslAuthenticate; with None the token alone, as after SaslHandshake 0."""
    if version is None:
        return token
    if version < 2:
        return _header(36, version, 2) + struct.pack(">i", len(token)) + token
    rest, length = len(token) + 1, bytearray()
    while rest >= 128:
        length.append(rest & 127 | 128)
        rest >>= 7
    length.append(rest)
    return _header(36, version, 2) + b"\0" + bytes(length) + token + b"\0"


def token_of(version: int | None, answer: bytes) -> bytes:
    """Return the token of a response to SaslAuthenticate. Raises Refused."""
    if version is None:
        return answer
    at = 5 if version >= 2 else 4
    if len(answer) < at + 3 or answer[at : at + 2] != b"\0\0":
        raise Refused
    if version < 2:
        # No message, then the token behind its size.
        (size,) = struct.unpack_from(">i", answer, at + 4)
        return answer[at + 8 :][:size]
    # A compact length may have two bytes; a server's token has fewer than 16,384.
    at += 3
    size, used = answer[at], 1
    if size >= 128:
        size, used = size & 127 | answer[at + 1] << 7, 2
    return answer[at + used :][: size - 1]


def api_versions() -> bytes:
    """Return an ApiVersions, which a peer may send once before it logs in."""
    return _header(18, 0, 3)


def probe() -> bytes:
    """Return a ListGroups: its response begins with an error code."""
    return _header(16, 0, PROBE)


def frames_of_login(login: Login, version: int | None, bearer_token: str) -> Generator[bytes, bytes]:
    """Yield the frames of a login; each answer is sent in. Raises Refused, and ScramError."""
    answer = yield handshake_frame(0 if version is None else 1, login.mechanism)
    if len(answer) < 6 or answer[4:6] != b"\0\0":
        raise Refused
    tokens = login.tokens(bearer_token)
    token = next(tokens)
    while True:
        answer = token_of(version, (yield authenticate_frame(version, token)))
        try:
            token = tokens.send(answer)
        except StopIteration:
            return


# -- clients


def open_stream(target: Target, context: ssl.SSLContext | None, seconds: float) -> Stream:
    """Connect to a listener. Raises OSError."""
    connection = socket.create_connection(target.address, PATIENCE)
    if context is not None:
        try:
            connection = context.wrap_socket(connection, server_hostname="localhost")
        except BaseException:
            connection.close()
            raise
    connection.settimeout(seconds)
    return connection


def receive_frame(stream: Stream) -> bytes:
    """Return the next frame. Raises Refused when the server closes the connection, and OSError."""
    size = int.from_bytes(_exactly(stream, 4))
    return _exactly(stream, size)


def _exactly(stream: Stream, size: int) -> bytes:
    found = bytearray()
    while len(found) < size:
        part = stream.recv(min(size - len(found), 1 << 16))
        if not part:
            raise Refused
        found += part
    return bytes(found)


def is_served(stream: Stream) -> bool:
    """Return whether the server answers what only authenticated peers may ask, behind all earlier answers.

    False as well when no answer comes in the time of the stream.
    """
    try:
        stream.sendall(sized(probe()))
        while True:
            answer = receive_frame(stream)
            if answer[:4] == struct.pack(">i", PROBE):
                # A request between two tokens is answered as well, with an error.
                return answer[4:6] != struct.pack(">h", ErrorCode.ILLEGAL_SASL_STATE)
    except (Refused, OSError):
        return False


def check_served(target: Target, credentials: Credentials, some: random.Random | None = None) -> int:
    """Let clients that do nothing wrong use a listener; return how many did. Raises AssertionError.

    ``some``: chooses one of them; None: all.
    """
    logins: list[Login | None] = [one for name in target.mechanisms for one in credentials.logins(name)]
    clients = [(context, login) for context in target.contexts or (None,) for login in logins or [None]]
    if some is not None:
        clients = [some.choice(clients)]
    for context, login in clients:
        who = f"{target.name}: {'a client' if login is None else login.mechanism}"
        try:
            with open_stream(target, context, PATIENCE) as stream:
                if login is not None:
                    _log_in(stream, login, credentials)
                assert is_served(stream), f"{who} is not served"
        except (Refused, OSError, ScramError) as error:
            raise AssertionError(f"{who}: {error!r}") from error
    return len(clients)


def _log_in(stream: Stream, login: Login, credentials: Credentials) -> None:
    frames = frames_of_login(login, 2, credentials.bearer_token)
    frame = next(frames)
    while True:
        stream.sendall(sized(frame))
        try:
            frame = frames.send(receive_frame(stream))
        except StopIteration:
            return

"""The server's side of SASL on one connection. Frames in, answers out; no socket, no clock.

::

    [ApiVersions] ──► SaslHandshake v1 ──► SaslAuthenticate v0-2 (PLAIN: once, SCRAM: twice) ──► done
                 └──► SaslHandshake v0 ──► the mechanism's tokens without a header           ──► done

ApiVersions is left to the server's handler. A peer that fails gets Kafka's error, and its connection is
closed. Sessions do not expire (``connections.max.reauth.ms`` is 0), and there are no delegation tokens.

Source: ``SaslServerAuthenticator``, ``PlainSaslServer`` and ``ScramSaslServer`` of Kafka 3.9; KIP-43, KIP-84,
KIP-152. RFC 4616 (PLAIN), RFC 5802 (SCRAM).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from hmac import compare_digest
from struct import Struct, error
from typing import Any, Final, NamedTuple, Protocol

from ctrlchan._codec import decode_request_header, encode_response_header
from ctrlchan.errors import DecodeError, ErrorCode
from ctrlchan.field_reader import FieldReader, compact
from ctrlchan.server.api import Buffers
from ctrlchan.server.asyncio_server import AuthenticationFailed
from ctrlchan.server.request_context import ANONYMOUS, Principal

__all__ = ["MECHANISMS", "Credentials", "SaslServer", "ScramCredential"]

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_SASL_HANDSHAKE: Final = 17
_SASL_AUTHENTICATE: Final = 36

_API_VERSIONS: Final = 18
_HANDSHAKE_HIGHEST: Final = 1
_AUTHENTICATE_HIGHEST: Final = 2
_HEADERS_SINCE: Final = 1  # version of SaslHandshake after which tokens are in SaslAuthenticate requests
_FLEXIBLE_SINCE: Final = 2  # version of SaslAuthenticate
_LIFETIME_SINCE: Final = 1
#: In place of a version of SaslAuthenticate: tokens come as they are.
_NO_HEADER: Final = -1

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_HEAD: Final = Struct(">hhi")
_NO_LIFETIME: Final = bytes(8)


class ScramCredential(NamedTuple):
    """What a server keeps of a password (RFC 5802). The keys are bytes of the mechanism's hash size."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


class Credentials(Protocol):
    """Where the users are. Both methods may take long: they are called on a thread."""

    def password(self, username: str) -> str | None:
        """Return the user's password for PLAIN, or None if there is no such user."""

    def scram(self, mechanism: str, username: str) -> ScramCredential | None:
        """Return the user's credential for this mechanism, or None if there is no such user."""


class _State(Enum):
    HANDSHAKE = 1
    AUTHENTICATE = 2
    DONE = 3
    FAILED = 4


class _Mechanism(Protocol):
    """One exchange of tokens; ``username`` counts once it is ``complete``."""

    complete: bool
    username: str

    def receive(self, token: bytes) -> bytes:
        """Return the answer to a token. Raises _RefusedError."""


class _RefusedError(Exception):
    """The peer is not who it says; the message is for the peer."""


class SaslServer:
    """An ``Authenticator`` that offers ``mechanisms``, a part of MECHANISMS, to users of ``credentials``."""

    def __init__(self, mechanisms: Sequence[str], credentials: Credentials) -> None:
        self.principal = ANONYMOUS
        self._mechanisms = tuple(mechanisms)
        self._credentials = credentials
        self._state = _State.HANDSHAKE
        self._name = ""
        self._exchange: _Mechanism
        self._has_headers = False

    @property
    def done(self) -> bool:
        return self._state is _State.DONE

    def receive(self, frame: memoryview) -> Buffers | None:
        """Return the answer, or None for ApiVersions. See ``Authenticator``."""
        try:
            if self._state is _State.HANDSHAKE:
                return self._handshake(frame)
            if self._has_headers:
                return self._authenticate(frame)
            return self._token(bytes(frame))
        except (error, UnicodeDecodeError) as problem:
            self._state = _State.FAILED
            raise DecodeError(str(problem), api="Sasl") from None
        except Exception:
            self._state = _State.FAILED
            raise

    def _handshake(self, frame: memoryview) -> Buffers | None:
        key, version = _key_and_version(frame)
        if key == _API_VERSIONS:
            return None
        if key != _SASL_HANDSHAKE or not 0 <= version <= _HANDSHAKE_HIGHEST:
            raise AuthenticationFailed(
                f"API key {key} version {version} before authentication (a client without SASL?)"
            )
        header = decode_request_header(frame, 1)
        reader = FieldReader(frame, header.size)
        wanted = reader.text()
        known = wanted in self._mechanisms
        code = ErrorCode.NONE if known else ErrorCode.UNSUPPORTED_SASL_MECHANISM
        names = b"".join(_INT16.pack(len(name)) + name.encode() for name in self._mechanisms)
        answer = (
            encode_response_header(0, header.correlation_id),
            _INT16.pack(code) + _INT32.pack(len(self._mechanisms)) + names,
        )
        if not known:
            raise AuthenticationFailed(f"mechanism {wanted[:60]!r} is not enabled", answer)
        self._name = wanted
        self._has_headers = version >= _HEADERS_SINCE
        self._exchange = _Plain(self._credentials) if wanted == "PLAIN" else _Scram(wanted, self._credentials)
        self._state = _State.AUTHENTICATE
        return answer

    def _authenticate(self, frame: memoryview) -> Buffers:
        key, version = _key_and_version(frame)
        if key != _SASL_AUTHENTICATE or not 0 <= version <= _AUTHENTICATE_HIGHEST:
            raise AuthenticationFailed(f"API key {key} version {version} in place of SaslAuthenticate")
        flexible = version >= _FLEXIBLE_SINCE
        header = decode_request_header(frame, 2 if flexible else 1)
        reader = FieldReader(frame, header.size)
        token = reader.take(reader.count() if flexible else reader.int32())
        head = encode_response_header(1 if flexible else 0, header.correlation_id)
        try:
            answer = self._exchange.receive(token)
        except _RefusedError as refused:
            body = _authenticate_body(version, ErrorCode.SASL_AUTHENTICATION_FAILED, str(refused), b"")
            raise AuthenticationFailed(self._reason(refused), (head, body)) from None
        self._complete()
        return head, _authenticate_body(version, ErrorCode.NONE, None, answer)

    def _token(self, token: bytes) -> Buffers:
        try:
            answer = self._exchange.receive(token)
        except _RefusedError as refused:
            # Without a header there is no place for an error.
            raise AuthenticationFailed(self._reason(refused)) from None
        self._complete()
        return (answer,)

    def _complete(self) -> None:
        if self._exchange.complete:
            self.principal = Principal.user(self._exchange.username)
            self._state = _State.DONE

    def _reason(self, refused: _RefusedError) -> str:
        """Return why the peer is refused, for the log: more than the peer is answered."""
        return f"{self._name}: {refused.__cause__ or refused}"


class _Plain:
    """``[authorization id] NUL username NUL password``."""

    def __init__(self, credentials: Credentials) -> None:
        self.complete = False
        self.username = ""
        self._credentials = credentials

    def receive(self, token: bytes) -> bytes:
        parts = token.decode().split("\0")
        if len(parts) != 3:
            raise _RefusedError(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
        authorization_id, username, password = parts
        if not username:
            raise _RefusedError("Authentication failed: username not specified")
        if not password:
            raise _RefusedError("Authentication failed: password not specified")
        expected = self._credentials.password(username)
        if expected is None or not compare_digest(expected.encode(), password.encode()):
            raise _RefusedError("Authentication failed: Invalid username or password")
        if authorization_id not in ("", username):
            raise _RefusedError(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self.username, self.complete = username, True
        return b""


class _Scram:
    """Two messages from each side; both sides prove that they know the password."""

    def __init__(self, mechanism: str, credentials: Credentials) -> None:
        from scramp import ScramMechanism

        self.complete = False
        self.username = ""
        self._mechanism = mechanism
        self._credentials = credentials
        self._begun = False
        self._server: Any = ScramMechanism(mechanism).make_server(self._find)

    def receive(self, token: bytes) -> bytes:
        from scramp import ScramException

        try:
            message = token.decode()
            if not self._begun:
                self._begun = True
                self._server.set_client_first(message)
                return str(self._server.get_server_first()).encode()
            self._server.set_client_final(message)
            answer = str(self._server.get_server_final()).encode()
        except (ScramException, UnicodeDecodeError) as problem:
            # Kafka says no more either: not whether there is such a user.
            raise _RefusedError(
                "Authentication failed during authentication due to invalid credentials with SASL mechanism "
                + self._mechanism
            ) from problem
        self.complete = True
        return answer

    def _find(self, username: str) -> tuple[bytes, bytes, bytes, int] | None:
        self.username = username
        found = self._credentials.scram(self._mechanism, username)
        # scramp takes no subclass of tuple.
        return None if found is None else (found.salt, found.stored_key, found.server_key, found.iterations)


def _key_and_version(frame: memoryview) -> tuple[int, int]:
    key, version, _ = _HEAD.unpack_from(frame)
    return key, version


def _authenticate_body(version: int, code: int, message: str | None, token: bytes) -> bytes:
    text = None if message is None else message.encode()
    lifetime = _NO_LIFETIME if version >= _LIFETIME_SINCE else b""
    if version >= _FLEXIBLE_SINCE:
        return _INT16.pack(code) + compact(text) + compact(token) + lifetime + b"\0"
    nullable = _INT16.pack(-1) if text is None else _INT16.pack(len(text)) + text
    return _INT16.pack(code) + nullable + _INT32.pack(len(token)) + token + lifetime

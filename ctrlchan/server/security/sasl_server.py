"""The server's side of SASL on one connection. Frames in, answers out; no socket, no thread.

::

    [ApiVersions] ──► SaslHandshake v1 ──► SaslAuthenticate v0-2, as many as the mechanism needs ──► done
                 └──► SaslHandshake v0 ──► the mechanism's tokens without a header               ──► done
    a token of GSSAPI without a header ──► more of them (clients of Kafka 0.9)                    ──► done

    done ──► SaslHandshake, of the same mechanism ──► as above, of the same principal ──► done (KIP-368)

ApiVersions is left to the server's handler. A peer that fails gets Kafka's error, and its connection is
closed.

Source: ``SaslServerAuthenticator`` of Kafka 3.9; KIP-43, KIP-84, KIP-152, KIP-368.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from enum import Enum
from struct import Struct, error
from typing import Final

from ctrlchan._codec import decode_request_header, encode_response_header
from ctrlchan.errors import DecodeError, ErrorCode, ProtocolError
from ctrlchan.field_reader import FieldReader, compact
from ctrlchan.security.principals import ANONYMOUS, Principal
from ctrlchan.security.settings import GSSAPI
from ctrlchan.server.api import Buffers
from ctrlchan.server.api_names import api_name
from ctrlchan.server.apis.api_versions import is_software
from ctrlchan.server.security.mechanism import (
    MECHANISMS,
    AuthenticationFailed,
    InvalidCredentialsError,
    Mechanism,
    NewMechanism,
    RefusedError,
    TryAgainError,
)

__all__ = ["SaslListener", "SaslServer", "wall_clock_ms"]

_SASL_HANDSHAKE: Final = 17
_API_VERSIONS: Final = 18
_SASL_AUTHENTICATE: Final = 36

_HANDSHAKE_HIGHEST: Final = 1
_API_VERSIONS_HIGHEST: Final = 4
_AUTHENTICATE_HIGHEST: Final = 2
_SOFTWARE_SINCE: Final = 3  # version of ApiVersions
_HEADERS_SINCE: Final = 1  # version of SaslHandshake after which tokens are in SaslAuthenticate requests
_FLEXIBLE_SINCE: Final = 2  # version of SaslAuthenticate
_LIFETIME_SINCE: Final = 1
#: So much of a name that a peer sends goes into a log.
_NAME_IN_LOG: Final = 60
#: Bytes of a request between two tokens that is answered. Reading a large one keeps a handler thread for
#: seconds, and nobody has to authenticate himself for it.
_MOST_ANSWERED: Final = 1024
#: So begins the first token of GSSAPI (RFC 2743, 3.1), and no request: there is no API of such a number.
_TOKEN_BEGIN: Final = b"\x60"
#: Of a response; the API and its version tell how long a session lasts.
_MAX_INT64: Final = 2**63 - 1

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")
_HEAD: Final = Struct(">hhi")


def wall_clock_ms() -> int:
    """Return milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class SaslListener:
    """What the connections of a listener share.

    ``mechanisms``: what begins an exchange, by the name of the mechanism (``sasl.enabled.mechanisms``).
    ``max_session_ms``: how long a session may last, by mechanism; 0 or none: for ever
    (``connections.max.reauth.ms``). ``now_ms``: milliseconds since 1970. ``close``: ends what the mechanisms
    have started, if they have.
    """

    def __init__(
        self,
        mechanisms: Mapping[str, NewMechanism],
        max_session_ms: Mapping[str, int] | None = None,
        now_ms: Callable[[], int] = wall_clock_ms,
        close: Callable[[], None] | None = None,
    ) -> None:
        self._close = close
        self.names = tuple(sorted(mechanisms, key=MECHANISMS.index))
        self.mechanisms = dict(mechanisms)
        self.max_session_ms = dict(max_session_ms or {})
        self.now_ms = now_ms

    def close(self) -> None:
        """End what the mechanisms have started."""
        if self._close is not None:
            self._close()

    def session_ms(self, mechanism: str, expires_ms: int | None) -> int | None:
        """Return how long a session that begins now lasts, or None if it has no end.

        ``expires_ms``: when the credential expires.
        """
        ends = [self.max_session_ms[mechanism]] if self.max_session_ms.get(mechanism, 0) > 0 else []
        if expires_ms is not None:
            ends.append(expires_ms - self.now_ms())
        return max(0, min(ends)) if ends else None


class _State(Enum):
    #: As HANDSHAKE_OR_VERSIONS, or a token of GSSAPI.
    FIRST = 1
    HANDSHAKE_OR_VERSIONS = 2
    HANDSHAKE = 3
    AUTHENTICATE = 4
    DONE = 5
    #: The next frame is the one that begins to renew the session.
    RENEW = 6
    #: The session was begun with another mechanism: the next frame fails, as in Kafka.
    OTHER_MECHANISM = 7
    FAILED = 8


_BEFORE_MECHANISM: Final = (_State.FIRST, _State.HANDSHAKE_OR_VERSIONS, _State.HANDSHAKE, _State.RENEW)


def _user(name: str, mechanism: str) -> Principal:
    return Principal.user(name)


class SaslServer:
    """Authenticates the peer of one connection, and again when it renews its session.

    ``receive`` is called by one thread at a time. ``build``: user name, mechanism → principal; None: he is
    refused.
    """

    def __init__(self, listener: SaslListener, build: Callable[[str, str], Principal | None] = _user) -> None:
        self.principal = ANONYMOUS
        #: Whether the peer has logged in with a delegation token.
        self.by_token = False
        self._build = build
        #: How long the session lasts that has just begun, in milliseconds; None: for ever.
        self.session_ms: int | None = None
        #: Whether the client knows how long the session lasts.
        self.can_renew = False
        self._listener = listener
        self._state = _State.FIRST
        self._name = ""
        self._former_name = ""
        self._exchange: Mechanism | None = None
        self._has_headers = False

    @property
    def done(self) -> bool:
        return self._state is _State.DONE

    @property
    def renews(self) -> bool:
        """Whether the peer was authenticated before."""
        return bool(self._former_name)

    def renew(self) -> None:
        """Begin to renew the session: the next frame is its SaslHandshake."""
        self._former_name, self._state = self._name, _State.RENEW
        self.can_renew = self._has_headers = False

    def receive(self, frame: memoryview) -> Buffers | None:
        """Return the answer, without a part if the peer waits for none.

        None: the frame is ApiVersions, which the server's own handler answers.
        """
        try:
            if self._state is _State.FIRST:
                if frame[:1].tobytes() == _TOKEN_BEGIN:
                    self._begin_without_handshake()
                else:
                    self._state = _State.HANDSHAKE_OR_VERSIONS
            if self._state in _BEFORE_MECHANISM:
                return self._handshake(frame)
            if self._state is _State.OTHER_MECHANISM:
                raise AuthenticationFailed(
                    f"mechanism {self._name} cannot renew a session of {self._former_name}"
                )
            if self._state is not _State.AUTHENTICATE:
                raise AuthenticationFailed("a frame after the end of authentication")
            if self._has_headers:
                return self._authenticate(frame)
            return self._token(bytes(frame))
        except (error, UnicodeDecodeError) as problem:
            self._fail()
            raise DecodeError(str(problem), api="Sasl") from None
        except Exception:
            self._fail()
            raise

    def _fail(self) -> None:
        self._state, self._exchange = _State.FAILED, None

    # -- SaslHandshake

    def _begin_without_handshake(self) -> None:
        """Begin an exchange of GSSAPI, as clients of Kafka 0.9 do. Raises AuthenticationFailed."""
        if GSSAPI not in self._listener.mechanisms:
            raise AuthenticationFailed("a token of GSSAPI in place of a request: GSSAPI is not enabled")
        self._name = GSSAPI
        self._exchange = self._listener.mechanisms[GSSAPI]()
        self._state = _State.AUTHENTICATE

    def _handshake(self, frame: memoryview) -> Buffers | None:
        key, version = _key_and_version(frame)
        if key == _API_VERSIONS and self._state is _State.HANDSHAKE_OR_VERSIONS:
            if _is_accepted(frame, version):
                self._state = _State.HANDSHAKE
            return None
        if key != _SASL_HANDSHAKE or not 0 <= version <= _HANDSHAKE_HIGHEST:
            raise AuthenticationFailed(
                f"{api_name(key)} (API key {key}) version {version} in place of SaslHandshake "
                "(a client without SASL?)"
            )
        header = decode_request_header(frame, 1)
        wanted = FieldReader(frame, header.size).text()
        known = wanted in self._listener.mechanisms
        code = ErrorCode.NONE if known else ErrorCode.UNSUPPORTED_SASL_MECHANISM
        names = b"".join(_INT16.pack(len(name)) + name.encode() for name in self._listener.names)
        answer = (
            encode_response_header(0, header.correlation_id),
            _INT16.pack(code) + _INT32.pack(len(self._listener.names)) + names,
        )
        if not known:
            raise AuthenticationFailed(f"mechanism {wanted[:_NAME_IN_LOG]!r} is not enabled", answer)
        self._name = wanted
        self._has_headers = version >= _HEADERS_SINCE
        if self._former_name not in ("", wanted):
            self._state = _State.OTHER_MECHANISM
        else:
            self._exchange = self._listener.mechanisms[wanted]()
            self._state = _State.AUTHENTICATE
        return answer

    # -- tokens

    def _authenticate(self, frame: memoryview) -> Buffers:
        key, version = _key_and_version(frame)
        if key != _SASL_AUTHENTICATE:
            reason = f"Unexpected Kafka request of type {api_name(key)} during SASL authentication."
            raise AuthenticationFailed(reason, _illegal_state(frame, key, version, reason))
        if not 0 <= version <= _AUTHENTICATE_HIGHEST:
            raise AuthenticationFailed(f"version {version} of SaslAuthenticate")
        flexible = version >= _FLEXIBLE_SINCE
        header = decode_request_header(frame, 2 if flexible else 1)
        reader = FieldReader(frame, header.size)
        token = reader.take(reader.count() if flexible else reader.int32())
        head = encode_response_header(1 if flexible else 0, header.correlation_id)
        self.can_renew = self.can_renew or version >= _LIFETIME_SINCE

        def refused(text: str) -> Buffers:
            return head, _authenticate_body(version, ErrorCode.SASL_AUTHENTICATION_FAILED, text, b"", 0)

        answer = self._evaluate(token, refused)
        return head, _authenticate_body(version, ErrorCode.NONE, None, answer or b"", self.session_ms or 0)

    def _token(self, token: bytes) -> Buffers:
        # Without a header there is no place for an error.
        answer = self._evaluate(token, lambda _: ())
        return () if answer is None else (answer,)

    def _evaluate(self, token: bytes, refused: Callable[[str], Buffers]) -> bytes | None:
        """Return the mechanism's answer to a token. ``refused``: text → the answer to a peer that is refused.

        Raises AuthenticationFailed.
        """
        exchange = self._exchange
        assert exchange is not None
        self.session_ms = None
        try:
            answer = exchange.receive(token)
            if exchange.complete:
                self._complete(exchange)
        except RefusedError as refusal:
            raise AuthenticationFailed(f"{self._name}: {refusal}", refused(str(refusal))) from None
        except InvalidCredentialsError as invalid:
            # Kafka says no more either: not whether there is such a user.
            text = (
                f"Authentication failed during {'re-' if self.renews else ''}authentication due to invalid "
                f"credentials with SASL mechanism {self._name}"
            )
            raise AuthenticationFailed(f"{self._name}: {invalid}", refused(text)) from None
        except TryAgainError as problem:
            raise AuthenticationFailed(f"{self._name}: {problem}") from None
        return answer

    def _complete(self, exchange: Mechanism) -> None:
        principal = self._build(exchange.username, self._name)
        if principal is None:
            raise InvalidCredentialsError("there is no principal for the user")
        if self.renews and principal != self.principal:
            raise RefusedError(
                "Cannot change principals during re-authentication from "
                f"{self.principal.type}.{self.principal.name}: {principal.type}.{principal.name}"
            )
        self.principal, self.by_token = principal, exchange.by_token
        self.session_ms = self._listener.session_ms(self._name, exchange.expires_ms)
        self._state, self._exchange = _State.DONE, None


def _key_and_version(frame: memoryview) -> tuple[int, int]:
    key, version, _ = _HEAD.unpack_from(frame)
    return key, version


def _is_accepted(frame: memoryview, version: int) -> bool:
    """Return whether ApiVersions is answered without an error; after one the client may ask again."""
    if not 0 <= version <= _API_VERSIONS_HIGHEST:
        return False
    if version < _SOFTWARE_SINCE:
        return True
    reader = FieldReader(frame, decode_request_header(frame, 2).size)
    return all(is_software(reader.take(reader.count()).decode()) for _ in range(2))


def _illegal_state(frame: memoryview, key: int, version: int, text: str) -> Buffers:
    """Return the answer to a request that comes between two tokens; none if it is large or cannot be read."""
    if len(frame) > _MOST_ANSWERED:
        return ()
    # Imported here: only a client with an error needs it.
    from kio.schema.index import api_key_map

    from ctrlchan.server.error_responses import error_response
    from ctrlchan.server.kio_entities import message_type
    from ctrlchan.server.kio_messages import ClientMessages, KioError

    try:
        messages = ClientMessages(api_key_map[key], version)
        headers = [
            message_type(messages.api, version, direction).__header_schema__.__version__
            for direction in ("request", "response")
        ]
        header = decode_request_header(frame, headers[0])
        body = messages.decode_body(frame, header.size)
    except (KeyError, ImportError, ProtocolError):
        return ()
    return (
        encode_response_header(headers[1], header.correlation_id),
        error_response(messages, body, KioError.illegal_sasl_state, text),
    )


def _authenticate_body(version: int, code: int, message: str | None, token: bytes, session_ms: int) -> bytes:
    text = None if message is None else message.encode()
    lifetime = _INT64.pack(min(session_ms, _MAX_INT64)) if version >= _LIFETIME_SINCE else b""
    if version >= _FLEXIBLE_SINCE:
        return _INT16.pack(code) + compact(text) + compact(token) + lifetime + b"\0"
    nullable = _INT16.pack(-1) if text is None else _INT16.pack(len(text)) + text
    return _INT16.pack(code) + nullable + _INT32.pack(len(token)) + token + lifetime

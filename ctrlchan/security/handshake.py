"""The handshake in Kafka's protocol on a new connection: ApiVersions, then SASL. Bytes in, bytes out.

::

    ApiVersions v3 ──(35)──► ApiVersions v0 ──► SaslHandshake v1 ──► SaslAuthenticate v0-2 (once or more)
                                              └─► SaslHandshake v0 ──► SASL tokens without a header

ApiVersions is asked when the channel negotiates, and before SASL, whose versions it fixes, as Kafka's own
SaslClientAuthenticator does. One question is out at a time; correlation ids count from 0 and the requests'
go on from there. Brokers before Kafka 1.0 have SaslHandshake v0 only: the tokens of SASL follow it without a
header, each behind its int32 size, and a broker that refuses one closes the connection.

KIP-43 and KIP-152 (SASL), KIP-368 (authenticating again), KIP-511 (ApiVersions v3).
"""

from __future__ import annotations

from collections.abc import Generator
from struct import Struct, error
from typing import Final, TypeAlias

from ctrlchan.field_reader import FieldReader, compact
from ctrlchan.security.failure import ConnectionFailed, Failure
from ctrlchan.security.mechanisms import ClientMechanism, MechanismError, client_mechanism
from ctrlchan.security.settings import SaslSettings

__all__ = ["CONTROL_APIS", "Handshake", "Ranges"]

#: API key -> (lowest, highest) version.
Ranges: TypeAlias = dict[int, tuple[int, int]]
#: Yields a frame to send, is sent the body of the answer. Returns a frame that has no answer, or nothing.
_Steps: TypeAlias = Generator[bytes, bytes, bytes]

#: LeaderAndIsr, StopReplica, UpdateMetadata.
CONTROL_APIS: Final = (4, 5, 6)

_SASL_HANDSHAKE: Final = 17
_API_VERSIONS: Final = 18
_SASL_AUTHENTICATE: Final = 36
#: From this version on a message is "flexible" (KIP-482).
_FLEXIBLE_FROM: Final = {_API_VERSIONS: 3, _SASL_AUTHENTICATE: 2}

_UNSUPPORTED_SASL_MECHANISM: Final = 33
_ILLEGAL_SASL_STATE: Final = 34
_UNSUPPORTED_VERSION: Final = 35
_SASL_AUTHENTICATION_FAILED: Final = 58

#: No answer of these is longer than a few KiB.
_MAX_ANSWER: Final = 1024 * 1024
#: A SASL session that lasts longer than 100 years does not end; more would not fit into nanoseconds.
_MAX_LIFETIME_MS: Final = 100 * 365 * 24 * 3600 * 1000
#: The longest text of a broker that goes into a log.
_MAX_TEXT: Final = 300

_CORRELATION_SIZE: Final = 4
#: In place of a version of SaslAuthenticate: tokens are sent as they are.
_NO_HEADER: Final = -1

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_HEAD: Final = Struct(">hhi")


class Handshake:
    """One connection's handshake: ``start``, then ``receive`` for all bytes that arrive, until ``done``.

    ``negotiate``: ask for the broker's versions; ``sasl``: authenticate so. ``host``: of the broker, for
    Kerberos. ``login``: an exchange that has begun; None: it begins here, and may wait for a KDC. To
    authenticate once more on a connection (KIP-368), give the ``versions`` that its first handshake found,
    and the next ``correlation`` id. Both methods return bytes to send; ``receive`` also when the handshake is
    done then. They raise ConnectionFailed when the broker refuses us, cannot be trusted, or does not follow
    the protocol.
    """

    def __init__(
        self,
        client_id: str,
        *,
        negotiate: bool,
        sasl: SaslSettings | None,
        host: str = "",
        login: ClientMechanism | None = None,
        versions: Ranges | None = None,
        correlation: int = 0,
    ) -> None:
        name = client_id.encode()
        self._client_id = _INT16.pack(len(name)) + name
        self._sasl = sasl
        self._host = host
        self._login = login
        #: The broker's versions of all APIs, when it was asked.
        self.versions: Ranges = {} if versions is None else versions
        #: The correlation id of the next request on this connection.
        self.correlation = correlation
        #: The current step, for error messages.
        self.stage = ""
        #: The broker's versions of the control APIs it has, when it was asked.
        self.ranges: Ranges | None = None
        #: Nanoseconds from now until the broker ends the SASL session; 0: it does not.
        self.session_lifetime = 0
        self.done = not negotiate and sasl is None
        # After SaslHandshake v0: tokens have no correlation id.
        self._has_header = True
        self._received = bytearray()
        self._steps = self._run()

    def start(self) -> bytes:
        """Return the first bytes to send; none when there is no handshake."""
        return b"" if self.done else next(self._steps)

    def receive(self, data: bytes) -> bytes:
        """Take bytes from the broker; return the next bytes to send, if any."""
        received = self._received
        received += data
        if len(received) < 4:
            return b""
        size = _INT32.unpack_from(received)[0]
        header_size = _CORRELATION_SIZE if self._has_header else 0
        if not header_size <= size <= _MAX_ANSWER:
            raise ConnectionFailed(Failure.HANDSHAKE, f"{self.stage}: {_foreign(bytes(received[:4]))}")
        if len(received) < 4 + header_size:
            return b""
        if header_size and _INT32.unpack_from(received, 4)[0] != self.correlation:
            raise ConnectionFailed(Failure.CORRELATION, self.stage)
        if len(received) < 4 + size:
            return b""
        if len(received) > 4 + size:
            raise ConnectionFailed(Failure.SURPLUS, self.stage)
        body = bytes(received[4 + header_size :])
        received.clear()
        if header_size:
            self.correlation += 1
        try:
            return self._steps.send(body)
        except StopIteration as end:
            self.done = True
            return bytes(end.value)
        except (error, UnicodeDecodeError):
            raise ConnectionFailed(Failure.HANDSHAKE, f"{self.stage}: not an answer of this API") from None

    # -- the steps

    def _run(self) -> _Steps:
        versions = self.versions
        if not versions:
            yield from self._ask_versions(versions)
        self.ranges = {api: versions[api] for api in CONTROL_APIS if api in versions}
        if self._sasl is not None:
            handshake_version = yield from self._choose_mechanism(self._sasl, versions)
            version = _NO_HEADER if handshake_version == 0 else _highest(_SASL_AUTHENTICATE, 0, 2, versions)
            return (yield from self._exchange_tokens(self._sasl, version))
        return b""

    def _ask_versions(self, versions: Ranges) -> Generator[bytes, bytes, None]:
        self.stage = "ApiVersions"
        name, version = compact(b"ctrlchan"), compact(b"0")
        reader = FieldReader((yield self._frame(_API_VERSIONS, 3, name + version + b"\0")))
        code, flexible = reader.int16(), True
        if code == _UNSUPPORTED_VERSION:
            reader = FieldReader((yield self._frame(_API_VERSIONS, 0, b"")))
            code, flexible = reader.int16(), False
        if code:
            raise ConnectionFailed(Failure.HANDSHAKE, f"ApiVersions is answered with error code {code}")
        for _ in range(reader.count() if flexible else reader.int32()):
            api = reader.int16()
            versions[api] = reader.int16(), reader.int16()
            if flexible:
                reader.skip_tags()

    def _choose_mechanism(self, sasl: SaslSettings, versions: Ranges) -> Generator[bytes, bytes, int]:
        """Have the broker accept our mechanism; return the version of SaslHandshake, which fixes the rest."""
        self.stage = "SaslHandshake"
        version = _highest(_SASL_HANDSHAKE, 0, 1, versions)
        mechanism = sasl.mechanism.encode()
        answer = yield self._frame(_SASL_HANDSHAKE, version, _INT16.pack(len(mechanism)) + mechanism)
        reader = FieldReader(answer)
        code = reader.int16()
        offered = [reader.text() for _ in range(reader.int32())]
        if code == _UNSUPPORTED_SASL_MECHANISM or (code == 0 and sasl.mechanism not in offered):
            has = self._printable(", ".join(offered)) or "none"
            raise ConnectionFailed(Failure.MECHANISM, f"{sasl.mechanism}; it has: {has}")
        if code:
            raise ConnectionFailed(Failure.HANDSHAKE, f"SaslHandshake is answered with error code {code}")
        return version

    def _exchange_tokens(self, sasl: SaslSettings, version: int) -> _Steps:
        """Do the exchange of the mechanism. Without headers a broker has no answer to its last token."""
        self.stage = _stage_of(version, sasl.mechanism)
        try:
            mechanism = self._login or client_mechanism(sasl, self._host)
            token: bytes | None = mechanism.begin()
            while token is not None:
                answer = yield self._authenticate(version, token)
                token = mechanism.proceed(self._token(answer, version))
                if token is not None and mechanism.is_over and version == _NO_HEADER:
                    return self._authenticate(version, token)
        except MechanismError as problem:
            raise ConnectionFailed(Failure.AUTHENTICATION, self._printable(str(problem))) from None
        return b""

    # -- frames

    def _frame(self, api: int, version: int, body: bytes) -> bytes:
        tags = b"\0" if version >= _FLEXIBLE_FROM.get(api, version + 1) else b""
        data = _HEAD.pack(api, version, self.correlation) + self._client_id + tags + body
        return _INT32.pack(len(data)) + data

    def _authenticate(self, version: int, token: bytes) -> bytes:
        if version == _NO_HEADER:
            self._has_header = False
            return _INT32.pack(len(token)) + token
        if version >= _FLEXIBLE_FROM[_SASL_AUTHENTICATE]:
            return self._frame(_SASL_AUTHENTICATE, version, compact(token) + b"\0")
        return self._frame(_SASL_AUTHENTICATE, version, _INT32.pack(len(token)) + token)

    def _token(self, answer: bytes, version: int) -> bytes:
        """Return the broker's SASL token in an answer."""
        if version == _NO_HEADER:
            return answer
        reader = FieldReader(answer)
        flexible = version >= _FLEXIBLE_FROM[_SASL_AUTHENTICATE]
        if flexible:
            reader.skip_tags()
        code = reader.int16()
        message = reader.take_nullable(reader.count() if flexible else reader.int16()).decode()
        if code:
            kind = Failure.HANDSHAKE if code == _ILLEGAL_SASL_STATE else Failure.AUTHENTICATION
            reason = self._printable(message)
            if code != _SASL_AUTHENTICATION_FAILED or not reason:
                reason = f"error code {code}" + (f": {reason}" if reason else "")
            raise ConnectionFailed(kind, reason)
        token = reader.take_nullable(reader.count() if flexible else reader.int32())
        if version >= 1:
            self.session_lifetime = min(max(0, reader.int64()), _MAX_LIFETIME_MS) * 1_000_000
        return token

    def _printable(self, text: str) -> str:
        """Return a broker's text fit for a log line: short, without control characters and secrets."""
        for secret in () if self._sasl is None else self._sasl.secrets:
            text = text.replace(secret, "********")
        text = "".join(character if character.isprintable() else " " for character in text)
        return text if len(text) <= _MAX_TEXT else text[:_MAX_TEXT] + "..."


def _stage_of(version: int, mechanism: str) -> str:
    if version == _NO_HEADER:
        return f"authentication with {mechanism} (a broker before Kafka 1.0 gives no reason for a refusal)"
    return f"SaslAuthenticate with {mechanism}"


def _highest(api: int, lowest: int, highest: int, versions: Ranges) -> int:
    """Return the highest version of this API that both sides have. Raises ConnectionFailed."""
    theirs = versions.get(api, (0, -1))
    version = min(highest, theirs[1])
    if version < max(lowest, theirs[0]):
        name = {_SASL_HANDSHAKE: "SaslHandshake", _SASL_AUTHENTICATE: "SaslAuthenticate"}[api]
        has = f"{theirs[0]} to {theirs[1]}" if theirs[1] >= 0 else "none"
        needs = f"{lowest} to {highest}" if lowest < highest else str(lowest)
        raise ConnectionFailed(Failure.HANDSHAKE, f"the broker's versions of {name}: {has}; needed: {needs}")
    return version


def _foreign(data: bytes) -> str:
    """Return what bytes that are not Kafka's protocol look like."""
    if data[:1] in (b"\x15", b"\x16") and data[1:2] == b"\x03":
        return "the broker uses TLS on this port"
    if data.startswith(b"HTTP"):
        return "this is an HTTP server"
    return "not an answer in Kafka's protocol"

"""A peer with TLS, SASL and ApiVersions; a test may change each of its answers."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from scramp import ScramException, ScramMechanism

from ctrlchan import Broker, Endpoint, SecurityProtocol
from tests.fault.peer import Exchange, Peer, _exactly, framed

__all__ = ["TICKET", "SecurePeer"]

SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE = 17, 18, 36
KAFKA_3_9: Final[Mapping[int, tuple[int, int]]] = {
    4: (0, 7), 5: (0, 4), 6: (0, 8), 17: (0, 1), 18: (0, 3), 36: (0, 2),
}  # fmt: skip
#: Stands for all that Kerberos exchanges.
TICKET = b"a ticket"
REFUSED = "Authentication failed: Invalid username or password"


@dataclass
class SecurePeer(Peer):
    """A peer that does the handshake of its protocol.

    ``meddle`` is called with each answer of the handshake (its number on the connection, its bytes with their
    size field) and returns the bytes to send instead; None closes the connection.
    """

    protocol: str = "PLAINTEXT"
    host: str = "127.0.0.1"
    context: ssl.SSLContext | None = None
    #: Whether clients begin with ApiVersions even without SASL.
    asked: bool = False
    mechanisms: tuple[str, ...] = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
    users: dict[str, str] = field(default_factory=lambda: {"admin": "s3cret"})
    iterations: int = 4096
    lifetime_ms: int = 0
    versions: dict[int, tuple[int, int]] = field(default_factory=lambda: dict(KAFKA_3_9))
    meddle: Callable[[int, bytes], bytes | None] = lambda number, answer: answer
    #: The handshakes so far: (API key, version) of each request.
    questions: list[tuple[int, int]] = field(default_factory=list)
    answers: list[bytes] = field(default_factory=list)
    client_subjects: list[Any] = field(default_factory=list)
    #: OpenSSL's name of the cipher suite of each connection.
    suites: list[str] = field(default_factory=list)
    _renewals: dict[int, _Opening] = field(default_factory=dict)

    def renew(self, exchange: Exchange) -> None:
        """A behaviour: answer SaslHandshake and SaslAuthenticate on a connection that has authenticated."""
        if exchange.api_key not in (SASL_HANDSHAKE, SASL_AUTHENTICATE):
            exchange.send(exchange.response())
            return
        opening = self._renewals.setdefault(exchange.connection, _Opening(self, exchange.sock))
        opening.answer_frame(exchange.frame)

    @property
    def broker(self) -> Broker:
        endpoint = Endpoint(self.protocol, SecurityProtocol[self.protocol], self.host, self.port)
        return Broker(self.broker_id, self.epoch, (endpoint,))

    def _serve(self, sock: socket.socket, number: int) -> None:
        try:
            if self.context is not None:
                tls = self.context.wrap_socket(sock, server_side=True)
                with self._changed:
                    self._sockets.discard(sock)
                    self._sockets.add(tls)
                sock = tls
                self.client_subjects.append(tls.getpeercert())
                self.suites.append((tls.cipher() or ("",))[0])
            if self.asked or self.protocol.startswith("SASL"):
                _Opening(self, sock).run()
        except (OSError, EOFError):
            with self._changed:
                self._sockets.discard(sock)
                self._changed.notify_all()
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
            return
        super()._serve(sock, number)


class _Opening:
    """One connection's handshake."""

    def __init__(self, peer: SecurePeer, sock: socket.socket) -> None:
        self._peer = peer
        self._sock = sock
        self._scram: Any = None
        self._mechanism = ""
        self._answered = 0
        # After SaslHandshake v0.
        self._tokens_only = False

    def run(self) -> None:
        while not self._answer():
            pass

    def _answer(self) -> bool:
        """Answer one request; True: it was the last one of the handshake."""
        return self.answer_frame(_exactly(self._sock, struct.unpack(">i", _exactly(self._sock, 4))[0]))

    def answer_frame(self, data: bytes) -> bool:
        """Answer one request, without its size field."""
        peer = self._peer
        if self._tokens_only:
            code, token, over = self._check(data)
            if code:
                raise EOFError
            self._sock.sendall(framed(token))
            return over
        api, version, correlation, name = struct.unpack_from(">hhih", data)
        flexible = version >= {API_VERSIONS: 3, SASL_AUTHENTICATE: 2}.get(api, 99)
        body = data[10 + max(name, 0) + flexible :]
        peer.questions.append((api, version))
        over = False
        lifetime = struct.pack(">q", peer.lifetime_ms)
        if api == API_VERSIONS:
            answer = self._versions(version)
            over = answer[:2] == b"\0\0" and not peer.protocol.startswith("SASL")
        elif api == SASL_HANDSHAKE:
            self._mechanism = body[2:].decode()
            self._tokens_only = version == 0
            code = 0 if self._mechanism in peer.mechanisms else 33
            answer = struct.pack(">hi", code, len(peer.mechanisms))
            answer += b"".join(struct.pack(">h", len(m)) + m.encode() for m in peer.mechanisms)
        else:
            assert api == SASL_AUTHENTICATE
            # A compact length has another byte from 127 bytes on.
            token = body[1 + (body[0] > 0x7F) : -1] if flexible else body[4:]
            code, reply, over = self._check(token)
            message = REFUSED.encode() if code else None
            if flexible:
                text = b"\0" if message is None else bytes([len(message) + 1]) + message
                answer = b"\0" + struct.pack(">h", code) + text
                answer += _uvarint(len(reply) + 1) + reply + lifetime + b"\0"
            else:
                text = b"\xff\xff" if message is None else struct.pack(">h", len(message)) + message
                answer = struct.pack(">h", code) + text + struct.pack(">i", len(reply)) + reply
                answer += lifetime if version else b""
        whole = framed(struct.pack(">i", correlation) + answer)
        meddled = peer.meddle(self._answered, whole)
        self._answered += 1
        if meddled is None:
            raise EOFError
        peer.answers.append(meddled)
        self._sock.sendall(meddled)
        return over

    def _versions(self, version: int) -> bytes:
        ranges = self._peer.versions
        if version > ranges[API_VERSIONS][1]:
            return struct.pack(">hi", 35, 0)
        if version < 3:
            rows = b"".join(struct.pack(">hhh", api, *ends) for api, ends in ranges.items())
            return struct.pack(">hi", 0, len(ranges)) + rows + bytes(4 if version else 0)
        rows = b"".join(struct.pack(">hhhB", api, *ends, 0) for api, ends in ranges.items())
        return struct.pack(">hB", 0, len(ranges) + 1) + rows + bytes(5)

    def _check(self, token: bytes) -> tuple[int, bytes, bool]:
        """Return the error code, the mechanism's reply, and whether the exchange is complete."""
        users = self._peer.users
        if self._mechanism == "PLAIN":
            _, user, password = token.decode().split("\0")
            return (0, b"", True) if users.get(user) == password else (58, b"", False)
        if self._mechanism == "GSSAPI":
            return (0, b"", True) if token == TICKET else (58, b"", False)
        try:
            if self._scram is None:
                mechanism = ScramMechanism(self._mechanism)
                iterations = self._peer.iterations
                self._scram = mechanism.make_server(
                    lambda user: mechanism.make_auth_info(users[user], iteration_count=iterations)
                )
                self._scram.set_client_first(token.decode())
                return 0, self._scram.get_server_first().encode(), False
            self._scram.set_client_final(token.decode())
            return 0, self._scram.get_server_final().encode(), True
        except (ScramException, KeyError):
            return 58, b"", False


def _uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])

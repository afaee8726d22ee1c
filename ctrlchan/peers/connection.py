"""PeerConnection: a connection to another node, on which one request is under way at a time."""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping
from contextlib import suppress
from time import monotonic
from typing import Final

from ctrlchan._codec import decode_response_header, encode_request_header
from ctrlchan.errors import DecodeError, ErrorCode
from ctrlchan.peers.requests import Answer, OutgoingRequest, common_version
from ctrlchan.peers.security import PeerSecurity, SetupError, renewal_time
from ctrlchan.peers.setup_time import SetupTime
from ctrlchan.security.failure import ConnectionFailed, Failure
from ctrlchan.security.handshake import Handshake

__all__ = ["Address", "PeerConnection"]

#: Seconds that a step may take after the deadline.
_LEAST_SECONDS: Final = 0.1
#: Most bytes that are received at once. A peer that announces much and sends little costs no memory.
_AT_ONCE: Final = 2**20
_HANDSHAKE_BYTES: Final = 16 * 1024
_API_VERSIONS: Final = 18
#: Of ApiVersions v0: error code and number of APIs; then key, lowest and highest version of each.
_VERSIONS_HEAD: Final = struct.Struct(">hi")
_VERSIONS_ENTRY: Final = struct.Struct(">hhh")

Address = tuple[str, int]


class PeerConnection:
    """A connection to another node. The constructor connects and authenticates, and raises OSError.

    ``largest_answer``: in bytes; a larger one is an error. The default is Kafka's for requests
    (socket.request.max.bytes). ``security``: None for PLAINTEXT. A session of SASL that ends is renewed
    before the next request. ``setup_time``: for TCP, and for each step of TLS and SASL; it learns whether the
    connection gets ready. ``receive_buffer``: in bytes (SO_RCVBUF), -1: the system's. ``versions``: the
    lowest and the highest version of each API key; empty before ``ask_versions`` where SASL has not asked.
    """

    def __init__(
        self,
        address: Address,
        client_id: bytes,
        *,
        largest_answer: int = 100 * 2**20,
        security: PeerSecurity | None = None,
        setup_time: SetupTime | None = None,
        receive_buffer: int = -1,
    ) -> None:
        self.address = address
        self.largest_answer = largest_answer
        self.versions: Mapping[int, tuple[int, int]] = {}
        self._client_id = client_id
        self._correlation_id = 0
        self._security = security
        self._has_received = False
        self._renewal: float | None = None
        setup_time = setup_time or SetupTime()
        self._setup_seconds = setup_time.seconds
        try:
            self._socket = socket.create_connection(address, self._setup_seconds)
        except BaseException:
            setup_time.failed()
            raise
        try:
            if receive_buffer >= 0:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if security is not None:
                self._socket.settimeout(self._setup_seconds)
                if security.has_tls:
                    self._socket = security.begin_tls(self._socket, address[0])
                if security.has_sasl:
                    self._authenticate(security)
        except BaseException:
            self._socket.close()
            setup_time.failed()
            raise
        setup_time.succeeded()

    def ask_versions(self, deadline: float) -> None:
        """Ask which versions the other node serves. Raises OSError, DecodeError."""
        frame, offset = self.exchange(_API_VERSIONS, 0, False, b"", deadline)
        entries = frame[offset + _VERSIONS_HEAD.size :]
        if len(frame) < offset + _VERSIONS_HEAD.size or len(entries) % _VERSIONS_ENTRY.size:
            raise DecodeError(f"{len(frame)} bytes", api="ApiVersions", version=0)
        error, _ = _VERSIONS_HEAD.unpack_from(frame, offset)
        if error:
            raise DecodeError(f"{ErrorCode.name_of(error)}", api="ApiVersions", version=0)
        self.versions = {key: (low, high) for key, low, high in _VERSIONS_ENTRY.iter_unpack(entries)}

    def learn_versions(self, deadline: float) -> None:
        """Ask which versions the other node serves, unless they are known. Raises OSError, DecodeError."""
        if not self.versions:
            self.ask_versions(deadline)

    def ask(self, request: OutgoingRequest, deadline: float) -> Answer | None:
        """Send a request in the highest version that both sides have; None: there is no such version.

        ``deadline``: monotonic seconds. Raises OSError, DecodeError.
        """
        self.learn_versions(deadline)
        version = common_version(request, self.versions)
        if version is None:
            return None
        frame, offset = self.exchange(
            request.api_key, version, version >= request.flexible_from, request.encode(version), deadline
        )
        return Answer(version, frame[offset:])

    def exchange(
        self, api_key: int, version: int, flexible: bool, body: bytes, deadline: float
    ) -> tuple[bytes, int]:
        """Send a request; return the frame of its answer, and where its body begins.

        ``flexible``: the headers have tagged fields. ``deadline``: monotonic seconds. Raises OSError,
        DecodeError.
        """
        if self._renewal is not None and monotonic() >= self._renewal:
            self._renew()
        self._socket.settimeout(max(_LEAST_SECONDS, deadline - monotonic()))
        self._correlation_id = (self._correlation_id + 1) % 2**31
        header = encode_request_header(
            2 if flexible else 1, api_key, version, self._correlation_id, self._client_id
        )
        self._send((len(header) + len(body)).to_bytes(4, "big") + header + body)
        size = int.from_bytes(self._read(4), "big", signed=True)
        if not 0 <= size <= self.largest_answer:
            raise DecodeError(
                f"a frame of {size:,} bytes; the largest allowed is {self.largest_answer:,}",
                api="ResponseHeader",
            )
        answer = self._read(size)
        answered, header_size, _ = decode_response_header(answer, int(flexible))
        if answered != self._correlation_id:
            raise DecodeError(
                f"an answer to request {answered}, not {self._correlation_id}", api="ResponseHeader"
            )
        return answer, header_size

    def shut_down(self) -> None:
        """Let a request that is under way fail. Any thread may call it."""
        with suppress(OSError):
            # Not that of TLS: its bytes would be sent without TLS from then on.
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def close(self) -> None:
        """Give the socket back."""
        self._socket.close()

    # -- TLS and SASL

    def _renew(self) -> None:
        """Authenticate again, on this connection (KIP-368). Raises OSError."""
        assert self._security is not None
        self._socket.settimeout(self._setup_seconds)
        self._authenticate(self._security)

    def _authenticate(self, security: PeerSecurity) -> None:
        """Do the handshake of SASL. Raises OSError."""
        # Requests begin with the id behind the one of the last request.
        handshake = security.handshake(
            self._client_id.decode(), self.address[0], dict(self.versions), self._correlation_id + 1
        )
        try:
            self._run(handshake)
        except ConnectionFailed as failed:
            raise SetupError(failed) from None
        except TimeoutError:
            raise SetupError(ConnectionFailed(Failure.HANDSHAKE_TIMEOUT, handshake.stage)) from None
        self.versions = handshake.versions
        self._correlation_id = handshake.correlation - 1
        self._renewal = renewal_time(handshake.session_lifetime, monotonic())

    def _run(self, handshake: Handshake) -> None:
        """Exchange the frames of a handshake. Raises OSError, ConnectionFailed."""
        data = handshake.start()
        while not handshake.done:
            if data:
                self._send(data)
            received = self._receive(_HANDSHAKE_BYTES)
            if not received:
                raise ConnectionFailed(Failure.CLOSED, f"during {handshake.stage}")
            data = handshake.receive(received)
        if data:
            self._send(data)

    # -- bytes

    def _send(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError as problem:
            raise self._explained(problem) from None

    def _receive(self, size: int) -> bytes:
        try:
            data = self._socket.recv(size)
        except OSError as problem:
            raise self._explained(problem) from None
        self._has_received = self._has_received or bool(data)
        return data

    def _explained(self, problem: OSError) -> OSError:
        if self._security is None:
            return problem
        return self._security.explained(problem, is_first=not self._has_received)

    def _read(self, size: int) -> bytes:
        parts = []
        while size:
            part = self._receive(min(size, _AT_ONCE))
            if not part:
                raise self._explained(
                    ConnectionResetError(f"{self.address[0]}:{self.address[1]} has closed the connection")
                )
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

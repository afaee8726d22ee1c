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

__all__ = ["Address", "PeerConnection"]

_CONNECT_SECONDS: Final = 5.0
#: Seconds that a step may take after the deadline.
_LEAST_SECONDS: Final = 0.1
#: Most bytes that are received at once. A peer that announces much and sends little costs no memory.
_AT_ONCE: Final = 2**20
_API_VERSIONS: Final = 18
#: Of ApiVersions v0: error code and number of APIs; then key, lowest and highest version of each.
_VERSIONS_HEAD: Final = struct.Struct(">hi")
_VERSIONS_ENTRY: Final = struct.Struct(">hhh")

Address = tuple[str, int]


class PeerConnection:
    """A connection to another node. The constructor connects, and raises OSError.

    ``largest_answer``: in bytes; a larger one is an error. The default is Kafka's for requests
    (socket.request.max.bytes). ``versions``: the lowest and the highest version of each API key; empty before
    ``ask_versions``.
    """

    def __init__(self, address: Address, client_id: bytes, *, largest_answer: int = 100 * 2**20) -> None:
        self.address = address
        self.largest_answer = largest_answer
        self.versions: Mapping[int, tuple[int, int]] = {}
        self._client_id = client_id
        self._correlation_id = 0
        self._socket = socket.create_connection(address, _CONNECT_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

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

    def ask(self, request: OutgoingRequest, deadline: float) -> Answer | None:
        """Send a request in the highest version that both sides have; None: there is no such version.

        ``deadline``: monotonic seconds. Raises OSError, DecodeError.
        """
        if not self.versions:
            self.ask_versions(deadline)
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
        self._socket.settimeout(max(_LEAST_SECONDS, deadline - monotonic()))
        self._correlation_id = (self._correlation_id + 1) % 2**31
        header = encode_request_header(
            2 if flexible else 1, api_key, version, self._correlation_id, self._client_id
        )
        self._socket.sendall((len(header) + len(body)).to_bytes(4, "big") + header + body)
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
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Give the socket back."""
        self._socket.close()

    def _read(self, size: int) -> bytes:
        parts = []
        while size:
            part = self._socket.recv(min(size, _AT_ONCE))
            if not part:
                raise ConnectionResetError(f"{self.address[0]}:{self.address[1]} has closed the connection")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

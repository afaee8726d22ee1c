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

__all__ = ["Address", "PeerConnection"]

_CONNECT_SECONDS: Final = 5.0
#: Seconds that a step may take after the deadline.
_LEAST_SECONDS: Final = 0.1
_LARGEST_ANSWER: Final = 2**31 - 1
#: Bytes of an answer that memory is taken for before they are there.
_AT_ONCE: Final = 2**20
_API_VERSIONS: Final = 18
#: Of ApiVersions v0: error code and number of APIs; then key, lowest and highest version of each.
_VERSIONS_HEAD: Final = struct.Struct(">hi")
_VERSIONS_ENTRY: Final = struct.Struct(">hhh")

Address = tuple[str, int]


class PeerConnection:
    """A connection to another node. The constructor connects, and raises OSError.

    ``versions``: the lowest and the highest version of each API key; empty before ``ask_versions``.
    """

    def __init__(self, address: Address, client_id: bytes) -> None:
        self.address = address
        self.versions: Mapping[int, tuple[int, int]] = {}
        self._client_id = client_id
        self._correlation_id = 0
        self._socket = socket.create_connection(address, _CONNECT_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask_versions(self, deadline: float) -> None:
        """Ask which versions the other node serves. Raises OSError, DecodeError."""
        body = self.exchange(_API_VERSIONS, 0, False, b"", deadline)
        entries = body[_VERSIONS_HEAD.size :]
        if len(body) < _VERSIONS_HEAD.size or len(entries) % _VERSIONS_ENTRY.size:
            raise DecodeError(f"{len(body)} bytes", api="ApiVersions", version=0)
        error, _ = _VERSIONS_HEAD.unpack_from(body)
        if error:
            raise DecodeError(f"{ErrorCode.name_of(error)}", api="ApiVersions", version=0)
        self.versions = {key: (low, high) for key, low, high in _VERSIONS_ENTRY.iter_unpack(entries)}

    def exchange(self, api_key: int, version: int, flexible: bool, body: bytes, deadline: float) -> bytes:
        """Send a request and return the body of its answer. Raises OSError, DecodeError.

        ``flexible``: the headers have tagged fields. ``deadline``: monotonic seconds.
        """
        self._socket.settimeout(max(_LEAST_SECONDS, deadline - monotonic()))
        self._correlation_id = (self._correlation_id + 1) % 2**31
        header = encode_request_header(
            2 if flexible else 1, api_key, version, self._correlation_id, self._client_id
        )
        self._socket.sendall((len(header) + len(body)).to_bytes(4, "big") + header + body)
        size = int.from_bytes(self._read(4), "big", signed=True)
        if not 0 <= size <= _LARGEST_ANSWER:
            raise DecodeError(f"a frame of {size} bytes", api="ResponseHeader")
        answer = self._read(size)
        answered, header_size, _ = decode_response_header(answer, int(flexible))
        if answered != self._correlation_id:
            raise DecodeError(
                f"an answer to request {answered}, not {self._correlation_id}", api="ResponseHeader"
            )
        return answer[header_size:]

    def shut_down(self) -> None:
        """Let a request that is under way fail. Any thread may call it."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Give the socket back."""
        self._socket.close()

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            received = len(data)
            # Whoever names a large size has not sent it yet.
            data.extend(bytes(min(size - received, max(received, _AT_ONCE))))
            with memoryview(data) as view:
                at = received
                while at < len(data):
                    count = self._socket.recv_into(view[at:])
                    if not count:
                        raise ConnectionResetError(
                            f"{self.address[0]}:{self.address[1]} has closed the connection"
                        )
                    at += count
        return bytes(data)

"""One request, one response over a fresh connection: bytes in, bytes out, nothing decoded."""

from __future__ import annotations

import socket
import struct

# ApiVersions v0 (key 18), correlation id 1, no client id: every broker answers it.
_API_VERSIONS = struct.pack(">hhih", 18, 0, 1, -1)


def exchange(host: str, port: int, frame: bytes, *, timeout: float = 30.0) -> bytes:
    """Send one frame and return the response frame, both without the 4-byte size.

    Raises ConnectionError when the peer closes the connection instead of answering.
    """
    with socket.create_connection((host, port), timeout=timeout) as connection:
        return exchange_on(connection, frame)


def exchange_on(connection: socket.socket, frame: bytes) -> bytes:
    """As ``exchange``, on a connection that stays open."""
    send_frame(connection, frame)
    return receive_frame(connection)


def send_frame(connection: socket.socket, frame: bytes) -> None:
    """Send one frame with its size."""
    connection.sendall(struct.pack(">i", len(frame)) + frame)


def receive_frame(connection: socket.socket) -> bytes:
    """Receive one frame, without its size. Raises ConnectionError when the peer closes the connection."""
    (size,) = struct.unpack(">i", _receive(connection, 4))
    return _receive(connection, size)


def answers_api_versions(host: str, port: int) -> bool:
    """Whether a Kafka broker listens there and processes requests."""
    try:
        response = exchange(host, port, _API_VERSIONS, timeout=5.0)
    except OSError:
        return False
    return len(response) > 6 and response[:6] == struct.pack(">ih", 1, 0)


def _receive(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        chunk = connection.recv(size - len(received))
        if not chunk:
            raise ConnectionError(f"the peer closed the connection after {len(received)} of {size} bytes")
        received += chunk
    return bytes(received)

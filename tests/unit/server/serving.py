"""A socket server with the echo handler, handler threads, and clients of raw frames."""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ctrlchan.server._processor import HotHandler, TakenRequest
from ctrlchan.server.socket_server import Listener, SocketServer, SocketServerSettings
from tests.kafka.waiting import wait_until
from tests.unit.server._echo import EchoHandler

LOCAL = Listener("PLAINTEXT", "127.0.0.1", 0)


@contextmanager
def serving(hot: HotHandler | None = None, *listeners: Listener, **settings: Any) -> Iterator[SocketServer]:
    """Run a server on the loopback address. Afterwards all its descriptors must be closed."""
    before = descriptors()
    server = SocketServer(listeners or [LOCAL], SocketServerSettings(**settings), hot)
    server.start()
    try:
        yield server
    finally:
        server.stop()
        assert server.counters()[0][0].connections == 0
        server.__dict__.clear()
    wait_until_closed(before)


@contextmanager
def handling(
    server: SocketServer, handle: Callable[[TakenRequest], None], work: Callable[[], None] | None = None
) -> Iterator[None]:
    """Let one handler thread call ``handle`` for each request of the queue, and ``work`` for work left."""
    ended = threading.Event()
    requests = server.requests

    def run() -> None:
        while not ended.is_set():
            request = requests.take(0.05)
            if request is not None:
                handle(request)
            elif requests.take_work() and work is not None:
                work()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def descriptors() -> set[str]:
    """Return all open descriptors of this process: number and file."""
    found = set()
    for name in os.listdir("/dev/fd"):
        try:
            found.add(f"{name} {os.readlink(f'/dev/fd/{name}')}")
        except OSError:
            continue
    return found


def wait_until_closed(before: set[str]) -> None:
    """Wait until this process has no other open descriptors than ``before``; the error names the others."""
    try:
        wait_until(lambda: descriptors() <= before, what="no descriptor is left")
    except TimeoutError:
        raise AssertionError(f"open descriptors: {sorted(descriptors() - before)}") from None


def sized(frame: bytes) -> bytes:
    return struct.pack(">i", len(frame)) + frame


def parked(wait_ms: int, rest: bytes = b"", kind: bytes = b"p") -> bytes:
    return kind + struct.pack("=i", wait_ms) + rest


def delayed(wait_ms: int, request: bytes) -> bytes:
    return b"d" + struct.pack("=i", wait_ms) + request


class Client(socket.socket):
    """A connection of raw frames. ``buffer``: bytes of the kernel's receive and send buffers."""

    def __init__(
        self, server: SocketServer, *, buffer: int = 0, host: str = "127.0.0.1", port: int = 0
    ) -> None:
        super().__init__(socket.AF_INET6 if ":" in host else socket.AF_INET)
        if buffer:
            self.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        self.settimeout(20)
        self._server = server
        self.connect((host, port or next(iter(server.ports.values()))))

    def frames(self, *frames: bytes) -> None:
        self.sendall(b"".join(map(sized, frames)))

    def exactly(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            try:
                part = self.recv(min(size - len(parts), 1 << 20))
            except TimeoutError:
                raise TimeoutError(f"{len(parts)} of {size} bytes came: {self._server.counters()}") from None
            if not part:
                raise ConnectionError(f"closed after {len(parts)} of {size} bytes")
            parts += part
        return bytes(parts)

    def answer(self) -> bytes:
        return self.exactly(int.from_bytes(self.exactly(4), "big"))

    def answers(self, count: int) -> list[bytes]:
        return [self.answer() for _ in range(count)]

    def is_closed(self) -> bool:
        """Wait until the server closes the connection. Return False when it sends something instead."""
        try:
            return self.recv(1) == b""
        except ConnectionResetError:
            return True

    def reset(self) -> None:
        """Close with RST."""
        self.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()


def still_serves(server: SocketServer) -> bool:
    with Client(server) as client:
        client.frames(b"e still here")
        return client.answer() == b"e still here"


def connections(server: SocketServer) -> int:
    return sum(row.connections for row in server.counters()[0])


def wait_for_connections(server: SocketServer, count: int) -> None:
    wait_until(lambda: connections(server) == count, what=f"{count} connections")


__all__ = [
    "Client",
    "EchoHandler",
    "connections",
    "delayed",
    "descriptors",
    "handling",
    "parked",
    "serving",
    "sized",
    "still_serves",
    "wait_for_connections",
]

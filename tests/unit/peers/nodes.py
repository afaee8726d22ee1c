"""Other nodes on real sockets: they answer requests as a test wants, are slow, end, or answer garbage."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from ctrlchan._codec import decode_request_header
from tests.kafka.wire import receive_frame

__all__ = ["Asked", "Node"]

SECONDS: Final = 30.0
_API_VERSIONS: Final = 18


class Asked(NamedTuple):
    """A request: API key, version and body."""

    api_key: int
    version: int
    body: bytes


class Node:
    """A node that listens until the end of ``with``. ``asked``: the requests, without ApiVersions.

    ``answer`` returns the body of an answer, or None: the node closes the connection. ``flexible_from``: by
    API key, the first version with tagged fields in headers.
    """

    def __init__(
        self,
        answer: Callable[[Asked], bytes | None],
        versions: Mapping[int, tuple[int, int]],
        flexible_from: Mapping[int, int],
    ) -> None:
        self.answer = answer
        self.versions = dict(versions)
        self._flexible_from = flexible_from
        self.asked: list[Asked] = []
        self.connections = 0
        self._open: list[socket.socket] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._server.getsockname()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]

    def __enter__(self) -> Node:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Close all sockets, as a process that ends."""
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self.close_connections()
        for thread in self._threads:
            thread.join(SECONDS)

    def close_connections(self) -> None:
        """Close the connections, and go on listening."""
        for peer in self._open:
            with suppress(OSError):
                peer.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._server.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(peer)
            thread = threading.Thread(target=self._serve, args=[peer], daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, peer: socket.socket) -> None:
        with peer, suppress(OSError):
            peer.settimeout(SECONDS)
            while True:  # until the peer closes the connection
                answer = self._answer(receive_frame(peer))
                if answer is None:
                    return
                peer.sendall(struct.pack(">i", len(answer)) + answer)

    def _answer(self, frame: bytes) -> bytes | None:
        api_key, version, correlation_id = struct.unpack_from(">hhi", frame)
        head = struct.pack(">i", correlation_id)
        if api_key == _API_VERSIONS:
            entries = [struct.pack(">hhh", key, *span) for key, span in self.versions.items()]
            return head + struct.pack(">hi", 0, len(entries)) + b"".join(entries)
        is_flexible = version >= self._flexible_from.get(api_key, 1 << 15)
        header = decode_request_header(frame, 2 if is_flexible else 1)
        asked = Asked(api_key, version, frame[header.size :])
        self.asked.append(asked)
        body = self.answer(asked)
        return None if body is None else head + (b"\0" if is_flexible else b"") + body

"""A TCP relay before a broker that keeps every frame: what a controller asked and what it was answered."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from dataclasses import dataclass, field
from types import TracebackType


@dataclass
class RelayedConnection:
    """The frames of one connection in order, without their sizes; response n answers request n."""

    requests: list[bytes] = field(default_factory=list)
    responses: list[bytes] = field(default_factory=list)


class RecordingRelay:
    """Listens on a free port of 127.0.0.1 and passes frames to ``target`` and back; a context manager.

    Bytes go on unchanged, a frame at a time. ``connections`` grows while the relay runs.
    """

    def __init__(self, target: tuple[str, int]) -> None:
        self.target = target
        self.connections: list[RelayedConnection] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, name="relay-accept", daemon=True)]

    def __enter__(self) -> RecordingRelay:
        self._threads[0].start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # shutdown wakes the threads that read; closing alone would not.
        for sock in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
        for thread in self._threads:
            thread.join(timeout=10)

    def requests(self) -> list[bytes]:
        """Every request so far, connection by connection."""
        return [frame for connection in self.connections for frame in list(connection.requests)]

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                broker = socket.create_connection(self.target, timeout=10)
            except OSError:
                client.close()
                continue
            broker.settimeout(None)
            record = RelayedConnection()
            self.connections.append(record)
            self._sockets += [client, broker]
            for source, sink, frames in (
                (client, broker, record.requests),
                (broker, client, record.responses),
            ):
                thread = threading.Thread(
                    target=_pump, args=(source, sink, frames), name="relay-pump", daemon=True
                )
                self._threads.append(thread)
                thread.start()


def _pump(source: socket.socket, sink: socket.socket, frames: list[bytes]) -> None:
    try:
        while True:
            size = _receive(source, 4)
            frame = _receive(source, struct.unpack(">i", size)[0])
            # Kept before it is passed on: who has seen the answer finds the request here.
            frames.append(frame)
            sink.sendall(size + frame)
    except OSError:
        pass
    finally:
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)


def _receive(source: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        chunk = source.recv(size - len(received))
        if not chunk:
            raise ConnectionError("closed")
        received += chunk
    return bytes(received)

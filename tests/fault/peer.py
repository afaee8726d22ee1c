"""A scripted broker: reads frames, keeps them, and answers each as its script says."""

from __future__ import annotations

import socket
import struct
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Final, TypeAlias

import numpy as np

from ctrlchan import Broker, Endpoint, SecurityProtocol
from ctrlchan._codec import (
    LEADER_AND_ISR,
    UPDATE_METADATA,
    ControlResponse,
    StringColumn,
    Topics,
    decode_request_header,
    encode_response_header,
    response_header_version,
)

_SIZE: Final = struct.Struct(">i")


@dataclass
class Exchange:
    """One request that has arrived, and methods to answer it. ``frame`` is without its size field."""

    peer: Peer
    sock: socket.socket
    #: Number of the connection of the peer, and of the request on it, both from 0.
    connection: int
    index: int
    frame: bytes
    api_key: int = 0
    version: int = 0
    correlation_id: int = 0
    body: bytes = b""

    def __post_init__(self) -> None:
        header = decode_request_header(self.frame)
        self.api_key, self.version = header.api_key, header.api_version
        self.correlation_id = header.correlation_id
        self.body = self.frame[header.size :]

    def response(self, error_code: int = 0, *, partition_errors: list[int] | None = None) -> bytes:
        """Return a complete response, with its size field of 4 bytes."""
        return framed(
            encode_response_header(response_header_version(self.api_key, self.version), self.correlation_id)
            + response_body(self.api_key, self.version, error_code, partition_errors)
        )

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def close(self) -> None:
        # shutdown wakes the peer's own reading thread as well.
        with suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)


#: Answers one request.
Behaviour: TypeAlias = Callable[[Exchange], None]


def framed(data: bytes) -> bytes:
    return _SIZE.pack(len(data)) + data


def response_body(
    api_key: int, version: int, error_code: int = 0, partition_errors: list[int] | None = None
) -> bytes:
    """Return the body of a response; ``partition_errors``: of partitions 0, 1, ... of one topic."""
    if api_key == UPDATE_METADATA:
        return ControlResponse(api_key=api_key, version=version, error_code=error_code).encode()
    errors = partition_errors or []
    topics = 1 if errors else 0
    by_id = api_key == LEADER_AND_ISR and version >= 5
    names = StringColumn.from_strings([b"" if by_id else b"topic"] * topics)
    return ControlResponse(
        api_key=api_key,
        version=version,
        error_code=error_code,
        topics=Topics(names, np.ones((topics, 16), dtype=np.uint8)),
        topic_starts=np.array([0, len(errors)][: topics + 1], dtype=np.int64),
        partition=np.arange(len(errors), dtype=np.int32),
        partition_error=np.array(errors, dtype=np.int32),
    ).encode()


def succeed(exchange: Exchange) -> None:
    exchange.send(exchange.response())


def answer(error_code: int = 0, *, partition_errors: list[int] | None = None) -> Behaviour:
    return lambda exchange: exchange.send(exchange.response(error_code, partition_errors=partition_errors))


def hang_up(exchange: Exchange) -> None:
    exchange.close()


def silence(exchange: Exchange) -> None:
    """Never answers."""


def cut_after(count: int) -> Behaviour:
    """Send only the first bytes of the response."""

    def behave(exchange: Exchange) -> None:
        exchange.send(exchange.response()[:count])
        exchange.close()

    return behave


def raw(data: Callable[[Exchange], bytes]) -> Behaviour:
    return lambda exchange: exchange.send(data(exchange))


@dataclass
class Peer:
    """Listens on a free port of 127.0.0.1.

    ``script``: a behaviour for each of the next requests; ``default`` answers later ones. ``gate``: while it
    is closed, nothing is read.
    """

    broker_id: int = 1
    epoch: int = 1001
    default: Behaviour = succeed
    script: deque[Behaviour] = field(default_factory=deque)
    port: int = 0
    receive_buffer: int = 0
    received: list[Exchange] = field(default_factory=list)
    connections: int = 0
    open: bool = True

    def __post_init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self._changed = threading.Condition()
        self._sockets: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._listener: socket.socket | None = None
        self.listen()

    def listen(self) -> None:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if self.receive_buffer:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.receive_buffer)
        listener.bind(("127.0.0.1", self.port))
        listener.listen(128)
        self.port = listener.getsockname()[1]
        self._listener = listener
        self._start(self._accept, listener)

    @property
    def broker(self) -> Broker:
        endpoint = Endpoint("PLAINTEXT", SecurityProtocol.PLAINTEXT, "127.0.0.1", self.port)
        return Broker(self.broker_id, self.epoch, (endpoint,))

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.open = False
        self.gate.set()
        self.stop_listening()
        self.drop_connections()
        for thread in self._threads:
            thread.join(10)

    def stop_listening(self) -> None:
        """Refuse new connections."""
        listener, self._listener = self._listener, None
        if listener is not None:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()

    def drop_connections(self) -> None:
        with self._changed:
            sockets = list(self._sockets)
        for sock in sockets:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def has_unread(self) -> bool:
        """Whether bytes have arrived that are not read, for example because the gate is closed."""
        with self._changed, suppress(OSError):
            return any(sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) for sock in self._sockets)
        return False

    def until(self, condition: Callable[[], bool], timeout: float = 60.0) -> None:
        """Wait for a condition that a request or a connection makes true."""
        deadline = monotonic() + timeout
        with self._changed:
            while not condition():
                left = deadline - monotonic()
                assert left > 0, f"not within {timeout} s: {len(self.received)} requests received"
                self._changed.wait(left)

    # -- threads

    def _start(self, target: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._changed:
                number = self.connections
                self.connections += 1
                self._sockets.add(sock)
                self._changed.notify_all()
            self._start(self._serve, sock, number)

    def _serve(self, sock: socket.socket, number: int) -> None:
        index = 0
        try:
            while True:
                self.gate.wait()
                size = _SIZE.unpack(_exactly(sock, 4))[0]
                exchange = Exchange(self, sock, number, index, _exactly(sock, size))
                index += 1
                with self._changed:
                    self.received.append(exchange)
                    behaviour = self.script.popleft() if self.script else self.default
                    self._changed.notify_all()
                behaviour(exchange)
        except (OSError, EOFError):
            pass
        finally:
            with self._changed:
                self._sockets.discard(sock)
                self._changed.notify_all()
            sock.close()


def _exactly(sock: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        piece = sock.recv(min(count - len(data), 1 << 20))
        if not piece:
            raise EOFError
        data += piece
    return bytes(data)

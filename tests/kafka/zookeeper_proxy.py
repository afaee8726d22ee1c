"""A TCP proxy before a ZooKeeper server that loses chosen requests or their answers with the connection.

with ZooKeeperProxy(server.port) as proxy:
    session connects to proxy.address
    proxy.lose_answer(MULTI)         # of the next multi: it is applied, and nobody hears of it
    proxy.lose_request(MULTI)        # the next multi does not reach the server
"""

from __future__ import annotations

import socket
import struct
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

__all__ = ["EXISTS", "GET_DATA", "MULTI", "MULTI_READ", "SET_WATCHES", "Loss", "ZooKeeperProxy"]

EXISTS: Final = 3
GET_DATA: Final = 4
GET_CHILDREN: Final = 8
MULTI: Final = 14
MULTI_READ: Final = 22
SET_WATCHES: Final = 101

_REQUEST: Final = struct.Struct(">ii")
_XID: Final = struct.Struct(">i")


class Loss(Enum):
    """What is lost, together with the connection."""

    REQUEST = "request"
    ANSWER = "answer"


@dataclass(eq=False)
class _Pair:
    """One connection through the proxy. ``lost_answer``: xid of a request whose answer is not passed on."""

    client: socket.socket
    server: socket.socket
    lost_answer: int | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def close(self) -> None:
        for one in (self.client, self.server):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


class ZooKeeperProxy:
    """Listens on 127.0.0.1 and passes frames on to ``target``; a context manager.

    ``plan``: opcode of a request -> what is lost, or None; called for each request, on threads of the proxy.
    ``requests``: the opcodes of all requests that came, in order.
    """

    def __init__(self, target: int) -> None:
        self.target = target
        self.plan: Callable[[int], Loss | None] = lambda _opcode: None
        self.requests: deque[int] = deque(maxlen=100_000)
        self.losses = 0
        self._lock = threading.Lock()
        self._pairs: set[_Pair] = set()
        self._threads: list[threading.Thread] = []
        self._closed = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._start(self._accept)

    def __enter__(self) -> ZooKeeperProxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def address(self) -> str:
        """``host:port``."""
        return f"127.0.0.1:{self.port}"

    def lose_answer(self, opcode: int, skip: int = 0) -> None:
        """Lose the answer to the next request with this opcode, or to one behind ``skip`` others."""
        self._lose(Loss.ANSWER, opcode, skip)

    def lose_request(self, opcode: int, skip: int = 0) -> None:
        """Lose the next request with this opcode, or one behind ``skip`` others."""
        self._lose(Loss.REQUEST, opcode, skip)

    def _lose(self, loss: Loss, opcode: int, skip: int) -> None:
        left = skip

        def plan(found: int) -> Loss | None:
            nonlocal left
            if found != opcode:
                return None
            left -= 1
            return loss if left == -1 else None

        self.plan = plan

    def drop_connections(self) -> None:
        """Close all connections."""
        with self._lock:
            pairs = list(self._pairs)
        for pair in pairs:
            pair.close()

    def close(self) -> None:
        with self._lock:
            self._closed = True
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.drop_connections()
        for thread in self._threads:
            thread.join(10)

    # -- threads

    def _start(self, target: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self.target), timeout=10)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            for one in (client, server):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._start(self._serve, _Pair(client, server))

    def _serve(self, pair: _Pair) -> None:
        with self._lock:
            self._pairs.add(pair)
            closed = self._closed
        try:
            if not closed:
                back = threading.Thread(target=self._pass_answers, args=(pair,), daemon=True)
                back.start()
                self._pass_requests(pair)
                back.join()
        finally:
            with self._lock:
                self._pairs.discard(pair)
            pair.client.close()
            pair.server.close()

    def _pass_requests(self, pair: _Pair) -> None:
        # The first frame opens the session and has no opcode.
        first = True
        try:
            while (frame := _read_frame(pair.client)) is not None:
                if not first:
                    xid, opcode = _REQUEST.unpack_from(frame, 4)
                    self.requests.append(opcode)
                    loss = self.plan(opcode)
                    if loss is not None:
                        self.losses += 1
                    if loss is Loss.REQUEST:
                        return
                    if loss is Loss.ANSWER:
                        pair.lost_answer = xid
                first = False
                pair.server.sendall(frame)
        except OSError:
            pass
        finally:
            pair.close()

    def _pass_answers(self, pair: _Pair) -> None:
        first = True
        try:
            while (frame := _read_frame(pair.server)) is not None:
                if not first and _XID.unpack_from(frame, 4)[0] == pair.lost_answer:
                    return
                first = False
                pair.client.sendall(frame)
        except OSError:
            pass
        finally:
            pair.close()


def _read_frame(source: socket.socket) -> bytes | None:
    """Return a frame with its length, None at the end."""
    head = _read(source, 4)
    body = None if head is None else _read(source, int.from_bytes(head, "big"))
    return None if head is None or body is None else head + body


def _read(source: socket.socket, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        piece = source.recv(size - len(data))
        if not piece:
            return None
        data += piece
    return bytes(data)

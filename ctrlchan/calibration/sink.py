"""A process that stands for brokers: it discards the body of every control request, and acknowledges it.

``main`` listens on free ports of 127.0.0.1, as many as its argument says, and prints them. Each line of
standard input is answered by a line with three numbers: the time (``time.monotonic_ns``) of the last answer,
0 if there is none; the bytes received; the requests answered. The process ends with its standard input. On
Linux the kernel discards bodies, and no byte of them is copied.
"""

from __future__ import annotations

import mmap
import selectors
import socket
import struct
import sys
import time
from typing import Final

from ctrlchan._codec import (
    LEADER_AND_ISR,
    STOP_REPLICA,
    UPDATE_METADATA,
    ControlResponse,
    encode_response_header,
    response_header_version,
)

__all__ = ["main"]

_HOST: Final = "127.0.0.1"
#: Size, API key, API version, correlation id: the sink looks at nothing else of a request.
_PREFIX: Final = struct.Struct(">ihhi")
_SIZE: Final = struct.Struct(">i")
#: Bytes of the prefix that the size does not count.
_SIZE_BYTES: Final = 4
#: Discarded by one call at most. Linux touches none of these pages.
_DISCARDED_AT_ONCE: Final = 1 << 26 if sys.platform == "linux" else 1 << 20
_DISCARD: Final = socket.MSG_TRUNC if sys.platform == "linux" else 0
#: A thousand senders may connect at the same time.
_BACKLOG: Final = 4_096
_APIS: Final = (LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA)


class _Connection:
    """``left``: bytes of the request that are still to be discarded."""

    __slots__ = ("answer", "left", "prefix", "socket")

    def __init__(self, accepted: socket.socket) -> None:
        self.socket = accepted
        self.prefix = bytearray()
        self.left = 0
        self.answer = b""


class _Sink:
    def __init__(self, ports: int) -> None:
        self._selector = selectors.DefaultSelector()
        self._room = mmap.mmap(-1, _DISCARDED_AT_ONCE)
        self._answers: dict[tuple[int, int], bytes] = {}
        self._last_answer_ns = self._bytes = self._requests = 0
        self.ports = [self._listen() for _ in range(ports)]

    def _listen(self) -> int:
        listening = socket.create_server((_HOST, 0), backlog=_BACKLOG)
        listening.setblocking(False)
        self._selector.register(listening, selectors.EVENT_READ)
        return int(listening.getsockname()[1])

    def run(self) -> None:
        """Serve until standard input ends."""
        self._selector.register(sys.stdin, selectors.EVENT_READ)
        while True:
            for key, _ in self._selector.select():
                if isinstance(key.data, _Connection):
                    self._read(key.data)
                elif isinstance(key.fileobj, socket.socket):
                    self._accept(key.fileobj)
                elif not sys.stdin.readline():
                    return
                else:
                    print(self._last_answer_ns, self._bytes, self._requests, flush=True)

    def _accept(self, listening: socket.socket) -> None:
        try:
            accepted, _ = listening.accept()
        except OSError:
            return
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._selector.register(accepted, selectors.EVENT_READ, _Connection(accepted))

    def _read(self, one: _Connection) -> None:
        try:
            if one.left:
                received = one.socket.recv_into(self._room, min(one.left, _DISCARDED_AT_ONCE), _DISCARD)
                one.left -= received
            else:
                data = one.socket.recv(_PREFIX.size - len(one.prefix))
                one.prefix += data
                received = len(data)
            if not received or (len(one.prefix) == _PREFIX.size and not one.answer and not self._begin(one)):
                self._close(one)
                return
            self._bytes += received
            if one.answer and not one.left:
                self._answer(one)
        except BlockingIOError:
            pass
        except OSError:
            self._close(one)

    def _begin(self, one: _Connection) -> bool:
        """Look at the prefix of a request; return whether it is one that is answered."""
        size, api_key, version, correlation_id = _PREFIX.unpack(one.prefix)
        if api_key not in _APIS or size < _PREFIX.size - _SIZE_BYTES:
            return False
        one.left = size - (_PREFIX.size - _SIZE_BYTES)
        body = self._answers.get((api_key, version))
        if body is None:
            header = encode_response_header(response_header_version(api_key, version), 0)
            success = ControlResponse(api_key=api_key, version=version, error_code=0).encode()
            body = self._answers[api_key, version] = header[4:] + success
        one.answer = _SIZE.pack(4 + len(body)) + _SIZE.pack(correlation_id) + body
        return True

    def _answer(self, one: _Connection) -> None:
        # An answer of 20 bytes fits into the buffer of any connection whose peer sends one request at a time.
        one.socket.sendall(one.answer)
        one.prefix.clear()
        one.answer = b""
        self._requests += 1
        self._last_answer_ns = time.monotonic_ns()

    def _close(self, one: _Connection) -> None:
        self._selector.unregister(one.socket)
        one.socket.close()


def main() -> None:
    """Serve the number of ports that is the first argument."""
    from ctrlchan.interpreter import raise_descriptor_limit

    raise_descriptor_limit()
    sink = _Sink(int(sys.argv[1]))
    print(*sink.ports, flush=True)
    sink.run()

"""ControllerConnections: sends requests to the controller until they are answered.

Source: ``kafka.server.NodeToControllerChannelManager`` of Kafka 3.9.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from time import monotonic
from typing import Final, NamedTuple

from ctrlchan._codec import decode_response_header, encode_request_header
from ctrlchan.errors import DecodeError, ErrorCode, KafkaError

__all__ = ["Address", "ControllerConnections", "OutgoingRequest"]

_LOG: Final = logging.getLogger("ctrlchan.broker")

#: Requests under way at once, each on a connection of its own: CreateTopics waits for its effect there.
_CONNECTIONS: Final = 8
_CONNECT_SECONDS: Final = 5.0
_PAUSE_SECONDS: Final = 0.1
_MAX_ANSWER: Final = 100 * 2**20
#: What an answer may take longer than the request allows the controller.
_MARGIN_SECONDS: Final = 5.0

Address = tuple[str, int]


class OutgoingRequest(NamedTuple):
    """A request to the controller. ``flexible``: its headers have tagged fields."""

    api_key: int
    version: int
    flexible: bool
    body: bytes


class ControllerConnections:
    """Sends requests to the controller, on threads that start when they are needed.

    ``find``: returns the controller's address, None while nobody is known to be the controller; any thread
    calls it. ``client_id``: in request headers.
    """

    def __init__(self, find: Callable[[], Address | None], client_id: str) -> None:
        self._find = find
        self._client_id = client_id.encode()
        self._executor = ThreadPoolExecutor(_CONNECTIONS, thread_name_prefix="to-controller")
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._idle: list[tuple[Address, socket.socket]] = []
        self._open: set[socket.socket] = set()
        self._correlation_id = 0

    def send(self, request: OutgoingRequest, timeout: float, *, once: bool = False) -> Future[bytes]:
        """Return the body of the answer to a request.

        A request whose connection fails is sent again; ``once``: only once, on a new connection. The future
        fails with KafkaError (REQUEST_TIMED_OUT) when there is no answer in ``timeout`` seconds.
        """
        deadline = monotonic() + timeout + _MARGIN_SECONDS
        try:
            return self._executor.submit(self._exchange, request, deadline, once)
        except RuntimeError:  # the executor is shut down
            stopped: Future[bytes] = Future()
            stopped.set_exception(_timed_out())
            return stopped

    def stop(self) -> None:
        """Close every connection; requests under way fail."""
        self._stopped.set()
        with self._lock:
            for connection in self._open:
                _shut_down(connection)
        self._executor.shutdown(cancel_futures=True)
        for _, connection in self._idle:
            connection.close()
        self._idle.clear()

    def _exchange(self, request: OutgoingRequest, deadline: float, once: bool) -> bytes:
        while not self._stopped.is_set() and monotonic() < deadline:
            address = self._find()
            if address is not None:
                try:
                    return self._try(address, request, deadline, once)
                except DecodeError as error:
                    _LOG.warning("the answer of the controller at %s:%d: %s", *address, error)
                except OSError as error:
                    _LOG.info("no answer of the controller at %s:%d: %s", *address, error)
            if once:
                break
            self._stopped.wait(_PAUSE_SECONDS)
        raise _timed_out()

    def _try(self, address: Address, request: OutgoingRequest, deadline: float, on_new: bool) -> bytes:
        """Send a request once. Raises OSError, DecodeError. ``on_new``: on a new connection."""
        connection = self._connect(address) if on_new else self._take(address)
        try:
            connection.settimeout(max(_PAUSE_SECONDS, deadline - monotonic()))
            with self._lock:
                self._correlation_id = (self._correlation_id + 1) % 2**31
                correlation_id = self._correlation_id
            header = encode_request_header(
                2 if request.flexible else 1,
                request.api_key,
                request.version,
                correlation_id,
                self._client_id,
            )
            connection.sendall((len(header) + len(request.body)).to_bytes(4, "big") + header + request.body)
            answer = _read_answer(connection)
            answered, size = _header_of(answer, int(request.flexible))
            if answered != correlation_id:
                raise DecodeError(
                    f"an answer to request {answered}, not {correlation_id}", api="ResponseHeader"
                )
        except BaseException:
            self._close(connection)
            raise
        with self._lock:
            if not self._stopped.is_set():
                self._idle.append((address, connection))
                return answer[size:]
        self._close(connection)
        return answer[size:]

    def _take(self, address: Address) -> socket.socket:
        """Return an idle connection to this address, or a new one. Raises OSError."""
        with self._lock:
            idle, self._idle = self._idle, []
            for place, (to, connection) in enumerate(idle):
                if to == address:
                    self._idle = idle[:place] + idle[place + 1 :]
                    return connection
        for _, connection in idle:  # of a former controller
            self._close(connection)
        return self._connect(address)

    def _connect(self, address: Address) -> socket.socket:
        """Return a new connection. Raises OSError."""
        connection = socket.create_connection(address, _CONNECT_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._lock:
            self._open.add(connection)
            stopped = self._stopped.is_set()
        if stopped:
            self._close(connection)
            raise ConnectionAbortedError("the broker stops")
        return connection

    def _close(self, connection: socket.socket) -> None:
        with self._lock:
            self._open.discard(connection)
        connection.close()


def _timed_out() -> KafkaError:
    return KafkaError(ErrorCode.REQUEST_TIMED_OUT, "The controller did not answer in time.")


def _read_answer(connection: socket.socket) -> bytes:
    size = int.from_bytes(_read(connection, 4), "big", signed=True)
    if not 0 <= size <= _MAX_ANSWER:
        raise DecodeError(f"a frame of {size} bytes", api="ResponseHeader")
    return _read(connection, size)


def _read(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = connection.recv(min(size - len(data), 2**16))
        if not part:
            raise ConnectionResetError("the controller has closed the connection")
        data += part
    return bytes(data)


def _header_of(answer: bytes, version: int) -> tuple[int, int]:
    """Return (correlation id, size of the header). Raises DecodeError."""
    correlation_id, size, _ = decode_response_header(answer, version)
    return correlation_id, size


def _shut_down(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)

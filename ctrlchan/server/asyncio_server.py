"""The server of controllers and of brokers without log directories: an event loop, frames in, responses out.

Brokers that store records have ``socket_server`` instead.

A frame is a 4-byte size and so many bytes. The requests of one connection are handled one by one, in order:
the next one is handled when the kernel has taken the response to the one before, as Kafka's SocketServer
mutes a channel. A peer that does not read therefore blocks only itself, with one response.

Receiving: all connections of a server share one receive buffer, because its event loop handles the bytes of
one read before the next read. A connection owns memory only for an incomplete frame (exactly its size; the
kernel writes the rest into it) and for requests that it has sent ahead; an idle connection owns none. Each
frame has memory of its own, which the columns of a request may refer to.

With TLS, asyncio's own protocol is between the socket and the connection. It has buffers of its own: an idle
connection owns them, and the next request is handled while less than asyncio's limit of the responses waits
to be sent. With SASL, the frames of a connection go to its authenticator until the peer is authenticated.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import logging
import socket
import ssl
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import Any, Protocol, cast

import numpy as np

from ctrlchan.errors import ProtocolError
from ctrlchan.rate_limit import LogRateLimit
from ctrlchan.server.api import Buffers, CannotAnswer
from ctrlchan.server.request_context import Principal, RequestContext
from ctrlchan.server.security.mechanism import AuthenticationFailed
from ctrlchan.state import SecurityProtocol
from ctrlchan.state.brokers import format_host_port

__all__ = [
    "DEFAULT_IDLE_TIMEOUT",
    "DEFAULT_MAX_REQUEST_BYTES",
    "Authenticator",
    "FrameHandler",
    "Server",
    "cannot_listen",
]

logger = logging.getLogger("ctrlchan.broker")

DEFAULT_MAX_REQUEST_BYTES = 100 * 1024 * 1024  # Kafka's socket.request.max.bytes
DEFAULT_IDLE_TIMEOUT = 600.0  # seconds; Kafka's connections.max.idle.ms

_SIZE_BYTES = 4
_RECEIVE_BUFFER = 64 * 1024  # bytes; holds many small requests: one system call reads them all
_ACCEPT_PAUSE = 0.1  # seconds, after accept has failed
_BACKLOG = 1024  # a controller may connect to every broker of a process at once
_TLS_TIMEOUT = 10.0  # seconds for the handshake of TLS
_MAX_UNAUTHENTICATED_BYTES = 524_288  # Kafka's sasl.server.max.receive.size
_REFUSAL_DELAY = 0.1  # seconds; Kafka's connection.failed.authentication.delay.ms

_NOTHING = memoryview(b"")

#: Gets a frame without its size, and who sends it; returns the response, or a Future of it that any thread
#: may end: the next request of the connection waits. A ProtocolError closes the connection, as Kafka does.
FrameHandler = Callable[[memoryview, RequestContext], Buffers | Future[Buffers]]


def cannot_listen(host: str, port: int, error: OSError) -> OSError:
    """Return the error with the address in its text."""
    return OSError(error.errno, f"cannot listen on {format_host_port(host, port)}: {error.strerror}")


class Authenticator(Protocol):
    """Decides whether the peer of one connection may send requests."""

    @property
    def done(self) -> bool:
        """Whether the peer is authenticated: ``receive`` gets no further frames."""

    @property
    def principal(self) -> Principal:
        """Who the peer is, once it is authenticated."""

    def receive(self, frame: memoryview) -> Buffers | None:
        """Return the answer to a frame, or None when the server's own handler answers the frame.

        Runs on a thread, because credentials may have to be read. Raises AuthenticationFailed, and
        ProtocolError for a frame that cannot be read.
        """


class Server:
    """Listens on one address and hands every frame to ``handle``. Belongs to one event loop.

    ``listener``, ``security_protocol``: of the requests' contexts. ``executor``: its threads call
    authenticators. ``tls``: a server's context, or None for plaintext. ``authenticator`` makes one for each
    connection; without it nobody has to authenticate. ``max_request_bytes``: a larger (or negative) size
    closes the connection. ``idle_timeout``: seconds without a byte in either direction after which a
    connection is closed, or None for no limit. ``response_delay``: seconds between the handling of a request
    and its answer, for brokers that are to be slow. Lines about bad clients are rate-limited, together for
    all clients.
    """

    def __init__(
        self,
        handle: FrameHandler,
        host: str,
        port: int,
        *,
        executor: ThreadPoolExecutor,
        listener: str = "PLAINTEXT",
        security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT,
        tls: ssl.SSLContext | None = None,
        authenticator: Callable[[], Authenticator] | None = None,
        max_request_bytes: int = DEFAULT_MAX_REQUEST_BYTES,
        idle_timeout: float | None = DEFAULT_IDLE_TIMEOUT,
        response_delay: float = 0.0,
    ) -> None:
        self.handle = handle
        self.host = host
        self.port = port
        self.executor = executor
        self.listener = listener
        self.security_protocol = security_protocol
        self.tls = tls
        self.authenticator = authenticator
        self.max_request_bytes = max_request_bytes
        self.idle_timeout = idle_timeout
        self.response_delay = response_delay
        self.connections: set[_Connection] = set()
        #: Ids of connections.
        self.numbers = itertools.count(1)
        self.receive_buffer = memoryview(bytearray(_RECEIVE_BUFFER))
        self._log_limit = LogRateLimit()
        self._listener: socket.socket | None = None
        self._connecting: dict[asyncio.Task[Any], socket.socket] = {}
        self._sweep: asyncio.TimerHandle | None = None

    async def start(self) -> int:
        """Bind and listen; return the port (the chosen one when ``port`` was 0). Raises OSError."""
        loop = asyncio.get_running_loop()
        with ExitStack() as cleanup:
            try:
                addresses = await loop.getaddrinfo(
                    self.host, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
                )
                family, _, _, _, address = addresses[0]
                listener = cleanup.enter_context(socket.socket(family, socket.SOCK_STREAM))
                listener.setblocking(False)
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind(address)
                listener.listen(_BACKLOG)
            except OSError as error:
                raise cannot_listen(self.host, self.port, error) from None
            cleanup.pop_all()
        self.port = cast(int, listener.getsockname()[1])
        self._listener = listener
        loop.add_reader(listener, self._accept, loop, listener)
        if self.idle_timeout is not None:
            self._sweep = loop.call_later(self.idle_timeout / 2, self._close_idle, loop)
        return self.port

    async def stop(self) -> None:
        """Stop listening and close every connection. Answers that are not finished are dropped."""
        if self._sweep is not None:
            self._sweep.cancel()
        if self._listener is None:
            return
        asyncio.get_running_loop().remove_reader(self._listener)
        self._listener.close()
        self._listener = None
        await self._stop_connecting()
        closed = [connection.abort() for connection in list(self.connections)]
        if closed:
            await asyncio.wait(closed)

    async def _stop_connecting(self) -> None:
        connecting = dict(self._connecting)
        if not connecting:
            return
        if self.tls is not None:
            # A peer may leave its part of the handshake out.
            for task in connecting:
                task.cancel()
        await asyncio.wait(connecting)
        for task, peer in connecting.items():
            if task.cancelled():
                # Without effect when asyncio had begun with the socket: it has closed it then.
                peer.close()

    def log(
        self, level: int, message: str, *arguments: object, exc_info: BaseException | None = None
    ) -> None:
        """Write a line about a client, unless there were too many of them lately."""
        if not logger.isEnabledFor(level):
            return
        left_out = self._log_limit.admit(0, time.monotonic_ns())
        if left_out is not None:
            logger.log(level, f"{message}%s", *arguments, left_out, exc_info=exc_info)

    # Neither loop.create_server nor loop.sock_accept: both leak a connection that is accepted while they are
    # being closed.
    def _accept(self, loop: asyncio.AbstractEventLoop, listener: socket.socket) -> None:
        for _ in range(_BACKLOG):
            try:
                peer, _ = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # No descriptor is free; later one will be.
                self.log(logging.WARNING, "cannot accept a connection on port %d: %s", self.port, error)
                loop.remove_reader(listener)
                loop.call_later(_ACCEPT_PAUSE, self._accept_again, loop)
                return
            peer.setblocking(False)
            task = loop.create_task(
                loop.connect_accepted_socket(
                    lambda: _Connection(self, loop),
                    peer,
                    ssl=self.tls,
                    ssl_handshake_timeout=None if self.tls is None else _TLS_TIMEOUT,
                )
            )
            self._connecting[task] = peer
            task.add_done_callback(self._connected)

    def _connected(self, task: asyncio.Task[Any]) -> None:
        del self._connecting[task]
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.log(logging.WARNING, "a connection on port %d failed in its handshake: %s", self.port, error)

    def _accept_again(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._listener is not None:
            loop.add_reader(self._listener, self._accept, loop, self._listener)

    def _close_idle(self, loop: asyncio.AbstractEventLoop) -> None:
        assert self.idle_timeout is not None
        oldest = loop.time() - self.idle_timeout
        for connection in list(self.connections):
            if connection.last_active < oldest and not connection.answering:
                idle = self.idle_timeout
                self.log(
                    logging.INFO, "closing a connection of %s: idle for %.0f s", connection.context, idle
                )
                connection.abort()
        self._sweep = loop.call_later(self.idle_timeout / 2, self._close_idle, loop)


class _Connection(asyncio.BufferedProtocol):
    """Finds the frames of one peer, hands them on one at a time, and writes the answers."""

    def __init__(self, server: Server, loop: asyncio.AbstractEventLoop) -> None:
        self.answering = False
        self.last_active = loop.time()
        self.context: RequestContext
        self._server = server
        self._loop = loop
        self._transport: asyncio.Transport
        self._closed: asyncio.Future[None] = loop.create_future()
        self._writing_paused = False
        # Bytes that are received and not yet parsed: a part of the server's receive buffer while one read is
        # handled, between two reads a copy.
        self._received = _NOTHING
        # An incomplete frame, and how many of its bytes are received.
        self._frame: memoryview | None = None
        self._filled = 0
        # None when the peer is authenticated, or does not have to be.
        self._authenticator = None if server.authenticator is None else server.authenticator()

    @property
    def memory(self) -> int:
        """Bytes of receive memory that the connection owns."""
        return memoryview(self._received.obj).nbytes + (0 if self._frame is None else len(self._frame))

    def abort(self) -> asyncio.Future[None]:
        """Close now, without sending what is buffered; the future is done when the socket is closed."""
        self._transport.abort()
        return self._closed

    # -- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self._server.tls is None:
            # Writing counts as paused until the kernel has taken the last byte. asyncio's TLS cannot do this:
            # it pauses for its own handshake, and does not go on while reading is paused.
            self._transport.set_write_buffer_limits(high=0)
        sock = self._transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        server = self._server
        # A peer that has gone has no name any more.
        host, port, *_ = self._transport.get_extra_info("peername") or ("?", 0)
        self.context = RequestContext(
            server.listener, server.security_protocol, host, port, next(server.numbers)
        )
        server.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.connections.discard(self)
        self._received, self._frame = _NOTHING, None
        if not self._closed.done():
            self._closed.set_result(None)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._server.receive_buffer if self._frame is None else self._frame[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self.last_active = self._loop.time()
        if self._frame is not None:
            self._filled += nbytes
        else:
            received = self._server.receive_buffer[:nbytes]
            # What was there before is a part of a size: less than four bytes.
            self._received = memoryview(bytes(self._received) + received) if self._received else received
        self._advance()

    def pause_writing(self) -> None:
        self._writing_paused = True
        self._pause_reading()

    def resume_writing(self) -> None:
        self._writing_paused = False
        self.last_active = self._loop.time()
        self._advance()

    # -- frames

    def _advance(self) -> None:
        """Handle complete frames, until an answer must be waited for or more bytes are needed."""
        self._handle_frames()
        if not self._received:
            self._received = _NOTHING
        elif self._received.obj is self._server.receive_buffer.obj:
            # The next read of any connection overwrites the receive buffer.
            self._received = memoryview(bytes(self._received))

    def _handle_frames(self) -> None:
        while not (self.answering or self._writing_paused or self._transport.is_closing()):
            try:
                frame = self._next_frame()
                if frame is None:
                    self._transport.resume_reading()
                    return
                if self._authenticator is not None:
                    self._authenticate(self._authenticator, frame)
                    continue
                answer = self._server.handle(frame, self.context)
            except Exception as error:  # noqa: BLE001  (one request that fails must not end the others)
                self._fail(error)
                return
            if self._server.response_delay:
                self.answering = True
                self._loop.call_later(self._server.response_delay, self._answer_delayed, answer)
            else:
                self._answer(answer)
        self._pause_reading()

    def _fail(self, error: BaseException) -> None:
        if isinstance(error, ProtocolError):
            level = logging.INFO if isinstance(error, CannotAnswer) else logging.WARNING
            self._server.log(level, "closing the connection of %s: %s", self.context, error)
        else:
            self._server.log(
                logging.ERROR, "closing the connection of %s: %r", self.context, error, exc_info=error
            )
        self.abort()

    # -- authentication

    def _authenticate(self, authenticator: Authenticator, frame: memoryview) -> None:
        self.answering = True
        future = self._loop.run_in_executor(self._server.executor, authenticator.receive, frame)

        def received(future: asyncio.Future[Buffers | None]) -> None:
            self.answering = False
            if self._transport.is_closing() or future.cancelled():
                return
            error = future.exception()
            try:
                if error is not None:
                    raise error
                answer = future.result()
                if authenticator.done:
                    self._authenticator = None
                    self.context = dataclasses.replace(self.context, principal=authenticator.principal)
                self._answer(self._server.handle(frame, self.context) if answer is None else answer)
            except AuthenticationFailed as failed:
                self._refuse(failed)
            except Exception as problem:  # noqa: BLE001  (as in _handle_frames)
                self._fail(problem)
            else:
                self._advance()

        future.add_done_callback(received)

    def _refuse(self, failed: AuthenticationFailed) -> None:
        """Close the connection after a pause, so that passwords cannot be tried fast."""
        self._server.log(logging.WARNING, "closing the connection of %s: %s", self.context, failed)
        self.answering = True

        def close() -> None:
            if not self._transport.is_closing():
                if failed.response:
                    self._send(failed.response)
                self._transport.close()

        self._loop.call_later(_REFUSAL_DELAY, close)

    # -- answers

    def _answer_delayed(self, answer: Buffers | Future[Buffers]) -> None:
        self.answering = False
        if not self._transport.is_closing():
            self._answer(answer)
            self._advance()

    def _answer(self, answer: Buffers | Future[Buffers]) -> None:
        if isinstance(answer, Future):
            self.answering = True
            answer.add_done_callback(self._wake)
        else:
            self._send(answer)

    def _wake(self, answer: Future[Buffers]) -> None:
        """Go on with an answer that has ended on any thread."""
        # A server that has stopped drops the answer.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._answered, answer)

    def _answered(self, answer: Future[Buffers]) -> None:
        self.answering = False
        try:
            parts = answer.result()
        except BaseException as error:  # noqa: BLE001  (as in _handle_frames)
            self._fail(error)
            return
        if not self._transport.is_closing():
            self._send(parts)
            self._advance()

    def _send(self, answer: Buffers) -> None:
        self.last_active = self._loop.time()
        if answer:
            self._transport.writelines((_size(answer), *answer))

    def _next_frame(self) -> memoryview | None:
        """Return the next complete frame, or None when more bytes must be received first."""
        if self._frame is not None:
            if self._filled < len(self._frame):
                return None
            frame, self._frame = self._frame, None
            return frame
        available = len(self._received) - _SIZE_BYTES
        if available < 0:
            return None
        size = int.from_bytes(self._received[:_SIZE_BYTES], "big", signed=True)
        largest = self._server.max_request_bytes
        if self._authenticator is not None:
            largest = min(largest, _MAX_UNAUTHENTICATED_BYTES)
        if not 0 <= size <= largest:
            raise ProtocolError(f"a frame of {size:,} bytes; the largest allowed is {largest:,}")
        part = self._received[_SIZE_BYTES : _SIZE_BYTES + size]
        self._received = self._received[_SIZE_BYTES + size :]
        if size <= available:
            return memoryview(bytes(part))
        # Not zeroed: a peer that announces much and sends little costs no memory.
        self._frame = np.empty(size, dtype=np.uint8).data
        self._frame[:available] = part
        self._filled = available
        return None

    def _pause_reading(self) -> None:
        if not self._transport.is_closing():
            self._transport.pause_reading()


def _size(answer: Buffers) -> bytes:
    """Return the size of a response, as it stands before it."""
    return sum(map(len, answer)).to_bytes(_SIZE_BYTES, "big")

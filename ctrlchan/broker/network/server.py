"""The socket server: frames in, responses out. The only file of this room that opens sockets.

A frame is a 4-byte size and so many bytes. The requests of one connection are handled one by one, in
order: the next one is looked at when the response to the former has left for the kernel, as Kafka's
SocketServer mutes a channel. So a peer that does not read holds up only itself, with one response.

Receiving: what comes first goes to a small buffer, where frames that fit are found. A larger frame gets
memory of its own, exactly its size, which the kernel then writes into: no byte is moved twice, and the
columns of a request may go on referring to it.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import numpy as np

from ctrlchan.errors import ProtocolError

__all__ = ["DEFAULT_IDLE_TIMEOUT", "DEFAULT_MAX_REQUEST_BYTES", "Answer", "Buffers", "FrameHandler", "Server"]

logger = logging.getLogger("ctrlchan.broker")

DEFAULT_MAX_REQUEST_BYTES = 100 * 1024 * 1024  # Kafka's socket.request.max.bytes
DEFAULT_IDLE_TIMEOUT = 600.0  # seconds; Kafka's connections.max.idle.ms

_SIZE_BYTES = 4
_SMALL_BUFFER = 64 * 1024  # holds many small requests: one system call reads them all
_ACCEPT_PAUSE = 0.1  # seconds, after accept has failed
_BACKLOG = 1024  # a controller may connect to every broker of a process at once

Buffers = Sequence[bytes | bytearray | memoryview]
#: The response's buffers, or a function that makes them and may take long: it is run on a thread.
Answer = Buffers | Callable[[], Buffers]
#: Gets a frame without its size. A ProtocolError closes the connection, as Kafka does.
FrameHandler = Callable[[memoryview], Answer]


class Server:
    """Listens on one address and hands every frame to ``handle``. Belongs to one event loop.

    ``max_request_bytes``: a larger (or negative) size closes the connection. ``idle_timeout``: seconds
    without a byte in either direction after which a connection is closed; None: never. ``response_delay``:
    seconds between the handling of a request and its answer, for brokers that are to be slow.
    """

    def __init__(
        self,
        handle: FrameHandler,
        host: str,
        port: int,
        *,
        executor: ThreadPoolExecutor,
        max_request_bytes: int = DEFAULT_MAX_REQUEST_BYTES,
        idle_timeout: float | None = DEFAULT_IDLE_TIMEOUT,
        response_delay: float = 0.0,
    ) -> None:
        self.handle = handle
        self.host = host
        self.port = port
        self.executor = executor
        self.max_request_bytes = max_request_bytes
        self.idle_timeout = idle_timeout
        self.response_delay = response_delay
        self.connections: set[_Connection] = set()
        self._listener: socket.socket | None = None
        self._connecting: set[asyncio.Task[Any]] = set()
        self._sweep: asyncio.TimerHandle | None = None

    async def start(self) -> int:
        """Bind and listen; returns the port (the chosen one when ``port`` was 0). Raises OSError."""
        loop = asyncio.get_running_loop()
        addresses = await loop.getaddrinfo(
            self.host, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, _, _, _, address = addresses[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setblocking(False)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(_BACKLOG)
        except OSError as error:
            listener.close()
            raise OSError(
                error.errno, f"cannot listen on {self.host}:{self.port}: {error.strerror}"
            ) from None
        self.port = cast(int, listener.getsockname()[1])
        self._listener = listener
        loop.add_reader(listener, self._accept, loop, listener)
        if self.idle_timeout is not None:
            self._sweep = loop.call_later(self.idle_timeout / 2, self._close_idle, loop)
        return self.port

    async def stop(self) -> None:
        """Stop listening and drop every connection. Answers that are being made are thrown away."""
        if self._sweep is not None:
            self._sweep.cancel()
        if self._listener is None:
            return
        asyncio.get_running_loop().remove_reader(self._listener)
        self._listener.close()
        self._listener = None
        if self._connecting:
            await asyncio.wait(self._connecting)
        dropped = [connection.abort() for connection in list(self.connections)]
        if dropped:
            await asyncio.wait(dropped)

    # Not loop.create_server, nor loop.sock_accept: both lose a connection that is accepted in the moment
    # in which they are closed.
    def _accept(self, loop: asyncio.AbstractEventLoop, listener: socket.socket) -> None:
        for _ in range(_BACKLOG):
            try:
                peer, _ = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # Descriptors are short; others will be freed.
                logger.warning("cannot accept a connection on port %d: %s", self.port, error)
                loop.remove_reader(listener)
                loop.call_later(_ACCEPT_PAUSE, self._accept_again, loop)
                return
            peer.setblocking(False)
            task = loop.create_task(loop.connect_accepted_socket(lambda: _Connection(self, loop), peer))
            self._connecting.add(task)
            task.add_done_callback(self._connecting.discard)

    def _accept_again(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._listener is not None:
            loop.add_reader(self._listener, self._accept, loop, self._listener)

    def _close_idle(self, loop: asyncio.AbstractEventLoop) -> None:
        assert self.idle_timeout is not None
        oldest = loop.time() - self.idle_timeout
        for connection in list(self.connections):
            if connection.last_active < oldest and not connection.answering:
                logger.info("closing a connection of %s: idle for %.0f s", connection.peer, self.idle_timeout)
                connection.abort()
        self._sweep = loop.call_later(self.idle_timeout / 2, self._close_idle, loop)


class _Connection(asyncio.BufferedProtocol):
    """One peer: finds the frames, hands them on one at a time, writes the answers."""

    def __init__(self, server: Server, loop: asyncio.AbstractEventLoop) -> None:
        self.answering = False
        self.last_active = loop.time()
        self.peer = "?"
        self._server = server
        self._loop = loop
        self._transport: asyncio.Transport
        self._closed: asyncio.Future[None] = loop.create_future()
        self._writing_paused = False
        # Bytes [start, end) of the small buffer are not yet looked at.
        self._small = memoryview(bytearray(_SMALL_BUFFER))
        self._start = 0
        self._end = 0
        # A frame that is too large for it: the frame's own memory and how much of it is there.
        self._large: memoryview | None = None
        self._filled = 0

    def abort(self) -> asyncio.Future[None]:
        """Close now, without sending what is buffered; the future is done when the socket is closed."""
        self._transport.abort()
        return self._closed

    # -- what the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        # Writing counts as paused until the kernel has taken the last byte.
        self._transport.set_write_buffer_limits(high=0)
        sock = self._transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        peer = self._transport.get_extra_info("peername")
        if peer:
            self.peer = f"{peer[0]}:{peer[1]}"
        self._server.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.connections.discard(self)
        self._large = None
        if not self._closed.done():
            self._closed.set_result(None)

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._large is not None:
            return self._large[self._filled :]
        return self._small[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        self.last_active = self._loop.time()
        if self._large is not None:
            self._filled += nbytes
        else:
            self._end += nbytes
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
        """Handle what is complete, until an answer must be waited for or more bytes are needed."""
        while not (self.answering or self._writing_paused or self._transport.is_closing()):
            try:
                frame = self._next_frame()
                if frame is None:
                    self._transport.resume_reading()
                    return
                answer = self._server.handle(frame)
            except ProtocolError as error:
                logger.warning("closing the connection of %s: %s", self.peer, error)
                self.abort()
                return
            except Exception:
                logger.exception("closing the connection of %s", self.peer)
                self.abort()
                return
            if self._server.response_delay:
                self.answering = True
                self._loop.call_later(self._server.response_delay, self._answer_delayed, answer)
            else:
                self._answer(answer)
        self._pause_reading()

    def _answer_delayed(self, answer: Answer) -> None:
        self.answering = False
        if not self._transport.is_closing():
            self._answer(answer)
            self._advance()

    def _answer(self, answer: Answer) -> None:
        if callable(answer):
            self._answer_later(answer)
        else:
            self.last_active = self._loop.time()
            self._transport.writelines(answer)

    def _next_frame(self) -> memoryview | None:
        """The next complete frame, or None when there must come more; then there is room for it."""
        if self._large is not None:
            if self._filled < len(self._large):
                return None
            frame, self._large = self._large, None
            return frame
        available = self._end - self._start - _SIZE_BYTES
        if available < 0:
            self._make_room()
            return None
        body = self._start + _SIZE_BYTES
        size = int.from_bytes(self._small[self._start : body], "big", signed=True)
        if not 0 <= size <= self._server.max_request_bytes:
            raise ProtocolError(
                f"a frame of {size:,} bytes; the largest allowed is {self._server.max_request_bytes:,}"
            )
        if size <= available:
            # A copy: the small buffer is used again while columns may still refer to the frame.
            frame = memoryview(bytes(self._small[body : body + size]))
            self._start = body + size
            return frame
        if size + _SIZE_BYTES <= len(self._small):
            self._make_room()
            return None
        # Not zeroed: a peer that announces much and sends little costs no memory.
        self._large = np.empty(size, dtype=np.uint8).data
        self._large[:available] = self._small[body : self._end]
        self._filled = available
        self._start = self._end = 0
        return None

    def _make_room(self) -> None:
        """Move the beginning of a frame to the front, so that the rest of it fits behind."""
        left = self._end - self._start
        self._small[:left] = bytes(self._small[self._start : self._end])
        self._start, self._end = 0, left

    def _answer_later(self, make: Callable[[], Buffers]) -> None:
        self.answering = True
        future = self._loop.run_in_executor(self._server.executor, make)
        future.add_done_callback(self._answered)

    def _answered(self, future: asyncio.Future[Buffers]) -> None:
        self.answering = False
        if self._transport.is_closing() or future.cancelled():
            return
        error = future.exception()
        if error is not None:
            logger.error("closing the connection of %s: %r", self.peer, error)
            self.abort()
            return
        self.last_active = self._loop.time()
        self._transport.writelines(future.result())
        self._advance()

    def _pause_reading(self) -> None:
        if not self._transport.is_closing():
            self._transport.pause_reading()

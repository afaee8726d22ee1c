"""A TCP proxy that cuts, stalls, halves, delays, slows down or corrupts connections."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Final, TypeAlias

from ctrlchan import Broker, Endpoint, SecurityProtocol

__all__ = ["FINE", "Harm", "Plan", "Proxy"]

_PIECE: Final = 64 * 1024
#: Closing sends RST at once instead of what is still buffered and FIN.
_RESET: Final = struct.pack("ii", 1, 0)


@dataclass(frozen=True)
class Harm:
    """The faults in one direction of one connection; positions count from its first byte."""

    #: Both sides are closed after this many bytes; ``reset``: with RST instead of FIN.
    cut_at: int | None = None
    reset: bool = False
    #: From this byte on nothing passes, and the connection stays open.
    stall_at: int | None = None
    #: Every piece is passed on in two writes.
    halve: bool = False
    #: Seconds by which each piece is delayed.
    delay: float = 0.0
    #: Bytes per second.
    rate: float | None = None
    #: All bits of this byte are inverted.
    corrupt_at: int | None = None


FINE: Final = Harm()

#: Number of the connection, from 0 -> faults of (requests, responses).
Plan: TypeAlias = Callable[[int], tuple[Harm, Harm]]


@dataclass(eq=False)
class _Pair:
    """One connection through the proxy."""

    sockets: tuple[socket.socket, socket.socket]
    harms: tuple[Harm, Harm]
    over: threading.Event = field(default_factory=threading.Event)

    def close(self, reset: bool = False) -> None:
        self.over.set()
        for sock in self.sockets:
            with suppress(OSError):
                if reset:
                    # Closing sends the RST; this wakes the reading thread, so that it closes.
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                    sock.shutdown(socket.SHUT_RD)
                else:
                    sock.shutdown(socket.SHUT_RDWR)


class Proxy:
    """Listens on ``host`` and passes on to 127.0.0.1:``target``; a context manager.

    ``plan`` is called for each connection. It may be replaced at any time, for later connections.
    """

    def __init__(
        self,
        target: int,
        plan: Plan = lambda _: (FINE, FINE),
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        receive_buffer: int = 0,
    ) -> None:
        self.target = target
        self.plan = plan
        self.host = host
        self.port = port
        self.connections = 0
        self._receive_buffer = receive_buffer
        self._lock = threading.Lock()
        self._pairs: set[_Pair] = set()
        self._threads: list[threading.Thread] = []
        self._listener: socket.socket | None = None
        self.listen()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def broker(self, broker_id: int = 1, epoch: int = 1001) -> Broker:
        """Return the broker behind the proxy, with the proxy as its endpoint."""
        endpoint = Endpoint("PLAINTEXT", SecurityProtocol.PLAINTEXT, self.host, self.port)
        return Broker(broker_id, epoch, (endpoint,))

    @property
    def is_listening(self) -> bool:
        return self._listener is not None

    @property
    def open_connections(self) -> int:
        with self._lock:
            return len(self._pairs)

    def listen(self) -> None:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if self._receive_buffer:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer)
        listener.bind((self.host, self.port))
        listener.listen(128)
        self.port = listener.getsockname()[1]
        self._listener = listener
        self._start(self._accept, listener)

    def stop_listening(self) -> None:
        """Refuse new connections."""
        listener, self._listener = self._listener, None
        if listener is not None:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()

    def drop_connections(self, reset: bool = False) -> None:
        with self._lock:
            pairs = list(self._pairs)
        for pair in pairs:
            pair.close(reset)

    def close(self) -> None:
        self.stop_listening()
        self.drop_connections()
        for thread in self._threads:
            thread.join(10)

    # -- threads

    def _start(self, target: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        with self._lock:
            self._threads = [one for one in self._threads if one.is_alive() or one.ident is None]
            self._threads.append(thread)
        thread.start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            number, self.connections = self.connections, self.connections + 1
            try:
                broker = socket.create_connection(("127.0.0.1", self.target), timeout=10)
            except OSError:
                client.close()
                continue
            broker.settimeout(None)
            for sock in (client, broker):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._start(self._serve, _Pair((client, broker), self.plan(number)))

    def _serve(self, pair: _Pair) -> None:
        client, broker = pair.sockets
        with self._lock:
            self._pairs.add(pair)
        try:
            back = threading.Thread(target=_pump, args=(pair, broker, client, pair.harms[1]), daemon=True)
            back.start()
            _pump(pair, client, broker, pair.harms[0])
            back.join()
        finally:
            with self._lock:
                self._pairs.discard(pair)
            client.close()
            broker.close()


def _pump(pair: _Pair, source: socket.socket, sink: socket.socket, harm: Harm) -> None:
    """Pass bytes on until either side closes or a fault ends the connection."""
    passed, reset = 0, False
    # At a limited rate, the bytes of a tenth of a second.
    piece = _PIECE if harm.rate is None else max(1, int(harm.rate / 10))
    try:
        while harm.cut_at is None or passed < harm.cut_at:
            if harm.stall_at is not None and passed >= harm.stall_at:
                pair.over.wait()
                return
            ends = [end - passed for end in (harm.cut_at, harm.stall_at) if end is not None]
            data = bytearray(source.recv(min([piece, *ends])))
            if not data:
                return
            begun = monotonic()
            if harm.corrupt_at is not None and passed <= harm.corrupt_at < passed + len(data):
                data[harm.corrupt_at - passed] ^= 0xFF
            if harm.delay and pair.over.wait(harm.delay):
                return
            half = len(data) // 2 if harm.halve else 0
            if half:
                sink.sendall(data[:half])
                # Otherwise TCP might join the two writes.
                if pair.over.wait(0.001):
                    return
            sink.sendall(data[half:])
            passed += len(data)
            if harm.rate is not None and pair.over.wait(begun + len(data) / harm.rate - monotonic()):
                return
        reset = harm.reset
    except OSError:
        pass
    finally:
        pair.close(reset)

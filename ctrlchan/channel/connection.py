"""TCP to one broker: names, connecting, closing. The only file of the channel that opens sockets."""

from __future__ import annotations

import errno
import os
import socket
import threading
from collections import deque
from contextlib import suppress
from typing import Any, Final, TypeAlias

__all__ = ["Address", "Connection", "Resolver"]

#: (address family, socket address), as ``socket`` wants them.
Address: TypeAlias = tuple[int, tuple[Any, ...]]

_IN_PROGRESS: Final = frozenset((0, errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EINTR))


class Connection:
    """A non-blocking TCP connection that was begun; it sends and receives as its socket does."""

    __slots__ = ("_socket", "fd", "receive", "send", "send_parts")

    def __init__(self, address: Address) -> None:
        """Begin to connect. OSError when it fails at once."""
        family, where = address
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        try:
            self._socket.setblocking(False)
            # A small frame would wait for the acknowledgement of the one before it.
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            error = self._socket.connect_ex(where)
            if error not in _IN_PROGRESS:
                raise OSError(error, os.strerror(error))
        except BaseException:
            self._socket.close()
            raise
        self.fd = self._socket.fileno()
        self.send = self._socket.send
        self.send_parts = self._socket.sendmsg
        self.receive = self._socket.recv

    def finish(self) -> int:
        """Call when it is writable: 0 when connected, else the errno."""
        error = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            return error
        try:
            # A port of this host that nobody listens on may, by chance, be given to this very connection.
            if self._socket.getsockname() == self._socket.getpeername():
                return errno.ECONNREFUSED
        except OSError as problem:
            return problem.errno or errno.ENOTCONN
        return 0

    def close(self) -> None:
        self._socket.close()


class Resolver:
    """Host names to addresses; numeric ones at once, others in a thread, so that nobody else waits for DNS.

    ``fd`` is readable when ``collect`` has something. Names are resolved anew for each connection.
    """

    def __init__(self) -> None:
        self.fd, self._wake = os.pipe()
        os.set_blocking(self.fd, False)
        self._found: deque[tuple[int, list[Address] | OSError]] = deque()

    def resolve(self, ticket: int, host: str, port: int) -> list[Address] | None:
        """The addresses, or None: ``collect`` will have them under ``ticket``."""
        try:
            return _addresses(host, port, socket.AI_NUMERICHOST)
        except (OSError, UnicodeError):
            threading.Thread(target=self._look_up, args=(ticket, host, port), daemon=True).start()
            return None

    def collect(self) -> list[tuple[int, list[Address] | OSError]]:
        with suppress(BlockingIOError):
            os.read(self.fd, 4096)
        found = []
        while self._found:
            found.append(self._found.popleft())
        return found

    def _look_up(self, ticket: int, host: str, port: int) -> None:
        try:
            self._found.append((ticket, _addresses(host, port, 0)))
        except OSError as problem:
            self._found.append((ticket, problem))
        except UnicodeError as problem:
            self._found.append((ticket, OSError(errno.EINVAL, str(problem))))
        os.write(self._wake, b"\0")

    def close(self) -> None:
        os.close(self.fd)
        os.close(self._wake)


def _addresses(host: str, port: int, flags: int) -> list[Address]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    return [(family, where) for family, _, _, _, where in found]

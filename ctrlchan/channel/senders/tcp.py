"""TCP to a broker: name look-up, connecting, closing. The only file of the channel that opens TCP sockets."""

from __future__ import annotations

import errno
import os
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias

from ctrlchan.channel.senders.results import Results

__all__ = ["Address", "Buffer", "Resolver", "TcpConnection"]

#: (address family, socket address), as ``socket`` wants them.
Address: TypeAlias = tuple[int, tuple[Any, ...]]

Buffer: TypeAlias = bytes | bytearray | memoryview

_IN_PROGRESS: Final = frozenset((0, errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EINTR))


class TcpConnection:
    """A non-blocking TCP connection; ``send``, ``send_parts`` and ``receive`` are those of its socket."""

    __slots__ = ("_socket", "fd", "plain_socket", "receive", "send", "send_parts")

    send: Callable[[Buffer], int]
    send_parts: Callable[[Sequence[Buffer]], int]
    receive: Callable[[int], bytes]

    def __init__(self, address: Address) -> None:
        """Begin to connect. Raises OSError when that fails at once."""
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
        #: The same where bytes pass it unchanged, so that the fast path may use it; else -1.
        self.plain_socket = self.fd
        self.send = self._socket.send
        self.send_parts = self._socket.sendmsg
        self.receive = self._socket.recv

    def finish(self) -> int:
        """Call when it is writable: return 0 when it is connected, else the errno."""
        error = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            return error
        try:
            # The kernel may give this connection, by chance, the very port of this host that it connects to.
            if self._socket.getsockname() == self._socket.getpeername():
                return errno.ECONNREFUSED
        except OSError as problem:
            return problem.errno or errno.ENOTCONN
        return 0

    def advance_tls(self) -> int:
        """Return what to wait for (READ, WRITE) before the next call, or 0: there is no TLS here."""
        return 0

    def close(self) -> None:
        self._socket.close()


class Resolver:
    """Looks up host names, in threads: no broker waits for another's DNS. Numeric addresses need no thread.

    ``fd`` is readable when ``collect`` has results. Names are looked up anew for each connection.
    """

    def __init__(self) -> None:
        self._results: Results[list[Address] | OSError] = Results()
        self.fd = self._results.fd

    def resolve(self, ticket: int, host: str, port: int) -> list[Address] | None:
        """Return the addresses, or None if ``collect`` will return them with this ticket."""
        numeric = _numeric(host, port)
        if numeric is None:
            threading.Thread(target=self._look_up, args=(ticket, host, port), daemon=True).start()
            return None
        return [numeric]

    def collect(self) -> list[tuple[int, list[Address] | OSError]]:
        """Return (ticket, addresses or the error) of the look-ups that have ended."""
        return self._results.collect()

    def _look_up(self, ticket: int, host: str, port: int) -> None:
        result: list[Address] | OSError
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            result = [(family, where) for family, _, _, _, where in found]
        except OSError as problem:
            result = problem
        except UnicodeError as problem:
            result = OSError(errno.EINVAL, str(problem))
        self._results.put(ticket, result)

    def close(self) -> None:
        self._results.close()


def _numeric(host: str, port: int) -> Address | None:
    """Return a numeric address, or None for a name.

    Without ``getaddrinfo``, for which Python would load its tables of international names (1 MB).
    """
    for family, where in ((socket.AF_INET, (host, port)), (socket.AF_INET6, (host, port, 0, 0))):
        with suppress(OSError):
            socket.inet_pton(family, host)
            return family, where
    return None

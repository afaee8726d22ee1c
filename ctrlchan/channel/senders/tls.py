"""TLS on a connection to a broker: OpenSSL under the sender's event loop, through the standard library.

Only a sender whose brokers use TLS imports this.
"""

from __future__ import annotations

import errno
import ssl
from collections.abc import Sequence
from typing import Final

from ctrlchan.channel.senders.tcp import Address, Buffer, TcpConnection
from ctrlchan.channel.wire.poller import READ, WRITE
from ctrlchan.security.failure import ConnectionFailed, Failure
from ctrlchan.security.settings import TlsSettings
from ctrlchan.security.tls_context import check_suite
from ctrlchan.security.tls_errors import REASON_TEXT, broken

__all__ = ["TlsConnection"]

#: OpenSSL takes a buffer whole, record by record, or asks for the same bytes again: it gets so much.
_PIECE: Final = 256 * 1024

_NO_ANSWER: Final = (
    "the broker closed the connection before it sent anything; "
    "perhaps it does not accept our certificate, or wants one"
)


class TlsConnection(TcpConnection):
    """A TCP connection under TLS: call ``advance_tls`` after ``finish``, until it returns 0."""

    __slots__ = ("_context", "_has_received", "_host", "_settings", "_tls")

    def __init__(self, address: Address, context: ssl.SSLContext, host: str, settings: TlsSettings) -> None:
        super().__init__(address)
        self.plain_socket = -1
        self._context = context
        self._settings = settings
        # Whether a byte has arrived under TLS.
        self._has_received = False
        # A name that ends in a dot is absolute; a certificate has it without.
        self._host = host.rstrip(".")

    def finish(self) -> int:
        error = super().finish()
        if error:
            return error
        try:
            self._tls = self._context.wrap_socket(
                self._socket, server_hostname=self._host, do_handshake_on_connect=False
            )
        except ValueError:
            raise ConnectionFailed(Failure.TLS, "no certificate can be for the broker's host name") from None
        except OSError as problem:
            return problem.errno or errno.ENOTCONN
        # It has taken over the descriptor.
        self._socket = self._tls
        self.send = self._send
        self.send_parts = self._send_first
        self.receive = self._receive
        return 0

    def advance_tls(self) -> int:
        """Go on with TLS's handshake; return what to wait for (READ or WRITE), or 0 when it is over."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return READ
        except ssl.SSLWantWriteError:
            return WRITE
        except ssl.SSLError as problem:
            raise broken(problem) from None
        check_suite(self._tls, self._settings)
        return 0

    def _send(self, data: Buffer) -> int:
        """Send as ``socket.send`` does. After BlockingIOError the same bytes must be given again."""
        try:
            return self._tls.send(memoryview(data)[:_PIECE])
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None
        except (ssl.SSLEOFError, ConnectionError):
            raise self._lost() from None
        except ssl.SSLError as problem:
            raise broken(problem) from None

    def _send_first(self, parts: Sequence[Buffer]) -> int:
        """Send as ``socket.sendmsg`` does, but never more than the first part that is not empty."""
        return self._send(next(part for part in parts if len(part)))

    def _receive(self, count: int) -> bytes:
        """Receive as ``socket.recv`` does, and the rest of a record in OpenSSL, which no poller reports."""
        tls = self._tls
        try:
            data = tls.recv(count)
            while waiting := tls.pending():
                data += tls.recv(waiting)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None
        except ConnectionError:
            raise self._lost() from None
        except ssl.SSLError as problem:
            raise broken(problem) from None
        if not data and not self._has_received:
            raise self._lost()
        self._has_received = True
        return data

    def _lost(self) -> ConnectionFailed:
        """Return why the connection ended, as far as it can be known.

        With TLS 1.3 our handshake ends before the broker has checked our certificate; its refusal arrives
        later, and may be lost with the connection.
        """
        if self._has_received:
            return ConnectionFailed(Failure.CLOSED)
        try:
            self._tls.recv(1)
        except ssl.SSLError as problem:
            if problem.reason in REASON_TEXT:
                return broken(problem)
        except OSError:
            pass
        return ConnectionFailed(Failure.TLS, _NO_ANSWER)

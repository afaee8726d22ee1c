"""TLS on a connection to a broker: OpenSSL under the sender's event loop, through the standard library.

Only a sender whose brokers use TLS imports this.
"""

from __future__ import annotations

import errno
import os
import ssl
from collections.abc import Sequence
from typing import Final

from ctrlchan.channel.senders.failure import ConnectionFailed
from ctrlchan.channel.senders.tcp import Address, Buffer, TcpConnection
from ctrlchan.channel.wire.poller import READ, WRITE
from ctrlchan.channel.wire.records import Failure
from ctrlchan.channel.wire.security import TlsSettings
from ctrlchan.channel.wire.tls_context import context_of

__all__ = ["TlsConnection", "TlsContexts"]

#: OpenSSL takes a buffer whole, record by record, or asks for the same bytes again: it gets so much.
_PIECE: Final = 256 * 1024

#: OpenSSL's reasons (X509_V_ERR_...) as text that shows what to do.
_VERIFY_TEXT: Final = {
    10: "it has expired",
    9: "it is not yet valid",
    18: "it is signed by itself and not among the trusted certificates",
    19: "an authority that is not trusted has signed it",
    20: "an authority that is not trusted has signed it",
    21: "an authority that is not trusted has signed it",
    62: "it is not for this host name",
    64: "it is not for this IP address",
}
#: The same for ``SSLError.reason``.
_REASON_TEXT: Final = {
    "WRONG_VERSION_NUMBER": "the broker does not use TLS on this port",
    "UNSUPPORTED_PROTOCOL": "the broker offers only a protocol version that is not allowed",
    "TLSV1_ALERT_PROTOCOL_VERSION": "the broker has none of the allowed protocol versions",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "the broker wants a client certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the broker refuses our certificate, or wants one",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the broker does not accept our certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the broker finds that our certificate has expired",
    "TLSV1_ALERT_UNKNOWN_CA": "the broker does not trust the authority of our certificate",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "the broker refuses: no common cipher, or it wants a client certificate",
    "NO_PROTOCOLS_AVAILABLE": "this platform's OpenSSL has none of the allowed protocol versions",
}


_NO_ANSWER: Final = (
    "the broker closed the connection before it sent anything; "
    "perhaps it does not accept our certificate, or wants one"
)


class TlsConnection(TcpConnection):
    """A TCP connection under TLS: call ``advance_tls`` after ``finish``, until it returns 0."""

    __slots__ = ("_context", "_has_received", "_host", "_tls")

    def __init__(self, address: Address, context: ssl.SSLContext, host: str) -> None:
        super().__init__(address)
        self.plain_socket = -1
        self._context = context
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
            raise _broken(problem) from None
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
            raise _broken(problem) from None

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
            raise _broken(problem) from None
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
            if problem.reason in _REASON_TEXT:
                return _broken(problem)
        except OSError:
            pass
        return ConnectionFailed(Failure.TLS, _NO_ANSWER)


class TlsContexts:
    """Makes the context for the next connection, anew when one of the files has changed."""

    def __init__(self, settings: TlsSettings) -> None:
        self._settings = settings
        self._context: ssl.SSLContext | None = None
        self._file_states: object = None

    def current(self) -> ssl.SSLContext:
        """Return the context of the files as they are now.

        While files are replaced one after the other they do not fit together: the context of the last ones
        that did is returned. Raises ConnectionFailed (CREDENTIALS) when there is none.
        """
        file_states = [_state_of(file) for file in self._settings.files]
        if self._context is None or file_states != self._file_states:
            try:
                self._context = context_of(self._settings)
            except (OSError, ValueError) as problem:
                if self._context is None:
                    raise ConnectionFailed(Failure.CREDENTIALS, str(problem)) from None
            else:
                self._file_states = file_states
        return self._context


def _state_of(name: str) -> object:
    try:
        found = os.stat(name)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _broken(problem: ssl.SSLError) -> ConnectionFailed:
    if isinstance(problem, ssl.SSLCertVerificationError):
        reason = _VERIFY_TEXT.get(problem.verify_code, problem.verify_message)
        return ConnectionFailed(Failure.CERTIFICATE, reason)
    if isinstance(problem, ssl.SSLEOFError):
        return ConnectionFailed(Failure.TLS, "the broker closed the connection in the middle of it")
    reason = problem.reason or ""
    return ConnectionFailed(
        Failure.TLS, _REASON_TEXT.get(reason, reason.replace("_", " ").lower() or "no reason given")
    )

"""TLS on a channel's connection: OpenSSL under the sender's event loop, through the standard library.

Only a sender whose brokers speak TLS imports this. A context is made from files when the first connection
needs it, and made again for the next connection when one of them has changed.
"""

from __future__ import annotations

import errno
import os
import ssl
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from ctrlchan.channel.senders.connection import Address, Buffer, Connection
from ctrlchan.channel.senders.link import Broken
from ctrlchan.channel.wire.poller import READ, WRITE
from ctrlchan.channel.wire.records import Failure
from ctrlchan.channel.wire.security import TlsSettings

__all__ = ["TlsConnection", "TlsContexts"]

#: OpenSSL takes a buffer whole, record by record, or says "again, with the same": so much is given at once.
_PIECE: Final = 256 * 1024

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}

#: OpenSSL's reasons (X509_V_ERR_...) in words that say what to do.
_VERIFY_WORDS: Final = {
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
_REASON_WORDS: Final = {
    "WRONG_VERSION_NUMBER": "the broker does not speak TLS on this port",
    "UNSUPPORTED_PROTOCOL": "the broker offers only a protocol version that is not allowed",
    "TLSV1_ALERT_PROTOCOL_VERSION": "the broker has none of the allowed protocol versions",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "the broker wants a client certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the broker refuses our certificate, or wants one",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the broker does not accept our certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the broker says that our certificate has expired",
    "TLSV1_ALERT_UNKNOWN_CA": "the broker does not trust the authority of our certificate",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "the broker refuses: no common cipher, or it wants a client certificate",
    "NO_PROTOCOLS_AVAILABLE": "this platform's OpenSSL has none of the allowed protocol versions",
}


_SILENT: Final = (
    "the broker closed the connection before it said anything; "
    "perhaps it does not accept our certificate, or wants one"
)


class TlsConnection(Connection):
    """A Connection that must ``shake`` hands after ``finish``, and then sends and receives under TLS."""

    __slots__ = ("_context", "_heard", "_host", "_tls")

    def __init__(self, address: Address, context: ssl.SSLContext, host: str) -> None:
        super().__init__(address)
        self.direct = -1
        self._context = context
        # Whether a byte has come under TLS.
        self._heard = False
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
            raise Broken(Failure.TLS, "the broker's host name cannot be asked for") from None
        except OSError as problem:
            return problem.errno or errno.ENOTCONN
        # It has taken over the descriptor.
        self._socket = self._tls
        self.send = self._send
        self.send_parts = self._send_first
        self.receive = self._receive
        return 0

    def shake(self) -> int:
        """What to wait for before the next call: READ or WRITE; 0 when both sides are sure."""
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
        """As ``socket.send``. What was refused with BlockingIOError must be given again, the same bytes."""
        try:
            return self._tls.send(memoryview(data)[:_PIECE])
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None
        except (ssl.SSLEOFError, ConnectionError):
            raise self._lost() from None
        except ssl.SSLError as problem:
            raise _broken(problem) from None

    def _send_first(self, parts: Sequence[Buffer]) -> int:
        """As ``socket.sendmsg``, which TLS does not have: never more than the first part with anything."""
        return self._send(next(part for part in parts if len(part)))

    def _receive(self, count: int) -> bytes:
        """As ``socket.recv``, and whatever more of a record OpenSSL holds: no poller would tell of that."""
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
        if not data and not self._heard:
            raise self._lost()
        self._heard = True
        return data

    def _lost(self) -> Broken:
        """Why the connection ended, as far as it can be known.

        With TLS 1.3 our side is sure before the broker has looked at our certificate; a word of refusal comes
        later, and may be lost with the connection.
        """
        if self._heard:
            return Broken(Failure.CLOSED)
        try:
            self._tls.recv(1)
        except ssl.SSLError as problem:
            if problem.reason in _REASON_WORDS:
                return _broken(problem)
        except OSError:
            pass
        return Broken(Failure.TLS, _SILENT)


class TlsContexts:
    """The context for the next connection: of the files as they are now, made anew when one has changed."""

    def __init__(self, settings: TlsSettings) -> None:
        self._settings = settings
        self._context: ssl.SSLContext | None = None
        self._seen: object = None

    def current(self) -> ssl.SSLContext:
        """Raises Broken (CREDENTIALS) when the files cannot be used and never could be.

        Files that are changed one after the other do not fit for a moment: the last ones that did are used
        until the new ones do.
        """
        seen = [_state_of(file) for file in self._settings.files]
        if self._context is None or seen != self._seen:
            try:
                self._context = context_of(self._settings)
            except (OSError, ValueError) as problem:
                if self._context is None:
                    raise Broken(Failure.CREDENTIALS, str(problem)) from None
            else:
                self._seen = seen
        return self._context


def context_of(settings: TlsSettings) -> ssl.SSLContext:
    """Raises ValueError or OSError naming what cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    versions = [_VERSIONS[version] for version in settings.versions]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    context.check_hostname = settings.verify_host_name
    # A broker that could ask for a second handshake could also make a writer wait for its bytes.
    context.options |= ssl.OP_NO_RENEGOTIATION
    _trust(context, settings)
    if settings.certificate_pem is not None and settings.key_pem is not None:
        _show(context, settings.certificate_pem + "\n" + settings.key_pem, settings.key_password, "key_pem")
    elif settings.certificate_file is not None:
        _show_file(context, settings.certificate_file, settings)
    return context


def _trust(context: ssl.SSLContext, settings: TlsSettings) -> None:
    if settings.ca_pem is not None:
        _trust_pem(context, settings.ca_pem, "ca_pem")
    elif settings.ca_file is not None:
        data = _read(settings.ca_file)
        if not _is_pem(data):
            from ctrlchan.channel.senders.keystore import certificates_of

            pem = certificates_of(data, settings.truststore_password, settings.ca_file)
        else:
            pem = data.decode("ascii", "replace")
        _trust_pem(context, pem, settings.ca_file)
    else:
        context.load_default_certs()


def _trust_pem(context: ssl.SSLContext, pem: str, name: str) -> None:
    try:
        context.load_verify_locations(cadata=pem)
    except (ssl.SSLError, ValueError):
        raise ValueError(f"{name}: no certificates in PEM that can be read") from None


def _show_file(context: ssl.SSLContext, name: str, settings: TlsSettings) -> None:
    data = _read(name)
    if _is_pem(data):
        key = None if settings.key_file is None else _read(settings.key_file)
        pem = data + b"\n" + (key or b"")
        _show(context, pem.decode("ascii", "replace"), settings.key_password, settings.key_file or name)
        return
    from ctrlchan.channel.senders.keystore import key_of

    _show(context, key_of(data, settings.keystore_password, name), None, name)


def _show(context: ssl.SSLContext, pem: str, password: str | None, name: str) -> None:
    """Have the context show this certificate, which OpenSSL takes from a file only."""
    file, path = _private_file(pem)
    # A function: without one OpenSSL asks on the terminal.
    answer: Callable[[], str] = lambda: password or ""  # noqa: E731
    try:
        context.load_cert_chain(path, password=answer)
    except (ssl.SSLError, ValueError, OSError) as problem:
        if getattr(problem, "reason", None) == "KEY_VALUES_MISMATCH":
            why = "the private key is not that of the certificate"
        elif "ENCRYPTED" in pem:
            why = "the private key is encrypted, and its password is not this one"
        else:
            why = "no private key and certificate in PEM that can be read"
        raise ValueError(f"{name}: {why}") from None
    finally:
        os.close(file)
        if not path.startswith("/proc/"):
            with suppress(OSError):
                os.unlink(path)


def _private_file(pem: str) -> tuple[int, str]:
    """A descriptor, and a path to the same bytes, in memory where there is such a thing."""
    if hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd"):
        file = os.memfd_create("ctrlchan-key", os.MFD_CLOEXEC)
        path = f"/proc/self/fd/{file}"
    else:
        file, path = tempfile.mkstemp()
    with open(file, "wb", closefd=False) as stream:
        stream.write(pem.encode())
    return file, path


def _read(name: str) -> bytes:
    try:
        with open(name, "rb") as file:
            return file.read()
    except OSError as problem:
        raise ValueError(f"{name}: {problem.strerror}") from None


def _is_pem(data: bytes) -> bool:
    return b"-----BEGIN " in data


def _state_of(name: str) -> object:
    try:
        found = os.stat(name)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _broken(problem: ssl.SSLError) -> Broken:
    if isinstance(problem, ssl.SSLCertVerificationError):
        words = _VERIFY_WORDS.get(problem.verify_code, problem.verify_message)
        return Broken(Failure.CERTIFICATE, words)
    if isinstance(problem, ssl.SSLEOFError):
        return Broken(Failure.TLS, "the broker closed the connection in the middle of it")
    reason = problem.reason or ""
    return Broken(
        Failure.TLS, _REASON_WORDS.get(reason, reason.replace("_", " ").lower() or "no reason given")
    )

"""TLS contexts from settings.

The parent of a channel makes one to check the settings; its senders, the connections between nodes and the
sessions with ZooKeeper have one to connect.
"""

from __future__ import annotations

import logging
import os
import ssl
import tempfile
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from ctrlchan.security.ciphers import openssl_suites
from ctrlchan.security.failure import ConnectionFailed, Failure
from ctrlchan.security.settings import TlsSettings
from ctrlchan.security.stores import Stores, file_states, read_stores

__all__ = [
    "VERSIONS",
    "TlsContexts",
    "check_suite",
    "context_of",
    "load_authorities",
    "load_chain",
    "server_context_of",
]

_LOG: Final = logging.getLogger(__name__)

#: Values of ssl.enabled.protocols
VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


def context_of(settings: TlsSettings, stores: Stores | None = None) -> ssl.SSLContext:
    """Return a context for these settings; ``stores``: what was read of them, None to read it now.

    Raises ValueError or OSError naming what cannot be used.
    """
    stores = stores or read_stores(settings)
    context = _context(ssl.PROTOCOL_TLS_CLIENT, settings)
    context.check_hostname = settings.verify_host_name
    _load_trusted(context, stores)
    _load_own(context, stores)
    return context


def server_context_of(settings: TlsSettings, verify_mode: ssl.VerifyMode, stores: Stores) -> ssl.SSLContext:
    """Return a context for a server with these settings, for trial handshakes.

    ``stores``: what was read of the settings; ``verify_mode``: of clients' certificates. Raises ValueError or
    OSError naming what cannot be used.
    """
    context = _context(ssl.PROTOCOL_TLS_SERVER, settings)
    context.verify_mode = verify_mode
    if verify_mode is not ssl.CERT_NONE:
        _load_trusted(context, stores)
    _load_own(context, stores)
    return context


class TlsContexts:
    """Makes the context for the next connection, anew when one of the files has changed."""

    def __init__(self, settings: TlsSettings) -> None:
        self.settings: Final = settings
        self._context: ssl.SSLContext | None = None
        self._file_states: object = None
        # Why files that have changed cannot be used; None if they can.
        self._problem: str | None = None

    def current(self) -> ssl.SSLContext:
        """Return the context of the files as they are now.

        While files are replaced one after the other they do not fit together: the context of the last ones
        that did is returned, with a line in the log. Raises ConnectionFailed (CREDENTIALS) if none did.
        """
        # Before they are read: what changes meanwhile is a change.
        states = file_states(self.settings)
        if self._context is None or states != self._file_states:
            try:
                self._context = context_of(self.settings)
            except (OSError, ValueError) as problem:
                if self._context is None:
                    raise ConnectionFailed(Failure.CREDENTIALS, str(problem)) from None
                self._log_once(str(problem))
            else:
                self._file_states, self._problem = states, None
        return self._context

    def _log_once(self, problem: str) -> None:
        if problem != self._problem:
            _LOG.warning("connections go on with the files of TLS as they were: %s", problem)
            self._problem = problem


def _context(protocol: int, settings: TlsSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    versions = [VERSIONS[version] for version in settings.versions]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    if settings.cipher_suites:
        _choose_suites(context, settings)
    # A peer that could ask for a second handshake could also make a writer wait for its bytes.
    context.options |= ssl.OP_NO_RENEGOTIATION
    return context


def _choose_suites(context: ssl.SSLContext, settings: TlsSettings) -> None:
    """Allow the suites of the settings alone; of TLS 1.3 all or none: see ``check_suite``."""
    suites = openssl_suites(settings.cipher_suites)
    if suites.tls12:
        try:
            context.set_ciphers(":".join(suites.tls12))
        except ssl.SSLError:
            raise ValueError("cipher_suites: this platform's OpenSSL has none of them") from None
    else:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
    if not suites.tls13:
        context.maximum_version = ssl.TLSVersion.TLSv1_2


def check_suite(connection: ssl.SSLSocket, settings: TlsSettings) -> None:
    """Raise ConnectionFailed when the suite of a new connection is not among those of the settings.

    Python cannot choose among the suites of TLS 1.3, so the peer may choose one that is not allowed. Nothing
    has been sent with it when this is called.
    """
    chosen = connection.cipher()
    if not settings.cipher_suites or chosen is None:
        return
    suites = openssl_suites(settings.cipher_suites)
    if chosen[0] not in (*suites.tls12, *suites.tls13):
        raise ConnectionFailed(
            Failure.TLS, f"the broker has chosen {chosen[0]}, which is not among the allowed cipher suites"
        )


def _load_own(context: ssl.SSLContext, stores: Stores) -> None:
    if stores.own is not None:
        _load_certificate(context, stores.own.pem, stores.own.password, stores.own.name)


def _load_trusted(context: ssl.SSLContext, stores: Stores) -> None:
    if stores.trusted is None:
        context.load_default_certs()
    else:
        pem, name = stores.trusted
        try:
            load_authorities(context, pem)
        except (ssl.SSLError, ValueError):
            raise ValueError(f"{name}: no certificates in PEM that can be read") from None


def load_authorities(context: ssl.SSLContext, pem: str) -> None:
    """Trust the certificates of a text. Raises ssl.SSLError or ValueError."""
    context.load_verify_locations(cadata=pem)
    # Each of them is an authority of its own, as in Java. Without this OpenSSL refuses a certificate that is
    # among them and signed by itself, if another one of the same name stands before it.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN


def _load_certificate(context: ssl.SSLContext, pem: str, password: str | None, name: str) -> None:
    """Give the context our certificate. Raises ValueError."""
    try:
        load_chain(context, pem, password)
    except (ssl.SSLError, ValueError, OSError) as problem:
        if getattr(problem, "reason", None) == "KEY_VALUES_MISMATCH":
            why = "the private key is not that of the certificate"
        elif "ENCRYPTED" in pem:
            why = "the private key is encrypted, and its password is not this one"
        else:
            why = "no private key and certificate in PEM that can be read"
        raise ValueError(f"{name}: {why}") from None


def load_chain(context: ssl.SSLContext, pem: str, password: str | None) -> None:
    """Give the context our certificate and its key, which OpenSSL takes from a file only.

    Raises ssl.SSLError, ValueError or OSError.
    """
    file, path = _private_file(pem)
    # A function: without one OpenSSL asks on the terminal.
    answer: Callable[[], str] = lambda: password or ""  # noqa: E731
    try:
        context.load_cert_chain(path, password=answer)
    finally:
        os.close(file)
        if not path.startswith("/proc/"):
            with suppress(OSError):
                os.unlink(path)


def _private_file(pem: str) -> tuple[int, str]:
    """Return a descriptor and a path of a file with these bytes, in memory where that is possible."""
    if hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd"):
        file = os.memfd_create("ctrlchan-key", os.MFD_CLOEXEC)
        path = f"/proc/self/fd/{file}"
    else:
        file, path = tempfile.mkstemp()
    with open(file, "wb", closefd=False) as stream:
        stream.write(pem.encode())
    return file, path

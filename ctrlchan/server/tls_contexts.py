"""The TLS contexts of listeners, from their settings; errors name listener and setting."""

from __future__ import annotations

import logging
import os
import time
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final, TypeAlias

from ctrlchan.config import table
from ctrlchan.config.setting import Setting
from ctrlchan.errors import ConfigError
from ctrlchan.security.ciphers import openssl_suites
from ctrlchan.security.der import MalformedName
from ctrlchan.security.distinguished_names import java_name
from ctrlchan.security.listener_security import ClientAuth, ListenerSecurity
from ctrlchan.security.settings import TlsSettings
from ctrlchan.security.stores import Stores, own_certificate, trusted_certificates
from ctrlchan.server._openssl import OpenSslError, TlsContext, TlsContextError, openssl_version
from ctrlchan.server.python_tls import PythonTlsContext

__all__ = ["PYTHON_TLS", "ListenerContext", "log_expiry", "read_listener_stores", "tls_context_of"]

logger = logging.getLogger("ctrlchan.broker")

#: An environment variable: with a value, and not 0, listeners use Python's ssl, also where there is a libssl.
PYTHON_TLS: Final = "CTRLCHAN_PYTHON_TLS"
#: What a listener with TLS begins its connections with.
ListenerContext: TypeAlias = TlsContext | PythonTlsContext

_DAY: Final = 86_400
#: A certificate that expires within so many days is a warning.
_SOON_DAYS: Final = 30


def read_listener_stores(listener: str, security: ListenerSecurity, *, trusts: bool = False) -> Stores:
    """Return what the stores of a listener have now. Raises ConfigError.

    ``trusts``: whether the trust store is read where clients need no certificate, too.
    """
    settings = security.tls
    assert settings is not None
    setting: Setting[Any] = _key_setting(settings)
    try:
        own = own_certificate(settings)
        if own is None:
            raise ValueError("no certificate is given")
        setting = _trust_setting(settings)
        is_read = trusts or security.client_auth is not ClientAuth.NONE
        return Stores(own, trusted_certificates(settings) if is_read else None)
    except ValueError as problem:
        raise _refused(listener, setting, problem) from None


def tls_context_of(
    listener: str, security: ListenerSecurity, stores: Stores | None = None
) -> ListenerContext:
    """Return the context of a TLS listener. Raises ConfigError.

    ``stores``: what was read of its settings, None to read it now.
    """
    settings = security.tls
    assert settings is not None
    own, trusted = stores or read_listener_stores(listener, security)
    assert own is not None
    suites = openssl_suites(settings.cipher_suites)
    pem = own.pem.encode("ascii", "replace")
    try:
        return _context_class(os.environ.get(PYTHON_TLS, "") not in ("", "0"))(
            chain=pem,
            key=pem,
            password=None if own.password is None else own.password.encode(),
            trusted=None if trusted is None else trusted[0].encode("ascii", "replace"),
            client_auth=security.client_auth.value,
            versions=settings.versions,
            suites=suites.tls12,
            suites13=suites.tls13,
        )
    except TlsContextError as problem:
        parts: dict[str, Setting[Any]] = {
            "trusted": _trust_setting(settings),
            "suites": table.SSL_CIPHER_SUITES,
            "chain": _chain_setting(settings),
        }
        refused = parts.get(problem.part, _key_setting(settings))
        file = own.name if problem.part in ("chain", "key") else None if trusted is None else trusted[1]
        is_file = problem.part in ("chain", "key", "trusted") and file not in ("key_pem", "ca_pem", None)
        raise _refused(listener, refused, f"{file}: {problem}" if is_file else problem) from None


@cache
def _context_class(is_python: bool) -> type[TlsContext] | type[PythonTlsContext]:
    """Return what makes contexts: of a libssl, or of Python's ssl where none can be loaded or that is wanted.

    A process has one for all of its listeners; the log says once that it is the slower one.
    """
    why = f"{PYTHON_TLS} is set"
    if not is_python:
        try:
            openssl_version()
            return TlsContext
        except OpenSslError as problem:
            why = str(problem)
    logger.warning(
        "TLS listeners use Python's ssl module: each record takes the GIL, which is slower. Install the "
        "system's OpenSSL 1.1.1 or 3, such as its package libssl3 or openssl-libs (%s)",
        why,
    )
    return PythonTlsContext


def log_expiry(listener: str, context: ListenerContext) -> None:
    """Log until when the certificate of a listener is valid."""
    try:
        name = java_name(context.subject)
    except MalformedName:
        name = "without a readable name"
    end = f"{datetime.fromtimestamp(context.expires, UTC):%Y-%m-%d %H:%M} UTC"
    left = (context.expires - time.time()) / _DAY
    if left <= 0:
        logger.warning("listener %s: the certificate %s has expired on %s", listener, name, end)
    elif left <= _SOON_DAYS:
        logger.warning("listener %s: the certificate %s expires on %s", listener, name, end)
    else:
        logger.info("listener %s: the certificate %s is valid until %s", listener, name, end)


def _key_setting(settings: TlsSettings) -> Setting[str]:
    return table.SSL_KEYSTORE_KEY if settings.key_pem is not None else table.SSL_KEYSTORE_LOCATION


def _chain_setting(settings: TlsSettings) -> Setting[str]:
    if settings.certificate_pem is not None:
        return table.SSL_KEYSTORE_CERTIFICATE_CHAIN
    return table.SSL_KEYSTORE_LOCATION


def _trust_setting(settings: TlsSettings) -> Setting[str]:
    return table.SSL_TRUSTSTORE_CERTIFICATES if settings.ca_pem is not None else table.SSL_TRUSTSTORE_LOCATION


def _refused(listener: str, setting: object, problem: object) -> ConfigError:
    return ConfigError(f"listener {listener}: {setting}: {problem}")

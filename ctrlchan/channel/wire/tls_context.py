"""TLS contexts from settings.

The parent of a channel makes one to check the settings, the senders to connect, the controller's server to be
connected to.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from ctrlchan.channel.wire.security import TlsSettings

__all__ = ["context_of", "server_context_of"]

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


def context_of(settings: TlsSettings) -> ssl.SSLContext:
    """Return a context for these settings. Raises ValueError or OSError naming what cannot be used."""
    context = _context(ssl.PROTOCOL_TLS_CLIENT, settings)
    context.check_hostname = settings.verify_host_name
    _load_trusted(context, settings)
    _load_own(context, settings)
    return context


def server_context_of(settings: TlsSettings, verify_mode: ssl.VerifyMode) -> ssl.SSLContext:
    """Return a context for a server with these settings; ``verify_mode``: of clients' certificates.

    Raises ValueError or OSError naming what cannot be used.
    """
    context = _context(ssl.PROTOCOL_TLS_SERVER, settings)
    context.verify_mode = verify_mode
    if verify_mode is not ssl.CERT_NONE:
        _load_trusted(context, settings)
    _load_own(context, settings)
    return context


def _context(protocol: int, settings: TlsSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    versions = [_VERSIONS[version] for version in settings.versions]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    # A peer that could ask for a second handshake could also make a writer wait for its bytes.
    context.options |= ssl.OP_NO_RENEGOTIATION
    return context


def _load_own(context: ssl.SSLContext, settings: TlsSettings) -> None:
    if settings.certificate_pem is not None and settings.key_pem is not None:
        _load_certificate(
            context, settings.certificate_pem + "\n" + settings.key_pem, settings.key_password, "key_pem"
        )
    elif settings.certificate_file is not None:
        _load_certificate_file(context, settings.certificate_file, settings)


def _load_trusted(context: ssl.SSLContext, settings: TlsSettings) -> None:
    if settings.ca_pem is not None:
        _load_authorities(context, settings.ca_pem, "ca_pem")
    elif settings.ca_file is not None:
        data = _read(settings.ca_file)
        if not _is_pem(data):
            from ctrlchan.channel.wire.keystore import certificates_of

            pem = certificates_of(data, settings.truststore_password, settings.ca_file)
        else:
            pem = data.decode("ascii", "replace")
        _load_authorities(context, pem, settings.ca_file)
    else:
        context.load_default_certs()


def _load_authorities(context: ssl.SSLContext, pem: str, name: str) -> None:
    try:
        context.load_verify_locations(cadata=pem)
    except (ssl.SSLError, ValueError):
        raise ValueError(f"{name}: no certificates in PEM that can be read") from None


def _load_certificate_file(context: ssl.SSLContext, name: str, settings: TlsSettings) -> None:
    data = _read(name)
    if _is_pem(data):
        key = None if settings.key_file is None else _read(settings.key_file)
        pem = data + b"\n" + (key or b"")
        _load_certificate(
            context, pem.decode("ascii", "replace"), settings.key_password, settings.key_file or name
        )
        return
    from ctrlchan.channel.wire.keystore import key_of

    _load_certificate(context, key_of(data, settings.keystore_password, name), None, name)


def _load_certificate(context: ssl.SSLContext, pem: str, password: str | None, name: str) -> None:
    """Give the context our certificate, which OpenSSL takes from a file only."""
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
    """Return a descriptor and a path of a file with these bytes, in memory where that is possible."""
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

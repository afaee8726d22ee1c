"""The certificates of settings as PEM, wherever they are: texts, PEM files, key stores of Java."""

from __future__ import annotations

import os
from typing import Final, NamedTuple

from ctrlchan.security.settings import TlsSettings

__all__ = [
    "STORE_TYPES",
    "OwnCertificate",
    "Stores",
    "file_states",
    "own_certificate",
    "read_stores",
    "trusted_certificates",
]

#: Values of ``ssl.keystore.type`` and ``ssl.truststore.type``. What a file is, its content says.
STORE_TYPES: Final = ("PEM", "PKCS12", "JKS")


class OwnCertificate(NamedTuple):
    """``pem``: private key, certificate and chain, in any order of kinds. ``password``: of the key, if it has
    one. ``name``: of where the key is, for errors."""

    pem: str
    password: str | None
    name: str

    def __repr__(self) -> str:
        return f"OwnCertificate({self.name!r})"


class Stores(NamedTuple):
    """What the stores of settings had when they were read; None as of the functions below."""

    own: OwnCertificate | None
    trusted: tuple[str, str] | None


def read_stores(settings: TlsSettings) -> Stores:
    """Return what both stores have now. Raises ValueError naming the file."""
    return Stores(own_certificate(settings), trusted_certificates(settings))


def file_states(settings: TlsSettings) -> tuple[object, ...]:
    """Return what changes when one of the files does, also by a rename or behind a symbolic link."""
    return tuple(map(_state_of, settings.files))


def _state_of(name: str) -> object:
    try:
        found = os.stat(name)
    except OSError:
        return None
    # The time of the last change of the inode: copies may keep the time of the file.
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def own_certificate(settings: TlsSettings) -> OwnCertificate | None:
    """Return our certificate with its key, or None if there is none. Raises ValueError naming the file."""
    if settings.certificate_pem is not None and settings.key_pem is not None:
        pem = settings.certificate_pem + "\n" + settings.key_pem
        return OwnCertificate(pem, settings.key_password, "key_pem")
    if settings.certificate_file is None:
        return None
    name = settings.certificate_file
    data = _read(name)
    if _is_pem(data):
        key = None if settings.key_file is None else _read(settings.key_file)
        pem = (data + b"\n" + (key or b"")).decode("ascii", "replace")
        return OwnCertificate(pem, settings.key_password, settings.key_file or name)
    # Imported here: PEM needs none of it.
    from ctrlchan.security.keystore import key_of

    return OwnCertificate(key_of(data, settings.keystore_password, name, settings.key_password), None, name)


def trusted_certificates(settings: TlsSettings) -> tuple[str, str] | None:
    """Return the trusted certificates and their name for errors, or None if the system's are trusted.

    Raises ValueError naming the file.
    """
    if settings.ca_pem is not None:
        return settings.ca_pem, "ca_pem"
    if settings.ca_file is None:
        return None
    data = _read(settings.ca_file)
    if _is_pem(data):
        return data.decode("ascii", "replace"), settings.ca_file
    from ctrlchan.security.keystore import certificates_of

    return certificates_of(data, settings.truststore_password, settings.ca_file), settings.ca_file


def _read(name: str) -> bytes:
    try:
        with open(name, "rb") as file:
            return file.read()
    except OSError as problem:
        raise ValueError(f"{name}: {problem.strerror}") from None


def _is_pem(data: bytes) -> bool:
    return b"-----BEGIN " in data

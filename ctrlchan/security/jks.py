"""Reads JKS, Java's own format of key stores, which was keytool's until Java 9.

::

    magic 0xFEEDFEED, version 2 (or 1), number of entries
    entry 1: alias, time, encrypted key, chain of certificates      (2: alias, time, one certificate)
    SHA-1 of password (UTF-16), "Mighty Aphrodite" and all bytes before

Numbers are big-endian; an alias and the type of a certificate have their size (uint16) before them, keys and
certificates theirs (uint32). A key is XORed with a chain of SHA-1 sums that begins with its salt. This is no
protection to rely on; it is what existing files have.

Source: ``sun.security.provider.JavaKeyStore`` and ``KeyProtector``.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final, NamedTuple

__all__ = ["JKS_MAGIC", "JksStore", "KeyEntry", "decrypt_key", "read_jks"]

JKS_MAGIC: Final = b"\xfe\xed\xfe\xed"
_VERSIONS: Final = (1, 2)
_KEY, _CERTIFICATE = 1, 2
_SUM_BYTES: Final = 20
_PHRASE: Final = b"Mighty Aphrodite"
_X509: Final = "X.509"
#: The object identifier 1.3.6.1.4.1.42.2.17.1.1 with its tag and its size.
_PROTECTION: Final = bytes.fromhex("060a2b060104012a02110101")


class KeyEntry(NamedTuple):
    """``protected``: what ``decrypt_key`` takes. ``chain``: certificates as DER, the key's own first."""

    alias: str
    protected: bytes
    chain: tuple[bytes, ...]


class JksStore(NamedTuple):
    """The entries of a store, in the order of the file; certificates as DER."""

    keys: tuple[KeyEntry, ...]
    certificates: tuple[bytes, ...]


def read_jks(data: bytes, password: str | None) -> JksStore:
    """Return the entries of a store. Without a password nothing shows whether the file was changed.

    Raises ValueError.
    """
    if len(data) < _SUM_BYTES:
        raise ValueError("the store is cut off")
    content, found = data[:-_SUM_BYTES], data[-_SUM_BYTES:]
    entries = _Fields(content, "the store is cut off")
    if entries.take(4) != JKS_MAGIC:
        raise ValueError("it is no JKS store")
    version = entries.number(4)
    if version not in _VERSIONS:
        raise ValueError(f"version {version} of JKS is unknown")
    if password is not None:
        expected = hashlib.sha1(_encoded(password) + _PHRASE + content).digest()
        if not hmac.compare_digest(expected, found):
            raise ValueError("the password is another one, or the store is damaged")
    keys: list[KeyEntry] = []
    certificates: list[bytes] = []
    for _ in range(entries.number(4)):
        kind = entries.number(4)
        alias = entries.text()
        entries.take(8)
        if kind == _KEY:
            protected = entries.take(entries.number(4))
            chain = [_certificate(entries, version) for _ in range(entries.number(4))]
            keys.append(KeyEntry(alias, protected, tuple(chain)))
        elif kind == _CERTIFICATE:
            certificates.append(_certificate(entries, version))
        else:
            raise ValueError(f"an entry of the unknown kind {kind}")
    if not entries.at_end:
        raise ValueError("bytes follow the last entry")
    return JksStore(tuple(keys), tuple(certificates))


def decrypt_key(protected: bytes, password: str) -> bytes:
    """Return a private key as PKCS#8. Raises ValueError for another password and for damaged bytes."""
    data = _protected_bytes(protected)
    if len(data) < 2 * _SUM_BYTES:
        raise ValueError("the private key is cut off")
    secret = _encoded(password)
    salt, encrypted, check = data[:_SUM_BYTES], data[_SUM_BYTES:-_SUM_BYTES], data[-_SUM_BYTES:]
    stream, link = bytearray(), salt
    while len(stream) < len(encrypted):
        link = hashlib.sha1(secret + link).digest()
        stream += link
    key = bytes(a ^ b for a, b in zip(encrypted, stream, strict=False))
    if not hmac.compare_digest(hashlib.sha1(secret + key).digest(), check):
        raise ValueError("the private key has another password")
    return key


def _protected_bytes(protected: bytes) -> bytes:
    """Return the octets of an EncryptedPrivateKeyInfo that Java's own algorithm has made."""
    inside = _Fields(_Fields(protected, "the private key is cut off").der(0x30), "the private key is cut off")
    if not inside.der(0x30).startswith(_PROTECTION):
        raise ValueError("the private key is encrypted in an unknown way")
    return inside.der(0x04)


def _certificate(entries: _Fields, version: int) -> bytes:
    kind = entries.text() if version == 2 else _X509
    if kind != _X509:
        raise ValueError(f"a certificate of type {kind}, not {_X509}")
    return entries.take(entries.number(4))


def _encoded(password: str) -> bytes:
    return password.encode("utf-16-be", "surrogatepass")


class _Fields:
    """Bytes that are taken from the front."""

    def __init__(self, data: bytes, cut_off: str) -> None:
        self._data = data
        self._place = 0
        self._cut_off = cut_off

    @property
    def at_end(self) -> bool:
        return self._place == len(self._data)

    def take(self, size: int) -> bytes:
        end = self._place + size
        if end > len(self._data):
            raise ValueError(self._cut_off)
        taken = self._data[self._place : end]
        self._place = end
        return taken

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def text(self) -> str:
        """Take Java's modified UTF-8; what it has beyond UTF-8 is replaced."""
        return self.take(self.number(2)).decode("utf-8", "replace")

    def der(self, tag: int) -> bytes:
        """Take a DER element with this tag, and return what is in it."""
        if self.number(1) != tag:
            raise ValueError("the private key is damaged")
        size = self.number(1)
        if size & 0x80:
            count = size & 0x7F
            if not 0 < count <= 4:
                raise ValueError("the private key is damaged")
            size = self.number(count)
        return self.take(size)

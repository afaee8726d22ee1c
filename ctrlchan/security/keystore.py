"""Java's key stores, as PEM: PKCS#12, which is what keytool has made since Java 9, and JKS before it.

The first bytes of a file say which one it is: Java takes both for either type.
"""

from __future__ import annotations

import base64
import textwrap
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from ctrlchan.security.jks import JKS_MAGIC, decrypt_key, read_jks

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates

__all__ = ["certificates_of", "key_of"]

_JCEKS_MAGIC: Final = b"\xce\xce\xce\xce"


def certificates_of(data: bytes, password: str | None, name: str) -> str:
    """Return the certificates in a trust store, as PEM. Raises ValueError."""
    if data.startswith(JKS_MAGIC):
        try:
            certificates = read_jks(data, password).certificates
        except ValueError as problem:
            raise ValueError(f"{name}: {problem}") from None
        if not certificates:
            raise ValueError(f"{name}: no certificate is in it")
        return _pem("CERTIFICATE", certificates)
    from cryptography.hazmat.primitives.serialization import Encoding

    store = _opened(data, password, name)
    found = [entry.certificate for entry in store.additional_certs]
    if store.cert is not None:
        found.append(store.cert.certificate)
    if not found:
        raise ValueError(f"{name}: no certificate is in it")
    return "".join(certificate.public_bytes(Encoding.PEM).decode() for certificate in found)


def key_of(data: bytes, password: str | None, name: str, key_password: str | None = None) -> str:
    """Return private key, certificate and chain of the first entry of a key store, as PEM.

    ``key_password``: of the entry; None if it is that of the store, as always in PKCS#12. Raises ValueError.
    """
    if data.startswith(JKS_MAGIC):
        return _key_of_jks(data, password, name, key_password)
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    store = _opened(data, password, name)
    if store.key is None or store.cert is None:
        raise ValueError(f"{name}: no private key with a certificate is in it")
    key = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    chain = [store.cert.certificate, *(entry.certificate for entry in store.additional_certs)]
    return (key + b"".join(certificate.public_bytes(Encoding.PEM) for certificate in chain)).decode()


def _key_of_jks(data: bytes, password: str | None, name: str, key_password: str | None) -> str:
    try:
        keys = read_jks(data, password).keys
        if not keys or not keys[0].chain:
            raise ValueError("no private key with a certificate is in it")
        secret = password if key_password is None else key_password
        if secret is None:
            raise ValueError("the private key needs a password")
        key = decrypt_key(keys[0].protected, secret)
    except ValueError as problem:
        raise ValueError(f"{name}: {problem}") from None
    return _pem("PRIVATE KEY", [key]) + _pem("CERTIFICATE", keys[0].chain)


def _pem(what: str, ders: Iterable[bytes]) -> str:
    return "".join(
        f"-----BEGIN {what}-----\n{textwrap.fill(base64.b64encode(der).decode(), 64)}\n-----END {what}-----\n"
        for der in ders
    )


def _opened(data: bytes, password: str | None, name: str) -> PKCS12KeyAndCertificates:
    if data.startswith(_JCEKS_MAGIC):
        raise ValueError(
            f"{name}: a JCEKS store, which only Java reads; convert it: keytool -importkeystore "
            f"-srckeystore {name} -destkeystore {name}.p12 -deststoretype PKCS12"
        )
    try:
        from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12
    except ImportError:
        raise ValueError(
            f"{name}: PKCS#12 needs a package: pip install cryptography (PEM files need none)"
        ) from None
    try:
        return load_pkcs12(data, None if password is None else password.encode())
    except ValueError:
        raise ValueError(f"{name}: neither PEM, JKS nor a PKCS#12 store with this password") from None

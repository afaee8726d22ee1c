"""Java's key stores, as PEM: PKCS#12, which is what keytool has made since Java 9.

No maintained library reads the older JKS; the error for such a file says how to convert it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates

__all__ = ["certificates_of", "key_of"]

_JKS: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")


def certificates_of(data: bytes, password: str | None, name: str) -> str:
    """Return the certificates in a trust store, as PEM. Raises ValueError."""
    from cryptography.hazmat.primitives.serialization import Encoding

    store = _opened(data, password, name)
    found = [entry.certificate for entry in store.additional_certs]
    if store.cert is not None:
        found.append(store.cert.certificate)
    if not found:
        raise ValueError(f"{name}: no certificate is in it")
    return "".join(certificate.public_bytes(Encoding.PEM).decode() for certificate in found)


def key_of(data: bytes, password: str | None, name: str) -> str:
    """Return private key, certificate and chain of a key store's entry, as PEM. Raises ValueError."""
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    store = _opened(data, password, name)
    if store.key is None or store.cert is None:
        raise ValueError(f"{name}: no private key with a certificate is in it")
    key = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    chain = [store.cert.certificate, *(entry.certificate for entry in store.additional_certs)]
    return (key + b"".join(certificate.public_bytes(Encoding.PEM) for certificate in chain)).decode()


def _opened(data: bytes, password: str | None, name: str) -> PKCS12KeyAndCertificates:
    if data[:4] in _JKS:
        raise ValueError(
            f"{name}: a JKS store, which only Java reads; convert it: keytool -importkeystore "
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
        raise ValueError(f"{name}: neither PEM nor a PKCS#12 store with this password") from None

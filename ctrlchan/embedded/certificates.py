"""Certificates for tests: an authority, one for the brokers, one for each user.

The package cryptography makes them. They are valid for a year, and their keys are in files that only this
user can read.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ctrlchan.errors import ConfigError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509 import Certificate, GeneralName

__all__ = ["Certificates"]

_LIFETIME: Final = timedelta(days=365)
#: Clocks of machines differ.
_BEFORE: Final = timedelta(hours=1)


class Certificates:
    """An authority and the certificates that it signs, as PEM files of a folder. Raises ConfigError."""

    def __init__(self, folder: Path) -> None:
        try:
            from cryptography.hazmat.primitives.asymmetric import ec
        except ImportError:
            raise ConfigError(
                "certificates of a cluster need a package: pip install 'ctrlchan[pkcs12]'"
            ) from None
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._authority = self._sign("ctrlchan test authority", self._key, ())
        #: The file with the authority's certificate, which clients trust.
        self.ca_file = str(folder / "ca.pem")
        _write(self.ca_file, [_pem(self._authority)])

    def issue(self, name: str, hosts: Iterable[str] = ()) -> str:
        """Return a file with a private key (PKCS#8) and its certificate; ``name``: its common name."""
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

        key = ec.generate_private_key(ec.SECP256R1())
        path = str(self._folder / f"{len(list(self._folder.iterdir()))}.pem")
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        _write(path, [private, _pem(self._sign(name, key, hosts))])
        return path

    def _sign(self, name: str, key: EllipticCurvePrivateKey, hosts: Iterable[str]) -> Certificate:
        from cryptography import x509
        from cryptography.hazmat.primitives.hashes import SHA256

        is_authority = key is self._key
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(subject if is_authority else self._authority.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _BEFORE)
            .not_valid_after(now + _LIFETIME)
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
            )
        )
        names = [_general_name(host) for host in hosts]
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(self._key, SHA256())


def _general_name(host: str) -> GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate: Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)


def _write(path: str, parts: Iterable[bytes]) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "wb") as file:
        file.writelines(parts)

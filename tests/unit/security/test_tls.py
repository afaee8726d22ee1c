"""Certificates and keys from files of every kind, and the errors for files that cannot be used."""

from __future__ import annotations

import contextlib
import gc
import socket
import ssl
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)
from cryptography.x509 import load_pem_x509_certificate
from cryptography.x509.oid import NameOID

from ctrlchan.errors import ConfigError
from ctrlchan.security.settings import TlsSettings
from ctrlchan.security.tls_context import context_of

CA = trustme.CA()
ISSUED = CA.issue_cert("controller")
KEY = load_pem_private_key(ISSUED.private_key_pem.bytes(), None)
CHAIN = b"".join(pem.bytes() for pem in ISSUED.cert_chain_pems)
CA_PEM = CA.cert_pem.bytes().decode()


def encrypted_key(password: bytes) -> bytes:
    return KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password))


def key_store(password: bytes = b"changeit") -> bytes:
    assert isinstance(KEY, EllipticCurvePrivateKey)
    certificate = load_pem_x509_certificate(CHAIN)
    return pkcs12.serialize_key_and_certificates(
        b"us", KEY, certificate, None, BestAvailableEncryption(password)
    )


def trust_store(password: bytes = b"changeit") -> bytes:
    certificate = pkcs12.PKCS12Certificate(load_pem_x509_certificate(CA_PEM.encode()), b"ca")
    return pkcs12.serialize_java_truststore([certificate], BestAvailableEncryption(password))


def shown_by(settings: TlsSettings) -> str:
    """The common name of the certificate that a server sees, which must not be asked for twice."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    CA.issue_cert("broker").configure_cert(server)
    CA.configure_trust(server)
    server.verify_mode = ssl.CERT_REQUIRED
    ours, theirs = socket.socketpair()
    seen: list[str] = []

    def serve() -> None:
        with server.wrap_socket(theirs, server_side=True) as tls:
            certificate: dict[str, Any] = dict(tls.getpeercert() or {})
            seen.extend(name for _, name in certificate["subjectAltName"])
            tls.send(b"!")

    thread = threading.Thread(target=serve)
    thread.start()
    with context_of(settings).wrap_socket(ours, server_hostname="broker") as tls:
        assert tls.recv(1) == b"!"
    thread.join(10)
    return seen[0]


def test_one_file_with_key_and_chain(tmp_path: Path) -> None:
    file = tmp_path / "both.pem"
    file.write_bytes(encrypted_key(b"k3y") + CHAIN)
    settings = TlsSettings(ca_pem=CA_PEM, certificate_file=str(file), key_password="k3y")
    assert shown_by(settings) == "controller"


def test_a_file_each(tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_bytes(ISSUED.private_key_pem.bytes())
    (tmp_path / "chain.pem").write_bytes(CHAIN)
    (tmp_path / "ca.pem").write_text("# our authority\n" + CA_PEM)
    settings = TlsSettings(
        ca_file=str(tmp_path / "ca.pem"),
        certificate_file=str(tmp_path / "chain.pem"),
        key_file=str(tmp_path / "key.pem"),
    )
    assert shown_by(settings) == "controller"


def test_no_file_at_all() -> None:
    pem = encrypted_key(b"k3y").decode()
    settings = TlsSettings(ca_pem=CA_PEM, certificate_pem=CHAIN.decode(), key_pem=pem, key_password="k3y")
    assert shown_by(settings) == "controller"


def test_stores_in_pkcs12(tmp_path: Path) -> None:
    (tmp_path / "key.p12").write_bytes(key_store())
    (tmp_path / "trust.p12").write_bytes(trust_store(b"other"))
    settings = TlsSettings(
        ca_file=str(tmp_path / "trust.p12"),
        truststore_password="other",
        certificate_file=str(tmp_path / "key.p12"),
        keystore_password="changeit",
    )
    assert shown_by(settings) == "controller"


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    settings = TlsSettings(
        ca_pem=CA_PEM, certificate_pem=CHAIN.decode(), key_pem=ISSUED.private_key_pem.bytes().decode()
    )
    gc.collect()
    before = psutil.Process().num_fds()
    context_of(settings)
    assert psutil.Process().num_fds() == before


OTHER_KEY = trustme.CA().issue_cert("x").private_key_pem.bytes()
UNUSABLE: dict[str, tuple[str, bytes, dict[str, str], str]] = {
    "not there": ("certificate_file", b"", {}, "No such file"),
    "no pem": ("certificate_file", b"hello", {}, "neither PEM, JKS nor a PKCS#12 store"),
    "no key": ("certificate_file", CHAIN, {}, "no private key and certificate"),
    "another key": ("certificate_file", OTHER_KEY + CHAIN, {}, "not that of the certificate"),
    "no password": ("certificate_file", encrypted_key(b"k3y") + CHAIN, {}, "its password is not this one"),
    "wrong password": (
        "certificate_file",
        encrypted_key(b"k3y") + CHAIN,
        {"key_password": "s3cret"},
        "its password is not this one",
    ),
    "jceks": ("certificate_file", b"\xce\xce\xce\xce\0\0\0\2", {}, "keytool -importkeystore"),
    "a cut jks": ("certificate_file", b"\xfe\xed\xfe\xed\0\0\0\2", {}, "the store is cut off"),
    "store's password": (
        "certificate_file",
        key_store(),
        {"keystore_password": "s3cret"},
        "PKCS#12 store with this password",
    ),
    "trust store for a key": (
        "certificate_file",
        trust_store(),
        {"keystore_password": "changeit"},
        "no private key",
    ),
    "no authority": ("ca_file", b"-----BEGIN CERTIFICATE-----\nAA==\n", {}, "no certificates in PEM"),
    "empty authority": ("ca_file", b"", {}, "neither PEM, JKS nor"),
    "trust store's password": (
        "ca_file",
        trust_store(),
        {"truststore_password": "s3cret"},
        "PKCS#12 store with this password",
    ),
}


@pytest.mark.parametrize("case", UNUSABLE)
def test_a_file_that_cannot_be_used_is_named(case: str, tmp_path: Path) -> None:
    setting, data, more, reason = UNUSABLE[case]
    file = tmp_path / "given"
    given: dict[str, Any] = {setting: str(file), **more}
    if case != "not there":
        file.write_bytes(data)
    with pytest.raises(ValueError, match=str(file)) as raised:
        context_of(TlsSettings(**given))
    assert reason in str(raised.value)
    assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"ca_file": "a", "ca_pem": "b"}, "ca_pem"),
        ({"certificate_file": "a", "certificate_pem": "b", "key_pem": "c"}, "certificate_pem"),
        ({"certificate_pem": "b"}, "key_pem"),
        ({"key_file": "k"}, "key_file"),
        ({"versions": ("TLSv1.1", "TLSv1.2")}, r"TLSv1\.1"),
        ({"versions": ()}, "none"),
    ],
)
def test_settings_that_exclude_each_other(settings: dict[str, Any], name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        TlsSettings(**settings)


def signed_by_itself(serial: int) -> tuple[bytes, bytes]:
    """Return a certificate and its key in PEM; all of them have one name, and no identifiers of keys."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), serial)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return certificate.public_bytes(Encoding.PEM), text


def handshake(client: ssl.SSLContext, server: ssl.SSLContext) -> None:
    """Raises SSLError when the client refuses the server."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(to_client, to_server, server_hostname="localhost"),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(10):
        for side in sides:
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()


@pytest.mark.parametrize("number", [0, 1, 2])
def test_certificates_of_one_name_that_sign_themselves(number: int, tmp_path: Path) -> None:
    made = [signed_by_itself(serial) for serial in (1, 2, 3)]
    (tmp_path / "own.pem").write_bytes(b"".join(made[number]))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tmp_path / "own.pem")
    every = "".join(one.decode() for one, _ in made)
    handshake(context_of(TlsSettings(ca_pem=every)), server)
    others = "".join(one.decode() for index, (one, _) in enumerate(made) if index != number)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(context_of(TlsSettings(ca_pem=others)), server)

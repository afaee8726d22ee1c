"""JKS, Java's old key stores: those of keytool, and damaged ones."""

from __future__ import annotations

import base64
import hashlib
import re
import shutil
import subprocess
from pathlib import Path
from struct import pack
from typing import Final

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from ctrlchan.security.jks import decrypt_key, read_jks
from ctrlchan.security.keystore import certificates_of, key_of

CA: Final = trustme.CA()
ISSUED: Final = CA.issue_cert("broker")
KEY: Final = load_pem_private_key(ISSUED.private_key_pem.bytes(), None).private_bytes(
    Encoding.DER, PrivateFormat.PKCS8, NoEncryption()
)


def ders(pem: bytes | str) -> list[bytes]:
    """Return the elements of a PEM text."""
    text = pem if isinstance(pem, str) else pem.decode()
    return [base64.b64decode(body) for body in re.findall(r"-----BEGIN [^-]+-----([^-]+)-----END", text)]


CHAIN: Final = [one for pem in ISSUED.cert_chain_pems for one in ders(pem.bytes())]
(ROOT,) = ders(CA.cert_pem.bytes())


def element(tag: int, content: bytes) -> bytes:
    size = bytes([0x82]) + pack(">H", len(content))
    return bytes([tag]) + size + content


def protected(key: bytes, password: str) -> bytes:
    """Return a key as Java encrypts it."""
    secret, salt = password.encode("utf-16-be"), bytes(range(20))
    stream, link = b"", salt
    while len(stream) < len(key):
        link = hashlib.sha1(secret + link).digest()
        stream += link
    encrypted = bytes(a ^ b for a, b in zip(key, stream, strict=False))
    octets = salt + encrypted + hashlib.sha1(secret + key).digest()
    algorithm = bytes.fromhex("060a2b060104012a021101010500")
    return element(0x30, element(0x30, algorithm) + element(0x04, octets))


def text(value: str) -> bytes:
    return pack(">H", len(value)) + value.encode()


def certificate(der: bytes) -> bytes:
    return text("X.509") + pack(">I", len(der)) + der


def key_entry(password: str) -> bytes:
    data = protected(KEY, password)
    chain = b"".join(map(certificate, CHAIN))
    return (
        pack(">I", 1) + text("us") + bytes(8) + pack(">I", len(data)) + data + pack(">I", len(CHAIN)) + chain
    )


def trusted_entry() -> bytes:
    return pack(">I", 2) + text("ca") + bytes(8) + certificate(ROOT)


def store(*entries: bytes, password: str = "changeit", count: int | None = None) -> bytes:
    """Return a store, whose sum is right."""
    head = b"\xfe\xed\xfe\xed" + pack(">II", 2, len(entries) if count is None else count)
    content = head + b"".join(entries)
    return content + hashlib.sha1(password.encode("utf-16-be") + b"Mighty Aphrodite" + content).digest()


def test_a_key_store() -> None:
    pem = key_of(store(key_entry("changeit")), "changeit", "file")
    assert ders(pem) == [KEY, *CHAIN]


def test_a_key_with_a_password_of_its_own() -> None:
    data = store(trusted_entry(), key_entry("s3cret"))
    assert ders(key_of(data, "changeit", "file", "s3cret"))[0] == KEY
    with pytest.raises(ValueError, match=r"^file: the private key has another password$"):
        key_of(data, "changeit", "file")


def test_a_trust_store_also_without_its_password() -> None:
    for password in ("changeit", None):
        assert ders(certificates_of(store(trusted_entry()), password, "file")) == [ROOT]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (store(trusted_entry(), password="other"), "the password is another one, or the store is damaged"),
        (store(), "no private key with a certificate is in it"),
        (store(trusted_entry()), "no private key with a certificate is in it"),
        (store(pack(">I", 3) + text("x") + bytes(8)), "an entry of the unknown kind 3"),
        (store(b"rest", count=0), "bytes follow the last entry"),
        (store(count=2**31), "the store is cut off"),
        (store(key_entry("x"), count=2), "the store is cut off"),
        (store(key_entry("changeit").replace(b"X.509", b"PGP-1")), "a certificate of type PGP-1, not X.509"),
        (
            store(key_entry("changeit").replace(b"\x11\x01\x01", b"\x11\x01\x02")),
            "encrypted in an unknown way",
        ),
    ],
)
def test_stores_that_cannot_be_used(data: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as raised:
        key_of(data, "changeit", "my.jks")
    assert str(raised.value).startswith("my.jks: ")


def test_every_cut_and_every_changed_byte_is_noticed() -> None:
    whole = store(key_entry("changeit"))
    for end in range(0, len(whole), 7):
        with pytest.raises(ValueError, match=r"."):
            read_jks(whole[:end], "changeit")
    for place in range(0, len(whole), 11):
        changed = whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :]
        with pytest.raises(ValueError, match=r"."):
            read_jks(changed, "changeit")


def test_damaged_keys_are_refused() -> None:
    whole = protected(KEY, "x")
    for place in range(0, len(whole), 3):
        try:
            found = decrypt_key(whole[:place] + bytes([whole[place] ^ 0x80]) + whole[place + 1 :], "x")
        except ValueError:
            pass
        else:
            # The parameters of the algorithm mean nothing.
            assert found == KEY
        with pytest.raises(ValueError, match="private key"):
            decrypt_key(whole[:place], "x")


@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
def test_stores_of_keytool(tmp_path: Path, kind: str) -> None:
    keytool = shutil.which("keytool")
    if keytool is None:
        pytest.skip("keytool, which is part of Java, is not installed")
    file = tmp_path / "store"
    command = [
        keytool,
        "-genkeypair",
        "-alias",
        "us",
        "-keyalg",
        "EC",
        "-dname",
        "CN=us",
        "-keystore",
        str(file),
    ]
    passwords = ["-storepass", "changeit", "-keypass", "s3cret1" if kind == "JKS" else "changeit"]
    subprocess.run([*command, *passwords, "-storetype", kind], check=True, capture_output=True, timeout=120)
    key, certificate = ders(key_of(file.read_bytes(), "changeit", "file", passwords[-1]))
    from cryptography.hazmat.primitives.serialization import PublicFormat, load_der_private_key
    from cryptography.x509 import load_der_x509_certificate

    public = [
        one.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        for one in (
            load_der_private_key(key, None).public_key(),
            load_der_x509_certificate(certificate).public_key(),
        )
    ]
    assert public[0] == public[1]

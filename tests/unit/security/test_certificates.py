"""What certificates say of themselves, compared with another reader of them."""

from __future__ import annotations

import datetime

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import SubjectAlternativeName, load_pem_x509_certificate

from ctrlchan.security.certificates import certificates_in, read_certificate
from ctrlchan.security.der import MalformedName

LATE = datetime.datetime(2051, 2, 3, 4, 5, 6, tzinfo=datetime.UTC)
SOON = datetime.datetime(2049, 12, 31, 23, 59, 59, tzinfo=datetime.UTC)


@pytest.mark.parametrize("expires", [SOON, LATE])
@pytest.mark.parametrize("hosts", [("localhost",), ("a.example", "*.b.example", "10.0.0.1")])
def test_name_hosts_and_end(expires: datetime.datetime, hosts: tuple[str, ...]) -> None:
    issued = trustme.CA().issue_cert(*hosts, common_name="broker 1", not_after=expires)
    pem = issued.cert_chain_pems[0].bytes()
    expected = load_pem_x509_certificate(pem)
    (der,) = certificates_in(pem.decode())
    assert der == expected.public_bytes(Encoding.DER)
    found = read_certificate(der)
    assert found.subject == expected.subject.public_bytes()
    names = expected.extensions.get_extension_for_class(SubjectAlternativeName)
    assert found.alternative_names == names.value.public_bytes()
    assert found.expires == expires.timestamp()


def test_an_authority_names_no_host() -> None:
    (der,) = certificates_in(trustme.CA().cert_pem.bytes().decode())
    assert read_certificate(der).alternative_names == b""


def test_bytes_that_are_no_certificate() -> None:
    (der,) = certificates_in(trustme.CA().issue_cert("localhost").cert_chain_pems[0].bytes().decode())
    for size in range(len(der)):
        with pytest.raises(MalformedName):
            read_certificate(der[:size])
    for place in range(len(der)):
        for value in (0, 0xFF, der[place] ^ 1):
            damaged = der[:place] + bytes([value]) + der[place + 1 :]
            try:
                read_certificate(damaged)
            except MalformedName:
                continue


@pytest.mark.parametrize(
    ("pem", "error"),
    [
        ("-----BEGIN CERTIFICATE-----\nAA==\n", "it has no end"),
        ("-----BEGIN CERTIFICATE-----\nA*==\n-----END CERTIFICATE-----", "it is no Base64"),
    ],
)
def test_texts_that_cannot_be_read(pem: str, error: str) -> None:
    with pytest.raises(MalformedName, match=error):
        list(certificates_in(pem))
    assert list(certificates_in("nothing")) == []

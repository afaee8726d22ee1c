"""Names of cipher suites, as Kafka's settings and OpenSSL have them."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from ctrlchan.errors import ConfigError
from ctrlchan.security.ciphers import openssl_suites
from ctrlchan.security.settings import TlsSettings


def test_suites_by_version_in_their_order() -> None:
    suites = openssl_suites(
        [
            "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
            "TLS_AES_128_GCM_SHA256",
            "TLS_RSA_WITH_AES_256_CBC_SHA",
            "TLS_EMPTY_RENEGOTIATION_INFO_SCSV",
        ]
    )
    assert suites.tls12 == ("ECDHE-RSA-AES128-GCM-SHA256", "AES256-SHA")
    assert suites.tls13 == ("TLS_AES_128_GCM_SHA256",)


@pytest.mark.parametrize(
    "name", ["ECDHE-RSA-AES128-GCM-SHA256", "TLS_ECDHE_RSA_WITH_RC4_128_SHA", "", "TLS_"]
)
def test_an_unknown_suite_is_named(name: str) -> None:
    with pytest.raises(ValueError, match=f"^{name} is not a cipher suite"):
        openssl_suites([name])


def test_names_are_those_of_openssl() -> None:
    program = shutil.which("openssl")
    if program is None:
        pytest.skip("needs the openssl command")
    text = subprocess.run(
        [program, "ciphers", "-stdname", "ALL:@SECLEVEL=0"], capture_output=True, text=True, check=True
    ).stdout
    compared = 0
    for standard, _, name, *_ in (line.split() for line in text.splitlines()):
        try:
            suites = openssl_suites([standard])
        except ValueError:
            continue
        assert (*suites.tls12, *suites.tls13) == (name,)
        compared += 1
    assert compared >= 25


@pytest.mark.parametrize(
    ("suites", "versions", "message"),
    [
        (("X",), ("TLSv1.2",), "cipher_suites: X is not a cipher suite"),
        (("TLS_AES_128_GCM_SHA256",), ("TLSv1.2",), "cipher_suites: none of them is for TLSv1.2"),
        (("TLS_RSA_WITH_AES_256_CBC_SHA",), ("TLSv1.3",), "cipher_suites: none of them is for TLSv1.3"),
    ],
)
def test_settings_that_allow_nothing_are_refused(
    suites: tuple[str, ...], versions: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        TlsSettings(cipher_suites=suites, versions=versions)

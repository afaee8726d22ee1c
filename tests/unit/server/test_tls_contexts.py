"""TLS listeners from settings: stores, versions, suites, renewed certificates, and clear errors."""

from __future__ import annotations

import datetime
import logging
import os
import shutil
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509 import load_pem_x509_certificate

from ctrlchan.errors import ConfigError
from ctrlchan.security.listener_security import ClientAuth, ListenerSecurity
from ctrlchan.security.settings import TlsSettings
from ctrlchan.security.tls_context import context_of as client_side
from ctrlchan.server._openssl import openssl_file, openssl_version
from ctrlchan.server.socket_server import SocketServer
from ctrlchan.server.tls_contexts import PYTHON_TLS, log_expiry, tls_context_of
from tests.unit.security.test_jks import key_entry, store
from tests.unit.security.test_tls import key_store, trust_store
from tests.unit.server.serving import EchoHandler, serving
from tests.unit.server.tls_serving import (
    TlsClient,
    authority_pem,
    certificate,
    client_context,
    pem_of,
    tls_listener,
)

ROOT = Path(__file__).resolve().parents[3]

GIVEN: dict[str, Any] = pem_of(certificate("broker"))


def encrypted(password: bytes) -> str:
    key = load_pem_private_key(GIVEN["key_pem"].encode(), None)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password)).decode()


def echoes(server: SocketServer, context: ssl.SSLContext) -> str | None:
    """Return the cipher suite with which a frame is answered."""
    with TlsClient(server, context) as client:
        client.frames(b"e hello")
        assert client.answer() == b"e hello"
        return (client.tls.cipher() or (None,))[0]


@pytest.mark.usefixtures("each_tls")
@pytest.mark.parametrize("kind", ["pem", "one file", "encrypted", "pkcs12", "jks"])
def test_a_certificate_from_each_kind_of_store(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "store"
    tls: dict[str, Any] = {"certificate_pem": None, "key_pem": None, "certificate_file": str(file)}
    if kind == "pem":
        tls = {}
    elif kind == "one file":
        file.write_text(GIVEN["key_pem"] + GIVEN["certificate_pem"])
    elif kind == "encrypted":
        file.write_text(encrypted(b"k3y") + GIVEN["certificate_pem"])
        tls["key_password"] = "k3y"
    elif kind == "pkcs12":
        file.write_bytes(key_store())
        tls["keystore_password"] = "changeit"
    else:
        file.write_bytes(store(key_entry("s3cret")))
        tls |= {"keystore_password": "changeit", "key_password": "s3cret"}
    context = client_context()
    context.check_hostname = kind not in ("pkcs12", "jks")
    if not context.check_hostname:
        context.verify_mode = ssl.CERT_NONE
    with serving(EchoHandler(), tls_listener(**tls)) as server:
        assert echoes(server, context)


@pytest.mark.usefixtures("each_tls")
@pytest.mark.parametrize("kind", [trustme.KeyType.RSA, trustme.KeyType.ECDSA])
@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
def test_each_kind_of_key(kind: trustme.KeyType, version: str) -> None:
    by = trustme.CA(key_type=kind)
    context = client_context(version=version)
    by.configure_trust(context)
    with serving(EchoHandler(), tls_listener(**pem_of(by.issue_cert("localhost", key_type=kind)))) as server:
        assert echoes(server, context)


@pytest.mark.usefixtures("each_tls")
@pytest.mark.parametrize(
    ("before", "after", "end"), [("", "\n\n", "\n"), ("\n\n", "", "\n"), ("", "", "\r\n")]
)
def test_blank_lines_and_other_ends_of_lines(before: str, after: str, end: str, tmp_path: Path) -> None:
    def given(text: str) -> str:
        return (before + text + after).replace("\n", end)

    chain, key = given(GIVEN["certificate_pem"]), given(encrypted(b"k3y"))
    trusted = given(authority_pem() + trustme.CA().cert_pem.bytes().decode())
    ways: tuple[dict[str, Any], ...] = (
        {"certificate_pem": chain, "key_pem": key, "ca_pem": trusted},
        {
            "certificate_file": str(_written(tmp_path / "own.pem", key + chain)),
            "ca_file": str(_written(tmp_path / "trusted.pem", trusted)),
        },
    )
    for settings in ways:
        tls = TlsSettings(**settings, key_password="k3y")
        tls_context_of("SECURE", ListenerSecurity(tls=tls, client_auth=ClientAuth.REQUIRED))
        assert client_side(tls).cert_store_stats()["x509_ca"] == 2


def _written(file: Path, text: str) -> Path:
    file.write_bytes(text.encode())
    return file


def test_the_first_of_several_keys_is_used(tmp_path: Path) -> None:
    file = tmp_path / "store.jks"
    file.write_bytes(store(key_entry("changeit"), key_entry("changeit")))
    tls: dict[str, Any] = {"certificate_pem": None, "key_pem": None, "certificate_file": str(file)}
    context = client_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with serving(EchoHandler(), tls_listener(**tls, keystore_password="changeit")) as server:
        assert echoes(server, context)


def test_versions_and_suites() -> None:
    both = ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256")
    with serving(EchoHandler(), tls_listener(cipher_suites=both)) as server:
        assert echoes(server, client_context(version="TLSv1_2")) in (
            "ECDHE-ECDSA-AES128-GCM-SHA256",
            "ECDHE-RSA-AES128-GCM-SHA256",
        )
        # Without a suite of TLS 1.3 that version is not used.
        assert "AES128-GCM" in (echoes(server, client_context()) or "")
    with serving(EchoHandler(), tls_listener(cipher_suites=("TLS_AES_128_GCM_SHA256",))) as server:
        assert echoes(server, client_context()) == "TLS_AES_128_GCM_SHA256"
        with pytest.raises((ssl.SSLError, ConnectionError)):
            echoes(server, client_context(version="TLSv1_2"))
    with serving(EchoHandler(), tls_listener(versions=("TLSv1.2",))) as server:
        assert echoes(server, client_context())
        with pytest.raises((ssl.SSLError, ConnectionError)):
            echoes(server, client_context(version="TLSv1_3"))


def context_of(client_auth: str = "none", **tls: Any) -> None:
    settings = TlsSettings(**tls)
    security = ListenerSecurity(tls=settings, client_auth=ClientAuth(client_auth))
    tls_context_of("SECURE", security)


OTHER_KEY = trustme.CA().issue_cert("x").private_key_pem.bytes().decode()


@pytest.mark.usefixtures("each_tls")
@pytest.mark.parametrize(
    ("tls", "error"),
    [
        (GIVEN | {"key_pem": OTHER_KEY}, "ssl.keystore.key: the private key is not that of the certificate"),
        (GIVEN | {"key_pem": "x"}, "ssl.keystore.key: no private key in PEM that can be read"),
        (GIVEN | {"key_pem": encrypted(b"k3y")}, "ssl.keystore.key: the private key is encrypted and has no"),
        (
            GIVEN | {"key_pem": encrypted(b"k3y"), "key_password": "s3cret"},
            "ssl.keystore.key: the private key is encrypted and has another password",
        ),
        (GIVEN | {"certificate_pem": ""}, "ssl.keystore.certificate.chain: no certificate in PEM is in it"),
        (
            GIVEN | {"certificate_pem": GIVEN["certificate_pem"] + "-----BEGIN CERTIFICATE-----\nAA==\n"},
            "ssl.keystore.certificate.chain: certificate 2 cannot be read: ",
        ),
        (
            GIVEN | {"client_auth": "required", "ca_pem": "nothing"},
            "ssl.truststore.certificates: no certificate in PEM is in it",
        ),
        ({"certificate_file": "/not/there"}, "ssl.keystore.location: /not/there: No such file"),
        (
            GIVEN | {"client_auth": "requested", "ca_file": "/not/there"},
            "ssl.truststore.location: /not/there: No such file",
        ),
        ({}, "ssl.keystore.location: no certificate is given"),
    ],
)
def test_what_cannot_be_used_is_named(tls: dict[str, Any], error: str) -> None:
    with pytest.raises(ConfigError) as raised:
        context_of(**tls)
    assert str(raised.value).startswith(f"listener SECURE: {error}")
    assert "s3cret" not in str(raised.value)


def test_a_trust_store_is_read_only_where_clients_are_asked() -> None:
    context_of(**GIVEN, ca_file="/not/there")


def test_a_trust_store_of_java(tmp_path: Path) -> None:
    file = tmp_path / "trust.p12"
    file.write_bytes(trust_store())
    context_of("required", **GIVEN, ca_file=str(file), truststore_password="changeit")
    with pytest.raises(ConfigError, match=r"ssl\.truststore\.location: .*trust\.p12: .* with this password"):
        context_of("required", **GIVEN, ca_file=str(file), truststore_password="other")


@pytest.mark.usefixtures("each_tls")
@pytest.mark.parametrize(
    ("days", "level", "text"),
    [
        (-1, logging.WARNING, "has expired on"),
        (5, logging.WARNING, "expires on"),
        (90, logging.INFO, "is valid"),
    ],
)
def test_the_log_says_when_a_certificate_expires(
    caplog: pytest.LogCaptureFixture, days: int, level: int, text: str
) -> None:
    caplog.set_level(logging.INFO)
    now = datetime.datetime.now(datetime.UTC)
    issued = trustme.CA().issue_cert("h", common_name="soon", not_after=now + datetime.timedelta(days, 60))
    given: dict[str, Any] = pem_of(issued)
    security = ListenerSecurity(tls=TlsSettings(**given))
    context = tls_context_of("SECURE", security)
    end = load_pem_x509_certificate(issued.cert_chain_pems[0].bytes()).not_valid_after_utc
    assert context.expires == end.timestamp()
    log_expiry("SECURE", context)
    (record,) = caplog.records
    assert record.levelno == level
    assert "listener SECURE: the certificate CN=soon," in record.getMessage()
    assert f" {text} " in record.getMessage()


def test_python_and_listeners_share_one_openssl() -> None:
    assert openssl_version() == ssl.OPENSSL_VERSION
    assert openssl_file() is not None


def test_the_suites_of_tls_13_are_all_given_to_pythons_ssl_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PYTHON_TLS, "1")
    both = ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256")
    all13 = ("TLS_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256", "TLS_CHACHA20_POLY1305_SHA256")
    with serving(EchoHandler(), tls_listener(cipher_suites=both)) as server:
        assert "AES128-GCM" in (echoes(server, client_context()) or "")
        with pytest.raises((ssl.SSLError, ConnectionError)):
            echoes(server, client_context(version="TLSv1_3"))
    with serving(EchoHandler(), tls_listener(cipher_suites=all13)) as server:
        assert echoes(server, client_context()) in all13
        with pytest.raises((ssl.SSLError, ConnectionError)):
            echoes(server, client_context(version="TLSv1_2"))
    with pytest.raises(ConfigError, match=r"ssl\.cipher\.suites: Python's ssl needs all suites of TLS 1\.3"):
        context_of(**GIVEN, cipher_suites=(*both, "TLS_AES_128_GCM_SHA256"))


#: A program with two TLS listeners, where no libssl can be loaded; what it logs comes first.
WITHOUT_LIBSSL = """
import logging, sys
logging.basicConfig(stream=sys.stdout, format="%(levelname)s %(message)s")
from ctrlchan.server import _openssl
_openssl._candidates = lambda: [("libssl.so.0", True)]
from tests.unit.server.serving import EchoHandler, serving
from tests.unit.server.tls_serving import TlsClient, tls_listener
for _ in range(2):
    with serving(EchoHandler(), tls_listener()) as server, TlsClient(server) as client:
        client.frames(b"e hello")
        print(client.answer().decode())
"""


def test_without_openssl_pythons_ssl_serves_and_the_log_says_so_once() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT_LIBSSL], capture_output=True, text=True, timeout=120, cwd=ROOT
    )
    warning, *answers = ran.stdout.splitlines()
    assert warning == (
        "WARNING TLS listeners use Python's ssl module: each record takes the GIL, which is slower. Install "
        "the system's OpenSSL 1.1.1 or 3, such as its package libssl3 or openssl-libs (libssl.so.0 cannot be "
        "loaded)"
    )
    assert answers == ["e hello", "e hello"], ran.stderr


def test_without_ssl_in_python_a_tls_listener_is_refused() -> None:
    program = """
import sys
sys.modules["_ssl"] = None
from ctrlchan.errors import ConfigError
from ctrlchan.protocol import SecurityProtocol
from ctrlchan.server.socket_server import Listener, SocketServer, SocketServerSettings
try:
    SocketServer([Listener("SECURE", "127.0.0.1", 0, SecurityProtocol.SSL)], SocketServerSettings())
except ConfigError as error:
    print(error)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert ran.stdout.startswith("listener SECURE: TLS needs the module ssl, which this Python does not have")


def test_the_error_says_which_libraries_were_tried() -> None:
    program = """
import sys
sys.modules["_ssl"] = None
from ctrlchan.server import _openssl
_openssl.library_names = ("libssl.so.0", "libssl.so.00")
try:
    _openssl.openssl_version()
except _openssl.OpenSslError as error:
    print(error)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert ran.stdout == "libssl.so.0 cannot be loaded; libssl.so.00 cannot be loaded\n", ran.stderr


def test_openssl_of_the_system_serves_where_python_has_none() -> None:
    program = """
import sys
sys.modules["_ssl"] = None
from ctrlchan.server import _openssl
try:
    print(_openssl.openssl_version())
except _openssl.OpenSslError as error:
    print("none:", error)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    if ran.stdout.startswith("none:"):
        pytest.skip("the system has no libssl of 1.1.1 or 3")
    assert ran.stdout.startswith("OpenSSL "), ran.stderr


@pytest.mark.parametrize("allowed", [False, True])
def test_openssls_configuration_says_which_client_certificates_are_asked_for(
    tmp_path: Path, allowed: bool
) -> None:
    """Java's clients show a certificate signed with SHA-1 only where SHA-1 is asked for."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("the command openssl is not installed")
    file = tmp_path / "openssl.cnf"
    level = 0 if allowed else 2
    file.write_text(
        "openssl_conf = all\n[all]\nssl_conf = contexts\n[contexts]\nsystem_default = each\n"
        f"[each]\nCipherString = DEFAULT:@SECLEVEL={level}\n"
    )
    program = f"""
import subprocess
from tests.unit.server.serving import EchoHandler, serving
from tests.unit.server.tls_serving import tls_listener
with serving(EchoHandler(), tls_listener("required")) as server:
    address = f"127.0.0.1:{{server.ports['SECURE']}}"
    ran = subprocess.run(
        ["{openssl}", "s_client", "-connect", address], input=b"", capture_output=True, timeout=30
    )
    print(ran.stdout.decode(errors="replace"))
"""
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"OPENSSL_CONF": str(file)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    asked = [line for line in ran.stdout.splitlines() if line.startswith("Requested Signature Algorithms")]
    assert len(asked) == 1, ran.stdout + ran.stderr
    algorithms = asked[0].split(": ")[1].split(":")
    assert "RSA+SHA256" in algorithms
    assert ("RSA+SHA1" in algorithms) is allowed

"""Connections to other nodes with TLS and SASL: let in, refused with a clear error, renewed in time."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from ctrlchan.errors import ConfigError
from ctrlchan.peers.connection import PeerConnection
from ctrlchan.peers.security import PeerSecurity, SetupError
from ctrlchan.security.failure import Failure
from ctrlchan.security.settings import SaslSettings, TlsSettings
from tests.fault.fake_kdc import REFUSED as NO_TICKET
from tests.fault.fake_kdc import SLOW, FakeKdc
from tests.fault.secure_peer import SecurePeer

UPDATE_METADATA, VERSION = 6, 8
PASSWORD = "s3cret"
CA = trustme.CA()
TRUSTED = TlsSettings(ca_pem=CA.cert_pem.bytes().decode())


def sasl(mechanism: str = "SCRAM-SHA-512", password: str = PASSWORD) -> SaslSettings:
    return SaslSettings(mechanism=mechanism, username="admin", password=password)


def server_context(*hosts: str, ca: trustme.CA = CA, client_auth: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert(*(hosts or ("127.0.0.1",))).configure_cert(context)
    if client_auth:
        context.verify_mode = ssl.CERT_REQUIRED
        ca.configure_trust(context)
    return context


@pytest.fixture
def secure() -> Iterator[Callable[..., SecurePeer]]:
    made: list[SecurePeer] = []

    def make(**settings: Any) -> SecurePeer:
        made.append(SecurePeer(**settings))
        return made[-1]

    yield make
    for peer in made:
        peer.close()


def connect(peer: SecurePeer, security: PeerSecurity) -> PeerConnection:
    return PeerConnection(("127.0.0.1", peer.port), b"test", security=security)


def exchange(connection: PeerConnection, size: int = 100) -> bytes:
    frame, offset = connection.exchange(UPDATE_METADATA, VERSION, True, bytes(size), monotonic() + 10)
    return frame[offset:]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("context", [None, server_context()], ids=["plain", "tls"])
def test_requests_after_authentication(
    secure: Callable[..., SecurePeer], mechanism: str, context: ssl.SSLContext | None
) -> None:
    protocol = "SASL_PLAINTEXT" if context is None else "SASL_SSL"
    peer = secure(protocol=protocol, context=context)
    connection = connect(peer, PeerSecurity(None if context is None else TRUSTED, sasl(mechanism)))
    try:
        assert connection.versions[UPDATE_METADATA] == (0, 8)
        for size in (10, 1_000_000, 10):
            assert exchange(connection, size)
    finally:
        connection.close()
    assert [len(one.body) for one in peer.received] == [10, 1_000_000, 10]
    # Each request has the next id.
    asked = len(peer.questions)
    assert [one.correlation_id for one in peer.received] == [asked + 1, asked + 2, asked + 3]


def test_kerberos(secure: Callable[..., SecurePeer], monkeypatch: pytest.MonkeyPatch) -> None:
    """A ticket, a refusal, and a KDC that does not answer: others do not wait for it for ever."""
    kdc = FakeKdc(monkeypatch)
    monkeypatch.setattr("ctrlchan.peers.security._LOGIN_SECONDS", 0.2)
    peer = secure(protocol="SASL_PLAINTEXT", mechanisms=("GSSAPI",))
    security = PeerSecurity(None, SaslSettings(mechanism="GSSAPI"))
    with closing(connect(peer, security)) as connection:
        assert exchange(connection)
    for host, failure, reason in (
        (NO_TICKET, Failure.AUTHENTICATION, "no ticket for kafka/refused.example"),
        (SLOW, Failure.HANDSHAKE_TIMEOUT, "there is no Kerberos ticket yet"),
        ("127.0.0.1", Failure.HANDSHAKE_TIMEOUT, "there is no Kerberos ticket yet"),
    ):
        with pytest.raises(SetupError, match=reason) as raised:
            security.handshake("test", host)
        assert raised.value.failure is failure
    kdc.close()
    with closing(connect(peer, security)) as connection:
        assert exchange(connection)
    # What nobody waited for any more was left out.
    assert kdc.hosts == ["127.0.0.1", NO_TICKET, SLOW, "127.0.0.1"]


def test_a_certificate_of_our_own(secure: Callable[..., SecurePeer]) -> None:
    peer = secure(protocol="SSL", context=server_context(client_auth=True))
    pem = CA.issue_cert("broker").private_key_and_cert_chain_pem.bytes().decode()
    tls = TlsSettings(ca_pem=TRUSTED.ca_pem, certificate_pem=pem, key_pem=pem)
    connection = connect(peer, PeerSecurity(tls))
    assert exchange(connection)
    connection.close()
    assert peer.client_subjects[0]


def test_a_common_name_counts_where_no_other_name_is(
    secure: Callable[..., SecurePeer], tmp_path: Path
) -> None:
    """A certificate that is trusted itself, without an authority."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name.from_rfc4514_string("CN=localhost,O=x")
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + timedelta(days=1))
        .sign(key, SHA256())
        .public_bytes(Encoding.PEM)
    )
    file = tmp_path / "own.pem"
    file.write_bytes(made + key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    peer = secure(protocol="SSL", host="localhost", context=context)
    security = PeerSecurity(TlsSettings(ca_pem=made.decode()))
    with closing(PeerConnection(("localhost", peer.port), b"test", security=security)) as connection:
        assert exchange(connection)


REFUSED: dict[str, tuple[ssl.SSLContext, TlsSettings, Failure, str]] = {
    "another host": (server_context("another.example"), TRUSTED, Failure.CERTIFICATE, "this IP address"),
    "another authority": (server_context(ca=trustme.CA()), TRUSTED, Failure.CERTIFICATE, "not trusted"),
    "no certificate": (server_context(client_auth=True), TRUSTED, Failure.TLS, "certificate"),
    "another suite": (
        server_context(),
        TlsSettings(ca_pem=TRUSTED.ca_pem, cipher_suites=("TLS_AES_128_CCM_SHA256",)),
        Failure.TLS,
        "not among the allowed cipher suites",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_tls_that_fails_says_why(secure: Callable[..., SecurePeer], case: str) -> None:
    context, tls, failure, reason = REFUSED[case]
    peer = secure(protocol="SSL", context=context)
    # With TLS 1.3 a certificate is refused behind the handshake.
    with pytest.raises(SetupError, match=reason) as raised, closing(connect(peer, PeerSecurity(tls))) as made:
        exchange(made)
    assert raised.value.failure is failure


def test_no_tls_where_the_node_has_it(secure: Callable[..., SecurePeer]) -> None:
    peer = secure(protocol="SASL_SSL", context=server_context())
    with pytest.raises(OSError, match=r"TLS on this port|during ApiVersions|reset"):
        connect(peer, PeerSecurity(None, sasl()))


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_a_wrong_password_is_not_repeated(secure: Callable[..., SecurePeer], mechanism: str) -> None:
    peer = secure(protocol="SASL_PLAINTEXT")
    security = PeerSecurity(None, sasl(mechanism, "wr0ng"))
    with pytest.raises(SetupError, match="authentication failed") as raised:
        connect(peer, security)
    assert raised.value.failure is Failure.AUTHENTICATION
    assert "wr0ng" not in f"{raised.value} {security!r}"
    # Mended at the broker: the next connection is let in.
    peer.users["admin"] = "wr0ng"
    connection = connect(peer, security)
    assert exchange(connection)
    connection.close()


def test_a_session_is_renewed_on_its_connection(secure: Callable[..., SecurePeer]) -> None:
    peer = secure(protocol="SASL_PLAINTEXT", lifetime_ms=400)
    peer.default = peer.renew
    connection = connect(peer, PeerSecurity(None, sasl()))
    try:
        asked = len(peer.questions)
        assert exchange(connection)
        assert len(peer.questions) == asked
        sleep(0.4)
        assert exchange(connection)
        # Not ApiVersions: what the node serves is known.
        assert peer.questions[asked:] == [(17, 1), (36, 2), (36, 2)]
        assert {one.connection for one in peer.received} == {0}
        assert exchange(connection)
    finally:
        connection.close()


def test_a_session_that_cannot_be_renewed_ends_its_connection(secure: Callable[..., SecurePeer]) -> None:
    peer = secure(protocol="SASL_PLAINTEXT", lifetime_ms=100)
    peer.default = peer.renew
    connection = connect(peer, PeerSecurity(None, sasl()))
    sleep(0.1)
    peer.users["admin"] = "another"
    with pytest.raises(SetupError, match="authentication failed"):
        exchange(connection)
    connection.close()


def test_files_that_cannot_be_used_are_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"ca\.pem: No such file"):
        PeerSecurity(TlsSettings(ca_file=str(tmp_path / "ca.pem")))


def test_a_replaced_trust_store_counts_for_the_next_connection(
    secure: Callable[..., SecurePeer], tmp_path: Path
) -> None:
    file = tmp_path / "ca.pem"
    file.write_bytes(trustme.CA().cert_pem.bytes())
    security = PeerSecurity(TlsSettings(ca_file=str(file)))
    peer = secure(protocol="SSL", context=server_context())
    with pytest.raises(SetupError, match="not trusted"):
        connect(peer, security)
    file.write_bytes(CA.cert_pem.bytes())
    connection = connect(peer, security)
    assert exchange(connection)
    connection.close()


def test_other_stores_count_for_the_next_connection(secure: Callable[..., SecurePeer]) -> None:
    security = PeerSecurity(TlsSettings(ca_pem=trustme.CA().cert_pem.bytes().decode()))
    peer = secure(protocol="SSL", context=server_context())
    with pytest.raises(SetupError, match="not trusted"):
        connect(peer, security)
    with pytest.raises(ConfigError, match="no certificates in PEM"):
        security.use_stores(TlsSettings(ca_pem="half of a file"))
    with pytest.raises(SetupError, match="not trusted"):
        connect(peer, security)
    security.use_stores(TRUSTED)
    with closing(connect(peer, security)) as connection:
        assert exchange(connection)


def test_half_a_file_changes_nothing(
    secure: Callable[..., SecurePeer], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "ca.pem"
    file.write_bytes(CA.cert_pem.bytes())
    security = PeerSecurity(TlsSettings(ca_file=str(file)))
    peer = secure(protocol="SSL", context=server_context())
    file.write_bytes(CA.cert_pem.bytes()[:100])
    for _ in range(2):
        with closing(connect(peer, security)) as connection:
            assert exchange(connection)
    assert caplog.text.count(f"go on with the files of TLS as they were: {file}: ") == 1

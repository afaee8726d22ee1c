"""Brokers with TLS and SASL: which connections are made, which are refused, and with which message."""

from __future__ import annotations

import datetime
import logging
import os
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import sleep
from typing import Any

import psutil
import pytest
import trustme

from ctrlchan import ChannelConfig, ControllerChannelManager, OutcomeKind
from ctrlchan.errors import ConfigError
from ctrlchan.security.failure import Failure
from ctrlchan.security.settings import SaslSettings, TlsSettings
from tests.fault.channels import channel_to, eventually
from tests.fault.requests import number_of, update
from tests.fault.secure_peer import SecurePeer

PASSWORD = "s3cret"
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


def sasl(mechanism: str = "SCRAM-SHA-512", password: str = PASSWORD) -> SaslSettings:
    return SaslSettings(mechanism=mechanism, username="admin", password=password)


@dataclass
class Authority:
    """A certificate authority and its files."""

    ca: trustme.CA
    folder: Path

    @property
    def ca_file(self) -> str:
        path = self.folder / "ca.pem"
        self.ca.cert_pem.write_to_path(path)
        return str(path)

    def server(self, *hosts: str, client_auth: bool = False, **options: Any) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.ca.issue_cert(*(hosts or ("127.0.0.1", "localhost")), **options).configure_cert(context)
        if client_auth:
            context.verify_mode = ssl.CERT_REQUIRED
            self.ca.configure_trust(context)
        return context

    def client_file(self, name: str = "client.pem") -> str:
        path = self.folder / name
        self.ca.issue_cert("controller", common_name=name).private_key_and_cert_chain_pem.write_to_path(path)
        return str(path)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(trustme.CA(), tmp_path_factory.mktemp("authority"))


@pytest.fixture
def secure() -> Iterator[Callable[..., SecurePeer]]:
    made: list[SecurePeer] = []

    def make(**settings: Any) -> SecurePeer:
        made.append(SecurePeer(**settings))
        return made[-1]

    yield make
    for peer in made:
        peer.close()


def delivers(peer: SecurePeer, **settings: Any) -> list[int]:
    with channel_to([peer], security_protocol=peer.protocol, **settings) as channel:
        sent = [channel.send_requests([1], update(number, size=size))[0] for number, size in SIZES]
        outcomes = channel.wait(sent, 30)
        assert [outcome.kind for outcome in outcomes] == [OutcomeKind.ACKNOWLEDGED] * len(SIZES)
        assert {outcome.attempts for outcome in outcomes} == {1}
    return [number_of(exchange.body) for exchange in peer.received]


#: One small frame, one in several TLS records, one larger than any socket buffer.
SIZES = [(0, 64), (1, 100_000), (2, 20_000_000), (3, 64)]


def refused(
    peer: SecurePeer, caplog: pytest.LogCaptureFixture, *secrets: str, attempts: int = 2, **settings: Any
) -> str:
    """The channel's last error, after more than one attempt; nothing was sent and no secret shown."""
    caplog.set_level(logging.DEBUG)
    with channel_to([peer], security_protocol=peer.protocol, **settings) as channel:
        sent = channel.send_request(1, update())

        def tried() -> bool:
            return bool(channel.describe()["brokers"][1]["attempts"] >= attempts)

        eventually(tried, 20)
        described = channel.describe()
        assert not sent.done
        shown = [repr(described), repr(channel.config), repr(channel.config.credentials), caplog.text]
        assert not [secret for secret in secrets for text in shown if secret in text]
        assert described["brokers"][1]["last_error"] in caplog.text
    assert peer.received == []
    return str(described["brokers"][1]["last_error"])


# -- let in


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_right_password(secure: Callable[..., SecurePeer], mechanism: str) -> None:
    peer = secure(protocol="SASL_PLAINTEXT")
    assert delivers(peer, sasl=sasl(mechanism)) == [0, 1, 2, 3]
    proofs = 1 if mechanism == "PLAIN" else 2
    assert peer.questions == [(18, 3), (17, 1)] + [(36, 2)] * proofs


@pytest.mark.parametrize("version", [0, 1, 2])
def test_sasl_has_the_brokers_version(secure: Callable[..., SecurePeer], version: int) -> None:
    peer = secure(protocol="SASL_PLAINTEXT")
    peer.versions[36] = (0, version)
    assert delivers(peer, sasl=sasl()) == [0, 1, 2, 3]
    assert peer.questions[-1] == (36, version)


def test_an_old_broker_is_asked_again_in_version_0(secure: Callable[..., SecurePeer]) -> None:
    peer = secure(protocol="SASL_PLAINTEXT")
    peer.versions[18] = (0, 2)
    assert delivers(peer, sasl=sasl()) == [0, 1, 2, 3]
    assert peer.questions[:2] == [(18, 3), (18, 0)]


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_tls_with_certificates_of_both_sides(
    secure: Callable[..., SecurePeer], authority: Authority, host: str, version: ssl.TLSVersion
) -> None:
    context = authority.server(client_auth=True)
    context.maximum_version = version
    peer = secure(protocol="SSL", host=host, context=context)
    tls = TlsSettings(ca_file=authority.ca_file, certificate_file=authority.client_file())
    assert delivers(peer, tls=tls) == [0, 1, 2, 3]


@pytest.mark.parametrize("senders", ["per-broker", 1])
def test_scram_under_tls(secure: Callable[..., SecurePeer], authority: Authority, senders: str | int) -> None:
    peer = secure(protocol="SASL_SSL", context=authority.server())
    tls = TlsSettings(ca_pem=authority.ca.cert_pem.bytes().decode())
    assert delivers(peer, tls=tls, sasl=sasl(), senders=senders) == [0, 1, 2, 3]


SUITES = {
    "ECDHE-ECDSA-AES128-GCM-SHA256": (
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        "TLS_RSA_WITH_AES_128_CBC_SHA",
    ),
    "TLS_AES_256_GCM_SHA384": ("TLS_AES_256_GCM_SHA384",),
}


@pytest.mark.parametrize("used", SUITES)
def test_only_the_named_cipher_suites_are_used(
    secure: Callable[..., SecurePeer], authority: Authority, used: str
) -> None:
    peer = secure(protocol="SSL", context=authority.server())
    tls = TlsSettings(ca_file=authority.ca_file, cipher_suites=SUITES[used])
    assert delivers(peer, tls=tls) == [0, 1, 2, 3]
    assert peer.suites == [used]


def test_a_cipher_suite_that_the_broker_chooses_against_our_list(
    secure: Callable[..., SecurePeer], authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    peer = secure(protocol="SSL", context=authority.server())
    tls = TlsSettings(ca_file=authority.ca_file, cipher_suites=("TLS_AES_128_CCM_SHA256",))
    error = refused(peer, caplog, tls=tls)
    assert error.startswith(f"{Failure.TLS.text}: the broker has chosen TLS_")
    assert error.endswith("which is not among the allowed cipher suites")


def test_the_host_name_is_sent_with_tls(secure: Callable[..., SecurePeer], authority: Authority) -> None:
    context = authority.server()
    asked: list[str | None] = []
    context.sni_callback = lambda tls, name, context: asked.append(name)
    peer = secure(protocol="SSL", host="localhost", context=context)
    assert delivers(peer, tls=TlsSettings(ca_file=authority.ca_file))
    assert asked == ["localhost"]


def test_a_host_name_need_not_be_checked(secure: Callable[..., SecurePeer], authority: Authority) -> None:
    peer = secure(protocol="SSL", context=authority.server("another.example"))
    assert delivers(peer, tls=TlsSettings(ca_file=authority.ca_file, verify_host_name=False))


def test_a_lost_connection_is_made_again(secure: Callable[..., SecurePeer], authority: Authority) -> None:
    peer = secure(protocol="SASL_SSL", context=authority.server())
    tls = TlsSettings(ca_file=authority.ca_file)
    with channel_to([peer], security_protocol="SASL_SSL", tls=tls, sasl=sasl()) as channel:
        for number in range(5):
            [outcome] = channel.wait([channel.send_request(1, update(number))], 10)
            assert outcome.kind is OutcomeKind.ACKNOWLEDGED
            peer.drop_connections()
    assert [number_of(exchange.body) for exchange in peer.received] == list(range(5))


def test_a_slow_reader_under_tls_delays_nobody(
    secure: Callable[..., SecurePeer], authority: Authority
) -> None:
    slow = secure(protocol="SSL", context=authority.server(), receive_buffer=4096)
    fast = secure(broker_id=2, protocol="SSL", context=authority.server())
    slow.gate.clear()
    tls = TlsSettings(ca_file=authority.ca_file)
    with channel_to([slow, fast], security_protocol="SSL", tls=tls) as channel:
        behind = channel.send_request(1, update(1, size=30_000_000))
        assert channel.wait([channel.send_request(2, update(2, size=1_000_000))], 20)[0].response
        assert not behind.done
        slow.gate.set()
        assert channel.wait([behind], 30)[0].kind is OutcomeKind.ACKNOWLEDGED
    assert number_of(slow.received[0].body) == 1


# -- refused

TLS_CASES: dict[str, tuple[Callable[[Authority], ssl.SSLContext], Failure, str]] = {
    "wrong host": (lambda a: a.server("another.example"), Failure.CERTIFICATE, "this IP address"),
    "wrong authority": (
        lambda a: Authority(trustme.CA(), a.folder).server(),
        Failure.CERTIFICATE,
        "authority that is not trusted",
    ),
    "expired": (
        lambda a: a.server(
            "127.0.0.1",
            not_before=datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC),
            not_after=datetime.datetime(2021, 1, 1, tzinfo=datetime.UTC),
        ),
        Failure.CERTIFICATE,
        "it has expired",
    ),
    "wants a certificate": (lambda a: a.server(client_auth=True), Failure.TLS, "certificate"),
}


@pytest.mark.parametrize("case", TLS_CASES)
def test_certificates_that_must_not_be_trusted(
    secure: Callable[..., SecurePeer], authority: Authority, caplog: pytest.LogCaptureFixture, case: str
) -> None:
    context, failure, reason = TLS_CASES[case]
    peer = secure(protocol="SSL", context=context(authority))
    error = refused(peer, caplog, tls=TlsSettings(ca_file=authority.ca_file))
    assert error.startswith(failure.text)
    assert reason in error


def test_another_hosts_certificate(
    secure: Callable[..., SecurePeer], authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    peer = secure(protocol="SSL", host="localhost", context=authority.server("another.example"))
    error = refused(peer, caplog, tls=TlsSettings(ca_file=authority.ca_file))
    assert error == f"{Failure.CERTIFICATE.text}: it is not for this host name"


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated")
def test_a_downgrade_of_tls_is_refused(
    secure: Callable[..., SecurePeer], authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    context = authority.server()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    peer = secure(protocol="SSL", context=context)
    tls = TlsSettings(ca_file=authority.ca_file, versions=("TLSv1.3",))
    assert refused(peer, caplog, tls=tls).startswith(Failure.TLS.text)

    context = authority.server()
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    peer = secure(protocol="SSL", context=context)
    assert refused(peer, caplog, tls=TlsSettings(ca_file=authority.ca_file)).startswith(Failure.TLS.text)


def test_tls_to_a_broker_without_tls(
    secure: Callable[..., SecurePeer], authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    peer = secure(protocol="SSL", asked=True, meddle=lambda number, answer: b"there is no TLS here at all.")
    error = refused(peer, caplog, tls=TlsSettings(ca_file=authority.ca_file), socket_timeout=0.5)
    assert error.startswith((Failure.TLS.text, Failure.HANDSHAKE_TIMEOUT.text))


def test_no_tls_to_a_broker_with_tls(
    secure: Callable[..., SecurePeer], authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    peer = secure(protocol="SASL_PLAINTEXT", context=authority.server())
    error = refused(peer, caplog, PASSWORD, sasl=sasl())
    # The broker's OpenSSL may send an alert before it resets the connection.
    assert "the broker uses TLS on this port" in error or error.endswith("during ApiVersions")


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password(
    secure: Callable[..., SecurePeer], caplog: pytest.LogCaptureFixture, mechanism: str
) -> None:
    peer = secure(protocol="SASL_PLAINTEXT")
    error = refused(peer, caplog, "wr0ng", sasl=sasl(mechanism, "wr0ng"))
    assert error == f"{Failure.AUTHENTICATION.text}: Authentication failed: Invalid username or password"


def test_a_mechanism_that_the_broker_does_not_have(
    secure: Callable[..., SecurePeer], caplog: pytest.LogCaptureFixture
) -> None:
    peer = secure(protocol="SASL_PLAINTEXT", mechanisms=("PLAIN", "SCRAM-SHA-256"))
    error = refused(peer, caplog, PASSWORD, sasl=sasl())
    assert error == f"{Failure.MECHANISM.text}: SCRAM-SHA-512; it has: PLAIN, SCRAM-SHA-256"


@pytest.mark.parametrize("iterations", [1, 4095, 200_000, 2**31])
def test_scram_with_too_few_or_too_many_iterations(
    secure: Callable[..., SecurePeer], caplog: pytest.LogCaptureFixture, iterations: int
) -> None:
    def ask(number: int, answer: bytes) -> bytes:
        return answer.replace(b",i=4096", b",i=" + b"%04d" % iterations) if number == 2 else answer

    def mend(number: int, answer: bytes) -> bytes:
        asked = ask(number, answer)
        added = len(asked) - len(answer)
        if not added:
            return asked
        size = int.from_bytes(answer[:4], "big") + added
        return size.to_bytes(4, "big") + asked[4:8] + asked[8:].replace(*_lengths(answer, asked), 1)

    peer = secure(protocol="SASL_PLAINTEXT", meddle=mend)
    error = refused(peer, caplog, PASSWORD, sasl=sasl())
    assert "a number of SCRAM iterations not in 4096 to 131072" in error


def _lengths(answer: bytes, asked: bytes) -> tuple[bytes, bytes]:
    """The compact length of the token, before and after; tokens here are of 128 to 16383 bytes."""
    at = answer.index(b"r=")
    end = answer.index(b"i=4096") + 6
    old, new = end - at + 1, end - at + 1 + len(asked) - len(answer)
    return tuple(bytes([n & 0x7F | 0x80, n >> 7]) if n > 127 else bytes([n]) for n in (old, new))  # type: ignore[return-value]


def test_a_broker_that_does_not_have_the_password(
    secure: Callable[..., SecurePeer], caplog: pytest.LogCaptureFixture
) -> None:
    def forge(number: int, answer: bytes) -> bytes:
        return answer.replace(b"v=", b"v=AAAA")[: len(answer)] if number == 3 else answer

    peer = secure(protocol="SASL_PLAINTEXT", meddle=forge)
    assert refused(peer, caplog, PASSWORD, sasl=sasl()).startswith(Failure.AUTHENTICATION.text)


def test_a_password_that_the_broker_repeats_is_not_shown(
    secure: Callable[..., SecurePeer], caplog: pytest.LogCaptureFixture
) -> None:
    def reveal(number: int, answer: bytes) -> bytes:
        return answer.replace(b"Invalid", PASSWORD.encode() + b"\n") if number == 2 else answer

    peer = secure(protocol="SASL_PLAINTEXT", users={}, meddle=reveal)
    error = refused(peer, caplog, PASSWORD, sasl=sasl("PLAIN"))
    assert "********  username or password" in error


GARBAGE: dict[str, bytes] = {
    "http": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "tls alert": b"\x15\x03\x03\x00\x02\x02\x46",
    "ones": b"\xff" * 40,
    "zeros": bytes(40),
    "huge": b"\x7f" + b"\xff" * 40,
    "empty body": b"\0\0\0\4",
    "cut body": b"\0\0\0\6",
}


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("garbage", GARBAGE)
def test_garbage_in_the_handshake(
    secure: Callable[..., SecurePeer], caplog: pytest.LogCaptureFixture, garbage: str, number: int
) -> None:
    def meddle(at: int, answer: bytes) -> bytes:
        data = GARBAGE[garbage]
        if garbage.endswith("body"):
            data += answer[4:8] + answer[8 : 8 + data[3] - 4]
        return data if at == number else answer

    peer = secure(protocol="SASL_PLAINTEXT", meddle=meddle)
    error = refused(peer, caplog, PASSWORD, sasl=sasl())
    assert error.startswith((Failure.HANDSHAKE.text, Failure.CORRELATION.text, Failure.SURPLUS.text))


def test_a_handshake_cut_at_every_byte(secure: Callable[..., SecurePeer]) -> None:
    peer = secure(protocol="SASL_PLAINTEXT")
    with channel_to([peer], security_protocol="SASL_PLAINTEXT", sasl=sasl()) as channel:
        channel.wait([channel.send_request(1, update())], 10)
    whole = sum(len(answer) for answer in peer.answers)
    assert len(peer.answers) == 4
    allowed = threading.local()
    cuts = iter(range(whole))

    def cut(number: int, answer: bytes) -> bytes | None:
        if number == 0:
            allowed.bytes = next(cuts, 1 << 30)
        data = answer[: allowed.bytes]
        allowed.bytes -= len(data)
        if len(data) < len(answer):
            tear(data)
            return None
        return data

    def tear(data: bytes) -> None:
        with peer._changed:
            sockets = list(peer._sockets)
        for sock in sockets:
            sock.sendall(data)

    peer.meddle = cut
    with channel_to([peer], security_protocol="SASL_PLAINTEXT", sasl=sasl(), retry_backoff=0) as channel:
        [outcome] = channel.wait([channel.send_request(1, update(7))], 60)
    assert outcome.kind is OutcomeKind.ACKNOWLEDGED
    assert outcome.attempts == whole + 1
    assert [number_of(exchange.body) for exchange in peer.received] == [0, 7]


def test_a_broker_that_sends_nothing(
    secure: Callable[..., SecurePeer], authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    peer = secure(protocol="SASL_PLAINTEXT", meddle=lambda number, answer: b"")
    error = refused(peer, caplog, PASSWORD, sasl=sasl(), socket_timeout=0.1)
    assert error == Failure.HANDSHAKE_TIMEOUT.text


# -- what changes while it runs


@pytest.mark.parametrize("version", [1, 2])
def test_a_session_is_renewed_before_it_ends(secure: Callable[..., SecurePeer], version: int) -> None:
    peer = secure(protocol="SASL_PLAINTEXT", lifetime_ms=100)
    peer.versions[36] = (0, version)
    with channel_to([peer], security_protocol="SASL_PLAINTEXT", sasl=sasl("PLAIN")) as channel:
        for number in range(3):
            [outcome] = channel.wait([channel.send_request(1, update(number))], 10)
            assert (outcome.kind, outcome.attempts) == (OutcomeKind.ACKNOWLEDGED, 1)
            sleep(0.1)
        assert channel.describe()["brokers"][1]["last_error"] == ""
    assert [exchange.connection for exchange in peer.received] == [0, 1, 2]


def test_a_password_can_be_replaced(secure: Callable[..., SecurePeer]) -> None:
    peer = secure(protocol="SASL_PLAINTEXT")
    settings: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", "sasl": sasl(password="old")}
    with channel_to([peer], **settings) as channel:
        sent = channel.send_request(1, update())
        eventually(lambda: channel.describe()["brokers"][1]["attempts"] >= 2)
        channel.reload_credentials(sasl=sasl())
        assert channel.wait([sent], 10)[0].kind is OutcomeKind.ACKNOWLEDGED
        assert channel.config.sasl == sasl()


def test_changed_files_are_used_by_new_connections(secure: Callable[..., SecurePeer], tmp_path: Path) -> None:
    before, after = Authority(trustme.CA(), tmp_path), Authority(trustme.CA(), tmp_path)
    peer = secure(protocol="SSL", context=before.server())
    tls = TlsSettings(ca_file=before.ca_file)
    with channel_to([peer], security_protocol="SSL", tls=tls) as channel:
        assert channel.wait([channel.send_request(1, update(0))], 10)[0].response
        peer.context = after.server()
        peer.drop_connections()
        sent = channel.send_request(1, update(1))
        eventually(lambda: channel.describe()["brokers"][1]["attempts"] >= 2)
        # Half of the change first: what cannot be read is not used.
        Path(tls.ca_file or "").write_text("-----BEGIN CERTIFICATE-----")
        attempts = channel.describe()["brokers"][1]["attempts"]
        eventually(lambda: channel.describe()["brokers"][1]["attempts"] >= attempts + 2)
        assert Failure.CERTIFICATE.text in channel.describe()["brokers"][1]["last_error"]
        assert after.ca_file == tls.ca_file
        assert channel.wait([sent], 10)[0].kind is OutcomeKind.ACKNOWLEDGED


def test_a_replacement_that_cannot_work_changes_nothing(
    secure: Callable[..., SecurePeer], authority: Authority
) -> None:
    peer = secure(protocol="SSL", context=authority.server())
    tls = TlsSettings(ca_file=authority.ca_file)
    with channel_to([peer], security_protocol="SSL", tls=tls) as channel:
        with pytest.raises(ConfigError, match="nowhere"):
            channel.reload_credentials(tls=TlsSettings(ca_file="/nowhere/ca.pem"))
        with pytest.raises(ConfigError, match="sasl"):
            channel.reload_credentials(sasl=sasl())
        assert channel.config.tls == tls
        assert channel.wait([channel.send_request(1, update())], 10)[0].response


def test_secrets_are_in_no_command_line_and_no_environment(secure: Callable[..., SecurePeer]) -> None:
    peer = secure(protocol="SASL_PLAINTEXT")
    with channel_to([peer], security_protocol="SASL_PLAINTEXT", sasl=sasl()) as channel:
        channel.wait([channel.send_request(1, update())], 10)
        children = psutil.Process(os.getpid()).children(recursive=True)
        assert len(children) >= 2
        for child in children:
            assert not any(PASSWORD in word for word in child.cmdline())
            assert not any(PASSWORD in value for value in child.environ().values())


def test_files_that_cannot_be_used_are_named_at_once(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nothing")
    tls = TlsSettings(ca_file=str(tmp_path / "ca.pem"))
    with pytest.raises(ConfigError, match=r"ca\.pem"):
        ControllerChannelManager(ChannelConfig(security_protocol="SSL", tls=tls))


@pytest.mark.parametrize("lifetime_ms", [2**53, 2**63 - 1])
def test_a_session_without_end_disturbs_nobody(secure: Callable[..., SecurePeer], lifetime_ms: int) -> None:
    brokers = [
        secure(broker_id=1, epoch=1001, protocol="SASL_PLAINTEXT", lifetime_ms=lifetime_ms),
        secure(broker_id=2, epoch=1002, protocol="SASL_PLAINTEXT"),
    ]
    with channel_to(brokers, security_protocol="SASL_PLAINTEXT", sasl=sasl("PLAIN")) as channel:
        for number in range(3):
            outcomes = channel.wait(channel.send_requests([1, 2], update(number)), 10)
            assert {outcome.kind for outcome in outcomes} == {OutcomeKind.ACKNOWLEDGED}
            assert {outcome.sender_deaths for outcome in outcomes} == {0}
    assert [peer.connections for peer in brokers] == [1, 1]


# -- brokers before Kafka 1.0


OLD_VERSIONS = {4: (0, 0), 5: (0, 0), 6: (0, 3), 17: (0, 0), 18: (0, 1)}


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_broker_with_sasl_handshake_0_is_sent_tokens_without_headers(
    secure: Callable[..., SecurePeer], mechanism: str
) -> None:
    peer = secure(protocol="SASL_PLAINTEXT", versions=dict(OLD_VERSIONS))
    with channel_to([peer], security_protocol="SASL_PLAINTEXT", sasl=sasl(mechanism)) as channel:
        for number in range(3):
            [outcome] = channel.wait([channel.send_request(1, update(number))], 10)
            assert (outcome.kind, outcome.attempts) == (OutcomeKind.ACKNOWLEDGED, 1)
    assert peer.questions == [(18, 3), (18, 0), (17, 0)]
    # Two questions of ApiVersions and one of SaslHandshake came before; tokens have no correlation id.
    assert [exchange.correlation_id for exchange in peer.received] == [3, 4, 5]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_for_a_broker_with_sasl_handshake_0(
    secure: Callable[..., SecurePeer], caplog: pytest.LogCaptureFixture, mechanism: str
) -> None:
    peer = secure(protocol="SASL_PLAINTEXT", versions=dict(OLD_VERSIONS))
    error = refused(peer, caplog, "wr0ng", sasl=sasl(mechanism, "wr0ng"))
    assert error.startswith(f"{Failure.CLOSED.text}: during authentication with {mechanism} (a broker before")

"""Other stores of a TLS listener: which may take the place of those in use, and files that change."""

from __future__ import annotations

import logging
import os
import ssl
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
import trustme

from ctrlchan.errors import ConfigError
from ctrlchan.security.listener_security import ListenerSecurity
from ctrlchan.security.settings import TlsSettings
from ctrlchan.server.listener_stores import ListenerStores
from ctrlchan.server.socket_server import SocketServer
from tests.kafka.waiting import wait_until
from tests.soak.processes import MEASURES_MEMORY
from tests.unit.server.serving import EchoHandler, handling, serving, wait_for_connections
from tests.unit.server.tls_serving import (
    TlsClient,
    authority_pem,
    client_context,
    issued,
    pem_of,
    tls_listener,
)

#: The interval in which files are looked at, in milliseconds.
OFTEN = {"stores_refresh_ms": 20}
#: Bytes by which a process may grow when certificates are renewed.
MOST_GROWTH = 16 * 2**20


def security(client_auth: str = "none", more: dict[str, Any] | None = None, **tls: Any) -> ListenerSecurity:
    return tls_listener(client_auth, more=more, **tls).security


def settings(given: ListenerSecurity) -> TlsSettings:
    assert given.tls is not None
    return given.tls


def tls_of(**tls: Any) -> TlsSettings:
    return settings(security(**tls))


def stores(given: ListenerSecurity, *, is_inter_broker: bool = False) -> ListenerStores:
    return ListenerStores("SECURE", given, is_inter_broker=is_inter_broker)


def text_of(one: trustme.LeafCert) -> str:
    """Return a key store in PEM."""
    pem = pem_of(one)
    return f"{pem['key_pem']}{pem['certificate_pem']}"


def shown(server: SocketServer, context: ssl.SSLContext | None = None) -> str:
    """Return the serial number of the certificate that a new connection is shown."""
    with TlsClient(server, context) as client:
        found: Any = client.tls.getpeercert()
        return str(found["serialNumber"])


def is_shown_no_more(server: SocketServer, number: str) -> bool:
    """Return whether new connections are shown another certificate."""
    return shown(server) != number


def named(name: str | None) -> ssl.SSLContext:
    """Return the context of a client with a certificate; of TLS 1.2, which refuses in the handshake."""
    return client_context(name, "TLSv1_2")


# -- stores that a client sets


def test_new_connections_have_other_stores() -> None:
    with serving(EchoHandler(), tls_listener()) as server, TlsClient(server) as before:
        first = shown(server)
        server.use_stores(0, tls_of(**pem_of(issued("broker"))))
        second = shown(server)
        assert second != first
        before.frames(b"e old")
        assert before.answer() == b"e old"
        # Stores that cannot be used change nothing.
        with pytest.raises(ConfigError, match=r"SECURE: ssl\.keystore\.key: no private key"):
            server.use_stores(0, tls_of(key_pem="no key"))
        assert shown(server) == second


def test_another_name_is_refused_unless_it_is_allowed() -> None:
    other = security(**pem_of(issued("mallory")))
    with pytest.raises(ConfigError) as raised:
        stores(security()).check(settings(other))
    assert str(raised.value) == (
        "listener SECURE: Keystore DistinguishedName does not match: existing={DN=CN=broker,OU=tests,"
        "O=ctrlchan}, new={DN=CN=mallory,OU=tests,O=ctrlchan} (ssl.allow.dn.changes is false)"
    )
    stores(security(more={"allows_dn_changes": True})).check(settings(other))


@pytest.mark.parametrize(("old", "new"), [("Broker  1", "broker 1"), ("broker", "BROKER")])
def test_blanks_and_letter_case_are_no_other_name(old: str, new: str) -> None:
    stores(security(**pem_of(issued(old)))).check(tls_of(**pem_of(issued(new))))


def test_hosts_that_are_missing_are_refused_unless_that_is_allowed() -> None:
    two = security(**pem_of(issued("broker", "localhost", "10.0.0.1")))
    one = security(**pem_of(issued("broker", "localhost")))
    with pytest.raises(ConfigError) as raised:
        stores(two).check(settings(one))
    assert str(raised.value) == (
        "listener SECURE: Keystore SubjectAltNames do not match: "
        "existing={SAN=[DNS:localhost, IP:10.0.0.1]}, new={SAN=[DNS:localhost]} "
        "(ssl.allow.san.changes is false)"
    )
    # More of them may come.
    stores(one).check(settings(two))
    allowed = {"allows_san_changes": True}
    stores(security(more=allowed, **pem_of(issued("broker", "h")))).check(settings(one))


def test_a_trust_store_cannot_be_added() -> None:
    with pytest.raises(ConfigError, match="Cannot add SSL truststore to an existing listener"):
        stores(security(ca_pem=None)).check(tls_of())
    stores(security()).check(tls_of(ca_pem=None))


def test_what_is_no_store_stays() -> None:
    """Versions and suites are those of the start, as is whether clients must show certificates."""
    with serving(EchoHandler(), tls_listener("required")) as server:
        server.use_stores(0, tls_of(versions=("TLSv1.3",), **pem_of(issued("broker"))))
        assert shown(server, named("alice"))
        with pytest.raises((ssl.SSLError, ConnectionError)):
            shown(server, named(None))


# -- the listener of brokers


def test_brokers_must_trust_their_own_certificate() -> None:
    stores(security(), is_inter_broker=True)
    elsewhere = security(ca_pem=trustme.CA().cert_pem.bytes().decode())
    stores(elsewhere)
    with pytest.raises(ConfigError) as raised:
        stores(elsewhere, is_inter_broker=True)
    assert str(raised.value) == (
        "listener SECURE: brokers cannot connect to each other: its key store (ssl.keystore.location) is not "
        "trusted by its trust store (ssl.truststore.location): as a client: the broker's certificate is "
        "refused: an authority that is not trusted has signed it"
    )
    expired = issued("broker", expires=datetime.now(UTC) - timedelta(days=1))
    with pytest.raises(ConfigError, match="it has expired"):
        stores(security(**pem_of(expired)), is_inter_broker=True)


@pytest.mark.parametrize("client_auth", ["none", "requested", "required"])
def test_brokers_with_old_and_new_stores_must_trust_each_other(client_auth: str) -> None:
    used = stores(security(client_auth), is_inter_broker=True)
    used.check(tls_of(**pem_of(issued("broker"))))
    other = trustme.CA()
    both = authority_pem() + other.cert_pem.bytes().decode()
    new = pem_of(issued("broker", by=other))
    with pytest.raises(ConfigError, match="brokers with the present stores and brokers with the new ones"):
        used.check(tls_of(**new, ca_pem=both))
    # First the trust store, then the key store
    used.replace(tls_of(ca_pem=both), lambda _: None)
    used.replace(tls_of(**new, ca_pem=both), lambda _: None)
    # The other way round the authority must not go first.
    with pytest.raises(ConfigError, match="the server has the old ones"):
        used.check(tls_of(**new))


def test_an_authority_between_is_enough_in_a_trust_store() -> None:
    between = trustme.CA().create_child_ca()
    trusted = between.cert_pem.bytes().decode()
    given = pem_of(issued("broker", by=between))
    stores(security("required", **given, ca_pem=trusted), is_inter_broker=True)


# -- files that change


def listener_of(file: Path, **more: Any) -> Any:
    return tls_listener(more=OFTEN | more, certificate_pem=None, key_pem=None, certificate_file=str(file))


@pytest.mark.usefixtures("each_tls")
@pytest.mark.parametrize("way", ["written", "renamed", "link"])
def test_a_renewed_file_is_followed(tmp_path: Path, way: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    file = tmp_path / "broker.pem"
    if way == "link":
        # As Kubernetes mounts secrets: the file is a link through a link to a folder, which is exchanged.
        (tmp_path / "first").mkdir()
        (tmp_path / "first" / "broker.pem").write_text(text_of(issued("broker")))
        (tmp_path / "data").symlink_to("first")
        file.symlink_to("data/broker.pem")
    else:
        file.write_text(text_of(issued("broker")))
    with serving(EchoHandler(), listener_of(file)) as server:
        before = shown(server)
        renewed = text_of(issued("broker"))
        if way == "written":
            file.write_text(renewed)
        elif way == "renamed":
            (tmp_path / "new").write_text(renewed)
            os.replace(tmp_path / "new", file)
        else:
            (tmp_path / "second").mkdir()
            (tmp_path / "second" / "broker.pem").write_text(renewed)
            (tmp_path / "new").symlink_to("second")
            os.replace(tmp_path / "new", tmp_path / "data")
        wait_until(lambda: shown(server) != before, what="the renewed certificate")
    assert "listener SECURE: changed files of its stores are used" in caplog.text


def test_a_trust_store_is_followed(tmp_path: Path) -> None:
    file = tmp_path / "clients.pem"
    other = trustme.CA()
    file.write_bytes(other.cert_pem.bytes())
    with serving(
        EchoHandler(), tls_listener("required", more=OFTEN, ca_pem=None, ca_file=str(file))
    ) as server:
        context = named("alice")
        with pytest.raises((ssl.SSLError, ConnectionError)):
            shown(server, context)
        file.write_text(authority_pem())

        def is_served() -> bool:
            try:
                return bool(shown(server, context))
            except (ssl.SSLError, ConnectionError):
                return False

        wait_until(is_served, what="the other trust store")


def test_half_a_file_changes_nothing_and_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "broker.pem"
    file.write_text(text_of(issued("broker")))
    renewed = text_of(issued("broker"))
    with serving(EchoHandler(), listener_of(file)) as server:
        before = shown(server)
        file.write_text(renewed[:100])
        wait_until(lambda: "the stores before stay in use" in caplog.text, what="a line")
        assert f"listener SECURE: ssl.keystore.location: {file}: " in caplog.text
        assert shown(server) == before
        file.unlink()
        wait_until(lambda: f"{file}: No such file" in caplog.text, what="another line")
        assert shown(server) == before
        file.write_text(renewed)
        wait_until(lambda: shown(server) != before, what="the renewed certificate")
    lines = [one for one in caplog.messages if "the stores before stay in use" in one]
    # Once for each reason, however often the files are looked at.
    assert len(set(lines)) == len(lines)


def test_a_file_with_another_name_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "broker.pem"
    file.write_text(text_of(issued("broker")))
    with serving(EchoHandler(), listener_of(file)) as server:
        before = shown(server)
        file.write_text(text_of(issued("mallory")))
        wait_until(lambda: "Keystore DistinguishedName does not match" in caplog.text, what="a line")
        assert shown(server) == before
    with serving(EchoHandler(), listener_of(file, allows_dn_changes=True)) as server:
        before = shown(server)
        file.write_text(text_of(issued("broker")))
        wait_until(lambda: shown(server) != before, what="the renewed certificate")


def test_certificates_that_are_renewed_each_hour_of_a_day(tmp_path: Path) -> None:
    """A day in seconds: each hour's connections go on, and what the server keeps goes with them."""
    file = tmp_path / "broker.pem"
    file.write_text(text_of(issued("broker")))
    process = psutil.Process()
    sizes = []
    with serving(EchoHandler(), listener_of(file)) as server, ExitStack() as stack:
        for hour in range(24):
            client = stack.enter_context(TlsClient(server))
            before = shown(server)
            (tmp_path / "new").write_text(text_of(issued("broker")))
            os.replace(tmp_path / "new", file)
            wait_until(partial(is_shown_no_more, server, before), what="the renewed certificate")
            client.frames(b"e of hour %d" % hour)
            assert client.answer() == b"e of hour %d" % hour
            if hour % 8 == 7:
                # All connections of earlier certificates end.
                stack.close()
                wait_for_connections(server, 0)
                sizes.append(process.memory_info().rss)
        assert not MEASURES_MEMORY or sizes[-1] - sizes[0] < MOST_GROWTH


def test_certificates_that_expire_while_they_are_used(caplog: pytest.LogCaptureFixture) -> None:
    """Connections go on, as with Kafka; who connects later is refused, with the reason in the log."""
    expires = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=10)
    context = client_context(version="TLSv1_2")
    issued("alice", expires=expires).configure_cert(context)
    given = pem_of(issued("broker", expires=expires))
    with (
        serving(EchoHandler(), tls_listener("required", **given)) as server,
        # The first request of a peer with a name is a handler thread's.
        handling(server, lambda request: request.answer(request.frame)),
        TlsClient(server, context) as before,
    ):
        before.frames(b"e before")
        assert before.answer() == b"e before"
        wait_until(lambda: datetime.now(UTC) > expires + timedelta(seconds=1), what="it has expired")
        before.frames(b"e after")
        assert before.answer() == b"e after"
        # A client notices the server's certificate itself.
        with pytest.raises(ssl.SSLError, match="certificate has expired"):
            TlsClient(server, named("alice"))
        # The server notices the client's.
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with pytest.raises((ssl.SSLError, ConnectionError)):
            TlsClient(server, context)
        wait_until(lambda: "verify failed (certificate has expired)" in caplog.text, what="a line")
        # Renewed, everything goes on.
        server.use_stores(0, tls_of(**pem_of(issued("broker"))))
        assert shown(server, named("alice"))


def test_files_are_not_followed_unless_that_is_wanted(tmp_path: Path) -> None:
    file = tmp_path / "broker.pem"
    file.write_text(text_of(issued("broker")))
    listener = tls_listener(certificate_pem=None, key_pem=None, certificate_file=str(file))
    with serving(EchoHandler(), listener) as server:
        before = shown(server)
        file.write_text(text_of(issued("broker")))
        assert shown(server) == before
        # AlterConfigs with equal values reads them.
        server.reread_stores(0)
        after = shown(server)
        assert after != before
        # A file that is gone, or as it was, is no change.
        file.unlink()
        server.reread_stores(0)
        file.write_text("half of a file")
        with pytest.raises(ConfigError, match=r"ssl\.keystore\.location"):
            server.reread_stores(0)
        assert shown(server) == after

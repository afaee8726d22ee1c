"""Listeners of a controller: TLS, SASL, both, neither, and peers that misbehave. With real clients."""

from __future__ import annotations

import logging
import random
import socket
import ssl
import struct
import time
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import pytest
import trustme
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from ctrlchan.errors import ConfigError
from ctrlchan.security.kerberos import KerberosLogin
from ctrlchan.security.listener_security import ClientAuth, ListenerSecurity
from ctrlchan.security.principal_rules import PrincipalRules
from ctrlchan.security.settings import TlsSettings
from ctrlchan.server.security.scram_credentials import credential_of_password, credential_to_text
from ctrlchan.state import Endpoint, SecurityProtocol
from tests.kafka.waiting import wait_until
from tests.kafka.wire import receive_frame
from tests.unit.broker.authorizer.deciding import Deciding
from tests.unit.broker.local_broker import NO_TIME, client_frame, read_client_response
from tests.unit.controller.server.local_server import ID, LocalServer, local_server, plaintext
from tests.unit.server.serving import sized

PASSWORD = "alice-secret"
USERS = {"alice": PASSWORD}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
OAUTHBEARER = "OAUTHBEARER"
DESCRIBE_CLUSTER, METADATA, API_VERSIONS = 60, 3, 18


@pytest.fixture(scope="module")
def kafka_python() -> ModuleType:
    with warnings.catch_warnings():
        # It reads its schemas through a deprecated function of the standard library.
        warnings.simplefilter("ignore", DeprecationWarning)
        import kafka

    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    return kafka  # type: ignore[no-any-return]


class Authority:
    """Certificates of a server and of a client, and the files that clients want."""

    def __init__(self, folder: Path) -> None:
        self.ca = trustme.CA()
        self.ca_file = str(folder / "ca.pem")
        self.ca.cert_pem.write_to_path(self.ca_file)
        server, client = self.ca.issue_cert("127.0.0.1"), self.ca.issue_cert("alice", common_name="alice")
        self.client_file = str(folder / "client.pem")
        client.private_key_and_cert_chain_pem.write_to_path(self.client_file)
        self.settings = TlsSettings(
            ca_pem=self.ca.cert_pem.bytes().decode(),
            certificate_pem=b"".join(pem.bytes() for pem in server.cert_chain_pems).decode(),
            key_pem=server.private_key_pem.bytes().decode(),
        )

    def context(self, *, with_certificate: bool = False) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.ca_file)
        if with_certificate:
            context.load_cert_chain(self.client_file)
        return context


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def listener(protocol: SecurityProtocol) -> Endpoint:
    return Endpoint(protocol.name, protocol, "127.0.0.1", 0)


@pytest.fixture(scope="module")
def secured(authority: Authority) -> Iterator[LocalServer]:
    """A server with a listener of each security protocol; alice is in its settings, bob in ZooKeeper."""
    security = {
        "SSL": ListenerSecurity(tls=authority.settings),
        "SASL_PLAINTEXT": ListenerSecurity(mechanisms=MECHANISMS, users=USERS),
        "SASL_SSL": ListenerSecurity(tls=authority.settings, mechanisms=MECHANISMS, users=USERS),
    }
    with local_server(*map(listener, SecurityProtocol), listener_security=security) as local:
        credential = credential_of_password("SCRAM-SHA-512", "bob-secret", b"0123456789abcdef", 8192)
        local.users["bob"] = {"SCRAM-SHA-512": credential_to_text(credential)}
        local.users["broken"] = {"SCRAM-SHA-512": "no credential"}
        yield local


def librdkafka(local: LocalServer, protocol: str, **settings: Any) -> Any:
    """The description of the cluster by confluent-kafka."""
    admin = AdminClient(
        {
            "bootstrap.servers": local.address(protocol),
            "security.protocol": protocol,
            "log_level": 0,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )
    return admin.list_topics(timeout=10)


def check(listed: Any) -> None:
    assert (listed.cluster_id, listed.controller_id) == ("test-cluster", ID)
    assert set(listed.brokers) == {1, 2, 3, ID}


def sasl(mechanism: str, user: str = "alice", password: str = PASSWORD) -> dict[str, str]:
    return {"sasl_mechanism": mechanism, "sasl_username": user, "sasl_password": password}


def test_plaintext(secured: LocalServer) -> None:
    check(librdkafka(secured, "PLAINTEXT"))


def test_tls(secured: LocalServer, authority: Authority) -> None:
    check(librdkafka(secured, "SSL", ssl_ca_location=authority.ca_file))


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_librdkafka_authenticates(
    secured: LocalServer, authority: Authority, protocol: str, mechanism: str
) -> None:
    tls = {"ssl_ca_location": authority.ca_file} if protocol == "SASL_SSL" else {}
    check(librdkafka(secured, protocol, **tls, **sasl(mechanism)))


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_kafka_python_authenticates(
    secured: LocalServer, authority: Authority, kafka_python: ModuleType, protocol: str, mechanism: str
) -> None:
    client = kafka_python.KafkaAdminClient(
        bootstrap_servers=secured.address(protocol),
        security_protocol=protocol,
        ssl_cafile=authority.ca_file if protocol == "SASL_SSL" else None,
        sasl_mechanism=mechanism,
        sasl_plain_username="alice",
        sasl_plain_password=PASSWORD,
    )
    try:
        assert client.describe_cluster()["controller_id"] == ID
    finally:
        client.close()


def test_a_bearer_token() -> None:
    security = {
        "SASL_PLAINTEXT": ListenerSecurity(
            mechanisms=(OAUTHBEARER,), token_options={"unsecuredValidatorRequiredScope": "admin"}
        )
    }
    token = {"enable_sasl_oauthbearer_unsecure_jwt": "true", "sasl_mechanism": OAUTHBEARER}
    with local_server(listener(SecurityProtocol.SASL_PLAINTEXT), listener_security=security) as local:
        config = "principal=alice scope=admin"
        check(librdkafka(local, "SASL_PLAINTEXT", sasl_oauthbearer_config=config, **token))


def test_a_session_ends_where_the_listener_limits_it() -> None:
    security = {
        "SASL_PLAINTEXT": ListenerSecurity(mechanisms=("PLAIN",), users=USERS, max_reauth_ms={"PLAIN": 1})
    }
    request = sized(client_frame(DESCRIBE_CLUSTER, 0, include_cluster_authorized_operations=False))
    with (
        local_server(listener(SecurityProtocol.SASL_PLAINTEXT), listener_security=security) as local,
        socket.create_connection(("127.0.0.1", local.port("SASL_PLAINTEXT")), timeout=10) as connection,
    ):
        connection.sendall(sized(client_frame(17, 1, mechanism="PLAIN")))
        receive_frame(connection)
        connection.sendall(sized(client_frame(36, 1, auth_bytes=f"\0alice\0{PASSWORD}".encode())))
        assert read_client_response(36, 1, receive_frame(connection)).session_lifetime
        time.sleep(0.01)
        connection.sendall(request)
        assert connection.recv(1) == b""


def test_a_user_in_zookeeper(secured: LocalServer) -> None:
    check(librdkafka(secured, "SASL_PLAINTEXT", **sasl("SCRAM-SHA-512", "bob", "bob-secret")))


@pytest.mark.parametrize(
    ("mechanism", "user", "password"),
    [
        ("PLAIN", "alice", "wrong"),
        ("SCRAM-SHA-256", "alice", "wrong"),
        ("PLAIN", "bob", "bob-secret"),
        ("SCRAM-SHA-256", "bob", "bob-secret"),
        ("SCRAM-SHA-512", "broken", "bob-secret"),
        ("SCRAM-SHA-512", "nobody", PASSWORD),
    ],
)
def test_others_do_not_authenticate(
    secured: LocalServer, caplog: pytest.LogCaptureFixture, mechanism: str, user: str, password: str
) -> None:
    errors: list[Any] = []
    settings: dict[str, Any] = {
        "bootstrap.servers": secured.address("SASL_PLAINTEXT"),
        "security.protocol": "SASL_PLAINTEXT",
        "log_level": 0,
        "error_cb": errors.append,
        **{name.replace("_", "."): value for name, value in sasl(mechanism, user, password).items()},
    }
    admin = AdminClient(settings)
    wait_until(
        lambda: admin.poll(0.05) is not None and any(error.name() == "_AUTHENTICATION" for error in errors),
        what="the client reports that it is refused",
    )
    assert PASSWORD not in caplog.text
    assert "bob-secret" not in caplog.text


def test_a_request_without_authentication_closes(secured: LocalServer) -> None:
    frame = client_frame(METADATA, 12, topics=None)
    with socket.create_connection(("127.0.0.1", secured.port("SASL_PLAINTEXT")), timeout=10) as connection:
        connection.sendall(sized(frame))
        assert connection.recv(1) == b""


def test_versions_are_announced_before_authentication(secured: LocalServer) -> None:
    with socket.create_connection(("127.0.0.1", secured.port("SASL_PLAINTEXT")), timeout=10) as connection:
        connection.sendall(sized(client_frame(API_VERSIONS, 0)))
        body = read_client_response(API_VERSIONS, 0, receive_frame(connection))
    announced = {one.api_key: (one.min_version, one.max_version) for one in body.api_keys}
    assert {17, 36, METADATA} <= announced.keys()
    assert announced[36] == (0, 2)


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SASL_PLAINTEXT"])
def test_authentication_where_there_is_none_to_do(secured: LocalServer, protocol: str) -> None:
    """A second SaslHandshake, and one on a listener without SASL: ILLEGAL_SASL_STATE."""
    with socket.create_connection(("127.0.0.1", secured.port(protocol)), timeout=10) as connection:
        if protocol == "SASL_PLAINTEXT":
            for key, fields in (
                (17, {"mechanism": "PLAIN"}),
                (36, {"auth_bytes": f"\0alice\0{PASSWORD}".encode()}),
            ):
                connection.sendall(sized(client_frame(key, 1, **fields)))
                receive_frame(connection)
        for key, version, fields in (
            (17, 1, {"mechanism": "PLAIN"}),
            (17, 0, {"mechanism": "PLAIN"}),
            (36, 0, {"auth_bytes": b""}),
            (36, 2, {"auth_bytes": b""}),
        ):
            connection.sendall(sized(client_frame(key, version, **fields)))
            assert read_client_response(key, version, receive_frame(connection)).error_code.value == 34


@pytest.mark.parametrize("wanted", list(ClientAuth))
@pytest.mark.parametrize("with_certificate", [True, False])
def test_certificates_of_clients(authority: Authority, wanted: ClientAuth, with_certificate: bool) -> None:
    security = {"SSL": ListenerSecurity(tls=authority.settings, client_auth=wanted)}
    with local_server(listener(SecurityProtocol.SSL), listener_security=security) as local:
        context = authority.context(with_certificate=with_certificate)
        with (
            socket.create_connection(("127.0.0.1", local.port("SSL")), timeout=10) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
        ):
            try:
                connection.sendall(
                    sized(client_frame(DESCRIBE_CLUSTER, 0, include_cluster_authorized_operations=False))
                )
                served = len(receive_frame(connection)) > 0
            except (ssl.SSLError, ConnectionError):
                served = False
        assert served is (with_certificate or wanted is not ClientAuth.REQUIRED)


def test_the_name_in_a_certificate_is_that_of_the_user(authority: Authority) -> None:
    rules = PrincipalRules("RULE:^.*CN=([a-z]+).*$/$1/,DEFAULT")
    security = {
        "SSL": ListenerSecurity(
            tls=authority.settings, client_auth=ClientAuth.REQUIRED, principal_rules=rules
        )
    }
    deciding = Deciding()
    with local_server(
        listener(SecurityProtocol.SSL), listener_security=security, authorizer=deciding
    ) as local:
        check(
            librdkafka(
                local,
                "SSL",
                ssl_ca_location=authority.ca_file,
                ssl_certificate_location=authority.client_file,
                ssl_key_location=authority.client_file,
            )
        )
    assert {requester.principal for requester, _ in deciding.asked} == {"User:alice"}


def test_a_peer_without_tls_on_a_tls_listener(secured: LocalServer, authority: Authority) -> None:
    with socket.create_connection(("127.0.0.1", secured.port("SSL")), timeout=10) as connection:
        connection.sendall(sized(client_frame(METADATA, 12, topics=None)))
        with suppress(ConnectionResetError):
            assert connection.recv(1) == b""
    check(librdkafka(secured, "SSL", ssl_ca_location=authority.ca_file))


def test_handshakes_that_are_never_finished_do_not_delay_the_end(authority: Authority) -> None:
    before = psutil.Process().num_fds()
    security = {"SSL": ListenerSecurity(tls=authority.settings)}
    with local_server(listener(SecurityProtocol.SSL), listener_security=security) as local:
        connections = [socket.create_connection(("127.0.0.1", local.port("SSL"))) for _ in range(5)]
        connections[0].sendall(b"\x16\x03")
        wait_until(lambda: local.server.describe()[0]["connections"] == 5, what="the handshakes begin")
    for connection in connections:
        with connection:
            assert connection.recv(1) == b""
    wait_until(lambda: psutil.Process().num_fds() <= before, what="all descriptors are closed")


@pytest.mark.parametrize("protocol", list(SecurityProtocol))
def test_garbage_closes_only_its_connection(
    secured: LocalServer, authority: Authority, protocol: SecurityProtocol
) -> None:
    choose = random.Random(7)
    frames = [
        client_frame(METADATA, 12, topics=None),
        client_frame(17, 1, mechanism="SCRAM-SHA-256"),
        client_frame(20, 6, topics=(), timeout=NO_TIME),
    ]
    for _ in range(60):
        data = bytearray(sized(choose.choice(frames)))
        for _ in range(choose.randrange(1, 6)):
            data[choose.randrange(len(data))] = choose.randrange(256)
        # The server may have closed the connection before its peer wants to.
        with (
            suppress(OSError),
            socket.create_connection(("127.0.0.1", secured.port(protocol.name)), timeout=10) as connection,
        ):
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(1 << 16):
                pass
    tls = {"ssl_ca_location": authority.ca_file} if protocol.name.endswith("SSL") else {}
    user = sasl("PLAIN") if protocol.name.startswith("SASL") else {}
    check(librdkafka(secured, protocol.name, **tls, **user))


def test_an_unauthenticated_peer_sends_no_large_frame(secured: LocalServer) -> None:
    with socket.create_connection(("127.0.0.1", secured.port("SASL_PLAINTEXT")), timeout=10) as connection:
        connection.sendall(struct.pack(">i", 600_000))
        assert connection.recv(1) == b""


def test_listeners_have_their_own_addresses() -> None:
    """A client of one listener sees the brokers and the controller with their endpoints of this listener."""
    advertised = (Endpoint("OUT", SecurityProtocol.PLAINTEXT, "localhost", 0),)
    with local_server(plaintext("IN"), plaintext("OUT"), advertised_listeners=advertised) as local:
        assert [one.host for one in local.server.endpoints] == ["127.0.0.1", "localhost"]
        for name in ("IN", "OUT"):
            admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{local.port(name)}", "log_level": 0})
            found: Any = admin.list_topics(timeout=10).brokers[ID]
            assert (found.host, found.port) == (local.address(name).split(":")[0], local.port(name))


def test_settings_that_cannot_work(authority: Authority) -> None:
    broken = TlsSettings(certificate_pem="x", key_pem="y")
    for endpoint, security, message in (
        (listener(SecurityProtocol.SSL), ListenerSecurity(), "listener SSL: SSL needs a certificate"),
        (
            listener(SecurityProtocol.SSL),
            ListenerSecurity(tls=broken),
            "ssl.keystore.certificate.chain: no certi",
        ),
        (
            listener(SecurityProtocol.SASL_PLAINTEXT),
            ListenerSecurity(mechanisms=("PLAIN",)),
            "nobody can authenticate",
        ),
        (plaintext(), ListenerSecurity(tls=authority.settings), "PLAINTEXT has no TLS"),
        (plaintext(), ListenerSecurity(mechanisms=MECHANISMS), "PLAINTEXT has no SASL"),
        (
            Endpoint("PLAINTEXT", SecurityProtocol.PLAINTEXT, "203.0.113.1", 0),
            ListenerSecurity(),
            "203.0.113.1",
        ),
    ):
        with (
            pytest.raises(ConfigError, match=message),
            local_server(endpoint, listener_security={endpoint.listener: security}),
        ):
            pass
    with pytest.raises(ConfigError, match="mechanisms: 'DIGEST-MD5'"):
        ListenerSecurity(mechanisms=("DIGEST-MD5",))
    with pytest.raises(ConfigError, match="kerberos: a listener needs a principal and its keytab"):
        ListenerSecurity(mechanisms=("GSSAPI",), kerberos=KerberosLogin("a@R"))
    with pytest.raises(ConfigError, match=r"GSSAPI needs a login module \(gssapi\.sasl\.jaas\.config\)"):
        ListenerSecurity(mechanisms=("GSSAPI",)).check("CLIENTS", SecurityProtocol.SASL_PLAINTEXT)
    with pytest.raises(ConfigError, match="client_auth"):
        ListenerSecurity(client_auth="maybe")  # type: ignore[arg-type]
    assert PASSWORD not in repr(ListenerSecurity(mechanisms=MECHANISMS, users=USERS))


def test_a_port_that_is_taken() -> None:
    with (
        local_server() as first,
        pytest.raises(ConfigError, match="in use"),
        local_server(plaintext(), plaintext("SECOND", first.port())),
    ):
        pass


def test_clients_outlast_a_controller_that_is_not_active() -> None:
    """librdkafka forgets all brokers that a Metadata response with a topic does not name."""
    with local_server() as local:
        client = AdminClient(
            {"bootstrap.servers": local.address(), "reconnect.backoff.max.ms": 100, "log_level": 0}
        )
        topic, *_ = client.list_topics(timeout=60).topics
        term, local.core = local.core, None
        for _ in range(3):
            with pytest.raises(KafkaException):
                client.list_topics(topic, timeout=0.5)
        local.core = term
        assert client.list_topics(topic, timeout=60).brokers.keys() == {1, 2, 3, ID}


def test_describe(secured: LocalServer) -> None:
    described = {one["listener"]: one for one in secured.server.describe()}
    assert described.keys() == {protocol.name for protocol in SecurityProtocol}
    assert described["PLAINTEXT"]["port"] == secured.port()

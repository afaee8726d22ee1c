"""SASL of a broker with a log directory: settings of its listeners, who is let in, what is counted."""

from __future__ import annotations

import logging
import socket
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode as KioError
from prometheus_client import CollectorRegistry

from ctrlchan.broker.config.listener_configs import security_of
from ctrlchan.config.names import names_without_effect
from ctrlchan.errors import ConfigError
from ctrlchan.launch.embedded import EmbeddedBroker
from ctrlchan.protocol import SecurityProtocol
from ctrlchan.security.kerberos import KerberosLogin
from ctrlchan.security.kerberos_names import KerberosRules
from ctrlchan.server.security.listener import sasl_listener
from tests.kafka.waiting import wait_until
from tests.kafka.wire import exchange, receive_frame, send_frame
from tests.unit.broker.local_broker import client_frame, read_client_response

HANDSHAKE, AUTHENTICATE, DESCRIBE_CLUSTER, API_VERSIONS = 17, 36, 60, 18
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
OAUTHBEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
CONFIGS = {
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
    "listener.name.clients.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
    "listener.name.clients.plain.sasl.jaas.config": f'{PLAIN} user_alice="a\\"b;=";',
}


def secured(log_dir: Path, **configs: str) -> EmbeddedBroker:
    return EmbeddedBroker(
        1, log_dir=str(log_dir), configs=CONFIGS | configs, more_listeners={"CLIENTS": "127.0.0.1:0"}
    )


def connect(broker: EmbeddedBroker, listener: str = "CLIENTS") -> socket.socket:
    (port,) = (one.port for one in broker.broker.endpoints if one.listener == listener)
    return socket.create_connection(("127.0.0.1", port), timeout=30)


def ask(connection: socket.socket, api_key: int, version: int, **fields: Any) -> Any:
    send_frame(connection, client_frame(api_key, version, **fields))
    return read_client_response(api_key, version, receive_frame(connection))


def log_in(connection: socket.socket, password: str = 'a"b;=') -> Any:
    answer = ask(connection, HANDSHAKE, 1, mechanism="PLAIN")
    assert answer.mechanisms == ("PLAIN", "SCRAM-SHA-512")
    return ask(connection, AUTHENTICATE, 2, auth_bytes=f"\0alice\0{password}".encode())


def test_a_listener_with_sasl_beside_one_without(tmp_path: Path) -> None:
    with secured(tmp_path) as broker:
        with connect(broker) as connection:
            assert log_in(connection).error_code == KioError.none
            assert ask(connection, DESCRIBE_CLUSTER, 0, include_cluster_authorized_operations=False)
            # It is authenticated, and its session has no end.
            again = ask(connection, HANDSHAKE, 1, mechanism="PLAIN")
            assert (again.error_code, again.mechanisms) == (KioError.illegal_sasl_state, ())
            token = ask(connection, AUTHENTICATE, 2, auth_bytes=b"")
            assert token.error_code == KioError.illegal_sasl_state
        with connect(broker) as connection:
            assert log_in(connection, "wrong").error_code == KioError.sasl_authentication_failed
        with connect(broker) as connection, pytest.raises(ConnectionError):
            ask(connection, DESCRIBE_CLUSTER, 0, include_cluster_authorized_operations=False)
        with connect(broker, "PLAINTEXT") as connection:
            assert ask(connection, HANDSHAKE, 1, mechanism="PLAIN").error_code == KioError.illegal_sasl_state
        assert "CLIENTS" in str(broker.broker.endpoints)

        registry = CollectorRegistry()
        registry.register(broker.metrics)

        def counted(name: str) -> float | None:
            labels = {"listener": "CLIENTS", "networkprocessor": "1"}
            return registry.get_sample_value(f"kafka_server_socket_server_metrics_{name}_total", labels)

        wait_until(lambda: counted("failed_authentication") == 2, what="both failures")
        assert counted("successful_authentication") == 1
        assert counted("successful_authentication_no_reauth") == 0
        assert counted("expired_connections_killed_count") == 0
        # Two peers log in, one of them asks three times; a third one asks without a login.
        assert (counted("connection_creation"), counted("response")) == (3, 8)
        wait_until(lambda: counted("connection_close") == 3, what="all connections are closed")
        for name in ("incoming_byte", "outgoing_byte"):
            assert (counted(name) or 0) > 8 * 14
        assert counted("io_wait_time_ns")


def test_every_broker_announces_the_apis_of_sasl(tmp_path: Path) -> None:
    with EmbeddedBroker(1, log_dir=str(tmp_path)) as broker:
        frame = client_frame(API_VERSIONS, 0)
        answer: Any = read_client_response(API_VERSIONS, 0, exchange("127.0.0.1", broker.port, frame))
        found = {one.api_key: one.max_version for one in answer.api_keys}
        assert (found[HANDSHAKE], found[AUTHENTICATE]) == (1, 2)


def test_a_session_of_a_mechanism(tmp_path: Path) -> None:
    limit = {"listener.name.clients.plain.connections.max.reauth.ms": "60000"}
    with secured(tmp_path, **limit) as broker, connect(broker) as connection:
        answer = log_in(connection)
        assert answer.session_lifetime.total_seconds() == 60
        assert log_in(connection).error_code == KioError.none


def test_no_password_is_shown(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with secured(tmp_path) as broker:
        assert 'a"b' not in repr(broker)
        assert 'a\\"b' not in f"{broker!r} {caplog.text}"


# -- settings


def security(configs: dict[str, str]) -> Any:
    base = {"sasl.enabled.mechanisms": "PLAIN"}
    return security_of(base | configs, "CLIENTS", SecurityProtocol.SASL_PLAINTEXT)


def test_sessions_by_mechanism_and_listener() -> None:
    found = security(
        {
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "plain.sasl.jaas.config": f'{PLAIN} user_a="b";',
            "connections.max.reauth.ms": "1",
            "listener.name.clients.connections.max.reauth.ms": "2",
            "listener.name.clients.scram-sha-512.connections.max.reauth.ms": "3",
        }
    )
    assert found.max_reauth_ms == {"PLAIN": 2, "SCRAM-SHA-256": 2, "SCRAM-SHA-512": 3}
    with pytest.raises(ConfigError, match=r"clients\.connections\.max\.reauth\.ms"):
        security(
            {
                "plain.sasl.jaas.config": f'{PLAIN} user_a="b";',
                "listener.name.clients.connections.max.reauth.ms": "soon",
            }
        )


@pytest.mark.parametrize(
    ("text", "users"),
    [
        (f'KafkaServer {{ {PLAIN} user_all="a"; }};', {"all": "a"}),
        (
            f'KafkaServer {{ {PLAIN} user_all="a"; }}; clients.KafkaServer {{ {PLAIN} user_own="b"; }};',
            {"own": "b"},
        ),
        (
            f'KafkaServer {{ {PLAIN} user_all="a"; }}; other.KafkaServer {{ {PLAIN} user_own="b"; }};',
            {"all": "a"},
        ),
        (f'KafkaServer {{ x.Other required a="b"; {PLAIN} username="x" user_all="a"; }};', {"all": "a"}),
    ],
)
def test_a_jaas_file(tmp_path: Path, text: str, users: dict[str, str]) -> None:
    file = tmp_path / "jaas.conf"
    file.write_text(text)
    assert security({"java.security.auth.login.config": str(file)}).users == users
    own = {"listener.name.clients.plain.sasl.jaas.config": f'{PLAIN} user_near="c";'}
    assert security({"java.security.auth.login.config": str(file)} | own).users == {"near": "c"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("KafkaServer {", r"jaas\.conf: JAAS: "),
        (f'other.KafkaServer {{ {PLAIN} user_a="b"; }};', "nobody can authenticate: PLAIN has no users"),
        ('Client { x.Other required a="b"; };', "nobody can authenticate: PLAIN has no users"),
        ("\udcff", "is not UTF-8"),
    ],
)
def test_a_jaas_file_that_cannot_be_used(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "jaas.conf"
    file.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(ConfigError, match=problem):
        security({"java.security.auth.login.config": str(file)})
    with pytest.raises(ConfigError, match=r"java\.security\.auth\.login\.config: .*No such file"):
        security({"java.security.auth.login.config": str(tmp_path / "other")})


def test_unsigned_tokens_need_a_login_module_and_are_announced(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ConfigError, match=r"OAUTHBEARER needs a login module"):
        security({"sasl.enabled.mechanisms": "OAUTHBEARER"})
    found = security(
        {"sasl.enabled.mechanisms": "OAUTHBEARER", "oauthbearer.sasl.jaas.config": f"{OAUTHBEARER};"}
    )
    sasl_listener("CLIENTS", found, lambda *_: None)
    assert "listener CLIENTS: OAUTHBEARER takes tokens that nobody has signed" in caplog.text
    wrong = security(
        {
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "oauthbearer.sasl.jaas.config": f'{OAUTHBEARER} unsecuredValidatorAllowableClockSkewMs="x";',
        }
    )
    with pytest.raises(ConfigError, match="unsecuredValidatorAllowableClockSkewMs"):
        sasl_listener("CLIENTS", wrong, lambda *_: None)


def test_mechanisms_that_are_not_served() -> None:
    with pytest.raises(ConfigError, match=r"sasl\.enabled\.mechanisms: DIGEST-MD5 is not PLAIN"):
        security({"sasl.enabled.mechanisms": "PLAIN,DIGEST-MD5"})


# -- GSSAPI; tests/acceptance/test_kerberos.py has its keytabs

KRB5 = "com.sun.security.auth.module.Krb5LoginModule required"


class KeytabError(Exception):
    min_code = 1

    def get_all_statuses(self, code: int, is_major: bool) -> list[str]:
        return ["Key table file not found"]


@pytest.fixture
def gssapi(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that finds keys in the file /keytab alone."""

    def credentials(**given: Any) -> str:
        if given["store"] != {"keytab": "/keytab"}:
            raise KeytabError
        return "keys"

    package = SimpleNamespace(
        exceptions=SimpleNamespace(GSSError=KeytabError),
        Name=lambda *text: text,
        NameType=SimpleNamespace(kerberos_principal=1),
        MechType=SimpleNamespace(kerberos=2),
        Credentials=credentials,
    )
    monkeypatch.setitem(sys.modules, "gssapi", package)


@pytest.mark.usefixtures("gssapi")
def test_the_login_of_a_listener() -> None:
    options = 'useKeyTab=true storeKey=true keyTab="/keytab" principal="kafka/h@R"'
    found = security(
        {
            "sasl.enabled.mechanisms": "GSSAPI",
            "listener.name.clients.gssapi.sasl.jaas.config": f"{KRB5} {options};",
            "listener.name.clients.sasl.kerberos.principal.to.local.rules": "RULE:[1:$1]/L, DEFAULT",
            "sasl.kerberos.principal.to.local.rules": "nonsense",
        }
    )
    assert found.kerberos == KerberosLogin("kafka/h@R", "/keytab")
    assert found.kerberos_rules == KerberosRules(["RULE:[1:$1]/L", "DEFAULT"])
    # The mechanism of a listener that names none.
    assert security({"sasl.enabled.mechanisms": "GSSAPI", "sasl.jaas.config": f"{KRB5} {options};"}).kerberos


JAAS_KEY = r"gssapi\.sasl\.jaas\.config"


@pytest.mark.usefixtures("gssapi")
@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (None, rf"{JAAS_KEY}: it is missing, and GSSAPI needs it or an entry"),
        ("useTicketCache=true", rf"{JAAS_KEY}: a listener needs useKeyTab=true and storeKey=true"),
        ('useKeyTab=true keyTab="/keytab" principal="a"', rf"{JAAS_KEY}: a listener needs .*storeKey=true"),
        ('useKeyTab=true storeKey=true keyTab="/keytab"', rf"{JAAS_KEY}: useKeyTab needs .*principal"),
        (
            'useKeyTab=true storeKey=true keyTab="/other" principal="a"',
            rf"{JAAS_KEY}: the keytab /other has no key of a that can be used: Key table file not found",
        ),
    ],
)
def test_a_login_that_cannot_work(options: str | None, problem: str) -> None:
    own = {} if options is None else {"gssapi.sasl.jaas.config": f"{KRB5} {options};"}
    with pytest.raises(ConfigError, match=problem):
        security({"sasl.enabled.mechanisms": "GSSAPI"} | own)


@pytest.mark.usefixtures("gssapi")
def test_rules_that_cannot_be_used() -> None:
    options = 'useKeyTab=true storeKey=true keyTab="/keytab" principal="a"'
    with pytest.raises(ConfigError, match=r"to\.local\.rules: 'default' is neither DEFAULT nor RULE"):
        security(
            {
                "sasl.enabled.mechanisms": "GSSAPI",
                "gssapi.sasl.jaas.config": f"{KRB5} {options};",
                "sasl.kerberos.principal.to.local.rules": "default",
            }
        )


def test_gssapi_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(ConfigError, match=r"mechanisms: GSSAPI needs a package: pip install 'ctrlchan\[ker"):
        security({"sasl.enabled.mechanisms": "GSSAPI"})


def test_brokers_take_these_settings() -> None:
    names = [
        "sasl.server.max.receive.size",
        "connection.failed.authentication.delay.ms",
        "connections.max.reauth.ms",
        "listener.name.clients.connections.max.reauth.ms",
        "listener.name.clients.plain.connections.max.reauth.ms",
        "java.security.auth.login.config",
        "listener.name.clients.java.security.auth.login.config",
    ]
    assert names_without_effect(names) == names[-1:]

"""Principal builders of the user's own (``principal.builder.class``)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode as KioError

from ctrlchan.authorizer.acls import Operation
from ctrlchan.authorizer.interface import Action, Authorizer, Requester
from ctrlchan.broker.config.listener_configs import security_of
from ctrlchan.cli.broker_properties import read_broker_properties
from ctrlchan.errors import ConfigError
from ctrlchan.launch.embedded import EmbeddedBroker
from ctrlchan.protocol import SecurityProtocol
from ctrlchan.security.listener_security import ListenerSecurity
from ctrlchan.security.principals import Peer, Principal, PrincipalBuilder
from ctrlchan.server.security.peer_names import PeerNames
from tests.unit.broker.test_sasl import (
    AUTHENTICATE,
    CONFIGS,
    DESCRIBE_CLUSTER,
    HANDSHAKE,
    ask,
    connect,
    log_in,
)
from tests.unit.server._echo import EchoHandler
from tests.unit.server.serving import LOCAL, Client, handling, serving
from tests.unit.server.tls_serving import TlsClient, tls_listener

BUILDER = f"{__name__}.Builder"
#: CN=alice, in DER.
ALICE = bytes.fromhex("3010310e300c06035504030c05616c696365")


class Builder(PrincipalBuilder):
    """Names peers after their listener, and after the user of SASL."""

    def __init__(self) -> None:
        self.kind = ""

    def configure(self, configs: Mapping[str, str]) -> None:
        self.kind = configs.get("my.kind", "User")

    def build(self, peer: Peer) -> Principal:
        if peer.user == "mallory":
            raise ValueError("nobody knows mallory")
        return Principal(self.kind, f"{peer.listener}-{peer.user}")


class NoPrincipal(PrincipalBuilder):
    """Returns something else."""

    def build(self, peer: Peer) -> Principal:
        return "User:x"  # type: ignore[return-value]


class Recorder(Authorizer):
    """Allows everything, and keeps who has asked."""

    asked: list[str] = []  # noqa: RUF012

    def authorize(self, requester: Requester, actions: Any) -> list[bool]:
        self.asked.append(requester.principal)
        return [isinstance(action, Action) for action in actions]

    def authorize_any(self, requester: Requester, operation: Operation, kind: Any) -> bool:
        return True


@pytest.fixture
def asked() -> Iterator[list[str]]:
    Recorder.asked.clear()
    yield Recorder.asked
    Recorder.asked.clear()


def test_peers_with_and_without_sasl(tmp_path: Path, asked: list[str]) -> None:
    configs = CONFIGS | {
        "authorizer.class.name": f"{__name__}.Recorder",
        "principal.builder.class": BUILDER,
        "listener.name.clients.plain.sasl.jaas.config": (
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            'user_alice="a\\"b;=" user_mallory="m";'
        ),
    }
    more = {"CLIENTS": "127.0.0.1:0"}
    with EmbeddedBroker(1, log_dir=str(tmp_path), configs=configs, more_listeners=more) as broker:
        with connect(broker, "PLAINTEXT") as connection:
            ask(connection, DESCRIBE_CLUSTER, 0, include_cluster_authorized_operations=True)
        assert set(asked) == {"User:PLAINTEXT-None"}
        asked.clear()
        with connect(broker) as connection:
            assert log_in(connection).error_code == KioError.none
            ask(connection, DESCRIBE_CLUSTER, 0, include_cluster_authorized_operations=True)
        assert set(asked) == {"User:CLIENTS-alice"}
        with connect(broker) as connection:
            ask(connection, HANDSHAKE, 1, mechanism="PLAIN")
            refused = ask(connection, AUTHENTICATE, 2, auth_bytes=b"\0mallory\0m")
            assert refused.error_code == KioError.sasl_authentication_failed


@pytest.mark.parametrize("listener", ["PLAINTEXT", "TLS"])
def test_a_peer_is_named_before_its_first_request_is_answered(listener: str) -> None:
    seen: list[Peer] = []

    class Late(PrincipalBuilder):
        def build(self, peer: Peer) -> Principal:
            seen.append(peer)
            return Principal.user("x")

    one = LOCAL if listener == "PLAINTEXT" else tls_listener("requested")
    one = one._replace(security=dataclasses.replace(one.security, principal_builder=Late()))
    with (
        serving(EchoHandler(), one) as server,
        handling(server, lambda request: request.answer(b"")),
        Client(server) if listener == "PLAINTEXT" else TlsClient(server) as client,
    ):
        # The echo handler answers these by itself; a handler thread would give an empty answer.
        client.frames(b"e1", b"e2")
        assert client.answers(2) == [b"e1", b"e2"]
    assert [(peer.listener, peer.certificate_name) for peer in seen] == [(one.name, None)]


def test_a_listener_with_its_own_builder() -> None:
    configs = {
        "principal.builder.class": BUILDER,
        "my.kind": "Team",
        "listener.name.other.my.kind": "Group",
        "listener.name.none.principal.builder.class": (
            "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"
        ),
    }
    kinds = {}
    for listener in ("CLIENTS", "OTHER"):
        security = security_of(configs, listener, SecurityProtocol.PLAINTEXT)
        names = PeerNames(listener, SecurityProtocol.PLAINTEXT, security)
        kinds[listener] = str(names.name(b"", "127.0.0.1", 1))
    assert kinds == {"CLIENTS": "Team:CLIENTS-None", "OTHER": "Group:OTHER-None"}
    assert security_of(configs, "NONE", SecurityProtocol.PLAINTEXT) == ListenerSecurity()


def test_the_name_in_a_certificate() -> None:
    seen: list[Peer] = []

    class Certificates(PrincipalBuilder):
        def build(self, peer: Peer) -> Principal:
            seen.append(peer)
            return Principal.user("x")

    security = ListenerSecurity(principal_builder=Certificates())
    names = PeerNames("TLS", SecurityProtocol.SASL_SSL, security)
    assert names.name(ALICE, "10.0.0.1", 5, "bob") == Principal.user("x")
    assert seen == [Peer("TLS", SecurityProtocol.SASL_SSL, "10.0.0.1", "bob", "CN=alice")]


@pytest.mark.parametrize(
    ("builder", "subject", "user", "reason"),
    [
        (Builder(), b"", "mallory", "failed: ValueError: nobody knows mallory"),
        (NoPrincipal(), b"", "x", "returned str, no Principal"),
        (Builder(), b"\x30", None, "its certificate's name 30: "),
    ],
)
def test_a_peer_without_a_principal(
    builder: PrincipalBuilder, subject: bytes, user: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    names = PeerNames("CLIENTS", SecurityProtocol.SASL_SSL, ListenerSecurity(principal_builder=builder))
    assert names.name(subject, "127.0.0.1", 7, user) is None
    assert "closing the connection of 127.0.0.1:7 on listener CLIENTS: " in caplog.text
    assert reason in caplog.text


@pytest.mark.parametrize(
    ("class_name", "reason"),
    [
        ("com.example.Builder", "'com.example.Builder' cannot be imported"),
        (f"{__name__}.Recorder", "is no subclass of ctrlchan.security.principals.PrincipalBuilder"),
    ],
)
def test_a_builder_that_cannot_be_made(class_name: str, reason: str) -> None:
    configs = {"listener.name.clients.principal.builder.class": class_name}
    with pytest.raises(ConfigError, match=rf"listener\.name\.clients\.principal\.builder\.class: .*{reason}"):
        security_of(configs, "CLIENTS", SecurityProtocol.PLAINTEXT)
    assert security_of(configs, "OTHER", SecurityProtocol.PLAINTEXT) == ListenerSecurity()


@pytest.mark.parametrize(
    ("line", "are_kept"),
    [
        (f"listener.name.plaintext.principal.builder.class={BUILDER}", True),
        (f"authorizer.class.name={__name__}.Recorder", True),
        ("authorizer.class.name=kafka.security.authorizer.AclAuthorizer", False),
    ],
)
def test_settings_of_own_classes_are_kept(tmp_path: Path, line: str, are_kept: bool) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"broker.id=1\nlisteners=PLAINTEXT://127.0.0.1:0\nmy.kind=Team\n{line}\n")
    read = read_broker_properties(file)
    assert ("my.kind" in read.settings["configs"]) is are_kept
    assert read.without_effect == ([] if are_kept else ["my.kind"])

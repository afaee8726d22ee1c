"""GSSAPI at a listener, with a package in place of Kerberos: the states, and each kind of error.

tests/acceptance/test_kerberos.py has the same with real Kerberos.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode as KioError

from ctrlchan.errors import ConfigError
from ctrlchan.protocol import SecurityProtocol
from ctrlchan.security.kerberos import KerberosLogin, acceptor_credentials, default_realm
from ctrlchan.security.kerberos_names import KerberosRules
from ctrlchan.security.listener_security import ListenerSecurity
from ctrlchan.security.principals import Peer, Principal, PrincipalBuilder
from ctrlchan.server.security.gssapi import Acceptor
from ctrlchan.server.security.mechanism import AuthenticationFailed
from ctrlchan.server.security.mechanisms import mechanisms
from ctrlchan.server.security.peer_names import PeerNames
from ctrlchan.server.security.sasl_server import SaslListener
from tests.unit.broker.local_broker import client_frame, read_client_response
from tests.unit.server.security.sasl_clients import (
    API_VERSIONS,
    AUTHENTICATE,
    USERS,
    Client,
    joined,
)

LOGIN = KerberosLogin("kafka/localhost@REALM", "/etc/kafka.keytab")
FIRST_CODE = -1765328384  # of krb5.h
OFFER = b"~\x01\0\0\0"


class KerberosError(Exception):
    """``number``: of RFC 4120; None: GSSAPI's own error."""

    def __init__(self, words: str, number: int | None = None) -> None:
        super().__init__(f"Major (1): {words}")
        self.maj_code = 1
        self.min_code = 0 if number is None else (FIRST_CODE + number) & 0xFFFFFFFF
        self.words = words

    def get_all_statuses(self, code: int, is_major: bool) -> list[str]:
        assert is_major == (code == self.maj_code)
        return [self.words]


class Context:
    """Takes tickets ``<name>``; with ``+`` behind it the peer wants a proof of the listener."""

    def __init__(self, **given: Any) -> None:
        assert given == {"creds": "the keys", "usage": "accept"}
        self.complete = False
        self.initiator_name: Any = None

    def step(self, token: bytes) -> bytes | None:
        assert not self.complete
        assert not self.__DEFER_STEP_ERRORS__  # type: ignore[attr-defined]
        if token.startswith(b"!"):
            raise KerberosError("Request is a replay", 34)
        if token.startswith(b"\x60"):
            token = token[1:]
        if not token.isascii():
            raise KerberosError("Invalid token was supplied")
        if token == b"more":
            return b"go on"
        self.complete, self.initiator_name = True, token.decode().removesuffix("+")
        return b"proof" if token.endswith(b"+") else None

    def wrap(self, data: bytes, encrypt: bool) -> Any:
        assert not encrypt
        return SimpleNamespace(message=b"~" + data)

    def unwrap(self, data: bytes) -> Any:
        if not data.startswith(b"~"):
            raise KerberosError("A token had an invalid Message Integrity Check (MIC)")
        return SimpleNamespace(message=data[1:])


class Name:
    def __init__(self, text: str, kind: str) -> None:
        self.text, self.kind = text, kind

    def canonicalize(self, mechanism: str) -> str:
        assert (self.kind, mechanism) == ("user", "krb5")
        return f"{self.text}@REALM"


def credentials(**given: Any) -> Any:
    assert (given["usage"], given["mechs"]) == ("accept", ["krb5"])
    name = given["name"]
    assert name.kind == "principal"
    if (name.text, given["store"]) != (LOGIN.principal, {"keytab": LOGIN.keytab}):
        raise KerberosError(f"No key table entry found for {name.text}")
    return "the keys"


@pytest.fixture(autouse=True)
def package(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    package = SimpleNamespace(
        exceptions=SimpleNamespace(GSSError=KerberosError),
        Name=Name,
        NameType=SimpleNamespace(user="user", kerberos_principal="principal"),
        MechType=SimpleNamespace(kerberos="krb5"),
        Credentials=credentials,
        SecurityContext=Context,
    )
    monkeypatch.setitem(sys.modules, "gssapi", package)
    return package


def listener(*others: str) -> SaslListener:
    names = ["GSSAPI", *others]
    return SaslListener(mechanisms(names, USERS.get, lambda *_: None, acceptor=Acceptor(LOGIN)))


def client(version: int | None = 2, build: Callable[..., Principal | None] | None = None) -> Client:
    """A client behind its SaslHandshake."""
    found = Client(version, listener())
    if build is not None:
        found.server._build = build
    assert found.handshake("GSSAPI").mechanisms == ("GSSAPI",)
    return found


@pytest.mark.parametrize("version", [None, 0, 1, 2])
def test_an_exchange(version: int | None) -> None:
    peer = client(version)
    assert peer.token(b"alice@REALM+") == b"proof"
    assert peer.token(b"") == OFFER
    assert not peer.server.done
    # Without headers nothing is sent at the end: a client waits for nothing.
    assert peer.token(b"~\x01\0\xff\xff") == b""
    assert peer.server.done
    assert peer.server.session_ms is None


def test_without_headers_the_end_is_not_even_an_empty_answer() -> None:
    peer = client(None)
    peer.token(b"alice@REALM")
    assert peer.server.receive(memoryview(b"~\x01\0\0\0")) == ()


def test_a_peer_that_wants_no_proof_and_sends_its_ticket_in_two_tokens() -> None:
    peer = client()
    assert peer.token(b"more") == b"go on"
    assert peer.token(b"alice@REALM") == OFFER
    # The authorization id is left aside, as in Kafka.
    assert peer.token(b"~\x01\0\0\0bob@REALM") == b""
    assert peer.server.principal == Principal.user("alice@REALM")


@pytest.mark.parametrize("first", [b"\x60alice@REALM", b"\x60alice@REALM+"])
def test_a_client_of_kafka_0_9_begins_with_a_token(first: bytes) -> None:
    peer = Client(None, listener())
    answer = peer.token(first)
    if answer == b"proof":
        answer = peer.token(b"")
    assert answer == OFFER
    assert peer.server.receive(memoryview(b"~\x01\0\0\0")) == ()
    assert peer.server.done


def test_a_token_counts_as_the_first_frame_alone() -> None:
    peer = Client(None, listener())
    assert peer.server.receive(memoryview(client_frame(API_VERSIONS, 0))) is None
    with pytest.raises(AuthenticationFailed, match="in place of SaslHandshake"):
        peer.token(b"\x60alice@REALM")


def test_a_token_where_gssapi_is_not_enabled() -> None:
    peer = Client(None, SaslListener(mechanisms(["PLAIN"], USERS.get, lambda *_: None)))
    with pytest.raises(AuthenticationFailed, match="GSSAPI is not enabled"):
        peer.token(b"\x60alice@REALM")


@pytest.mark.parametrize(
    ("tokens", "reason"),
    [
        ([b"\xff"], "Invalid token was supplied"),
        ([b"alice@REALM+", b"more"], "a token in place of an empty one"),
        ([b"alice@REALM", b"\x01\0\0\0"], "invalid Message Integrity Check"),
        ([b"alice@REALM", b"~\x02\0\0\0"], "a security layer"),
        ([b"alice@REALM", b"~\x04\0\0\0"], "a security layer"),
        ([b"alice@REALM", b"~"], "a security layer"),
        ([b"alice@REALM", b"~\x01\0\0"], "a security layer"),
    ],
)
def test_a_peer_that_is_refused(tokens: list[bytes], reason: str) -> None:
    peer = client()
    for token in tokens[:-1]:
        peer.token(token)
    frame = client_frame(AUTHENTICATE, 2, auth_bytes=tokens[-1])
    with pytest.raises(AuthenticationFailed, match=rf"GSSAPI: .*{reason}") as failed:
        peer.receive(frame)
    body = read_client_response(AUTHENTICATE, 2, joined(failed.value.response))
    assert body.error_code == KioError.sasl_authentication_failed
    # The reason is for the log alone.
    assert body.error_message == (
        "Authentication failed during authentication due to invalid credentials with SASL mechanism GSSAPI"
    )
    assert not peer.server.done


def test_a_replay_is_an_error_after_which_clients_try_again() -> None:
    peer = client()
    with pytest.raises(AuthenticationFailed, match="GSSAPI: Request is a replay") as failed:
        peer.authenticate(b"!")
    assert failed.value.response == ()


def test_a_name_that_is_not_utf_8(monkeypatch: pytest.MonkeyPatch) -> None:
    class BadName:
        def __str__(self) -> str:
            return b"\xff".decode()

    monkeypatch.setattr(
        Context, "initiator_name", property(lambda self: BadName(), lambda self, name: None), False
    )
    with pytest.raises(AuthenticationFailed, match="a principal whose name is not UTF-8"):
        client().authenticate(b"alice@REALM")


def test_a_session_is_renewed_by_the_same_principal() -> None:
    peer = client()
    peer.token(b"alice@REALM")
    peer.token(b"~\x01\0\0\0")
    for name, known in ((b"alice@REALM", True), (b"bob@REALM", False)):
        peer.server.renew()
        peer.handshake("GSSAPI")
        peer.token(name)
        if known:
            peer.token(b"~\x01\0\0\0")
            assert peer.server.done
        else:
            with pytest.raises(AuthenticationFailed, match="Cannot change principals"):
                peer.token(b"~\x01\0\0\0")


# -- names


class Builder(PrincipalBuilder):
    def build(self, peer: Peer) -> Principal:
        return Principal("Team", str(peer.user))


def names(**given: Any) -> PeerNames:
    security = ListenerSecurity(mechanisms=("GSSAPI",), kerberos=LOGIN, **given)
    return PeerNames("CLIENTS", SecurityProtocol.SASL_PLAINTEXT, security)


@pytest.mark.parametrize(
    ("given", "name", "principal"),
    [
        ({}, "alice@REALM", Principal.user("alice")),
        ({}, "kafka/host@REALM", Principal.user("kafka")),
        ({"kerberos_rules": KerberosRules(["RULE:[1:$1]/U"])}, "alice@OTHER", Principal.user("ALICE")),
        # A class of the user's own gets the whole name.
        ({"principal_builder": Builder()}, "alice@REALM", Principal("Team", "alice@REALM")),
    ],
)
def test_the_principal_of_a_peer(given: dict[str, Any], name: str, principal: Principal) -> None:
    assert names(**given).name(b"", "1.2.3.4", 5, name, "GSSAPI") == principal


@pytest.mark.parametrize("name", ["alice@OTHER", "a/b/c@REALM", r"a\/b@REALM"])
def test_a_principal_who_is_no_user(name: str, caplog: pytest.LogCaptureFixture) -> None:
    assert names().name(b"", "1.2.3.4", 5, name, "GSSAPI") is None
    [line] = caplog.messages
    assert line.startswith("closing the connection of 1.2.3.4:5 on listener CLIENTS: the Kerberos principal")


def test_a_user_of_another_mechanism_may_have_such_a_name() -> None:
    assert names().name(b"", "1.2.3.4", 5, "a/b@c", "PLAIN") == Principal.user("a/b@c")


def test_a_principal_without_a_name_is_refused() -> None:
    peer = client(build=lambda *_: None)
    peer.token(b"alice@OTHER")
    frame = client_frame(AUTHENTICATE, 2, auth_bytes=b"~\x01\0\0\0")
    with pytest.raises(AuthenticationFailed, match="there is no principal for the user"):
        peer.receive(frame)


# -- credentials


def test_a_keytab_without_the_key() -> None:
    with pytest.raises(
        ConfigError, match=r"the keytab /x has no key of a that can be used: No key table entry found for a"
    ):
        acceptor_credentials(KerberosLogin("a", "/x"))


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(ConfigError, match=r"GSSAPI needs a package: pip install 'ctrlchan\[kerberos\]'"):
        Acceptor(LOGIN)


def test_a_library_that_has_no_credential_stores(
    package: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: Any) -> None:
        raise NotImplementedError("no credential stores")

    monkeypatch.setattr(package, "Credentials", refuse)
    with pytest.raises(
        ConfigError, match="the system's Kerberos library cannot be used: no credential stores"
    ):
        Acceptor(LOGIN)


def test_a_machine_without_a_realm(monkeypatch: pytest.MonkeyPatch) -> None:
    assert default_realm() == "REALM"

    def refuse(*_: Any) -> None:
        raise KerberosError("Configuration file does not specify default realm")

    monkeypatch.setattr(Name, "canonicalize", refuse)
    assert default_realm() == ""

"""The exchange of GSSAPI, with a package in place of Kerberos that writes down what it is asked."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from ctrlchan.security.mechanisms import MechanismError, client_mechanism
from ctrlchan.security.settings import SaslSettings


class KerberosError(Exception):
    pass


class Context:
    """Is complete after two steps; wraps by a mark in front."""

    def __init__(self, **given: Any) -> None:
        self.given = given
        self.complete = False
        self.tokens: list[bytes | None] = []

    def step(self, token: bytes | None) -> bytes | None:
        if token == b"bad":
            raise KerberosError("Clock skew too great")
        self.tokens.append(token)
        self.complete = len(self.tokens) == 2
        return None if self.complete else b"ticket"

    def wrap(self, data: bytes, encrypt: bool) -> Any:
        assert not encrypt
        return SimpleNamespace(message=b"~" + data)

    def unwrap(self, data: bytes) -> Any:
        return SimpleNamespace(message=data.removeprefix(b"~"))


@pytest.fixture
def contexts(monkeypatch: pytest.MonkeyPatch) -> list[Context]:
    made: list[Context] = []

    def context(**given: Any) -> Context:
        made.append(Context(**given))
        return made[-1]

    package = SimpleNamespace(
        exceptions=SimpleNamespace(GSSError=KerberosError),
        Name=lambda text, kind: (text, kind),
        NameType=SimpleNamespace(user="user", hostbased_service="service"),
        MechType=SimpleNamespace(kerberos="krb5"),
        Credentials=lambda **given: given,
        SecurityContext=context,
    )
    monkeypatch.setitem(sys.modules, "gssapi", package)
    return made


def test_the_exchange(contexts: list[Context]) -> None:
    sasl = SaslSettings(mechanism="GSSAPI", principal="kafka/us@REALM", keytab="/etc/us.keytab")
    exchange = client_mechanism(sasl, "broker.example")
    assert exchange.begin() == b"ticket"
    # Complete: nothing more to say before the broker offers its layers.
    assert exchange.proceed(b"reply") == b""
    assert exchange.proceed(b"~\x07\x00\xff\xff") == b"~\x01\0\0\0"
    assert exchange.proceed(b"") is None
    [context] = contexts
    assert context.tokens == [None, b"reply"]
    assert context.given["name"] == ("kafka@broker.example", "service")
    assert context.given["creds"] == {
        "name": ("kafka/us@REALM", "user"),
        "usage": "initiate",
        "store": {"client_keytab": "/etc/us.keytab"},
    }


def test_the_tickets_of_the_process(contexts: list[Context]) -> None:
    client_mechanism(SaslSettings(mechanism="GSSAPI", service="broker"), "h").begin()
    assert contexts[0].given["creds"] is None
    assert contexts[0].given["name"] == ("broker@h", "service")


@pytest.mark.parametrize("layers", [b"~\x02\x00\xff\xff", b"~\x01"])
def test_a_broker_that_insists_on_a_layer(contexts: list[Context], layers: bytes) -> None:
    exchange = client_mechanism(SaslSettings(mechanism="GSSAPI"), "h")
    exchange.begin()
    exchange.proceed(b"reply")
    with pytest.raises(MechanismError, match="security layer"):
        exchange.proceed(layers)


def test_an_error_of_kerberos(contexts: list[Context]) -> None:
    exchange = client_mechanism(SaslSettings(mechanism="GSSAPI"), "h")
    exchange.begin()
    with pytest.raises(MechanismError, match="Clock skew"):
        exchange.proceed(b"bad")

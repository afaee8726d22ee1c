"""The exchange of GSSAPI, with a package in place of Kerberos that writes down what it is asked."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from ctrlchan.errors import ConfigError
from ctrlchan.security.handshake import Handshake
from ctrlchan.security.kerberos import KerberosLogin, kerberos_login
from ctrlchan.security.mechanisms import MechanismError, client_mechanism
from ctrlchan.security.settings import SaslSettings


class KerberosError(Exception):
    """Has its text as the words of Kerberos, without a number."""

    min_code = 1

    def get_all_statuses(self, code: int, is_major: bool) -> list[str]:
        return [str(self)]


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
        NameType=SimpleNamespace(kerberos_principal="user", hostbased_service="service"),
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
    assert not exchange.is_over
    assert exchange.proceed(b"~\x07\x00\xff\xff") == b"~\x01\0\0\0"
    assert exchange.is_over
    assert exchange.proceed(b"") is None
    [context] = contexts
    assert context.tokens == [None, b"reply"]
    assert context.given["name"] == ("kafka@broker.example", "service")
    given = context.given["creds"]
    assert (given["name"], given["usage"], given["mechs"]) == (
        ("kafka/us@REALM", "user"),
        "initiate",
        ["krb5"],
    )
    assert given["store"]["client_keytab"] == "/etc/us.keytab"
    # Its tickets stay in memory, beside those of another principal.
    other = client_mechanism(
        SaslSettings(mechanism="GSSAPI", principal="b@REALM", keytab="/etc/us.keytab"), "h"
    )
    other.begin()
    caches = [one.given["creds"]["store"]["ccache"] for one in contexts]
    assert all(cache.startswith("MEMORY:") for cache in caches)
    assert len(set(caches)) == 2


@pytest.mark.parametrize(
    ("ticket_cache", "store"), [(None, None), ("/run/tickets", {"ccache": "/run/tickets"})]
)
def test_tickets_of_another_program(
    contexts: list[Context], ticket_cache: str | None, store: dict[str, str] | None
) -> None:
    sasl = SaslSettings(mechanism="GSSAPI", service="broker", ticket_cache=ticket_cache)
    client_mechanism(sasl, "h").begin()
    assert contexts[0].given["creds"] == {
        "name": None,
        "usage": "initiate",
        "mechs": ["krb5"],
        "store": store,
    }
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


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(MechanismError, match=r"pip install 'ctrlchan\[kerberos\]'"):
        client_mechanism(SaslSettings(mechanism="GSSAPI"), "h")


def test_a_broker_before_kafka_1_has_no_answer_to_the_last_token(contexts: list[Context]) -> None:
    """Tokens without a header: each has its size before it, and nothing follows the choice of the layer."""
    handshake = Handshake(
        "c", negotiate=False, sasl=SaslSettings(mechanism="GSSAPI"), host="h", versions={17: (0, 0)}
    )
    handshake.start()
    chosen = b"\0\0" + b"\0\0\0\1" + b"\0\6GSSAPI"
    assert handshake.receive(b"\0\0\0\x12" + b"\0\0\0\0" + chosen) == b"\0\0\0\6ticket"
    assert handshake.receive(b"\0\0\0\5reply") == b"\0\0\0\0"
    assert not handshake.done
    assert handshake.receive(b"\0\0\0\5~\x01\0\0\0") == b"\0\0\0\5~\x01\0\0\0"
    assert handshake.done


@pytest.mark.parametrize(
    ("options", "login"),
    [
        (
            {"useKeyTab": "true", "keyTab": "/k", "principal": "a@R", "storeKey": "true"},
            KerberosLogin("a@R", "/k"),
        ),
        ({"useKeyTab": "TRUE", "keyTab": "file:///k", "principal": "a"}, KerberosLogin("a", "/k")),
        ({"useTicketCache": "true"}, KerberosLogin()),
        (
            {"useTicketCache": "true", "ticketCache": "/t", "principal": "a"},
            KerberosLogin("a", None, "/t"),
        ),
        (
            {"useTicketCache": "true", "useKeyTab": "true", "keyTab": "/k", "principal": "a"},
            KerberosLogin("a", "/k"),
        ),
    ],
)
def test_options_of_the_login_module(options: dict[str, str], login: KerberosLogin) -> None:
    assert kerberos_login(options) == login


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"keyTab": "/k", "principal": "a"}, "keyTab counts with useKeyTab=true alone"),
        ({"useKeyTab": "true", "ticketCache": "/t"}, "ticketCache counts with useTicketCache=true alone"),
        ({"useKeyTab": "true", "keyTab": "/k"}, "useKeyTab needs keyTab and principal"),
        ({"useKeyTab": "true", "principal": "a"}, "useKeyTab needs keyTab and principal"),
        ({"principal": "a"}, "neither useKeyTab nor useTicketCache"),
    ],
)
def test_options_that_cannot_work(options: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        kerberos_login(options)

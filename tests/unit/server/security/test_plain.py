"""PLAIN: Kafka's texts for each kind of wrong token (PlainSaslServerTest)."""

from __future__ import annotations

import pytest

from ctrlchan.server.security.mechanism import RefusedError
from ctrlchan.server.security.plain import Plain
from tests.unit.server.security.sasl_clients import USERS


@pytest.mark.parametrize(
    ("token", "message"),
    [
        (b"\0alice\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0alice\0alice-secre", "Authentication failed: Invalid username or password"),
        (b"\0nobody\0alice-secret", "Authentication failed: Invalid username or password"),
        (b"\0Alice\0alice-secret", "Authentication failed: Invalid username or password"),
        (b"\0\xff\0alice-secret", "Authentication failed: Invalid username or password"),
        (b"\0\0alice-secret", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"alice", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"alice\0alice-secret", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"\0alice\0alice-secret\0more", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0" * 1000, "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (
            b"carol\0alice\0alice-secret",
            "Authentication failed: Client requested an authorization id that is different from username",
        ),
    ],
)
def test_plain_is_refused(token: bytes, message: str) -> None:
    server = Plain(USERS.get)
    with pytest.raises(RefusedError) as refused:
        server.receive(token)
    assert str(refused.value) == message
    assert not server.complete


@pytest.mark.parametrize("authorization", ["", "alice"])
def test_an_authorization_id_may_be_the_user(authorization: str) -> None:
    server = Plain(USERS.get)
    assert server.receive(f"{authorization}\0alice\0alice-secret".encode()) == b""
    assert (server.complete, server.username) == (True, "alice")


def test_an_empty_password_in_the_settings_is_nobodys() -> None:
    server = Plain(lambda _: "")
    with pytest.raises(RefusedError, match="password not specified"):
        server.receive(b"\0alice\0")

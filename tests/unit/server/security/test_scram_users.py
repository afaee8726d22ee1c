"""SCRAM users in memory: those of ZooKeeper's configs, which change while peers authenticate themselves."""

from __future__ import annotations

import pytest

from ctrlchan.server.security.scram_credentials import credential_of_password, credential_to_text
from ctrlchan.server.security.scram_users import ScramUsers

NAMES = ["SCRAM-SHA-256", "SCRAM-SHA-512"]


def config(password: str, *names: str) -> dict[str, str]:
    return {
        name: credential_to_text(credential_of_password(name, password, b"salt" * 5)) for name in names
    } | {"producer_byte_rate": "1024"}


def test_users_are_replaced_and_changed() -> None:
    users = ScramUsers()
    assert users.find(NAMES[0], "alice") is None
    users.replace_all({"alice": config("a", *NAMES), "bob": config("b", NAMES[0]), "carol": {}})
    assert users.find(NAMES[1], "alice") == credential_of_password(NAMES[1], "a", b"salt" * 5)
    assert users.find(NAMES[1], "bob") is None
    users.set_user("alice", config("c", NAMES[0]))
    assert users.find(NAMES[0], "alice") == credential_of_password(NAMES[0], "c", b"salt" * 5)
    assert users.find(NAMES[1], "alice") is None
    assert users.find(NAMES[0], "bob") is not None
    users.set_user("bob", {})
    assert users.find(NAMES[0], "bob") is None
    users.replace_all({})
    assert users.find(NAMES[0], "alice") is None


def test_a_malformed_credential_is_nobodys(caplog: pytest.LogCaptureFixture) -> None:
    users = ScramUsers()
    users.set_user("alice", config("a", NAMES[0]) | {NAMES[1]: "salt=c2VjcmV0,iterations=1"})
    assert users.find(NAMES[0], "alice") is not None
    assert users.find(NAMES[1], "alice") is None
    assert "user 'alice' has no credential for SCRAM-SHA-512" in caplog.text
    assert "c2VjcmV0" not in caplog.text

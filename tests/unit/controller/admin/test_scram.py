"""SCRAM credentials: Kafka's text form, and changes of them (AlterUserScramCredentialsRequestTest)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from scramp import ScramMechanism

from ctrlchan.controller.admin.scram import (
    Deletion,
    Upsertion,
    alter_credentials,
)
from ctrlchan.errors import ErrorCode, KafkaError
from ctrlchan.server.apis.scram_credentials import CredentialInfo, describe_credentials
from ctrlchan.server.security.scram_credentials import (
    ScramCredential,
    credential_from_text,
    credential_of_password,
    credential_to_text,
)

#: As ``kafka-configs --add-config 'SCRAM-SHA-256=[iterations=8192,password=alice-secret]'`` writes them.
TEXT = (
    "salt=MWx2NHBkbnc0ZndxN25vdGN4bTB5Y2FiMw==,"
    "stored_key=0000000000000000000000000000000000000000000=,"
    "server_key=1111111111111111111111111111111111111111111=,"
    "iterations=8192"
)


class Nodes:
    """The part of ClusterNodes that is used, in memory."""

    def __init__(self) -> None:
        self.users: dict[str, dict[str, str]] = {}

    def user_names(self) -> list[str]:
        return list(self.users)

    def read_user_config(self, user: str) -> dict[str, str] | None:
        return self.users.get(user)

    def write_user_config(self, user: str, config: dict[str, str]) -> None:
        self.users[user] = config


def test_a_malformed_credential_is_an_error_of_its_user(caplog: pytest.LogCaptureFixture) -> None:
    nodes = Nodes()
    nodes.users = {
        "alice": {"SCRAM-SHA-256": TEXT},
        "bad": {"SCRAM-SHA-256": "salt=,"},
        "many": {"SCRAM-SHA-256": TEXT.replace("8192", "2147483648")},
        "half": {"SCRAM-SHA-256": TEXT.replace("8192", "1.5")},
        "none": {},
        "x" * 40_000: {"SCRAM-SHA-256": TEXT},
    }
    found = describe_credentials(nodes)
    assert found.pop("alice") == [CredentialInfo(1, 8192)]
    assert sorted(found) == ["bad", "half", "many"]
    for user, error in found.items():
        assert isinstance(error, KafkaError)
        assert error.message.startswith(f"The credential of {user}: not a SCRAM credential")
    assert "its name has 40000 bytes" in caplog.text


def alter(nodes: Nodes, *changes: Deletion | Upsertion) -> dict[str, tuple[int, str]]:
    core: Any = SimpleNamespace(nodes=nodes)
    results = alter_credentials(
        core,
        [change for change in changes if isinstance(change, Deletion)],
        [change for change in changes if isinstance(change, Upsertion)],
    )
    return {
        user: (0, "") if error is None else (error.code, error.message) for user, error in results.items()
    }


def upsertion(
    user: str, mechanism: int = 1, iterations: int = 4096, salted_password: bytes = b"x" * 32
) -> Upsertion:
    return Upsertion(
        user=user,
        mechanism=mechanism,
        iterations=iterations,
        salt=b"salt" * 5,
        salted_password=salted_password,
    )


def test_the_text_form() -> None:
    credential = credential_from_text(TEXT)
    assert credential.iterations == 8192
    assert credential.salt == b"1lv4pdnw4fwq7notcxm0ycab3"
    assert credential_from_text(credential_to_text(credential)) == credential


@pytest.mark.parametrize("text", ["", "salt=a", TEXT.replace("8192", "x"), TEXT.replace("salt", "sal")])
def test_a_text_of_another_form_is_not_repeated(text: str) -> None:
    with pytest.raises(ValueError, match="not a SCRAM credential") as raised:
        credential_from_text(text)
    assert "0000" not in str(raised.value)


@pytest.mark.parametrize(("number", "mechanism"), [(1, "SCRAM-SHA-256"), (2, "SCRAM-SHA-512")])
def test_an_upsertion_is_what_a_password_gives(number: int, mechanism: str) -> None:
    """The client sends the salted password; the credential is that of the password itself."""
    import hashlib

    salt, hashed = b"0123456789abcdef", mechanism[6:].lower().replace("-", "")
    salted = hashlib.pbkdf2_hmac(hashed, b"secret", salt, 5000)
    nodes = Nodes()
    assert alter(
        nodes,
        Upsertion(user="a", mechanism=number, iterations=5000, salt=salt, salted_password=salted),
    ) == {"a": (0, "")}
    expected = ScramMechanism(mechanism).make_auth_info("secret", 5000, salt)
    assert credential_from_text(nodes.users["a"][mechanism]) == ScramCredential(*expected)
    assert credential_of_password(mechanism, "secret", salt, 5000) == ScramCredential(*expected)


def test_changes_that_are_refused() -> None:
    nodes = Nodes()
    assert alter(
        nodes,
        Deletion(user="", mechanism=1),
        Deletion(user="unknown mechanism", mechanism=0),
        Deletion(user="absent", mechanism=1),
        upsertion("few", iterations=4095),
        upsertion("many", iterations=16_385),
        upsertion("other mechanism", mechanism=3),
        upsertion("twice"),
        upsertion("twice"),
        Deletion(user="both", mechanism=2),
        upsertion("both", mechanism=2),
        upsertion("no password", salted_password=b""),
        upsertion("good"),
    ) == {
        "": (ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"),
        "unknown mechanism": (ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        "absent": (ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"),
        "few": (ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"),
        "many": (ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations"),
        "other mechanism": (ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        "twice": (
            ErrorCode.DUPLICATE_RESOURCE,
            "A user credential cannot be altered twice in the same request",
        ),
        "both": (
            ErrorCode.DUPLICATE_RESOURCE,
            "A user credential cannot be altered twice in the same request",
        ),
        "no password": (ErrorCode.UNKNOWN_SERVER_ERROR, "The salted password is empty"),
        "good": (0, ""),
    }
    assert list(nodes.users) == ["good"]


def test_one_refused_change_of_a_user_refuses_all_of_them() -> None:
    nodes = Nodes()
    nodes.users["a"] = {"SCRAM-SHA-256": TEXT, "producer_byte_rate": "5"}
    assert (
        alter(nodes, Deletion(user="a", mechanism=2), upsertion("a"))["a"][0] == ErrorCode.RESOURCE_NOT_FOUND
    )
    assert nodes.users["a"]["SCRAM-SHA-256"] == TEXT
    assert alter(nodes, Deletion(user="a", mechanism=1), upsertion("a", mechanism=2)) == {"a": (0, "")}
    assert nodes.users["a"].keys() == {"SCRAM-SHA-512", "producer_byte_rate"}

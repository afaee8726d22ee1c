"""SCRAM, the client's side: the example of the RFC, against scramp's server, and brokers that cheat."""

from __future__ import annotations

import pytest
from scramp import ScramMechanism

from ctrlchan.security.scram_client import ScramClient, ScramError


def test_the_example_of_rfc_7677() -> None:
    client = ScramClient("SCRAM-SHA-256", "user", "pencil", "rOprNGfwEbeRWgbNEkqO")
    assert client.first == "n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    answer = client.answer(f"r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096")
    assert answer == f"c=biws,r={nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    client.check("v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_another_implementation_is_convinced(mechanism: str) -> None:
    made = ScramMechanism(mechanism)
    salt, stored_key, server_key, iterations = made.make_auth_info("s3cret", iteration_count=4096)
    names: list[str] = []

    def find(name: str) -> tuple[bytes, bytes, bytes, int]:
        names.append(name)
        return salt, stored_key, server_key, iterations

    server = made.make_server(find)
    client = ScramClient(mechanism, "a,b=c", "s3cret")
    server.set_client_first(client.first)
    server.set_client_final(client.answer(server.get_server_first()))
    client.check(server.get_server_final())
    assert names == ["a,b=c"]


def test_a_password_is_taken_as_it_is() -> None:
    """SASLprep would take the first one for the second."""
    answers = [
        ScramClient("SCRAM-SHA-256", "user", password, "ours").answer("r=ours+theirs,s=c2FsdA==,i=4096")
        for password in ("\ufb00", "ff")
    ]
    assert answers[0] != answers[1]


BAD_FIRST = {
    "another nonce": ("r=theirs,s=c2FsdA==,i=4096", "does not begin with ours"),
    "our nonce alone": ("r=ours,s=c2FsdA==,i=4096", "does not begin with ours"),
    "no salt": ("r=ours+,i=4096", "no salt"),
    "no base64": ("r=ours+,s=*,i=4096", "no Base64"),
    "few iterations": ("r=ours+,s=c2FsdA==,i=4095", "not in 4096 to 131072"),
    "many iterations": ("r=ours+,s=c2FsdA==,i=131073", "not in 4096 to 131072"),
    "no number": ("r=ours+,s=c2FsdA==,i=x", "not in 4096 to 131072"),
    "an extension": ("m=x,r=ours+,s=c2FsdA==,i=4096", "an extension"),
    "nothing": ("", "does not begin with ours"),
}


@pytest.mark.parametrize("case", BAD_FIRST)
def test_a_bad_first_message(case: str) -> None:
    message, reason = BAD_FIRST[case]
    with pytest.raises(ScramError, match=reason):
        ScramClient("SCRAM-SHA-512", "user", "s3cret", "ours").answer(message)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("v=AAAA", "does not prove"),
        ("", "does not prove"),
        ("v=*", "no Base64"),
        ("e=invalid-proof", "invalid-proof"),
    ],
)
def test_a_bad_last_message(message: str, reason: str) -> None:
    client = ScramClient("SCRAM-SHA-512", "user", "s3cret", "ours")
    client.answer("r=ours+,s=c2FsdA==,i=4096")
    with pytest.raises(ScramError, match=reason):
        client.check(message)

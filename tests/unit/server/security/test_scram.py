"""SCRAM of a server: users with any characters, and messages that are wrong, replayed or put together.

Twins of Kafka's ScramSaslServerTest and ScramMessagesTest. Left out: the server's final message with an
error, which no server sends.
"""

from __future__ import annotations

import base64

import pytest
from scramp import ScramClient, ScramMechanism

from ctrlchan.security.scram_client import ScramClient as OwnClient
from ctrlchan.server.security.mechanism import InvalidCredentialsError, RefusedError
from ctrlchan.server.security.scram import Scram
from ctrlchan.server.security.scram_credentials import ScramCredential, credential_of_password
from tests.unit.server.security.sasl_clients import USERS, Tokens, find_credential

MECHANISMS = ["SCRAM-SHA-256", "SCRAM-SHA-512"]


def server(mechanism: str = "SCRAM-SHA-256") -> Scram:
    return Scram(mechanism, lambda user: find_credential(mechanism, user))


def client(user: str = "alice", password: str | None = None, mechanism: str = "SCRAM-SHA-256") -> ScramClient:
    return ScramClient([mechanism], user, USERS.get(user, "") if password is None else password)


def final_of(one: ScramClient, answering: Scram) -> bytes:
    """Exchange the first messages; return the client's final one."""
    one.set_server_first(answering.receive(one.get_client_first().encode()).decode())
    return str(one.get_client_final()).encode()


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("user", USERS)
def test_an_exchange(mechanism: str, user: str) -> None:
    one, ours = client(user, mechanism=mechanism), server(mechanism)
    one.set_server_final(ours.receive(final_of(one, ours)).decode())
    assert (ours.complete, ours.username) == (True, user)


def test_credentials_are_those_of_another_implementation() -> None:
    expected = ScramMechanism("SCRAM-SHA-512").make_auth_info("secret", 5000, b"0123456789ab")
    assert credential_of_password("SCRAM-SHA-512", "secret", b"0123456789ab", 5000) == expected


def test_a_credential_shows_no_key() -> None:
    assert repr(ScramCredential(b"salt", b"stored", b"server", 4096)) == "ScramCredential(iterations=4096)"


def test_passwords_are_taken_as_they_are() -> None:
    """SASLprep makes one password of these two (RFC 4013); Kafka does not."""
    narrow, wide = "Ⅸ", "IX"
    for password, is_right in ((narrow, True), (wide, False)):
        ours = Scram("SCRAM-SHA-256", lambda _: credential_of_password("SCRAM-SHA-256", narrow, b"salt" * 3))
        first = b"n,,n=u,r=nonce"
        answer = ours.receive(first).decode()
        final = proved(password, "n=u,r=nonce", answer, "biws")
        if is_right:
            ours.receive(final)
            assert ours.complete
        else:
            with pytest.raises(InvalidCredentialsError):
                ours.receive(final)


def proved(password: str, bare: str, answer: str, binding: str, more: str = "") -> bytes:
    """Return a final message, by RFC 5802, of SCRAM-SHA-256."""
    import hashlib
    import hmac

    nonce, salt, iterations = (part[2:] for part in answer.split(","))
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), base64.b64decode(salt), int(iterations))
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    without = f"c={binding},r={nonce}{more}"
    text = f"{bare},{answer},{without}".encode()
    signature = hmac.digest(hashlib.sha256(client_key).digest(), text, "sha256")
    proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
    return f"{without},p={base64.b64encode(proof).decode()}".encode()


def test_authorization_ids_and_extensions() -> None:
    ours = server()
    header, bare = "n,a=alice,", "n=alice,r=nonce,tokenauth=false,x=y"
    answer = ours.receive((header + bare).encode()).decode()
    binding = base64.b64encode(header.encode()).decode()
    ours.receive(proved(USERS["alice"], bare, answer, binding, ",e=f"))
    assert ours.complete


def test_another_authorization_id() -> None:
    with pytest.raises(RefusedError, match="authorization id that is different from username"):
        server().receive(b"n,a=carol,n=alice,r=nonce")


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,n=alice",
        b"n,,r=nonce",
        b"n,,n=,r=nonce",
        b"n,,n=alice,r=",
        b"n,,n=alice=2A,r=nonce",
        b"n,,n=al\0ice,r=nonce",
        b"n,,n=alice,r=non ce",
        b"n,,n=alice,r=nonce,",
        b"n,,n=alice,r=nonce,extension",
        b"n,,m=must,n=alice,r=nonce",
        b"y,,n=alice,r=nonce",
        b"p=tls-unique,,n=alice,r=nonce",
        b"n,alice,n=alice,r=nonce",
        b"\xff\xfe",
    ],
)
def test_first_messages_that_are_wrong(message: bytes) -> None:
    ours = server()
    with pytest.raises(InvalidCredentialsError) as refused:
        ours.receive(message)
    assert "alice" not in str(refused.value)
    assert not ours.complete


def test_an_unknown_user_is_refused_where_a_wrong_password_is() -> None:
    """Both get a first answer, of the same form; the salt is the same the next time, as that of a user."""
    for user in ("alice", "nobody"):
        one, ours = client(user, "wrong"), server()
        final = final_of(one, ours)
        with pytest.raises(InvalidCredentialsError, match=r"^an unknown user or a wrong password$"):
            ours.receive(final)
        assert not ours.complete
    answers = [server().receive(b"n,,n=nobody,r=nonce").split(b",")[1:] for _ in range(2)]
    assert answers[0] == answers[1]
    assert server().receive(b"n,,n=nobody2,r=nonce").split(b",")[1] != answers[0][0]


def test_an_unknown_user_cannot_prove_the_fake_credential() -> None:
    """Its stored key is known to whoever reads this source; no password has it, and none is accepted."""
    ours = Scram("SCRAM-SHA-256", lambda _: None)
    answer = ours.receive(b"n,,n=nobody,r=nonce").decode()
    for proof in (bytes(32), bytes(31), b"", b"\xff" * 32):
        text = base64.b64encode(proof).decode() or "AA=="
        with pytest.raises(InvalidCredentialsError):
            ours.receive(f"c=biws,{answer.split(',')[0]},p={text}".encode())
        ours = Scram("SCRAM-SHA-256", lambda _: None)
        answer = ours.receive(b"n,,n=nobody,r=nonce").decode()


def test_a_final_message_is_of_use_once() -> None:
    one, ours = client(), server()
    final = final_of(one, ours)
    ours.receive(final)
    with pytest.raises(InvalidCredentialsError):
        ours.receive(final)


def test_an_exchange_that_is_replayed() -> None:
    """The server's part of the nonce is another one for each exchange."""
    one, ours, replayed = client(), server(), server()
    first = one.get_client_first().encode()
    one.set_server_first(ours.receive(first).decode())
    final = one.get_client_final().encode()
    ours.receive(final)
    assert ours.complete
    replayed.receive(first)
    with pytest.raises(InvalidCredentialsError, match="another nonce"):
        replayed.receive(final)


def test_a_final_message_of_another_exchange() -> None:
    """Two exchanges at a time of one user; the messages are exchanged between them."""
    alice, other = client(), client()
    ours, theirs = server(), server()
    final, other_final = final_of(alice, ours), final_of(other, theirs)
    for answering, message in ((ours, other_final), (theirs, final)):
        with pytest.raises(InvalidCredentialsError, match="another nonce"):
            answering.receive(message)


def test_a_proof_with_the_nonce_of_another_exchange() -> None:
    alice, other = client(), client()
    ours, theirs = server(), server()
    final, other_final = final_of(alice, ours), final_of(other, theirs)
    spliced = other_final.rpartition(b",p=")[0] + b",p=" + final.rpartition(b",p=")[2]
    with pytest.raises(InvalidCredentialsError, match="wrong password"):
        theirs.receive(spliced)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ((b"c=biws", b"c=eSws"), "channel binding"),
        ((b"c=biws", b"c=n,,"), "another form"),
        ((b"c=biws", b"c===="), "Base64"),
        ((b",p=", b",q="), "another form"),
        ((b",p=", b"x,p="), "another nonce"),
        ((b",p=", b",m=x,p="), "wrong password"),
        ((b",p=", b",p=AAAA"), "wrong password"),
    ],
)
def test_final_messages_that_are_wrong(change: tuple[bytes, bytes], reason: str) -> None:
    one, ours = client(), server()
    final = final_of(one, ours)
    with pytest.raises(InvalidCredentialsError, match=reason):
        ours.receive(final.replace(*change))
    assert not ours.complete


def test_a_final_message_first_and_a_first_message_again() -> None:
    with pytest.raises(InvalidCredentialsError, match="first message"):
        server().receive(b"c=biws,r=nonce,p=AAAA")
    ours = server()
    ours.receive(b"n,,n=alice,r=nonce")
    with pytest.raises(InvalidCredentialsError, match="final message"):
        ours.receive(b"n,,n=alice,r=nonce")


def test_a_credential_of_few_iterations() -> None:
    few = credential_of_password("SCRAM-SHA-256", "secret", b"salt", 4095)
    with pytest.raises(InvalidCredentialsError, match="4095 iterations, less than 4096"):
        Scram("SCRAM-SHA-256", lambda _: few).receive(b"n,,n=alice,r=nonce")


# -- delegation tokens


def log_in(one: Scram, *, tokenauth: bool, user: str = "id", password: str = "hmac of id") -> None:
    """Log in with our own client."""
    own = OwnClient(one._mechanism, user, password, tokenauth=tokenauth)
    assert own.first.endswith(",tokenauth=true") == tokenauth
    own.check(one.receive(own.answer(one.receive(own.first.encode()).decode()).encode()).decode())


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_delegation_token(mechanism: str) -> None:
    one = Scram(mechanism, lambda _: None, Tokens(60_000))
    log_in(one, tokenauth=True)
    assert (one.complete, one.username) == (True, "alice")
    assert (one.by_token, one.expires_ms) == (True, 60_000)


def test_an_ordinary_user_has_no_token() -> None:
    one = server()
    log_in(one, tokenauth=False, user="alice", password=USERS["alice"])
    assert (one.username, one.by_token, one.expires_ms) == ("alice", False, None)


@pytest.mark.parametrize(
    ("tokens", "tokenauth", "user", "password"),
    [
        (Tokens(60_000), True, "id", "wrong"),
        (Tokens(60_000), True, "another", "hmac of another"),
        # A user is no token, and a token no user.
        (Tokens(60_000), True, "alice", USERS["alice"]),
        (Tokens(60_000), False, "id", "hmac of id"),
        (None, True, "id", "hmac of id"),
    ],
)
def test_tokens_that_are_refused(tokens: Tokens | None, tokenauth: bool, user: str, password: str) -> None:
    """At the second message, as wrong passwords: nobody can ask which tokens there are."""
    one = Scram("SCRAM-SHA-256", lambda name: find_credential("SCRAM-SHA-256", name), tokens)
    with pytest.raises(InvalidCredentialsError, match="an unknown user or a wrong password"):
        log_in(one, tokenauth=tokenauth, user=user, password=password)
    assert not one.complete


@pytest.mark.parametrize(
    ("extensions", "expected"),
    [
        ("", False),
        (",tokenauth=true", True),
        (",tokenauth=TRUE", True),
        (",tokenauth=false", False),
        (",tokenauth=1", False),
        (",x=y,tokenauth=true,z=true", True),
        (",tokenauth=true,tokenauth=false", False),
        (",other=tokenauth", False),
    ],
)
def test_the_extension_of_tokens(extensions: str, expected: bool) -> None:
    one = Scram("SCRAM-SHA-256", lambda _: None, Tokens(60_000))
    one.receive(f"n,,n=id,r=nonce{extensions}".encode())
    assert one.by_token is expected


def test_a_token_and_an_authorization_id() -> None:
    """It is compared with the token's id, not with its owner."""
    one = Scram("SCRAM-SHA-256", lambda _: None, Tokens(60_000))
    one.receive(b"n,a=id,n=id,r=nonce,tokenauth=true")
    with pytest.raises(RefusedError, match="different from username"):
        Scram("SCRAM-SHA-256", lambda _: None, Tokens(60_000)).receive(
            b"n,a=alice,n=id,r=nonce,tokenauth=true"
        )

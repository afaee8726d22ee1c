"""The states of SASL without a socket: every version, peers that fail, sessions that are renewed."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode as KioError

from ctrlchan.broker.metadata.jvm_order import java_map_order, string_hashes
from ctrlchan.errors import ConfigError, ProtocolError
from ctrlchan.server.request_context import Principal
from ctrlchan.server.security.mechanism import MECHANISMS, AuthenticationFailed
from ctrlchan.server.security.mechanisms import mechanisms
from tests.unit.broker.local_broker import client_frame, read_client_response
from tests.unit.server.security.sasl_clients import (
    ALL,
    API_VERSIONS,
    AUTHENTICATE,
    HANDSHAKE,
    METADATA,
    NOW,
    USERS,
    Client,
    Clock,
    Tokens,
    bearer,
    joined,
    sasl_listener,
    unsecured_token,
)

VERSIONS = [None, 0, 1, 2]
SCRAM = ["SCRAM-SHA-256", "SCRAM-SHA-512"]
ALICE = b"\0alice\0alice-secret"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("user", USERS)
def test_plain(version: int | None, user: str) -> None:
    client = Client(version)
    answer = client.handshake("PLAIN")
    # Without GSSAPI, which is not enabled.
    assert (answer.error_code, answer.mechanisms) == (KioError.none, (*MECHANISMS[:2], *MECHANISMS[3:]))
    assert client.token(f"\0{user}\0{USERS[user]}".encode()) == b""
    assert client.server.done
    assert client.server.principal == Principal.user(user)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("mechanism", SCRAM)
def test_scram(version: int | None, mechanism: str) -> None:
    client = Client(version)
    client.handshake(mechanism)
    client.scram(mechanism)
    assert client.server.done
    assert client.server.principal == Principal.user("alice")


@pytest.mark.parametrize("version", VERSIONS)
def test_oauthbearer(version: int | None) -> None:
    client = Client(version)
    client.handshake("OAUTHBEARER")
    assert client.token(bearer(unsecured_token())) == b""
    assert client.server.principal == Principal.user("alice")
    assert client.server.session_ms == 3_600_000


def test_mechanisms_are_listed_in_the_order_of_a_java_set() -> None:
    names = [*ALL, "GSSAPI"]
    order = java_map_order(np.arange(len(names)), string_hashes(names))
    assert tuple(names[place] for place in order) == MECHANISMS
    with pytest.raises(ConfigError, match="mechanism DIGEST-MD5 is not served"):
        mechanisms(["DIGEST-MD5"], USERS.get, lambda *_: None)


# -- peers that fail


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_refusal_has_an_error_and_no_more(version: int) -> None:
    client = Client(version)
    client.handshake("PLAIN")
    frame = client_frame(AUTHENTICATE, version, auth_bytes=b"\0alice\0wrong")
    with pytest.raises(AuthenticationFailed, match=r"PLAIN: .*Invalid username or password") as failed:
        client.receive(frame)
    body = read_client_response(AUTHENTICATE, version, joined(failed.value.response))
    assert body.error_code == KioError.sasl_authentication_failed
    assert body.error_message == "Authentication failed: Invalid username or password"
    assert not client.server.done


def test_a_refusal_without_headers_has_no_answer() -> None:
    client = Client(None)
    client.handshake("PLAIN")
    with pytest.raises(AuthenticationFailed) as failed:
        client.token(b"\0alice\0wrong")
    assert failed.value.response == ()


@pytest.mark.parametrize("version", [0, 1])
def test_a_mechanism_that_is_not_enabled(version: int) -> None:
    client = Client(0, sasl_listener("SCRAM-SHA-512"))
    with pytest.raises(AuthenticationFailed, match="mechanism 'PLAIN' is not enabled") as failed:
        client.receive(client_frame(HANDSHAKE, version, mechanism="PLAIN"))
    body = read_client_response(HANDSHAKE, version, joined(failed.value.response))
    assert body.error_code == KioError.unsupported_sasl_mechanism
    assert body.mechanisms == ("SCRAM-SHA-512",)


def versions_frame(version: int, name: str = "a") -> bytes:
    fields = {"client_software_name": name, "client_software_version": "1"} if version >= 3 else {}
    return client_frame(API_VERSIONS, version, **fields)


def test_api_versions_is_left_to_the_servers_handler_once() -> None:
    client = Client(2)
    assert client.server.receive(memoryview(versions_frame(3))) is None
    with pytest.raises(AuthenticationFailed, match=r"ApiVersions .*in place of SaslHandshake"):
        client.server.receive(memoryview(versions_frame(3)))


def test_api_versions_may_come_again_after_an_error() -> None:
    client = Client(2)
    unknown = bytearray(versions_frame(3))
    unknown[2:4] = (99).to_bytes(2, "big")
    for frame in (bytes(unknown), versions_frame(3, " "), versions_frame(0)):
        assert client.server.receive(memoryview(frame)) is None
    client.handshake("PLAIN")
    client.token(ALICE)
    assert client.server.done


def test_a_request_in_place_of_the_handshake_is_not_answered() -> None:
    for first in ([], [versions_frame(0)]):
        client = Client(2)
        for frame in first:
            client.server.receive(memoryview(frame))
        with pytest.raises(AuthenticationFailed, match=r"Metadata .*a client without SASL") as failed:
            client.receive(client_frame(METADATA, 12, topics=None))
        assert failed.value.response == ()


def test_a_request_between_tokens_gets_its_own_response() -> None:
    """KafkaException of another state: ILLEGAL_SASL_STATE in the response of the request."""
    client = Client(2)
    client.handshake("SCRAM-SHA-256")
    with pytest.raises(AuthenticationFailed, match="Unexpected Kafka request of type ApiVersions") as failed:
        client.receive(versions_frame(3))
    body = read_client_response(API_VERSIONS, 3, joined(failed.value.response))
    assert body.error_code == KioError.illegal_sasl_state


@pytest.mark.parametrize(("names", "is_answered"), [(10, True), (200_000, False)])
def test_a_large_request_between_tokens_gets_no_answer(names: int, is_answered: bool) -> None:
    """To read many names takes seconds, which nobody may have before he is authenticated."""
    head = METADATA.to_bytes(2, "big") + (8).to_bytes(2, "big") + bytes(4) + b"\xff\xff"
    many = head + names.to_bytes(4, "big") + bytes(2 * names + 3)
    client = Client(2)
    client.handshake("PLAIN")
    with pytest.raises(AuthenticationFailed, match="Unexpected Kafka request of type Metadata") as failed:
        client.receive(many)
    assert bool(failed.value.response) is is_answered


@pytest.mark.parametrize("key", [-1, 40, 9999])
def test_a_request_between_tokens_that_cannot_be_read(key: int) -> None:
    client = Client(2)
    client.handshake("PLAIN")
    with pytest.raises(AuthenticationFailed) as failed:
        client.receive(key.to_bytes(2, "big", signed=True) + (99).to_bytes(2, "big") + bytes(6))
    assert failed.value.response == ()


def test_nothing_is_received_after_a_failure() -> None:
    client = Client(2)
    client.handshake("PLAIN")
    with pytest.raises(AuthenticationFailed):
        client.authenticate(b"\0alice\0wrong")
    with pytest.raises(AuthenticationFailed, match="after the end"):
        client.authenticate(ALICE)
    assert not client.server.done


def test_a_frame_that_cannot_be_read() -> None:
    for frame in (b"", b"\0", b"\0\x11\0\1" + bytes(4), client_frame(HANDSHAKE, 1, mechanism="PLAIN")[:-2]):
        with pytest.raises(ProtocolError):
            Client(2).receive(frame)


@pytest.mark.parametrize("mechanism", ALL)
@pytest.mark.parametrize("token", [b"", b"\0" * 524_000, b"n,,n=" + b"a" * 524_000, b"\1", b"\xff" * 4000])
def test_huge_and_empty_tokens(mechanism: str, token: bytes) -> None:
    client = Client(2)
    client.handshake(mechanism)
    with pytest.raises(AuthenticationFailed) as failed:
        client.authenticate(token)
    assert len(joined(failed.value.response)) < 300
    assert len(str(failed.value)) < 300


@given(frames=st.lists(st.binary(max_size=80), max_size=4), begin=st.sampled_from(["", *ALL]))
def test_garbage_is_a_protocol_error_and_never_authenticates(frames: list[bytes], begin: str) -> None:
    for version in (None, 2):
        client = Client(version)
        if begin:
            client.handshake(begin)
        for frame in frames:
            try:
                client.server.receive(memoryview(frame))
            except ProtocolError:
                break
        assert not client.server.done


@given(token=st.binary(max_size=200), mechanism=st.sampled_from(ALL))
def test_garbage_as_a_token_never_authenticates(token: bytes, mechanism: str) -> None:
    client = Client(2)
    client.handshake(mechanism)
    with suppress(ProtocolError):
        client.authenticate(token)
    assert not client.server.done


# -- sessions


def lifetime(body: Any) -> int:
    milliseconds: float = body.session_lifetime.total_seconds() * 1000
    return round(milliseconds)


@pytest.mark.parametrize("version", [1, 2])
def test_the_last_answer_says_how_long_the_session_lasts(version: int) -> None:
    client = Client(version, sasl_listener(max_session_ms=5000))
    client.handshake("PLAIN")
    assert lifetime(client.authenticate(ALICE)) == 5000
    assert (client.server.session_ms, client.server.can_renew) == (5000, True)


@pytest.mark.parametrize("version", [None, 0])
def test_an_old_client_has_the_same_session(version: int | None) -> None:
    client = Client(version, sasl_listener(max_session_ms=5000))
    client.handshake("PLAIN")
    client.token(ALICE)
    assert (client.server.session_ms, client.server.can_renew) == (5000, False)


def test_only_the_last_answer_has_a_lifetime() -> None:
    client = Client(2, sasl_listener(max_session_ms=5000))
    client.handshake("SCRAM-SHA-256")
    client.scram("SCRAM-SHA-256")
    assert client.server.session_ms == 5000
    other = Client(2, sasl_listener(max_session_ms=5000))
    other.handshake("SCRAM-SHA-256")
    assert lifetime(other.authenticate(b"n,,n=alice,r=abc")) == 0


def test_without_a_limit_a_session_has_no_end() -> None:
    client = Client(1)
    client.handshake("PLAIN")
    assert lifetime(client.authenticate(ALICE)) == 0
    assert client.server.session_ms is None


@pytest.mark.parametrize(("limit", "expected"), [(0, 60_000), (30_000, 30_000), (90_000, 60_000)])
def test_a_token_that_expires_ends_the_session(limit: int, expected: int) -> None:
    client = Client(2, sasl_listener(max_session_ms=limit))
    client.handshake("OAUTHBEARER")
    body = client.authenticate(bearer(unsecured_token(exp=NOW / 1000 + 60)))
    assert (lifetime(body), client.server.session_ms) == (expected, expected)


def test_a_delegation_token_that_expires_ends_the_session() -> None:
    clock = Clock()
    client = Client(2, sasl_listener(clock=clock, tokens=Tokens(NOW + 60_000)))
    client.handshake("SCRAM-SHA-256")
    client.scram_of_token("SCRAM-SHA-256")
    first = client.server.principal, client.server.by_token, client.server.session_ms
    assert first == (Principal.user("alice"), True, 60_000)
    # It is renewed by the same principal, here by his password.
    client.server.renew()
    client.handshake("SCRAM-SHA-256")
    client.scram("SCRAM-SHA-256")
    renewed = client.server
    assert not renewed.by_token
    assert renewed.session_ms is None
    # One that has expired already has no time; it is nobody's task here to refuse it.
    clock.ms += 61_000
    late = Client(2, sasl_listener(clock=clock, tokens=Tokens(NOW + 60_000)))
    late.handshake("SCRAM-SHA-256")
    late.scram_of_token("SCRAM-SHA-256")
    assert late.server.session_ms == 0


def test_a_token_that_has_just_expired_is_a_session_of_no_time() -> None:
    """The clock skew allows the token, and the session ends at once, as in Kafka."""
    clock = Clock()
    options = {"unsecuredValidatorAllowableClockSkewMs": "5000"}
    client = Client(2, sasl_listener(clock=clock, options=options))
    clock.ms += 61_000
    client.handshake("OAUTHBEARER")
    body = client.authenticate(bearer(unsecured_token(exp=NOW / 1000 + 60)))
    assert (body.error_code, client.server.session_ms) == (KioError.none, 0)


def renewing(mechanism: str = "PLAIN", token: bytes = ALICE, version: int | None = 2) -> Client:
    """Return a client whose session begins to be renewed."""
    client = Client(version, sasl_listener(max_session_ms=5000))
    client.handshake(mechanism)
    client.token(token)
    assert client.server.done
    client.server.renew()
    return client


@pytest.mark.parametrize("version", VERSIONS)
def test_a_session_is_renewed(version: int | None) -> None:
    client = renewing(version=version)
    assert client.server.renews
    assert not client.server.done
    assert client.handshake("PLAIN").error_code == KioError.none
    client.token(ALICE)
    assert client.server.done
    assert client.server.session_ms == 5000


def test_another_principal_cannot_renew() -> None:
    client = renewing()
    client.handshake("PLAIN")
    with pytest.raises(AuthenticationFailed) as failed:
        client.authenticate(f"\0bób,=\0{USERS['bób,=']}".encode())
    body = read_client_response(AUTHENTICATE, 2, joined(failed.value.response))
    assert body.error_code == KioError.sasl_authentication_failed
    assert body.error_message == (
        "Cannot change principals during re-authentication from User.alice: User.bób,="
    )
    assert client.server.principal == Principal.user("alice")
    assert not client.server.done


def test_another_mechanism_cannot_renew() -> None:
    """The handshake is answered as any other; the next frame fails, whatever it is, as in Kafka."""
    client = renewing()
    assert client.handshake("SCRAM-SHA-256").error_code == KioError.none
    with pytest.raises(AuthenticationFailed, match="SCRAM-SHA-256 cannot renew a session of PLAIN") as failed:
        client.authenticate(b"n,,n=alice,r=abc")
    assert failed.value.response == ()


def test_a_wrong_password_cannot_renew() -> None:
    client = renewing("OAUTHBEARER", bearer(unsecured_token()))
    client.handshake("OAUTHBEARER")
    with pytest.raises(AuthenticationFailed) as failed:
        client.authenticate(b"garbage")
    body = read_client_response(AUTHENTICATE, 2, joined(failed.value.response))
    assert body.error_message == (
        "Authentication failed during re-authentication due to invalid credentials with SASL mechanism "
        "OAUTHBEARER"
    )


def test_api_versions_does_not_begin_a_renewal() -> None:
    client = renewing()
    with pytest.raises(AuthenticationFailed):
        client.server.receive(memoryview(versions_frame(0)))

"""OAUTHBEARER with unsecured tokens: messages, claims and options.

Twins of Kafka's OAuthBearerSaslServerTest, OAuthBearerClientInitialResponseTest and
OAuthBearerUnsecuredValidatorCallbackHandlerTest.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from ctrlchan.errors import ConfigError
from ctrlchan.server.security.mechanism import InvalidCredentialsError, RefusedError
from ctrlchan.server.security.oauthbearer import InvalidTokenError, OAuthBearer
from ctrlchan.server.security.unsecured_tokens import UnsecuredTokens
from tests.unit.server.security.sasl_clients import NOW, bearer, encoded, unsecured_token

SECONDS = NOW / 1000


def validator(**options: str) -> UnsecuredTokens:
    return UnsecuredTokens({f"unsecuredValidator{name}": text for name, text in options.items()}, lambda: NOW)


@pytest.mark.parametrize("authorization", ["", "alice"])
@pytest.mark.parametrize("more", ["", "traceId=123\1", "a=b c\1d=e\tf\1"])
def test_a_token_names_the_peer(authorization: str, more: str) -> None:
    server = OAuthBearer(validator())
    assert server.receive(bearer(unsecured_token(), authorization, more)) == b""
    assert (server.complete, server.username, server.expires_ms) == (True, "alice", NOW + 3_600_000)


def test_another_authorization_id() -> None:
    server = OAuthBearer(validator())
    with pytest.raises(RefusedError) as refused:
        server.receive(bearer(unsecured_token(), "carol"))
    assert str(refused.value) == (
        "Authentication failed: Client requested an authorization id (carol) that is different from the "
        "token's principal name (alice)"
    )
    assert not server.complete


def test_a_bad_token_is_answered_before_the_peer_is_refused() -> None:
    server = OAuthBearer(validator())
    assert server.receive(bearer("a.b.c")) == b'{"status":"invalid_token"}'
    with pytest.raises(RefusedError) as refused:
        server.receive(b"\1")
    assert str(refused.value) == '{"status":"invalid_token"}'


def test_another_token_after_a_bad_one() -> None:
    """Kafka allows it, and so do we: what counts is the last one."""
    server = OAuthBearer(validator())
    server.receive(bearer("a.b.c"))
    assert server.receive(bearer(unsecured_token())) == b""
    assert server.complete


def test_a_missing_scope_is_named() -> None:
    server = OAuthBearer(validator(RequiredScope="one two"))
    answer = server.receive(bearer(unsecured_token(scope="one")))
    assert json.loads(answer) == {"status": "insufficient_scope", "scope": "[one, two]"}
    assert server.receive(bearer(unsecured_token(scope=["two", "one"]))) == b""


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\1",
        b"n,,\1\1",
        b"n,,\1auth=Bearer\1\1",
        b"n,,\1auth=Basic abc\1\1",
        b"n,,\1auth=Bearer a b\1\1",
        b"n,,\1auth=Bearer abc\1",
        b"n,,auth=Bearer abc\1\1",
        b"p,,\1auth=Bearer abc\1\1",
        b"n,a=,\1auth=Bearer abc\1\1",
        b"n,,\1other=value\1\1",
        b"n,,\1auth=Bearer abc\1x1=y\1\1",
        b"n,,\1auth=Bearer abc\1x=\xc3\1\1",
        b"n,,\1auth=Bearer abc\1x=\1\1",
    ],
)
def test_messages_that_are_wrong(message: bytes) -> None:
    server = OAuthBearer(validator())
    with pytest.raises(InvalidCredentialsError):
        server.receive(message)
    assert not server.complete


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_the_scheme_in_any_letters(scheme: str) -> None:
    server = OAuthBearer(validator())
    server.receive(bearer(unsecured_token()).replace(b"Bearer", scheme.encode()))
    assert server.complete


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"sub": None}, "claim sub names nobody"),
        ({"sub": " "}, "claim sub names nobody"),
        ({"sub": 7}, "claim sub names nobody"),
        ({"exp": None}, "no claim exp"),
        ({"exp": "soon"}, "claim exp is not a number"),
        ({"exp": True}, "claim exp is not a number"),
        ({"exp": SECONDS}, "it has expired"),
        ({"iat": SECONDS + 1}, "issued in the future"),
        ({"iat": "now"}, "claim iat is not a number"),
        ({"exp": SECONDS + 0.25, "iat": SECONDS + 0.5}, "issued in the future"),
        ({"scope": 7}, "neither a text nor a list"),
    ],
)
def test_claims_that_are_wrong(claims: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidTokenError, match=reason):
        validator(RequiredScope="one")(unsecured_token(**claims))


def test_a_token_that_expires_later_than_any_time() -> None:
    found = validator()(unsecured_token(exp=1.7e308))
    assert (found.principal, found.expires_ms) == ("alice", 2**53 * 1000)


def test_a_token_that_expires_before_it_is_issued() -> None:
    token = unsecured_token(exp=SECONDS + 1, iat=SECONDS + 2)
    with pytest.raises(InvalidTokenError, match="expires before it is issued"):
        validator(AllowableClockSkewMs="5000")(token)


CLAIMS = encoded(json.dumps({"sub": "alice", "exp": SECONDS + 60}))
NONE = encoded('{"alg":"none"}')


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        ("", "three parts"),
        ("a", "three parts"),
        (f"{NONE}.{CLAIMS}", "three parts"),
        (f"{NONE}..", "three parts"),
        (f"{NONE}.{CLAIMS}.signature", "it is signed"),
        (f"{encoded('{}')}.{CLAIMS}.", "algorithm is not none"),
        (f"{encoded(json.dumps({'alg': 'RS256'}))}.{CLAIMS}.", "algorithm is not none"),
        (f"{encoded('[]')}.{CLAIMS}.", "no JSON object"),
        (f"{encoded('{')}.{CLAIMS}.", "not Base64 of JSON"),
        (f"{NONE}.{encoded('null')}.", "no JSON object"),
        (f"{NONE}.{encoded('[' * 100_000)}.", "not Base64 of JSON"),
        (f"{NONE}.{encoded('1' * 10_000)}.", "not Base64 of JSON"),
        (NONE + "." + encoded('{"sub":"a","exp":NaN}') + ".", "NaN"),
        (NONE + "." + encoded('{"sub":"a","exp":1e999}') + ".", "not a number"),
        (NONE + "." + encoded('{"sub":"a","exp":' + "9" * 400 + "}") + ".", "not a number"),
        (f"{NONE}.a.", "not Base64 of JSON"),
    ],
)
def test_tokens_that_are_none(token: str, reason: str) -> None:
    with pytest.raises(InvalidTokenError, match=reason):
        validator()(token)


def test_options() -> None:
    found = validator(PrincipalClaimName="name", ScopeClaimName="may", RequiredScope=" read ")
    assert found(unsecured_token(sub=None, name="carol", may="read")).principal == "carol"
    late = unsecured_token(exp=SECONDS - 4, iat=None)
    assert validator(AllowableClockSkewMs="5000")(late).expires_ms == NOW - 4000
    with pytest.raises(ConfigError, match="unsecuredValidatorAllowableClockSkewMs"):
        validator(AllowableClockSkewMs="-1")
    with pytest.raises(ConfigError, match="unsecuredValidatorAllowableClockSkewMs"):
        validator(AllowableClockSkewMs="soon")

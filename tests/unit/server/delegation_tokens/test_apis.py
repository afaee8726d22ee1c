"""The four APIs of delegation tokens: who may ask what, in which order errors come, all versions."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import pytest
from kio.schema.errors import ErrorCode as KioError

from ctrlchan.authorizer.acls import Operation, ResourceType
from ctrlchan.authorizer.interface import Authorizer
from ctrlchan.errors import DecodeError, ErrorCode, KafkaError
from ctrlchan.server.apis.delegation_tokens import APIS
from ctrlchan.server.delegation_tokens.delegation_tokens import DelegationTokens
from ctrlchan.server.request_context import ANONYMOUS, Principal, RequestContext
from ctrlchan.server.request_handler import RequestHandler
from ctrlchan.state import SecurityProtocol
from tests.unit.broker.authorizer.deciding import Deciding, deciding
from tests.unit.server.delegation_tokens.token_messages import (
    CREATE,
    DESCRIBE,
    EXPIRE,
    NO_TIMES,
    RENEW,
    TokenAnswer,
    token_answer,
    token_frame,
)
from tests.unit.server.delegation_tokens.words import DAY, HOUR, OTHER, OWNER, RENEWER
from tests.unit.server.security.sasl_clients import NOW

NONE = KioError.none
NOT_ALLOWED = KioError.delegation_token_request_not_allowed
DISABLED = KioError.delegation_token_auth_disabled
NOBODY = Principal.user("nobody")
VERSIONS = {CREATE: range(4), RENEW: range(3), EXPIRE: range(3), DESCRIBE: range(4)}
EACH = [(key, version) for key, versions in VERSIONS.items() for version in versions]
SAMPLES: dict[int, dict[str, Any]] = {
    CREATE: {},
    RENEW: {"hmac": b"h"},
    EXPIRE: {"hmac": b"h"},
    DESCRIBE: {"owners": None},
}


@dataclass
class Core:
    tokens: Any
    id: int = 1

    def describe(self) -> dict[str, Any]:
        return {}


class Asked:
    """Sends requests as somebody."""

    def __init__(self, tokens: Any, authorizer: Authorizer | None = None) -> None:
        apis = {api.key: api for api in APIS}
        self.handler: RequestHandler[Any] = RequestHandler(Core(tokens), apis, authorizer=authorizer)

    def __call__(
        self,
        key: int,
        version: int,
        principal: Principal = OWNER,
        *,
        protocol: SecurityProtocol = SecurityProtocol.SASL_SSL,
        by_token: bool = False,
        **values: Any,
    ) -> TokenAnswer:
        frame = token_frame(key, version, **values)
        return token_answer(key, version, self.send(frame, principal, protocol, by_token))

    def send(
        self,
        frame: bytes,
        principal: Principal = OWNER,
        protocol: SecurityProtocol = SecurityProtocol.SASL_SSL,
        by_token: bool = False,
    ) -> bytes:
        context = RequestContext("CLIENTS", protocol, "127.0.0.1", 50_000, 1, principal, by_token=by_token)
        answer = self.handler.serve(frame, context)
        assert not isinstance(answer, Future)
        return b"".join(answer)


@pytest.fixture
def ask(tokens: DelegationTokens) -> Asked:
    return Asked(tokens)


def test_the_life_of_a_token_in_all_versions(ask: Asked, tokens: DelegationTokens) -> None:
    for version in VERSIONS[CREATE]:
        older = min(version, VERSIONS[RENEW][-1])
        made = ask(CREATE, version, renewers=[RENEWER], max_lifetime=2 * DAY)
        assert made.error_code == NONE
        assert (made.owner, made.requester) == (OWNER, OWNER if version >= 3 else None)
        assert made.times == (NOW, NOW + DAY, NOW + 2 * DAY)
        [token] = tokens.all()
        assert (made.token_id, made.hmac) == (token.token_id, tokens.hmac(token))
        assert ask(RENEW, older, RENEWER, hmac=made.hmac, period=HOUR).times == (NOW + HOUR,)
        assert ask(EXPIRE, older, hmac=made.hmac, period=2 * HOUR).times == (NOW + 2 * HOUR,)
        found = ask(DESCRIBE, version, owners=None)
        assert found.error_code == NONE
        [shown] = found.tokens
        assert (shown.owner, shown.requester, shown.renewers) == (made.owner, made.requester, (RENEWER,))
        assert (shown.token_id, shown.hmac) == (made.token_id, made.hmac)
        assert shown.times == (NOW, NOW + 2 * HOUR, NOW + 2 * DAY)
        ended = ask(EXPIRE, older, hmac=made.hmac, period=-1)
        assert (ended.error_code, ended.times) == (NONE, (NOW,))
        assert ask(DESCRIBE, version, owners=None).tokens == ()


# -- who may ask


@pytest.mark.parametrize(("key", "version"), EACH)
def test_who_may_not_ask(ask: Asked, key: int, version: int) -> None:
    """Before anything else: that there are no tokens, or what the request says."""
    alone = Asked(None)
    for one in (ask, alone):
        for principal, protocol, by_token in (
            (OWNER, SecurityProtocol.PLAINTEXT, False),
            (ANONYMOUS, SecurityProtocol.PLAINTEXT, False),
            (ANONYMOUS, SecurityProtocol.SSL, False),
            (OWNER, SecurityProtocol.SASL_SSL, True),
            (OWNER, SecurityProtocol.SASL_PLAINTEXT, True),
        ):
            answer = one(key, version, principal, protocol=protocol, by_token=by_token, **SAMPLES[key])
            assert answer.error_code == NOT_ALLOWED
            assert answer.times in ((), (-1,), NO_TIMES)
            assert answer.owner in (None, principal)
    for principal, protocol in ((OWNER, SecurityProtocol.SSL), (ANONYMOUS, SecurityProtocol.SASL_PLAINTEXT)):
        assert ask(key, version, principal, protocol=protocol, **SAMPLES[key]).error_code != NOT_ALLOWED
        assert alone(key, version, principal, protocol=protocol, **SAMPLES[key]).error_code == DISABLED


# -- a token is made


def test_the_errors_of_a_new_token_in_kafkas_order(tokens: DelegationTokens) -> None:
    group = Principal("Group", "g")
    asked = Asked(tokens, Deciding())
    alone = Asked(None, Deciding())

    def error(one: Asked, **values: Any) -> KioError:
        answer = one(CREATE, 3, **values)
        assert answer.times == NO_TIMES
        assert (answer.token_id, answer.hmac, answer.requester) == ("", b"", OWNER)
        assert answer.owner == values.get("owner", OWNER)
        return answer.error_code

    with deciding(lambda *_: False):
        assert error(asked, owner=OTHER, renewers=[group]) == KioError.delegation_token_authorization_failed
        assert error(alone, owner=OTHER, renewers=[group]) == KioError.delegation_token_authorization_failed
        assert error(asked, renewers=[RENEWER, group]) == KioError.invalid_principal_type
        assert error(alone, renewers=[group]) == KioError.invalid_principal_type
        assert error(alone) == DISABLED
        # For himself nobody needs an ACL.
        assert asked(CREATE, 3).error_code == NONE
        assert asked(CREATE, 3, owner=OWNER).error_code == NONE


def test_a_token_for_somebody_else(tokens: DelegationTokens) -> None:
    asked = Asked(tokens, Deciding())
    wanted = (Operation.CREATE_TOKENS, ResourceType.USER, "User:other")
    with deciding(lambda requester, *of: requester.principal == "User:owner" and of == wanted):
        made = asked(CREATE, 3, owner=OTHER)
        assert made.error_code == NONE
        assert (made.owner, made.requester) == (OTHER, OWNER)
        assert asked(CREATE, 3, owner=RENEWER).error_code == KioError.delegation_token_authorization_failed
        refused = asked(CREATE, 3, RENEWER, owner=OTHER)
        assert refused.error_code == KioError.delegation_token_authorization_failed
    # Older versions name no owner.
    assert asked(CREATE, 2, owner=OTHER).owner == OWNER
    # Who has asked for it is shown it, and may not renew it.
    with deciding(lambda *_: False):
        assert made.token_id in {one.token_id for one in asked(DESCRIBE, 3, owners=None).tokens}
        assert asked(RENEW, 2, OWNER, hmac=made.hmac).error_code == KioError.delegation_token_owner_mismatch
        assert asked(RENEW, 2, OTHER, hmac=made.hmac).error_code == NONE


def test_an_owner_without_a_type(ask: Asked) -> None:
    """Kafka cannot make the principal, and answers as to any exception."""
    frame = token_frame(CREATE, 3, owner=Principal("", "x"))
    answer = token_answer(CREATE, 3, ask.send(frame))
    assert answer.error_code == KioError.unknown_server_error
    assert (answer.owner, answer.requester, answer.times) == (ANONYMOUS, ANONYMOUS, NO_TIMES)


# -- a token is renewed and ended


@pytest.mark.parametrize("key", [RENEW, EXPIRE])
def test_the_errors_of_a_change(ask: Asked, tokens: DelegationTokens, clock: Any, key: int) -> None:
    hmac = ask(CREATE, 3, owner=OTHER, renewers=[RENEWER]).hmac
    for version in VERSIONS[key]:
        for principal, value, expected in (
            (OWNER, b"another", KioError.delegation_token_not_found),
            (NOBODY, hmac, KioError.delegation_token_owner_mismatch),
            (OWNER, hmac, KioError.delegation_token_owner_mismatch),
            (OTHER, hmac, NONE),
            (RENEWER, hmac, NONE),
        ):
            answer = ask(key, version, principal, hmac=value, period=HOUR)
            assert answer.error_code == expected
            assert answer.times == ((NOW + HOUR,) if expected == NONE else (-1,))
    clock.ms += 8 * DAY
    answer = ask(key, 2, OTHER, hmac=hmac, period=HOUR)
    assert (answer.error_code, answer.times) == (KioError.delegation_token_expired, (-1,))


def test_zookeeper_that_is_away(ask: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Kafka's answers to an exception."""

    def fail(*_: object) -> None:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)

    for name in ("create", "renew", "expire"):
        monkeypatch.setattr(DelegationTokens, name, fail)
    answer = ask(CREATE, 3)
    assert (answer.error_code, answer.owner) == (KioError.unknown_server_error, ANONYMOUS)
    assert answer.times == NO_TIMES
    for key in (RENEW, EXPIRE):
        answer = ask(key, 2, hmac=b"h")
        assert (answer.error_code, answer.times) == (KioError.unknown_server_error, (0,))


# -- tokens are described


def test_which_tokens_are_shown(tokens: DelegationTokens) -> None:
    asked = Asked(tokens, Deciding())
    own = tokens.create(OWNER, OWNER, [], -1)
    renewed = tokens.create(OTHER, OTHER, [OWNER], -1)
    requested = tokens.create(OTHER, OWNER, [], -1)
    foreign = tokens.create(OTHER, OTHER, [], -1)
    of_nobody = tokens.create(NOBODY, NOBODY, [], -1)

    def shown(allowed: Callable[..., bool], owners: list[Principal] | None = None) -> set[str]:
        with deciding(lambda _, *of: allowed(*of)):
            found = [asked(DESCRIBE, version, owners=owners) for version in VERSIONS[DESCRIBE]]
        assert {one.error_code for one in found} == {NONE}
        [ids] = {frozenset(one.token_id for one in answer.tokens) for answer in found}
        return set(ids)

    his = {own.token_id, renewed.token_id, requested.token_id}
    every = his | {foreign.token_id, of_nobody.token_id}
    assert shown(lambda *_: False) == his
    assert shown(lambda *_: True) == every
    describe = (Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, foreign.token_id)
    assert shown(lambda *of: of == describe) == his | {foreign.token_id}
    of_user = (Operation.DESCRIBE_TOKENS, ResourceType.USER, "User:nobody")
    assert shown(lambda *of: of == of_user) == his | {of_nobody.token_id}
    # Filters mean owners, renewers and who has asked.
    assert shown(lambda *_: True, []) == set()
    assert shown(lambda *_: True, [NOBODY]) == {of_nobody.token_id}
    assert shown(lambda *_: True, [OWNER]) == his
    assert shown(lambda *_: False, [OTHER]) == {renewed.token_id, requested.token_id}
    assert shown(lambda *_: True, [NOBODY, OTHER]) == every - {own.token_id}
    assert shown(lambda *_: True, [Principal("Group", "owner")]) == set()


def test_without_an_authorizer_all_tokens_are_shown(ask: Asked, tokens: DelegationTokens) -> None:
    tokens.create(OTHER, OTHER, [], -1)
    assert len(ask(DESCRIBE, 3, NOBODY, owners=None).tokens) == 1


# -- damaged requests


@pytest.mark.parametrize(("key", "version"), EACH)
def test_requests_that_end_too_early(ask: Asked, key: int, version: int) -> None:
    values = SAMPLES[key] | {CREATE: {"renewers": [RENEWER]}, DESCRIBE: {"owners": [OWNER]}}.get(key, {})
    whole = token_frame(key, version, **values)
    head = len(token_frame(key, version, **values)) - 8
    for size in range(len(whole) - 1, max(head, 12), -1):
        with pytest.raises(DecodeError):
            ask.send(whole[:size])


@pytest.mark.parametrize("count", [b"\x7f\xff\xff\xff", b"\x00\xff\xff\xff"])
def test_counts_that_are_too_high(ask: Asked, count: bytes) -> None:
    whole = token_frame(CREATE, 1)
    assert whole[-12:-8] == bytes(4)
    with pytest.raises(DecodeError):
        ask.send(whole[:-12] + count + whole[-8:])
    # Null.
    with pytest.raises(DecodeError, match="renewers is null"):
        ask.send(whole[:-12] + b"\xff\xff\xff\xff" + whole[-8:])


def test_a_name_that_is_too_long(ask: Asked) -> None:
    with pytest.raises(DecodeError, match="a string of 32768 bytes"):
        ask.send(token_frame(CREATE, 3, owner=Principal("User", "x" * 2**15)))
    assert ask(CREATE, 3, owner=Principal("User", "x" * (2**15 - 6))).error_code == NONE

"""CreateDelegationToken (38), RenewDelegationToken (39), ExpireDelegationToken (40), Describe… (41).

Brokers and the controller answer them alike. Nobody gets a token on a connection that has no security, or
with a token. ``KafkaApis.handleCreateTokenRequest`` and the three after it of Kafka 3.9; KIP-48, KIP-373.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Final, Protocol

from ctrlchan.errors import ErrorCode, KafkaError
from ctrlchan.server.access import (
    CREATE_TOKENS_USER,
    DESCRIBE_DELEGATION_TOKEN,
    DESCRIBE_TOKENS_USER,
    NOTHING,
    Access,
    Needs,
    asks,
)
from ctrlchan.server.api import Api, Reply, Request
from ctrlchan.server.apis.delegation_token_messages import (
    decode_create,
    decode_describe,
    decode_period,
    encode_create,
    encode_describe,
    encode_expiry,
)
from ctrlchan.server.delegation_tokens.delegation_tokens import DelegationTokens
from ctrlchan.server.delegation_tokens.token import Token
from ctrlchan.server.request_context import ANONYMOUS, Principal, RequestContext
from ctrlchan.state import SecurityProtocol

__all__ = ["APIS"]

_USER: Final = "User"


class _Core(Protocol):
    @property
    def tokens(self) -> DelegationTokens | None:
        """The delegation tokens, or None where there are none."""


def _create(core: _Core, request: Request) -> Reply:
    body = decode_create(request)
    requester = request.context.principal
    kind, name = body.owner

    def reply(code: ErrorCode, token: Token | None = None, hmac: bytes = b"") -> Reply:
        return Reply(encode_create(request.version, code, owner, requester, token, hmac), code)

    owner = requester
    if name:
        if kind is None:
            # Kafka answers as to any exception.
            owner = requester = ANONYMOUS
            return reply(ErrorCode.UNKNOWN_SERVER_ERROR)
        owner = Principal(kind, name)
    if not _may_ask(request.context):
        return reply(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    if owner != requester and not request.access.allows(*CREATE_TOKENS_USER, str(owner)):
        return reply(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
    if any(one.type != _USER for one in body.renewers):
        return reply(ErrorCode.INVALID_PRINCIPAL_TYPE)
    tokens = core.tokens
    if tokens is None:
        return reply(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    try:
        token = tokens.create(owner, requester, body.renewers, body.max_lifetime_ms)
    except KafkaError as failed:
        if failed.code == ErrorCode.UNKNOWN_SERVER_ERROR:
            owner = requester = ANONYMOUS
        return reply(ErrorCode(failed.code))
    return reply(ErrorCode.NONE, token, tokens.hmac(token))


def _renew(core: _Core, request: Request) -> Reply:
    return _change(core, request, "RenewDelegationToken", lambda tokens: tokens.renew)


def _expire(core: _Core, request: Request) -> Reply:
    return _change(core, request, "ExpireDelegationToken", lambda tokens: tokens.expire)


def _change(
    core: _Core,
    request: Request,
    api: str,
    change: Callable[[DelegationTokens], Callable[[Principal, bytes, int], int]],
) -> Reply:
    body = decode_period(request, api)
    try:
        if not _may_ask(request.context):
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
        if core.tokens is None:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
        expires = change(core.tokens)(request.context.principal, body.hmac, body.period_ms)
    except KafkaError as failed:
        code = ErrorCode(failed.code)
        if code == ErrorCode.UNKNOWN_SERVER_ERROR:
            # As Kafka's answer to an exception, whose time nobody has set.
            return Reply(encode_expiry(request.version, code, 0), code)
        return Reply(encode_expiry(request.version, code), code)
    return Reply(encode_expiry(request.version, ErrorCode.NONE, expires))


def _describe(core: _Core, request: Request) -> Reply:
    owners = decode_describe(request)

    def refused(code: ErrorCode) -> Reply:
        return Reply(encode_describe(request.version, code), code)

    if not _may_ask(request.context):
        return refused(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    tokens = core.tokens
    if tokens is None:
        return refused(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    asked = None if owners is None else set(owners)
    wanted = [one for one in tokens.all() if asked is None or one.belongs_to(asked)]
    shown = _shown(wanted, request.context.principal, request.access)
    return Reply(
        encode_describe(
            request.version,
            ErrorCode.NONE,
            ((one, tokens.hmac(one)) for one in wanted if one.token_id in shown),
        )
    )


def _shown(tokens: list[Token], principal: Principal, access: Access) -> Container[str]:
    """Return the ids of the tokens that somebody is shown: his own, and those that ACLs let him see."""
    shown = {one.token_id for one in tokens if one.belongs_to({principal})}
    others = [one for one in tokens if one.token_id not in shown]
    allowed = access.allowed(*DESCRIBE_DELEGATION_TOKEN, [one.token_id for one in others])
    shown |= {one.token_id for one in others if one.token_id in allowed}
    rest = [one for one in others if one.token_id not in shown]
    of_users = access.allowed(*DESCRIBE_TOKENS_USER, [str(one.owner) for one in rest])
    return shown | {one.token_id for one in rest if str(one.owner) in of_users}


def _may_ask(context: RequestContext) -> bool:
    """Return whether who asks has proved who he is, without a token. ``KafkaApis.allowTokenRequests``."""
    if context.by_token or context.security_protocol is SecurityProtocol.PLAINTEXT:
        return False
    return not (context.security_protocol is SecurityProtocol.SSL and context.principal == ANONYMOUS)


def _api(
    key: int, name: str, highest: int, handle: Callable[[_Core, Request], Reply], needs: Needs
) -> Api[_Core]:
    return Api(
        key=key,
        name=name,
        lowest=0,
        highest=highest,
        flexible_from=2,
        handle=handle,
        # A change waits for ZooKeeper.
        locks_core=False,
        needs=needs,
    )


APIS: Final[tuple[Api[_Core], ...]] = (
    _api(38, "CreateDelegationToken", 3, _create, asks(CREATE_TOKENS_USER)),
    _api(39, "RenewDelegationToken", 2, _renew, NOTHING),
    _api(40, "ExpireDelegationToken", 2, _expire, NOTHING),
    _api(41, "DescribeDelegationToken", 3, _describe, asks(DESCRIBE_DELEGATION_TOKEN, DESCRIBE_TOKENS_USER)),
)

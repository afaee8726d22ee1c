"""OAUTHBEARER (RFC 7628, KIP-255): one message with a bearer token.

::

    n,[a=<authorization id>],^A auth=Bearer <token>^A [<extension>=<value>^A ...] ^A    ──►
                                                    ◄──     nothing; or {"status":"invalid_token"}
    ^A                                              ──►     the client has read it, and is refused

``OAuthBearerSaslServer`` and ``OAuthBearerClientInitialResponse`` of Kafka 3.9. All extensions are accepted
and left aside, as by Kafka's own validators.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from ctrlchan.server.security.mechanism import InvalidCredentialsError, RefusedError

__all__ = ["BearerToken", "InvalidTokenError", "OAuthBearer", "ValidateToken", "milliseconds"]

_ACKNOWLEDGED: Final = b"\1"
#: Of a token, since 1970: an int64 has its milliseconds.
_MAX_EXPIRY_SECONDS: Final = 2**53
#: So much of a name is repeated to the peer.
_NAME_IN_TEXT: Final = 255
_NAME: Final = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_MESSAGE: Final = re.compile(
    rf"n,(?:a=(?P<authorization>{_NAME}))?,\1_(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\1_)*)\1_".replace(
        r"\1_", r"\x01"
    )
)
_AUTH: Final = re.compile(r"(?P<scheme>\w+) +(?P<token>[-_~+/.a-zA-Z0-9]+=*)", re.ASCII)


class BearerToken(NamedTuple):
    """A token that is valid. ``expires_ms``: milliseconds since 1970."""

    principal: str
    expires_ms: int


def milliseconds(seconds: float) -> int:
    """Return when a token expires. One that lasts longer than a session can lasts for its longest time."""
    return round(min(seconds, _MAX_EXPIRY_SECONDS) * 1000)


class InvalidTokenError(Exception):
    """The token is not valid. The text says why, without the token; ``missing_scope``: the scope it needs."""

    def __init__(self, reason: str, missing_scope: str | None = None) -> None:
        super().__init__(reason)
        self.missing_scope = missing_scope


#: Token → who has it. Raises InvalidTokenError. Called on handler threads: it must not wait.
ValidateToken: TypeAlias = Callable[[str], BearerToken]


class OAuthBearer:
    """A ``Mechanism``."""

    by_token = False

    def __init__(self, validate: ValidateToken) -> None:
        self.complete = False
        self.username = ""
        self.expires_ms: int | None = None
        self._validate = validate
        # What the peer was answered, and why: the next message must be that it has read it.
        self._refusal: str | None = None

    def receive(self, token: bytes) -> bytes:
        refusal, self._refusal = self._refusal, None
        if refusal is not None and token == _ACKNOWLEDGED:
            raise RefusedError(refusal)
        authorization, bearer = _parse(token)
        try:
            found = self._validate(bearer)
        except InvalidTokenError as invalid:
            self._refusal = _status(invalid.missing_scope)
            return self._refusal.encode()
        if authorization not in ("", found.principal):
            raise RefusedError(
                "Authentication failed: Client requested an authorization id "
                f"({authorization[:_NAME_IN_TEXT]}) that is different from the token's principal name "
                f"({found.principal[:_NAME_IN_TEXT]})"
            )
        self.username, self.expires_ms, self.complete = found.principal, found.expires_ms, True
        return b""


def _status(missing_scope: str | None) -> str:
    if missing_scope is None:
        return '{"status":"invalid_token"}'
    return f'{{"status":"insufficient_scope", "scope":"{missing_scope}"}}'


def _parse(message: bytes) -> tuple[str, str]:
    """Return the authorization id and the token of a client's first message."""
    match = _MESSAGE.fullmatch(message.decode("latin-1"))
    if match is None:
        raise InvalidCredentialsError("a first message of another form")
    pairs = [pair.partition("=") for pair in match["pairs"].split("\1") if pair]
    auth = next((value for name, _, value in pairs if name == "auth"), None)
    if auth is None:
        raise InvalidCredentialsError("a first message without a token")
    parts = _AUTH.fullmatch(auth)
    if parts is None or parts["scheme"].lower() != "bearer":
        raise InvalidCredentialsError("a token that is not of the scheme bearer")
    return match["authorization"] or "", parts["token"]

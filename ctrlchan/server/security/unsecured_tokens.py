"""Bearer tokens that nobody has signed, for tests and development: JWS of algorithm ``none`` (RFC 7515).

``OAuthBearerUnsecuredValidatorCallbackHandler``, ``OAuthBearerUnsecuredJws`` and
``OAuthBearerValidationUtils`` of Kafka 3.9. Base64 may be of either alphabet.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple, NoReturn

from ctrlchan.config.values import parse_int
from ctrlchan.server.security.oauthbearer import BearerToken, InvalidTokenError, milliseconds

__all__ = ["UnsecuredTokens"]

_PREFIX: Final = "unsecuredValidator"
_URL_ALPHABET: Final = str.maketrans("-_", "+/")


class _Options(NamedTuple):
    """Of the login module: ``unsecuredValidator…``."""

    principal_claim: str
    scope_claim: str
    required_scope: list[str]
    clock_skew_ms: int


class UnsecuredTokens:
    """Validates unsecured tokens: call it with a token.

    ``options``: of the login module. ``now_ms``: the clock, milliseconds since 1970. Raises ConfigError for
    an option that cannot work.
    """

    def __init__(self, options: Mapping[str, str], now_ms: Callable[[], int]) -> None:
        self._options = _parse_options(options)
        self._now_ms = now_ms

    def __call__(self, token: str) -> BearerToken:
        """Return who has the token. Raises InvalidTokenError."""
        options, now = self._options, self._now_ms()
        claims = _claims(token)
        principal = claims.get(options.principal_claim)
        if not isinstance(principal, str) or not principal.strip():
            _refuse(f"claim {options.principal_claim} names nobody")
        expires, issued = _time(claims, "exp"), _time(claims, "iat")
        if expires is None:
            _refuse("it has no claim exp")
        if issued is not None and 1000 * issued > now + options.clock_skew_ms:
            _refuse("it is issued in the future")
        if now - options.clock_skew_ms >= 1000 * expires:
            _refuse("it has expired")
        if issued is not None and expires <= issued:
            _refuse("it expires before it is issued")
        scope = _scope(claims.get(options.scope_claim))
        if any(wanted not in scope for wanted in options.required_scope):
            raise InvalidTokenError("its scope is too small", f"[{', '.join(options.required_scope)}]")
        return BearerToken(principal, milliseconds(expires))


def _parse_options(options: Mapping[str, str]) -> _Options:
    def option(name: str, default: str) -> str:
        return options.get(_PREFIX + name, "").strip() or default

    name = f"{_PREFIX}AllowableClockSkewMs"
    skew = parse_int(name, option("AllowableClockSkewMs", "0"), 0, None)
    return _Options(
        option("PrincipalClaimName", "sub"),
        option("ScopeClaimName", "scope"),
        option("RequiredScope", "").split(),
        skew,
    )


def _claims(token: str) -> dict[str, Any]:
    parts = token.split(".")
    if len(parts) != 3 or not parts[0] or not parts[1]:
        _refuse("it has not three parts")
    header, claims = _json(parts[0]), _json(parts[1])
    if header.get("alg") != "none":
        _refuse("its algorithm is not none")
    if parts[2]:
        _refuse("it is signed")
    return claims


def _json(part: str) -> dict[str, Any]:
    """Return the JSON object of a part of a token."""
    try:
        data = base64.b64decode(part.translate(_URL_ALPHABET) + "=" * (-len(part) % 4), validate=True)
        found = json.loads(data.decode(), parse_constant=_refuse)
    except (binascii.Error, ValueError, RecursionError):
        _refuse("it is not Base64 of JSON")
    if not isinstance(found, dict):
        _refuse("a part of it is no JSON object")
    return found


def _time(claims: Mapping[str, Any], name: str) -> float | None:
    """Return the seconds of a claim."""
    value = claims.get(name)
    if value is None:
        return None
    # A number with more than 308 digits is an OverflowError.
    with suppress(OverflowError):
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            return float(value)
    raise InvalidTokenError(f"claim {name} is not a number")


def _scope(claim: Any) -> set[str]:
    if isinstance(claim, str):
        claim = [claim]
    if claim is None:
        return set()
    if not isinstance(claim, list):
        _refuse("its scope is neither a text nor a list")
    return {one.strip() for one in claim if isinstance(one, str) and one.strip()}


def _refuse(reason: str) -> NoReturn:
    raise InvalidTokenError(reason)

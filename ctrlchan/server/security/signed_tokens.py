"""Bearer tokens that are signed JWTs (RFC 7519), checked with the public keys of a JWKS.

``ValidatorAccessTokenValidator`` of Kafka 3.9; PyJWT does the cryptography.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from typing import Any, Final

from ctrlchan.errors import ConfigError
from ctrlchan.security.token_settings import SignedTokenSettings
from ctrlchan.server.security.jwks import Keys
from ctrlchan.server.security.oauthbearer import BearerToken, InvalidTokenError, milliseconds

__all__ = ["SignedTokens"]

#: The algorithms of a key, by its type. Those without a public key, and ``none``, are never accepted.
_ALGORITHMS: Final[Mapping[str, tuple[str, ...]]] = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "EC": ("ES256", "ES384", "ES512"),
    "OKP": ("EdDSA",),
}
#: Of keys that are tried for a token that names none.
_MOST_KEYS: Final = 16


class SignedTokens:
    """Validates signed tokens: call it with a token. Raises ConfigError where PyJWT is missing."""

    def __init__(self, settings: SignedTokenSettings, keys: Keys) -> None:
        if find_spec("jwt") is None or find_spec("cryptography") is None:
            raise ConfigError("signed tokens of OAUTHBEARER need PyJWT: pip install 'ctrlchan[oauth]'")
        self._settings = settings
        self._keys = keys

    def __call__(self, token: str) -> BearerToken:
        """Return who has the token. Raises InvalidTokenError."""
        import jwt

        try:
            claims = self._claims(token)
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError) as problem:
            # These texts repeat nothing of the token.
            raise InvalidTokenError(str(problem) or type(problem).__name__) from None
        principal, expires = claims.get(self._settings.subject_claim), claims["exp"]
        if not isinstance(principal, str) or not principal.strip():
            raise InvalidTokenError(f"claim {self._settings.subject_claim} names nobody")
        if not isinstance(expires, int | float) or not math.isfinite(expires) or expires < 0:
            raise InvalidTokenError("claim exp is not a number")
        return BearerToken(principal.strip(), milliseconds(expires))

    def _claims(self, token: str) -> dict[str, Any]:
        """Return the claims of a token that one of the keys has signed."""
        import jwt

        header = jwt.get_unverified_header(token)
        kid, algorithm = header.get("kid"), header.get("alg")
        keys = _suitable(self._keys.current(), kid, algorithm)
        if not keys:
            self._keys.missed()
            keys = _suitable(self._keys.current(), kid, algorithm)
        problem: jwt.PyJWTError = jwt.InvalidKeyError("its key is not known")
        for key in keys:
            try:
                return self._decoded(token, key, str(algorithm))
            except jwt.InvalidSignatureError as error:
                problem = error
        raise problem

    def _decoded(self, token: str, key: Mapping[str, Any], algorithm: str) -> dict[str, Any]:
        import jwt

        settings = self._settings
        return jwt.decode(
            token,
            jwt.PyJWK(dict(key), algorithm=algorithm).key,
            algorithms=[algorithm],
            # A token for an audience is refused where none is expected.
            audience=settings.audience or None,
            issuer=settings.issuer,
            leeway=settings.clock_skew_seconds,
            options={"require": ["exp", "iat"]},
        )


def _suitable(keys: Iterable[Mapping[str, Any]], kid: object, algorithm: object) -> list[Mapping[str, Any]]:
    """Return the keys that may have signed a token; a key that names an algorithm has no other."""
    return [
        key
        for key in keys
        if (kid is None or key.get("kid") == kid)
        and algorithm in _ALGORITHMS.get(str(key.get("kty")), ())
        and key.get("alg", algorithm) == algorithm
    ][:_MOST_KEYS]

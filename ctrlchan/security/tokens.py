"""Tokens for OAUTHBEARER: from an identity provider, from a file, or unsecured ones of our own.

Source: ``OAuthBearerUnsecuredLoginCallbackHandler``, ``HttpAccessTokenRetriever``, ``FileTokenRetriever`` and
``ExpiringCredentialRefreshingLogin`` of Kafka 3.9; RFC 6749 (client credentials), RFC 7519 (JWT).
"""

from __future__ import annotations

import json
import logging
import threading
from base64 import b64encode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from dataclasses import replace
from time import monotonic_ns, time
from typing import Any, Final, NamedTuple

from ctrlchan.config import table
from ctrlchan.rate_limit import LogRateLimit
from ctrlchan.security.failure import ConnectionFailed, Failure
from ctrlchan.security.settings import SaslSettings, TlsSettings, TokenSettings

__all__ = ["Token", "TokenSource", "fetch_token", "token_settings", "unsecured_token"]

_LOG: Final = logging.getLogger(__name__)

#: A token is replaced after this part of its time (``sasl.login.refresh.window.factor``).
_USED_PART: Final = 0.8
#: Seconds that an identity provider has, and the largest answer in bytes.
_TIMEOUT: Final = 10.0
_LARGEST_ANSWER: Final = 2**20
_LARGEST_REASON: Final = 200


class Token(NamedTuple):
    """A token, and the seconds since 1970 at which it expires. The text is secret."""

    text: str
    expires: float

    def __repr__(self) -> str:
        return f"Token(expires={self.expires:.0f})"


class TokenSource:
    """Gives settings with a token that is valid: the one before, or a new one. Threads may share it."""

    def __init__(self, sasl: SaslSettings, clock: Callable[[], float] = time) -> None:
        self._sasl = sasl
        self._clock = clock
        self._lock = threading.Lock()
        self._token: Token | None = None
        self._problems = LogRateLimit()
        #: Seconds since 1970 from which on the next call takes a new token.
        self.replaced_from = 0.0

    def current(self) -> SaslSettings:
        """Return the settings with a token. Raises ConnectionFailed if there is none.

        When a new one cannot be had, a warning says why, and the one before is used for as long as it is
        valid.
        """
        settings = self._sasl.tokens
        if settings is None:
            return self._sasl
        with self._lock:
            now = self._clock()
            if self._token is None or now >= self.replaced_from:
                try:
                    self._token = fetch_token(settings, now)
                except (OSError, ValueError) as problem:
                    if self._token is None or now >= self._token.expires:
                        raise ConnectionFailed(Failure.CREDENTIALS, f"no token: {problem}") from None
                    left_out = self._problems.admit(0, monotonic_ns())
                    if left_out is not None:
                        _LOG.warning(
                            "no new token for the brokers; the one before is still valid: %s%s",
                            problem,
                            left_out,
                        )
                else:
                    self.replaced_from = now + _USED_PART * (self._token.expires - now)
            return replace(self._sasl, token=self._token.text)


def fetch_token(settings: TokenSettings, now: float) -> Token:
    """Return a new token. ``now``: seconds since 1970. Raises OSError, ValueError."""
    if settings.endpoint is None:
        return unsecured_token(settings.claims, settings.lifetime, now)
    if settings.endpoint.startswith("file:"):
        from urllib.parse import unquote, urlsplit

        with open(unquote(urlsplit(settings.endpoint).path), encoding="utf-8") as file:
            return _token_of(file.read().strip(), None, now)
    return _ask(settings, now)


def unsecured_token(claims: Mapping[str, Any], lifetime: float, now: float) -> Token:
    """Return a token without a signature (RFC 7519, algorithm "none")."""
    all_claims = {**claims, "iat": now, "exp": now + lifetime}
    parts = [json.dumps(part, separators=(",", ":")).encode() for part in ({"alg": "none"}, all_claims)]
    text = ".".join(urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)
    return Token(f"{text}.", now + lifetime)


def token_settings(options: Mapping[str, str], endpoint: str | None) -> tuple[TokenSettings, dict[str, str]]:
    """Return (the settings, the extensions) that options of ``OAuthBearerLoginModule`` have.

    ``endpoint``: ``sasl.oauthbearer.token.endpoint.url``. Raises ConfigError, ValueError.
    """
    if endpoint is not None:
        extensions = {
            name.removeprefix("extension_"): value
            for name, value in options.items()
            if name.startswith("extension_")
        }
        settings = TokenSettings(
            endpoint=endpoint,
            client_id=options.get("clientId", ""),
            client_secret=options.get("clientSecret", ""),
            scope=options.get("scope"),
            ca_file=options.get(table.SSL_TRUSTSTORE_LOCATION.name),
            truststore_password=options.get(table.SSL_TRUSTSTORE_PASSWORD.name),
        )
        return settings, extensions
    claims: dict[str, Any] = {}
    extensions = {}
    lifetime = 3600
    for option, value in options.items():
        kind, _, name = option.partition("_")
        if kind == "unsecuredLoginStringClaim":
            claims[name] = value
        elif kind == "unsecuredLoginNumberClaim":
            claims[name] = _number(option, value)
        elif kind == "unsecuredLoginListClaim":
            # The first character separates the others.
            claims[name] = value[1:].split(value[0]) if value else []
        elif kind == "unsecuredLoginExtension":
            extensions[name] = value
        elif option == "unsecuredLoginLifetimeSeconds":
            lifetime = int(_number(option, value))
    principal = options.get("unsecuredLoginPrincipalClaimName", "sub")
    if principal != "sub" and principal in claims:
        claims.setdefault("sub", claims[principal])
    return TokenSettings(claims=claims, lifetime=lifetime), extensions


def _number(option: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise ValueError(f"{option}: it is no number") from None


def _ask(settings: TokenSettings, now: float) -> Token:
    """Ask the identity provider for a token. Raises OSError, ValueError."""
    # Imported here: few clients have a token endpoint, and these modules are large.
    from http.client import HTTPException
    from urllib.error import HTTPError
    from urllib.parse import urlencode
    from urllib.request import Request, urlopen

    from ctrlchan.security.tls_context import context_of

    assert settings.endpoint is not None
    fields = {"grant_type": "client_credentials"}
    if settings.scope:
        fields["scope"] = settings.scope
    login = b64encode(f"{settings.client_id}:{settings.client_secret}".encode()).decode()
    headers = {
        "Accept": "application/json",
        "Authorization": f"Basic {login}",
        "Content-Type": "application/x-www-form-urlencoded",
    }
    context = None
    if settings.endpoint.startswith("https:"):
        context = context_of(
            TlsSettings(ca_file=settings.ca_file, truststore_password=settings.truststore_password)
        )
    request = Request(settings.endpoint, urlencode(fields).encode(), headers)
    try:
        with urlopen(request, timeout=_TIMEOUT, context=context) as response:
            data = response.read(_LARGEST_ANSWER)
    except HTTPError as problem:
        with problem:
            reason = _printable(problem.read(_LARGEST_REASON).decode(errors="replace"), settings)
        raise ValueError(f"{settings.endpoint} answers with status {problem.code}: {reason}") from None
    except (HTTPException, OSError) as problem:
        raise OSError(f"{settings.endpoint}: {getattr(problem, 'reason', problem)}") from None
    try:
        answer = json.loads(data)
        text, seconds = answer["access_token"], answer.get("expires_in")
    except (ValueError, TypeError, KeyError, AttributeError):
        raise ValueError(f"{settings.endpoint} answers without an access_token") from None
    return _token_of(str(text), seconds, now)


def _token_of(text: str, seconds: Any, now: float) -> Token:
    """Return a token with its time: that of its claims, else ``seconds`` from now. Raises ValueError."""
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError("the token has characters that no token has")
    expires = None if seconds is None else now + float(seconds)
    parts = text.split(".")
    if len(parts) == 3:
        try:
            claims = json.loads(urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
            expires = float(claims["exp"])
        except (ValueError, TypeError, KeyError):
            pass
    if expires is None:
        raise ValueError("the token does not say when it expires")
    if expires <= now:
        raise ValueError("the token has expired")
    return Token(text, expires)


def _printable(text: str, settings: TokenSettings) -> str:
    text = text.replace(settings.client_secret, "********")
    return "".join(character if character.isprintable() else " " for character in text)

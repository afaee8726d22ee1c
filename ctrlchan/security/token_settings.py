"""How a listener validates tokens of OAUTHBEARER that somebody has signed (``sasl.oauthbearer.*``)."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SignedTokenSettings"]


@dataclass(frozen=True, kw_only=True)
class SignedTokenSettings:
    """Kafka's settings of the same names; ``audience`` empty and ``issuer`` None: not checked.

    ``jwks_url``: a ``file:`` URL, or where to ask for the keys.
    """

    jwks_url: str
    refresh_ms: int = 3_600_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 10_000
    clock_skew_seconds: int = 30
    audience: tuple[str, ...] = ()
    issuer: str | None = None
    subject_claim: str = "sub"

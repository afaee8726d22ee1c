"""What SCRAM asks about delegation tokens."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from ctrlchan.server.security.scram_credentials import ScramCredential

__all__ = ["TokenLogin", "TokenLogins"]


class TokenLogin(NamedTuple):
    """A token that somebody may log in with. ``owner``: the name of the user whose session it will be.

    ``expires_ms``: milliseconds since 1970.
    """

    owner: str
    expires_ms: int


class TokenLogins(Protocol):
    """The tokens that there are. The methods are called on handler threads, and wait for nothing."""

    def login(self, token_id: str) -> TokenLogin | None:
        """Return a token, or None if there is none of this id."""

    def credential(self, mechanism: str, token_id: str) -> ScramCredential:
        """Return the credential of a token. The first time takes milliseconds."""

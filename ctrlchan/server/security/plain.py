"""PLAIN (RFC 4616): ``[authorization id] NUL username NUL password``. ``PlainSaslServer`` of Kafka 3.9."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from hmac import compare_digest
from typing import Final, TypeAlias

from ctrlchan.server.security.mechanism import RefusedError

__all__ = ["FindPassword", "Plain"]

#: User name → password, or None if there is no such user.
FindPassword: TypeAlias = Callable[[str], str | None]

#: More are counted as one more.
_MOST_PARTS: Final = 3


class Plain:
    """A ``Mechanism``. An unknown user and a wrong password get the same answer, after the same work."""

    expires_ms = None
    by_token = False

    def __init__(self, find_password: FindPassword) -> None:
        self.complete = False
        self.username = ""
        self._find_password = find_password

    def receive(self, token: bytes) -> bytes:
        parts = token.decode(errors="replace").split("\0", _MOST_PARTS)
        if len(parts) != _MOST_PARTS:
            raise RefusedError(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
        authorization_id, username, password = parts
        if not username:
            raise RefusedError("Authentication failed: username not specified")
        if not password:
            raise RefusedError("Authentication failed: password not specified")
        expected = self._find_password(username)
        if not _are_equal(expected or "", password) or expected is None:
            raise RefusedError("Authentication failed: Invalid username or password")
        if authorization_id not in ("", username):
            raise RefusedError(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self.username, self.complete = username, True
        return b""


def _are_equal(one: str, other: str) -> bool:
    """Return whether two texts are equal; the time says nothing of them, nor of their length."""
    return compare_digest(sha256(one.encode()).digest(), sha256(other.encode()).digest())

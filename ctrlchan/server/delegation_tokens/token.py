"""A delegation token, and its HMAC: the password of who logs in with it.

``TokenInformation`` and ``DelegationTokenManager.createHmac`` of Kafka 3.9.
"""

from __future__ import annotations

import hmac
from collections.abc import Set
from typing import NamedTuple

from ctrlchan.server.request_context import Principal
from ctrlchan.zookeeper import nodes

__all__ = ["Token", "hmac_of", "token_of_node"]


class Token(NamedTuple):
    """A token without its HMAC. ``requester``: who has asked for it. Times: milliseconds since 1970."""

    token_id: str
    owner: Principal
    requester: Principal
    renewers: tuple[Principal, ...]
    issued_ms: int
    expires_ms: int
    max_ms: int

    def belongs_to(self, principals: Set[Principal]) -> bool:
        """Return whether one of them is shown the token without any ACL."""
        return not principals.isdisjoint((self.owner, self.requester, *self.renewers))

    def may_be_renewed_by(self, principal: Principal) -> bool:
        """Return whether somebody may renew the token, and end it."""
        return principal == self.owner or principal in self.renewers

    def has_expired(self, now_ms: int) -> bool:
        """Return whether the token's time is over."""
        return self.expires_ms < now_ms or self.max_ms < now_ms

    def to_node(self) -> nodes.DelegationToken:
        """Return the token as its node has it."""
        return nodes.DelegationToken(
            self.token_id,
            str(self.owner),
            str(self.requester),
            tuple(map(str, self.renewers)),
            self.issued_ms,
            self.expires_ms,
            self.max_ms,
        )


def token_of_node(node: nodes.DelegationToken) -> Token:
    """Return the token that a node has."""
    return Token(
        node.token_id,
        _principal(node.owner),
        _principal(node.requester),
        tuple(map(_principal, node.renewers)),
        node.issued_ms,
        node.expires_ms,
        node.max_ms,
    )


def _principal(text: str) -> Principal:
    kind, _, name = text.partition(":")
    return Principal(kind, name)


def hmac_of(secret_key: str, token_id: str) -> bytes:
    """Return the HMAC of a token (HMAC-SHA-512). It is as secret as the key."""
    return hmac.digest(secret_key.encode(), token_id.encode(), "sha512")

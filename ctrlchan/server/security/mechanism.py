"""What all SASL mechanisms of a server have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

from ctrlchan.errors import ProtocolError
from ctrlchan.server.api import Buffers

__all__ = [
    "MECHANISMS",
    "AuthenticationFailed",
    "InvalidCredentialsError",
    "Mechanism",
    "NewMechanism",
    "RefusedError",
    "TryAgainError",
]

#: In the order in which Kafka lists them: that of a java.util.HashSet.
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-512", "GSSAPI", "SCRAM-SHA-256", "OAUTHBEARER")


class AuthenticationFailed(ProtocolError):
    """The peer did not prove who it is. ``response`` is sent before the connection is closed."""

    def __init__(self, reason: str, response: Buffers = ()) -> None:
        super().__init__(reason)
        self.response = response


class RefusedError(Exception):
    """The peer is not authenticated. The text is for the peer, too (``SaslAuthenticationException``)."""


class InvalidCredentialsError(Exception):
    """The peer is not authenticated. The text is for the log alone (``SaslException``).

    It holds no secret.
    """


class TryAgainError(Exception):
    """The peer is not authenticated, but may be the next time: it is disconnected without an answer."""


class Mechanism(Protocol):
    """One exchange of tokens with one peer; the other attributes count once it is ``complete``."""

    @property
    def complete(self) -> bool: ...
    @property
    def username(self) -> str:
        """The name of the peer."""

    @property
    def expires_ms(self) -> int | None:
        """When the peer's credential expires, in milliseconds since 1970; None if it does not."""

    @property
    def by_token(self) -> bool:
        """Whether the credential is a delegation token."""

    def receive(self, token: bytes) -> bytes | None:
        """Return the answer to a token, or None if the peer waits for none.

        Raises RefusedError, InvalidCredentialsError, TryAgainError.
        """


#: Begins an exchange with a new peer.
NewMechanism: TypeAlias = Callable[[], Mechanism]

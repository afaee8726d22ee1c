"""What a server keeps of a user's password for SCRAM, and its form in ZooKeeper.

A user's config has one entry for each mechanism: ``salt=…,stored_key=…,server_key=…,iterations=4096``, the
bytes as Base64. Source: ``ScramCredentialUtils`` and ``ScramFormatter`` (Kafka 3.9), RFC 5802.
"""

from __future__ import annotations

import base64
from typing import Final, NamedTuple

from ctrlchan.errors import MalformedError
from ctrlchan.security.scram import MIN_ITERATIONS, keys_of, salted
from ctrlchan.text import parse_number

__all__ = [
    "ScramCredential",
    "credential_from_text",
    "credential_of_password",
    "credential_of_salted_password",
    "credential_to_text",
]

_MAX_INT32: Final = 2**31 - 1


class ScramCredential(NamedTuple):
    """What a server keeps of a password (RFC 5802). The keys are bytes of the mechanism's hash size."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        """Return a text without the keys, by which a server or a client could be imitated."""
        return f"ScramCredential(iterations={self.iterations})"


def credential_from_text(text: str) -> ScramCredential:
    """Return the credential that a user's config holds. Raises ValueError for a text of another form."""
    fields = dict(part.partition("=")[::2] for part in text.split(","))
    try:
        salt, stored_key, server_key = (
            base64.b64decode(fields[name], validate=True) for name in ("salt", "stored_key", "server_key")
        )
        return ScramCredential(salt, stored_key, server_key, _iterations(fields["iterations"]))
    except (KeyError, ValueError, MalformedError):
        # The text is a secret: it is not repeated.
        raise ValueError("not a SCRAM credential (salt=…,stored_key=…,server_key=…,iterations=…)") from None


def _iterations(text: str) -> int:
    number = parse_number("iterations", text)
    if not 0 < number <= _MAX_INT32:
        raise ValueError
    return number


def credential_to_text(credential: ScramCredential) -> str:
    """Return the credential as a user's config holds it."""
    salt, stored_key, server_key = (base64.b64encode(part).decode() for part in credential[:3])
    return f"salt={salt},stored_key={stored_key},server_key={server_key},iterations={credential.iterations}"


def credential_of_salted_password(
    mechanism: str, salted_password: bytes, salt: bytes, iterations: int
) -> ScramCredential:
    """Return what a server keeps of a password, of which PBKDF2 is done already."""
    keys = keys_of(mechanism, salted_password)
    return ScramCredential(salt, keys.stored, keys.server, iterations)


def credential_of_password(
    mechanism: str, password: str, salt: bytes, iterations: int = MIN_ITERATIONS
) -> ScramCredential:
    """Return what a server keeps of a password; takes milliseconds."""
    salted_password = salted(mechanism, password, salt, iterations)
    return credential_of_salted_password(mechanism, salted_password, salt, iterations)

"""SCRAM (RFC 5802): what both sides make of a password. Passwords are taken as they are, as Kafka does."""

from __future__ import annotations

import hashlib
import hmac
from typing import Final, NamedTuple

__all__ = ["HASHES", "MIN_ITERATIONS", "ScramKeys", "keys_of", "salted"]

#: The hash function of each mechanism.
HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
#: ``ScramMechanism.minIterations``.
MIN_ITERATIONS: Final = 4_096


class ScramKeys(NamedTuple):
    """``client``: only the client has it; a server keeps ``stored``, its hash, and ``server``."""

    client: bytes
    stored: bytes
    server: bytes

    def __repr__(self) -> str:
        """Return a text without the keys."""
        return "ScramKeys()"


def salted(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """Return the SaltedPassword (PBKDF2); takes milliseconds."""
    return hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)


def keys_of(mechanism: str, salted_password: bytes) -> ScramKeys:
    """Return the keys that are made of a SaltedPassword."""
    name = HASHES[mechanism]
    client = hmac.digest(salted_password, b"Client Key", name)
    stored = hashlib.new(name, client).digest()
    return ScramKeys(client, stored, hmac.digest(salted_password, b"Server Key", name))

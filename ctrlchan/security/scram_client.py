"""SCRAM (RFC 5802, RFC 7677), the client's side: both sides prove that they have the password.

::

    n,,n=<user>,r=<nonce>                   ──►
                                            ◄──     r=<nonce><broker's nonce>,s=<salt>,i=<iterations>
    c=biws,r=<both nonces>,p=<proof>        ──►
                                            ◄──     v=<signature>

Passwords and names are taken as they are (no SASLprep), as Kafka does. With a delegation token our first
message ends with ``,tokenauth=true``. ``ScramSaslClient`` of Kafka 3.9.
"""

from __future__ import annotations

import binascii
import hmac
import secrets
from base64 import b64decode, b64encode
from typing import Final

from ctrlchan.security.scram import HASHES, MIN_ITERATIONS, keys_of, salted

__all__ = ["ScramClient", "ScramError"]

#: Kafka makes no user with fewer, and none with more than 16,384: a peer that asks for more wants to keep
#: this process busy, one that asks for fewer wants to guess the password.
_ITERATIONS: Final = (MIN_ITERATIONS, 131_072)
_NONCE_BYTES: Final = 24


class ScramError(Exception):
    """The broker does not follow SCRAM, refuses us, or does not have the password."""


class ScramClient:
    """One exchange. ``answer`` takes the broker's first message, ``check`` its last.

    Both raise ScramError. ``tokenauth``: user and password are those of a delegation token.
    """

    def __init__(
        self,
        mechanism: str,
        username: str,
        password: str,
        nonce: str | None = None,
        *,
        tokenauth: bool = False,
    ) -> None:
        self._mechanism = mechanism
        self._hash = HASHES[mechanism]
        self._password = password
        self._nonce = secrets.token_urlsafe(_NONCE_BYTES) if nonce is None else nonce
        name = username.replace("=", "=3D").replace(",", "=2C")
        self._first = f"n={name},r={self._nonce}{',tokenauth=true' if tokenauth else ''}"
        self._signature = b""

    @property
    def first(self) -> str:
        """Our first message."""
        return f"n,,{self._first}"

    def answer(self, message: str) -> str:
        """Return our last message, with our proof."""
        fields = _fields(message)
        nonce, salt = fields.get("r", ""), _bytes(fields.get("s", ""))
        if not (nonce.startswith(self._nonce) and len(nonce) > len(self._nonce)):
            raise ScramError("the broker's nonce does not begin with ours")
        if not salt:
            raise ScramError("the broker sends no salt")
        salted_password = salted(self._mechanism, self._password, salt, _iterations(fields.get("i", "")))
        keys = keys_of(self._mechanism, salted_password)
        without_proof = f"c=biws,r={nonce}"
        messages = f"{self._first},{message},{without_proof}".encode()
        mask = hmac.digest(keys.stored, messages, self._hash)
        proof = bytes(one ^ other for one, other in zip(keys.client, mask, strict=True))
        self._signature = hmac.digest(keys.server, messages, self._hash)
        return f"{without_proof},p={b64encode(proof).decode()}"

    def check(self, message: str) -> None:
        """Check that the broker has the password, too."""
        fields = _fields(message)
        if "e" in fields:
            raise ScramError(fields["e"])
        if not hmac.compare_digest(_bytes(fields.get("v", "")), self._signature):
            raise ScramError("the broker does not prove that it has the password")


def _fields(message: str) -> dict[str, str]:
    """Return the values of a message by the letter before them."""
    found = {part[:1]: part[2:] for part in message.split(",") if part[1:2] == "="}
    if "m" in found:
        raise ScramError("the broker wants an extension of SCRAM")
    return found


def _bytes(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ScramError("the broker's message has no Base64 where it needs it") from None


def _iterations(text: str) -> int:
    """Return a number of iterations that is allowed."""
    least, most = _ITERATIONS
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and least <= int(text) <= most):
        raise ScramError(f"the broker asks for a number of SCRAM iterations not in {least} to {most}")
    return int(text)

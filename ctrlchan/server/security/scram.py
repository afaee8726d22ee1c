"""SCRAM (RFC 5802): two messages from each side; both prove that they know the password.

::

    n,[a=<authorization id>],n=<user>,r=<nonce>     ──►
                                                    ◄──     r=<nonce><server's nonce>,s=<salt>,i=<iterations>
    c=biws,r=<nonce><server's nonce>,p=<proof>      ──►
                                                    ◄──     v=<signature>

Passwords and names are taken as they are (no SASLprep), as Kafka does, which scramp cannot. The proof is
checked over the bytes that were sent. A user that does not exist gets a first message as any other, and is
refused at the second one: nobody can ask which users there are. With the extension ``tokenauth=true`` the
user is the id of a delegation token, and the peer has the name of its owner (KIP-48). ``ScramSaslServer`` of
Kafka 3.9, KIP-84.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
import re
import secrets
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Final, TypeAlias

from ctrlchan.security.scram import HASHES, MIN_ITERATIONS
from ctrlchan.server.security.mechanism import InvalidCredentialsError, RefusedError
from ctrlchan.server.security.scram_credentials import ScramCredential
from ctrlchan.server.security.token_logins import TokenLogins

__all__ = ["FindCredential", "Scram"]

_NAME: Final = r"(?:[^\0=,]|=2C|=3D)+"
_CLIENT_FIRST: Final = re.compile(
    rf"(?P<header>n,(?:a=(?P<authorization>{_NAME}))?,)"
    rf"(?P<bare>n=(?P<user>{_NAME}),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?P<extensions>(?:,[A-Za-z]+=[^\0,]+)*))"
)
_CLIENT_FINAL: Final = re.compile(
    r"(?P<before_proof>c=(?P<header>[A-Za-z0-9/+=]+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)"
    r"(?:,[A-Za-z]+=[^\0,]+)*),p=(?P<proof>[A-Za-z0-9/+=]+)"
)
#: The extension by which the user is the id of a delegation token (``ScramLoginModule.TOKEN_AUTH_CONFIG``).
_TOKEN_AUTH: Final = "tokenauth"
_NONCE_BYTES: Final = 24
_SALT_BYTES: Final = 20
#: Makes the salt of a user who does not exist: the same for each attempt, and as random as any other.
_FAKE_SALT_KEY: Final = secrets.token_bytes(32)


#: User name → credential, or None if there is no such user.
FindCredential: TypeAlias = Callable[[str], ScramCredential | None]


class Scram:
    """A ``Mechanism``. An unknown user and a wrong password get the same answers, after the same work.

    ``tokens``: the delegation tokens, or None if there are none.
    """

    def __init__(
        self, mechanism: str, find_credential: FindCredential, tokens: TokenLogins | None = None
    ) -> None:
        self.complete = False
        self.username = ""
        self.expires_ms: int | None = None
        self.by_token = False
        self._tokens = tokens
        self._hash = HASHES[mechanism]
        self._mechanism = mechanism
        self._find_credential = find_credential
        self._is_known = False
        self._credential: ScramCredential | None = None
        self._header = ""
        self._nonce = ""
        #: What the proof is about, so far.
        self._messages = ""

    def receive(self, token: bytes) -> bytes:
        try:
            message = token.decode()
        except UnicodeDecodeError:
            raise InvalidCredentialsError("a message that is not UTF-8") from None
        credential, self._credential = self._credential, None
        return self._first(message) if credential is None else self._final(message, credential)

    def _first(self, message: str) -> bytes:
        match = _CLIENT_FIRST.fullmatch(message)
        if match is None or self._messages:
            raise InvalidCredentialsError("a first message of another form")
        username = _decoded(match["user"])
        self.by_token = _wants_token(match["extensions"])
        found = self._token(username) if self.by_token else self._user(username)
        if match["authorization"] is not None and _decoded(match["authorization"]) != username:
            raise RefusedError(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        credential = found or self._fake_credential(username)
        if credential.iterations < MIN_ITERATIONS:
            raise InvalidCredentialsError(
                f"the credential has {credential.iterations} iterations, less than {MIN_ITERATIONS}"
            )
        self._is_known = found is not None
        self._credential = credential
        self._header = match["header"]
        self._nonce = match["nonce"] + secrets.token_urlsafe(_NONCE_BYTES)
        answer = f"r={self._nonce},s={b64encode(credential.salt).decode()},i={credential.iterations}"
        self._messages = f"{match['bare']},{answer}"
        return answer.encode()

    def _user(self, username: str) -> ScramCredential | None:
        self.username = username
        return self._find_credential(username)

    def _token(self, token_id: str) -> ScramCredential | None:
        login = None if self._tokens is None else self._tokens.login(token_id)
        if login is None or self._tokens is None:
            return None
        self.username, self.expires_ms = login
        return self._tokens.credential(self._mechanism, token_id)

    def _final(self, message: str, credential: ScramCredential) -> bytes:
        match = _CLIENT_FINAL.fullmatch(message)
        if match is None:
            raise InvalidCredentialsError("a final message of another form")
        if not hmac.compare_digest(match["nonce"], self._nonce):
            raise InvalidCredentialsError("a final message with another nonce")
        try:
            header, proof = (
                b64decode(match["header"], validate=True),
                b64decode(match["proof"], validate=True),
            )
        except binascii.Error:
            raise InvalidCredentialsError("a final message that is not Base64") from None
        if header != self._header.encode():
            raise InvalidCredentialsError("a final message with another channel binding")
        text = f"{self._messages},{match['before_proof']}".encode()
        signature = hmac.digest(credential.stored_key, text, self._hash)
        # A proof of another size is none.
        client_key = bytes(one ^ other for one, other in zip(signature, proof, strict=False))
        stored_key = hashlib.new(self._hash, client_key).digest()
        is_equal = hmac.compare_digest(stored_key, credential.stored_key)
        if not is_equal or not self._is_known or len(proof) != len(signature):
            raise InvalidCredentialsError("an unknown user or a wrong password")
        self.complete = True
        return b"v=" + b64encode(hmac.digest(credential.server_key, text, self._hash))

    def _fake_credential(self, username: str) -> ScramCredential:
        salt = hmac.digest(_FAKE_SALT_KEY, f"{self._mechanism} {username}".encode(), "sha256")[:_SALT_BYTES]
        key = bytes(hashlib.new(self._hash).digest_size)
        return ScramCredential(salt, key, key, MIN_ITERATIONS)


def _wants_token(extensions: str) -> bool:
    """Return whether the extensions of a first message say that its user is a token."""
    found = dict(part.partition("=")[::2] for part in extensions.split(","))
    return found.get(_TOKEN_AUTH, "").lower() == "true"


def _decoded(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")

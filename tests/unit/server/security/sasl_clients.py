"""Peers of a SaslServer without sockets: they make its frames and read its answers."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any, Final

from kio.schema.errors import ErrorCode as KioError
from scramp import ScramClient

from ctrlchan.security.scram_client import ScramClient as OwnClient
from ctrlchan.server.api import Buffers
from ctrlchan.server.security.mechanisms import mechanisms
from ctrlchan.server.security.sasl_server import SaslListener, SaslServer
from ctrlchan.server.security.scram_credentials import ScramCredential, credential_of_password
from ctrlchan.server.security.token_logins import TokenLogin
from ctrlchan.server.security.unsecured_tokens import UnsecuredTokens
from tests.unit.broker.local_broker import client_frame, read_client_response

API_VERSIONS, HANDSHAKE, AUTHENTICATE, METADATA = 18, 17, 36, 3
USERS: Final = {"alice": "alice-secret", "bób,=": "p=,wörd"}
ALL: Final = ("SCRAM-SHA-256", "PLAIN", "OAUTHBEARER", "SCRAM-SHA-512")
#: Milliseconds since 1970 of the listener's clock, at first.
NOW: Final = 1_700_000_000_000
_CREDENTIALS: dict[tuple[str, str], ScramCredential] = {}


def find_credential(mechanism: str, username: str) -> ScramCredential | None:
    if username not in USERS:
        return None
    key = mechanism, username
    if key not in _CREDENTIALS:
        _CREDENTIALS[key] = credential_of_password(mechanism, USERS[username], b"0123456789ab")
    return _CREDENTIALS[key]


class Tokens:
    """One delegation token, of alice."""

    def __init__(self, expires_ms: int) -> None:
        self._expires_ms = expires_ms

    def login(self, token_id: str) -> TokenLogin | None:
        return TokenLogin("alice", self._expires_ms) if token_id == "id" else None

    def credential(self, mechanism: str, token_id: str) -> ScramCredential:
        return credential_of_password(mechanism, f"hmac of {token_id}", b"0123456789ab")


class Clock:
    def __init__(self) -> None:
        self.ms = NOW

    def __call__(self) -> int:
        return self.ms


def sasl_listener(
    *names: str,
    max_session_ms: int = 0,
    clock: Clock | None = None,
    options: Mapping[str, str] | None = None,
    tokens: Tokens | None = None,
) -> SaslListener:
    """Return a listener with USERS. ``options``: of the login module of OAUTHBEARER."""
    clock = clock or Clock()
    names = names or ALL
    made = mechanisms(names, USERS.get, find_credential, UnsecuredTokens(options or {}, clock), tokens)
    return SaslListener(made, dict.fromkeys(names, max_session_ms), clock)


def unsecured_token(**claims: Any) -> str:
    """Return a token without a signature; by default of alice, for an hour."""
    claims = {"sub": "alice", "iat": NOW / 1000, "exp": NOW / 1000 + 3600} | claims
    parts = [{"alg": "none"}, {name: value for name, value in claims.items() if value is not None}]
    return ".".join([*(encoded(json.dumps(part)) for part in parts), ""])


def encoded(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def bearer(token: str, authorization: str = "", more: str = "") -> bytes:
    """Return the first message of OAUTHBEARER."""
    name = f"a={authorization}" if authorization else ""
    return f"n,{name},\1auth=Bearer {token}\1{more}\1".encode()


def joined(answer: Buffers | None) -> bytes:
    assert answer is not None
    return b"".join(answer)


class Client:
    """Sends frames to a SaslServer; ``version`` of SaslAuthenticate, None: tokens without a header."""

    def __init__(self, version: int | None, listener: SaslListener | None = None) -> None:
        self.server = SaslServer(listener or sasl_listener())
        self.version = version

    def receive(self, frame: bytes) -> bytes:
        return joined(self.server.receive(memoryview(frame)))

    def handshake(self, mechanism: str) -> Any:
        version = 0 if self.version is None else 1
        frame = client_frame(HANDSHAKE, version, mechanism=mechanism)
        return read_client_response(HANDSHAKE, version, self.receive(frame))

    def token(self, token: bytes) -> bytes:
        if self.version is None:
            return self.receive(token)
        body = self.authenticate(token)
        assert body.error_code == KioError.none
        assert body.error_message is None
        return bytes(body.auth_bytes)

    def authenticate(self, token: bytes) -> Any:
        assert self.version is not None
        frame = client_frame(AUTHENTICATE, self.version, auth_bytes=token)
        return read_client_response(AUTHENTICATE, self.version, self.receive(frame))

    def scram(self, mechanism: str, user: str = "alice", password: str | None = None) -> ScramClient:
        """Go through SCRAM, behind its handshake."""
        client = ScramClient([mechanism], user, USERS.get(user, "") if password is None else password)
        client.set_server_first(self.token(client.get_client_first().encode()).decode())
        client.set_server_final(self.token(client.get_client_final().encode()).decode())
        return client

    def scram_of_token(self, mechanism: str) -> None:
        """Go through SCRAM with the delegation token, by our own client."""
        client = OwnClient(mechanism, "id", "hmac of id", tokenauth=True)
        client.check(self.token(client.answer(self.token(client.first.encode()).decode()).encode()).decode())

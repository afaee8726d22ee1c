"""SASL mechanisms, the client's side: tokens in, tokens out.

PLAIN (RFC 4616), SCRAM (RFC 5802, KIP-84), OAUTHBEARER (RFC 7628, KIP-255), GSSAPI (RFC 4752). The library
of GSSAPI is imported where it is used.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

from ctrlchan.security.settings import GSSAPI, OAUTHBEARER, SaslSettings

__all__ = ["NO_TICKET", "ClientMechanism", "MechanismError", "client_mechanism"]

#: Why a connection with GSSAPI is not ready in time.
NO_TICKET: Final = "there is no Kerberos ticket yet"
#: GSSAPI: no security layer, and no size of its messages.
_NO_LAYER: Final = b"\x01\0\0\0"


class MechanismError(Exception):
    """The broker cannot be trusted, or we cannot authenticate. The message is for people."""


class ClientMechanism(Protocol):
    """One exchange of tokens. Both methods raise MechanismError.

    ``is_over``: the broker needs no more after the token that was returned last, and says nothing more.
    """

    is_over: bool

    def begin(self) -> bytes:
        """Return the first token."""

    def proceed(self, challenge: bytes) -> bytes | None:
        """Return the answer to the broker's token, or None when the exchange is over."""


def client_mechanism(sasl: SaslSettings, host: str) -> ClientMechanism:
    """Return a new exchange with the broker at this host. Raises MechanismError.

    With GSSAPI this may wait for the KDC, half a minute if it does not answer. The rest waits for nothing.
    """
    if sasl.mechanism == "PLAIN":
        return _Plain(sasl)
    if sasl.mechanism == OAUTHBEARER:
        return _OAuthBearer(sasl)
    if sasl.mechanism == GSSAPI:
        return _Gssapi(sasl, host)
    return _Scram(sasl)


class _Plain:
    """``NUL username NUL password``."""

    is_over = False

    def __init__(self, sasl: SaslSettings) -> None:
        self._sasl = sasl

    def begin(self) -> bytes:
        return f"\0{self._sasl.username}\0{self._sasl.password}".encode()

    def proceed(self, challenge: bytes) -> bytes | None:
        return None


class _Scram:
    """Two messages from each side."""

    is_over = False

    def __init__(self, sasl: SaslSettings) -> None:
        # Imported here: SASL without SCRAM needs no hashes.
        from ctrlchan.security.scram_client import ScramClient, ScramError

        self._problem = ScramError
        self._client = ScramClient(sasl.mechanism, sasl.username, sasl.password, tokenauth=sasl.tokenauth)
        self._has_answered = False

    def begin(self) -> bytes:
        return self._client.first.encode()

    def proceed(self, challenge: bytes) -> bytes | None:
        message = challenge.decode()
        try:
            if self._has_answered:
                self._client.check(message)
                return None
            self._has_answered = True
            return self._client.answer(message).encode()
        except self._problem as problem:
            raise MechanismError(str(problem)) from None


class _OAuthBearer:
    """The token of an identity provider. A broker that refuses it says why, and wants one byte more."""

    is_over = False

    def __init__(self, sasl: SaslSettings) -> None:
        self._sasl = sasl
        self._refusal = ""

    def begin(self) -> bytes:
        if self._sasl.token is None:
            raise MechanismError("there is no token")
        extensions = "".join(f"\x01{name}={value}" for name, value in self._sasl.extensions.items())
        return f"n,,\x01auth=Bearer {self._sasl.token}{extensions}\x01\x01".encode()

    def proceed(self, challenge: bytes) -> bytes | None:
        if self._refusal:
            raise MechanismError(f"the broker refuses the token: {self._refusal}")
        if not challenge:
            return None
        # Its answer is an error, which has the reason once more.
        self._refusal = challenge.decode(errors="replace")
        return b"\x01"


class _Gssapi:
    """Kerberos: a ticket for ``service/host``, and no security layer: TLS is for that."""

    def __init__(self, sasl: SaslSettings, host: str) -> None:
        # Imported here: other mechanisms need no Kerberos.
        from ctrlchan.security import kerberos

        try:
            import gssapi
        except ImportError:
            raise MechanismError("GSSAPI needs a package: pip install 'ctrlchan[kerberos]'") from None
        self._problem: type[Exception] = gssapi.exceptions.GSSError
        self._reason = kerberos.reason
        self.is_over = False
        login = kerberos.KerberosLogin(sasl.principal, sasl.keytab, sasl.ticket_cache)
        try:
            credentials = kerberos.initiator_credentials(login)
        except self._problem as problem:
            raise MechanismError(f"no ticket for {login}: {self._reason(problem)}") from None
        try:
            self._context: Any = gssapi.SecurityContext(
                name=gssapi.Name(f"{sasl.service}@{host}", gssapi.NameType.hostbased_service),
                creds=credentials,
                mech=gssapi.MechType.kerberos,
                usage="initiate",
            )
        except self._problem as problem:
            raise MechanismError(self._reason(problem)) from None
        # Else an error that comes with a token for the other side is raised one step later.
        self._context.__DEFER_STEP_ERRORS__ = False
        try:
            self._first = self._step(None)
        except MechanismError as problem:
            raise MechanismError(f"no ticket for {sasl.service}/{host}: {problem}") from None

    def begin(self) -> bytes:
        return self._first

    def proceed(self, challenge: bytes) -> bytes | None:
        if self.is_over:
            return None
        if not self._context.complete:
            return self._step(challenge)
        self.is_over = True
        try:
            layers = bytes(self._context.unwrap(challenge).message)
            if len(layers) != 4 or not layers[0] & 1:
                raise MechanismError("the broker insists on a security layer of GSSAPI")
            return bytes(self._context.wrap(_NO_LAYER, False).message)
        except self._problem as problem:
            raise MechanismError(self._reason(problem)) from None

    def _step(self, challenge: bytes | None) -> bytes:
        try:
            return bytes(self._context.step(challenge) or b"")
        except self._problem as problem:
            raise MechanismError(self._reason(problem)) from None

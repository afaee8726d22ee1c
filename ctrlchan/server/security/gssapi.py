"""GSSAPI (RFC 4752) with Kerberos: the peer shows a ticket for the listener's principal.

::

    AP-REQ: a ticket, and the peer's clock                                  ──►
                                     ◄──     AP-REP, if the peer wants a proof of the listener, too
    (nothing)                                                               ──►
                                     ◄──     wrapped: 1 (no security layer), 0 (size of its messages)
    wrapped: 1, size of messages, [authorization id]                        ──►

As in Kafka, TLS is the only security layer, and the authorization id is left aside: a peer is whom its ticket
names. The library refuses tickets that have been shown before (its replay cache), and those of a clock that
differs by more than ``clockskew`` of ``krb5.conf`` (five minutes).
Source: ``GssKrb5Server`` of Java, ``SaslServerCallbackHandler`` and ``KerberosError`` of Kafka 3.9.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Final

from ctrlchan.security.kerberos import (
    KerberosLogin,
    acceptor_credentials,
    load_gssapi,
    mechanism_code,
    reason,
)
from ctrlchan.server.security.mechanism import InvalidCredentialsError, TryAgainError

__all__ = ["Acceptor", "Gssapi"]

_NO_LAYER: Final = 1
#: What the listener offers: no security layer, therefore no size of its messages.
_OFFER: Final = bytes([_NO_LAYER, 0, 0, 0])
#: Of RFC 4120: the peer is not valid yet, its ticket is not valid yet, its request is a replay. Each may be
#: an error of a moment: a client tries again when it is disconnected without an answer.
_TRY_AGAIN: Final = frozenset({21, 33, 34})


class Acceptor:
    """What the exchanges of a listener share: the package and the keys. Raises ConfigError."""

    def __init__(self, login: KerberosLogin) -> None:
        self._gssapi = load_gssapi()
        self._credentials = acceptor_credentials(login)
        self.error: type[Exception] = self._gssapi.exceptions.GSSError

    def context(self) -> Any:
        """Return a new security context."""
        context = self._gssapi.SecurityContext(creds=self._credentials, usage="accept")
        # Else an error that comes with a token for the peer is raised one step later.
        context.__DEFER_STEP_ERRORS__ = False
        return context


class _Next(Enum):
    """What the peer's next token is."""

    TICKET = 1
    #: Empty.
    ACKNOWLEDGEMENT = 2
    #: The security layer that it has chosen.
    LAYER = 3


class Gssapi:
    """A ``Mechanism``. ``username`` is the name of a Kerberos principal."""

    #: As in Kafka a session does not end with the ticket: ``connections.max.reauth.ms`` is for that.
    expires_ms = None
    by_token = False

    def __init__(self, acceptor: Acceptor) -> None:
        self.complete = False
        self.username = ""
        self._acceptor = acceptor
        self._context = acceptor.context()
        self._next = _Next.TICKET

    def receive(self, token: bytes) -> bytes | None:
        try:
            if self._next is _Next.TICKET:
                return self._accept(token)
            if self._next is _Next.ACKNOWLEDGEMENT:
                if token:
                    raise InvalidCredentialsError("a token in place of an empty one")
                return self._offer()
            self._take_layer(token)
        except self._acceptor.error as problem:
            if mechanism_code(problem) in _TRY_AGAIN:
                raise TryAgainError(reason(problem)) from None
            raise InvalidCredentialsError(reason(problem)) from None
        return None

    def _accept(self, token: bytes) -> bytes:
        answer = bytes(self._context.step(token) or b"")
        if not self._context.complete:
            return answer
        try:
            self.username = str(self._context.initiator_name)
        except UnicodeDecodeError:
            raise InvalidCredentialsError("a principal whose name is not UTF-8") from None
        if not answer:
            return self._offer()
        self._next = _Next.ACKNOWLEDGEMENT
        return answer

    def _offer(self) -> bytes:
        self._next = _Next.LAYER
        return bytes(self._context.wrap(_OFFER, False).message)

    def _take_layer(self, token: bytes) -> None:
        choice = bytes(self._context.unwrap(token).message)
        if len(choice) < len(_OFFER) or not choice[0] & _NO_LAYER:
            raise InvalidCredentialsError("the peer wants a security layer of GSSAPI, which is not offered")
        self.complete = True

"""Gives the peers of a listener their principals (``DefaultKafkaPrincipalBuilder``, or the user's own)."""

from __future__ import annotations

import logging
import time
from typing import Final

from ctrlchan.config import table
from ctrlchan.protocol import SecurityProtocol
from ctrlchan.rate_limit import LogRateLimit
from ctrlchan.security.der import MalformedName
from ctrlchan.security.distinguished_names import java_name
from ctrlchan.security.kerberos import default_realm
from ctrlchan.security.kerberos_names import NoKerberosRule, parse_kerberos_name
from ctrlchan.security.listener_security import ListenerSecurity
from ctrlchan.security.principals import ANONYMOUS, Peer, Principal
from ctrlchan.security.settings import GSSAPI
from ctrlchan.text import printable

__all__ = ["PeerNames"]

logger: Final = logging.getLogger("ctrlchan.broker")


class PeerNames:
    """Makes the principals of one listener's peers. Methods may be called by any thread."""

    def __init__(self, listener: str, protocol: SecurityProtocol, security: ListenerSecurity) -> None:
        self._listener = listener
        self._protocol = protocol
        self._rules = security.principal_rules
        self._builder = security.principal_builder
        self._kerberos_rules = security.kerberos_rules
        self._realm = default_realm() if security.kerberos is not None else ""
        self._limit = LogRateLimit()

    def name(
        self, subject: bytes, host: str, port: int, user: str | None = None, mechanism: str = ""
    ) -> Principal | None:
        """Return the principal of a peer; None, with a line in the log, if he gets none.

        ``subject``: the name in his certificate (DER), or nothing. ``user``: of SASL; with the ``mechanism``
        GSSAPI the name of a Kerberos principal.
        """
        if self._builder is None and user is not None and mechanism != GSSAPI:
            return Principal.user(user)
        certificate_name = None
        try:
            if self._builder is None and user is not None:
                return self._of_kerberos(user)
            if subject:
                certificate_name = java_name(subject)
            if self._builder is not None:
                return self._build(Peer(self._listener, self._protocol, host, user, certificate_name))
            if certificate_name is None:
                return ANONYMOUS
            name = self._rules.user_of(certificate_name)
            if name is not None:
                return Principal.user(name)
            reason = f"no rule of {table.SSL_PRINCIPAL_MAPPING_RULES} matches it"
        except MalformedName as problem:
            certificate_name, reason = subject.hex(), str(problem)
        except _NoPrincipal as problem:
            reason = str(problem)
        suffix = self._limit.admit(0, time.monotonic_ns())
        if suffix is not None:
            what = (
                "" if certificate_name is None else f"its certificate's name {printable(certificate_name)}: "
            )
            logger.warning(
                "closing the connection of %s:%d on listener %s: %s%s%s",
                host, port, self._listener, what, reason, suffix,
            )  # fmt: skip
        return None

    def _of_kerberos(self, user: str) -> Principal:
        try:
            return Principal.user(self._kerberos_rules.user_of(parse_kerberos_name(user), self._realm))
        except (ValueError, NoKerberosRule) as problem:
            raise _NoPrincipal(f"the Kerberos principal {printable(user)}: {problem}") from None

    def _build(self, peer: Peer) -> Principal:
        assert self._builder is not None
        try:
            principal = self._builder.build(peer)
        except Exception as problem:  # it is the user's code
            logger.debug("the principal builder failed", exc_info=True)
            raise _NoPrincipal(
                f"the principal builder failed: {type(problem).__name__}: {printable(str(problem))}"
            ) from None
        if not isinstance(principal, Principal):
            raise _NoPrincipal(f"the principal builder returned {type(principal).__name__}, no Principal")
        return principal


class _NoPrincipal(Exception):
    pass

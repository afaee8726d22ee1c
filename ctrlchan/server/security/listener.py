"""From the security of a listener to its SASL."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from ctrlchan.security.listener_security import ListenerSecurity
from ctrlchan.server.security.gssapi import Acceptor
from ctrlchan.server.security.mechanisms import mechanisms
from ctrlchan.server.security.oauthbearer import ValidateToken
from ctrlchan.server.security.sasl_server import SaslListener, wall_clock_ms
from ctrlchan.server.security.scram_credentials import ScramCredential
from ctrlchan.server.security.token_logins import TokenLogins
from ctrlchan.server.security.unsecured_tokens import UnsecuredTokens

__all__ = ["sasl_listener"]

_LOG: Final = logging.getLogger("ctrlchan.broker")


def sasl_listener(
    name: str,
    security: ListenerSecurity,
    find_credential: Callable[[str, str], ScramCredential | None],
    tokens: TokenLogins | None = None,
) -> SaslListener:
    """Return what the SASL exchanges of a listener share. Raises ConfigError.

    ``find_credential``: (mechanism, user name) → credential for SCRAM. ``tokens``: the delegation
    tokens, or None if there are none.
    """
    validate: ValidateToken | None = None
    close: Callable[[], None] | None = None
    if security.signed_tokens is not None:
        # With an HTTP client, which takes a twentieth of a broker's start and which few listeners need.
        from ctrlchan.server.security.jwks import open_keys
        from ctrlchan.server.security.signed_tokens import SignedTokens

        keys = open_keys(security.signed_tokens)
        validate, close = SignedTokens(security.signed_tokens, keys), keys.close
    elif security.token_options is not None:
        validate = UnsecuredTokens(security.token_options, wall_clock_ms)
        _LOG.warning("listener %s: OAUTHBEARER takes tokens that nobody has signed: only for tests", name)
    acceptor = None if security.kerberos is None else Acceptor(security.kerberos)
    made = mechanisms(security.mechanisms, security.users.get, find_credential, validate, tokens, acceptor)
    return SaslListener(made, security.max_reauth_ms, close=close)

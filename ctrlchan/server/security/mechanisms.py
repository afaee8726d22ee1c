"""From names of mechanisms to what begins their exchanges."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from ctrlchan.errors import ConfigError
from ctrlchan.security.scram import HASHES
from ctrlchan.server.security.gssapi import Acceptor, Gssapi
from ctrlchan.server.security.mechanism import NewMechanism
from ctrlchan.server.security.oauthbearer import OAuthBearer, ValidateToken
from ctrlchan.server.security.plain import FindPassword, Plain
from ctrlchan.server.security.scram import Scram
from ctrlchan.server.security.scram_credentials import ScramCredential
from ctrlchan.server.security.token_logins import TokenLogins

__all__ = ["mechanisms"]


def mechanisms(
    names: Iterable[str],
    find_password: FindPassword,
    find_credential: Callable[[str, str], ScramCredential | None],
    validate_token: ValidateToken | None = None,
    tokens: TokenLogins | None = None,
    acceptor: Acceptor | None = None,
) -> dict[str, NewMechanism]:
    """Return what begins an exchange, by the name of the mechanism. Raises ConfigError for an unknown one.

    ``find_password``: of users of PLAIN. ``find_credential``: (mechanism, user name) → credential for SCRAM.
    ``validate_token``: of OAUTHBEARER. ``tokens``: the delegation tokens with which users of SCRAM log in.
    ``acceptor``: of GSSAPI.
    """
    found: dict[str, NewMechanism] = {}
    for name in names:
        if name == "PLAIN":
            found[name] = partial(Plain, find_password)
        elif name in HASHES:
            found[name] = partial(Scram, name, partial(find_credential, name), tokens)
        elif name == "OAUTHBEARER" and validate_token is not None:
            found[name] = partial(OAuthBearer, validate_token)
        elif name == "GSSAPI" and acceptor is not None:
            found[name] = partial(Gssapi, acceptor)
        else:
            raise ConfigError(f"mechanism {name} is not served")
    return found

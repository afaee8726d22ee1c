"""SCRAM users who may connect to a listener of a controller: of its settings, and those in ZooKeeper."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final

from ctrlchan.errors import CtrlchanError
from ctrlchan.server.security.scram_credentials import (
    ScramCredential,
    credential_from_text,
    credential_of_password,
)

__all__ = ["ListenerCredentials"]

_LOG: Final = logging.getLogger(__name__)
_SALT_SIZE: Final = 20  # bytes


class ListenerCredentials:
    """Finds the SCRAM credentials of the users of one listener, for handler threads.

    ``users``: user name -> password. ``read_user_config`` returns the config of a user in ZooKeeper, or None
    if there is none; it may raise CtrlchanError. A user of ``users`` goes before one of the same name in
    ZooKeeper.
    """

    def __init__(
        self, users: Mapping[str, str], read_user_config: Callable[[str], Mapping[str, str] | None]
    ) -> None:
        self._users = users
        self._read_user_config = read_user_config
        # Deriving the keys takes milliseconds. The cache is as large as the settings.
        self._derive = lru_cache(maxsize=None)(self._derived)

    def scram(self, mechanism: str, username: str) -> ScramCredential | None:
        """Return the user's credential, or None if there is none."""
        if username in self._users:
            return self._derive(mechanism, username)
        try:
            text = (self._read_user_config(username) or {}).get(mechanism)
        except CtrlchanError as error:
            _LOG.warning("the SCRAM credential of a user cannot be read: %s", error)
            return None
        if text is None:
            return None
        try:
            return credential_from_text(text)
        except ValueError as error:
            _LOG.warning("the credential of user %r for %s in ZooKeeper: %s", username[:60], mechanism, error)
            return None

    def _derived(self, mechanism: str, username: str) -> ScramCredential:
        salt = secrets.token_bytes(_SALT_SIZE)
        return credential_of_password(mechanism, self._users[username], salt)

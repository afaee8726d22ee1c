"""ScramUsers: the SCRAM credentials of a broker's users, in memory. ``CredentialProvider`` of Kafka 3.9."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from ctrlchan.security.scram import HASHES
from ctrlchan.server.security.scram_credentials import ScramCredential, credential_from_text

__all__ = ["ScramUsers"]

_LOG: Final = logging.getLogger("ctrlchan.broker")


class ScramUsers:
    """Found by handler threads without a lock, changed by one other thread."""

    def __init__(self) -> None:
        self._credentials: dict[tuple[str, str], ScramCredential] = {}

    def find(self, mechanism: str, username: str) -> ScramCredential | None:
        """Return the user's credential, or None if there is none."""
        return self._credentials.get((mechanism, username))

    def replace_all(self, configs: Mapping[str, Mapping[str, str]]) -> None:
        """Have these users and no others. ``configs``: of each user, as ZooKeeper has them."""
        self._credentials = {
            (mechanism, username): credential
            for username, config in configs.items()
            for mechanism, credential in _credentials(username, config)
        }

    def set_user(self, username: str, config: Mapping[str, str]) -> None:
        """Take the credentials that a user's config has; those that it has not are forgotten."""
        found = dict(_credentials(username, config))
        others = {key: one for key, one in self._credentials.items() if key[1] != username}
        self._credentials = others | {(name, username): one for name, one in found.items()}


def _credentials(username: str, config: Mapping[str, str]) -> list[tuple[str, ScramCredential]]:
    """Return mechanism and credential of each that a config has. One that is malformed is logged."""
    found = []
    for mechanism in HASHES:
        if mechanism in config:
            try:
                found.append((mechanism, credential_from_text(config[mechanism])))
            except ValueError as error:
                _LOG.error("user %r has no credential for %s: %s", username[:60], mechanism, error)
    return found

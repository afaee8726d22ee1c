"""Changes to the SCRAM credentials of users in ZooKeeper.

Source: ``ZkAdminManager.alterUserScramCredentials`` (Kafka 3.9), KIP-554.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from ctrlchan.controller.core import ControllerCore
from ctrlchan.errors import ErrorCode, KafkaError
from ctrlchan.security.scram import MIN_ITERATIONS
from ctrlchan.server.apis.scram_credentials import SCRAM_MECHANISMS
from ctrlchan.server.security.scram_credentials import credential_of_salted_password, credential_to_text

__all__ = [
    "Deletion",
    "Upsertion",
    "alter_credentials",
]

_LOG: Final = logging.getLogger(__name__)

_MAX_ITERATIONS: Final = 16_384


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """A credential to delete. ``mechanism``: 1 SCRAM-SHA-256, 2 SCRAM-SHA-512."""

    user: str
    mechanism: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Upsertion:
    """A credential to set. ``salted_password``: PBKDF2 of the password (RFC 5802, ``SaltedPassword``)."""

    user: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes


def alter_credentials(
    core: ControllerCore, deletions: Sequence[Deletion], upsertions: Sequence[Upsertion]
) -> dict[str, KafkaError | None]:
    """Change credentials in ZooKeeper; return the error of each user, or None if all its changes are made.

    A user with one refused change is not changed at all.
    """
    results: dict[str, KafkaError | None] = {}
    for deletion in deletions:
        _refuse(results, deletion.user, _why_illegal(deletion))
    for upsertion in upsertions:
        _refuse(results, upsertion.user, _why_illegal(upsertion) or _why_iterations(upsertion))
    changes: list[Deletion | Upsertion] = [*deletions, *upsertions]
    for user in _users_with_repeats(change for change in changes if change.user not in results):
        results[user] = KafkaError(
            ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
        )
    for user in dict.fromkeys(change.user for change in changes if change.user not in results):
        try:
            _change_user(core, user, changes)
            results[user] = None
        except KafkaError as error:
            results[user] = error
    return results


def _refuse(results: dict[str, KafkaError | None], user: str, error: KafkaError | None) -> None:
    if error is not None:
        results[user] = error


def _why_illegal(change: Deletion | Upsertion) -> KafkaError | None:
    if not change.user:
        return KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if change.mechanism not in SCRAM_MECHANISMS:
        return KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    return None


def _why_iterations(upsertion: Upsertion) -> KafkaError | None:
    if upsertion.iterations > _MAX_ITERATIONS:
        return KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    if upsertion.iterations < MIN_ITERATIONS:
        return KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    return None


def _users_with_repeats(changes: Iterable[Deletion | Upsertion]) -> set[str]:
    counted = Counter((change.user, change.mechanism) for change in changes)
    return {user for (user, _), count in counted.items() if count > 1}


def _change_user(core: ControllerCore, user: str, changes: Iterable[Deletion | Upsertion]) -> None:
    config: dict[str, str] = dict(core.nodes.read_user_config(user) or {})
    own = [change for change in changes if change.user == user]
    for change in own:
        name = SCRAM_MECHANISMS[change.mechanism]
        if isinstance(change, Upsertion):
            continue
        if config.pop(name, None) is None:
            raise KafkaError(
                ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"
            )
    for change in own:
        if isinstance(change, Upsertion):
            name = SCRAM_MECHANISMS[change.mechanism]
            if not change.salted_password:
                # Java makes no key of it (IllegalArgumentException).
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "The salted password is empty")
            credential = credential_of_salted_password(
                name, change.salted_password, change.salt, change.iterations
            )
            config[name] = credential_to_text(credential)
    core.nodes.write_user_config(user, config)

"""SCRAM credentials of users in ZooKeeper: changes to them, and what may be seen of them.

Source: ``ZkAdminManager.alterUserScramCredentials`` (Kafka 3.9), KIP-554.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from ctrlchan.controller.core import ControllerCore
from ctrlchan.errors import ErrorCode, KafkaError
from ctrlchan.server.security.scram_credentials import (
    MIN_ITERATIONS,
    credential_from_text,
    credential_of_salted_password,
    credential_to_text,
)
from ctrlchan.text import quoted, why_unsendable

__all__ = [
    "CredentialInfo",
    "Deletion",
    "Upsertion",
    "alter_credentials",
    "describe_credentials",
]

_LOG: Final = logging.getLogger(__name__)

#: ``ScramMechanism`` of the protocol -> its name.
_MECHANISMS: Final[Mapping[int, str]] = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
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


class CredentialInfo(NamedTuple):
    """What may be seen of a credential."""

    mechanism: int
    iterations: int


def describe_credentials(
    core: ControllerCore, users: Iterable[str] | None = None
) -> dict[str, list[CredentialInfo] | KafkaError]:
    """Return the credentials of these users, or of all; users without a credential are left out.

    A user with a malformed credential gets a KafkaError. A name that no response can carry is logged and
    left out.
    """
    found: dict[str, list[CredentialInfo] | KafkaError] = {}
    for user in core.nodes.user_names() if users is None else users:
        if (why := why_unsendable(user)) is not None:
            _LOG.error("user %s is left out: its name %s", quoted(user), why)
            continue
        config = core.nodes.read_user_config(user) or {}
        try:
            infos = [
                CredentialInfo(mechanism, credential_from_text(config[name]).iterations)
                for mechanism, name in _MECHANISMS.items()
                if name in config
            ]
        except ValueError as error:
            found[user] = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"The credential of {user}: {error}")
        else:
            if infos:
                found[user] = infos
    return found


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
    if change.mechanism not in _MECHANISMS:
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
        name = _MECHANISMS[change.mechanism]
        if isinstance(change, Upsertion):
            continue
        if config.pop(name, None) is None:
            raise KafkaError(
                ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"
            )
    for change in own:
        if isinstance(change, Upsertion):
            name = _MECHANISMS[change.mechanism]
            credential = credential_of_salted_password(
                name, change.salted_password, change.salt, change.iterations
            )
            config[name] = credential_to_text(credential)
    core.nodes.write_user_config(user, config)

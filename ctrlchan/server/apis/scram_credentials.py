"""What may be seen of SCRAM credentials in ZooKeeper: the answer of DescribeUserScramCredentials (50).

``ZkAdminManager.describeUserScramCredentials`` of Kafka 3.9; KIP-554.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from ctrlchan.errors import ErrorCode, KafkaError
from ctrlchan.server.api import Reply, Request
from ctrlchan.server.kio_messages import ClientMessages, KioError
from ctrlchan.server.result_fields import error_fields
from ctrlchan.server.security.scram_credentials import credential_from_text
from ctrlchan.text import quoted, why_unsendable

__all__ = [
    "SCRAM_MECHANISMS",
    "CredentialInfo",
    "Described",
    "Users",
    "describe_credentials",
    "description_of",
]

_LOG: Final = logging.getLogger(__name__)

#: ``ScramMechanism`` of the protocol -> its name.
SCRAM_MECHANISMS: Final[Mapping[int, str]] = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}


class CredentialInfo(NamedTuple):
    """What may be seen of a credential."""

    mechanism: int
    iterations: int


#: By user, or the error of all.
Described: TypeAlias = dict[str, list[CredentialInfo] | KafkaError]


class Users(Protocol):
    """The users that have a config in ZooKeeper."""

    def user_names(self) -> list[str]: ...
    def read_user_config(self, user: str) -> Mapping[str, str] | None: ...


def describe_credentials(users: Users, names: Iterable[str] | None = None) -> Described:
    """Return the credentials of these users, or of all; users without a credential are left out.

    A user with a malformed credential gets a KafkaError. A name that no response can carry is logged and
    left out.
    """
    found: Described = {}
    for user in users.user_names() if names is None else names:
        if (why := why_unsendable(user)) is not None:
            _LOG.error("user %s is left out: its name %s", quoted(user), why)
            continue
        config = users.read_user_config(user) or {}
        try:
            infos = [
                CredentialInfo(mechanism, credential_from_text(config[name]).iterations)
                for mechanism, name in SCRAM_MECHANISMS.items()
                if name in config
            ]
        except ValueError as error:
            found[user] = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"The credential of {user}: {error}")
        else:
            if infos:
                found[user] = infos
    return found


def description_of(
    request: Request,
) -> tuple[Iterable[str] | None, Callable[[Described | KafkaError], Reply]]:
    """Return the users that a request names, None for all, and what makes the answer of their credentials."""
    messages = ClientMessages("describe_user_scram_credentials", request.version)
    body = messages.decode(request)
    counts = None if not body.users else Counter(user.name for user in body.users)

    def reply(found: Described | KafkaError) -> Reply:
        if isinstance(found, KafkaError):
            return Reply(messages.response(**error_fields(found), results=()), error_code=found.code)
        results = tuple(
            _result(messages, user, found.get(user), 0 if counts is None else counts[user])
            for user in (found if counts is None else counts)
        )
        # Kafka leaves the text as it is without an error: empty, not null.
        return Reply(messages.response(error_code=KioError.none, error_message="", results=results))

    return counts, reply


def _result(
    messages: ClientMessages, user: str, credentials: list[CredentialInfo] | KafkaError | None, count: int
) -> Any:
    """Return the result of one user; ``count``: how often the request names him."""
    error = None
    if count > 1:
        error = KafkaError(
            ErrorCode.DUPLICATE_RESOURCE,
            f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}",
        )
    elif isinstance(credentials, KafkaError):
        error = credentials
    elif not credentials:
        error = KafkaError(
            ErrorCode.RESOURCE_NOT_FOUND,
            f"Attempt to describe a user credential that does not exist: {user}",
        )
    infos = credentials if isinstance(credentials, list) and error is None else []
    return messages.part(
        "DescribeUserScramCredentialsResult",
        user=user,
        credential_infos=tuple(
            messages.part("CredentialInfo", mechanism=info.mechanism, iterations=info.iterations)
            for info in infos
        ),
        **error_fields(error, ""),
    )

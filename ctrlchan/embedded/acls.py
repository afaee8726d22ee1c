"""Acl: what a user of a cluster may do; and the requests that create it and SCRAM users."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ctrlchan.authorizer.acls import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType
from ctrlchan.embedded.requests import ask, check
from ctrlchan.errors import ConfigError
from ctrlchan.peers.connection import Address
from ctrlchan.peers.messages import part
from ctrlchan.security.scram import MIN_ITERATIONS, salted
from ctrlchan.server.apis.scram_credentials import SCRAM_MECHANISMS

__all__ = ["Acl", "create_acls", "create_scram_users", "has_acls"]

#: API key and version: the highest whose headers have no tagged fields.
_DESCRIBE_ACLS: Final = 29, 1
_CREATE_ACLS: Final = 30, 1
_ALTER_SCRAM: Final = 51, 0  # it has them in every version
#: Those of the resources that an ``Acl`` can have.
_OPERATIONS: Final = tuple(
    one.name for one in Operation if Operation.ALL <= one <= Operation.IDEMPOTENT_WRITE
)
_SALT_BYTES: Final = 16


@dataclass(frozen=True)
class Acl:
    """Allows a user an operation on one of a topic, a group, a transactional id, or the cluster.

    - ``operation``: READ, WRITE, ALL and so on.
    - ``prefixed`` (False): the name is only the beginning of names; ``*`` is all names.
    - ``deny`` (False): the operation is refused.

    Raises ConfigError. ::

        Acl("alice", "READ", topic="orders")
        Acl("alice", "READ", group="shop-", prefixed=True)
        Acl("bob", "IDEMPOTENT_WRITE", cluster=True)
    """

    user: str
    operation: str
    topic: str | None = None
    group: str | None = None
    transactional_id: str | None = None
    cluster: bool = False
    prefixed: bool = False
    deny: bool = False
    host: str = "*"

    def __post_init__(self) -> None:
        if self.operation.upper() not in _OPERATIONS:
            raise ConfigError(f"acl: {self.operation!r} is not {', '.join(_OPERATIONS)}")
        given = [one for one in (self.topic, self.group, self.transactional_id) if one is not None]
        if len(given) + self.cluster != 1:
            raise ConfigError("acl: it needs one of topic, group, transactional_id and cluster")

    @property
    def resource(self) -> tuple[ResourceType, str]:
        """The type of the resource, and its name."""
        if self.topic is not None:
            return ResourceType.TOPIC, self.topic
        if self.group is not None:
            return ResourceType.GROUP, self.group
        if self.transactional_id is not None:
            return ResourceType.TRANSACTIONAL_ID, self.transactional_id
        return ResourceType.CLUSTER, CLUSTER_NAME

    def fields(self, principal: str) -> dict[str, Any]:
        """Return the fields that requests have of it."""
        kind, name = self.resource
        return {
            "resource_type": kind,
            "resource_name": name,
            "resource_pattern_type": PatternType.PREFIXED if self.prefixed else PatternType.LITERAL,
            "principal": principal,
            "host": self.host,
            "operation": Operation[self.operation.upper()],
            "permission_type": Permission.DENY if self.deny else Permission.ALLOW,
        }


def create_acls(broker: Address, fields: Sequence[Mapping[str, Any]]) -> None:
    """Create ACLs. Raises KafkaError for the first that cannot be created."""
    api, version = "create_acls", _CREATE_ACLS[1]
    creations = tuple(part(api, version, "AclCreation", **one) for one in fields)
    for result in ask(broker, api, _CREATE_ACLS, creations=creations).results:
        check(result.error_code.value, "the ACL", result.error_message)


def has_acls(broker: Address, fields: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a broker knows these ACLs. Raises KafkaError."""
    return all(_has_acl(broker, one) for one in fields)


def _has_acl(broker: Address, fields: Mapping[str, Any]) -> bool:
    answer = ask(
        broker,
        "describe_acls",
        _DESCRIBE_ACLS,
        resource_type_filter=fields["resource_type"],
        resource_name_filter=fields["resource_name"],
        pattern_type_filter=fields["resource_pattern_type"],
        principal_filter=fields["principal"],
        host_filter=fields["host"],
        operation=fields["operation"],
        permission_type=fields["permission_type"],
    )
    check(answer.error_code.value, "the ACLs", answer.error_message)
    return bool(answer.resources)


def create_scram_users(controller: Address, users: Mapping[str, str]) -> None:
    """Give users their passwords for SCRAM. Raises KafkaError."""
    api, version = "alter_user_scram_credentials", _ALTER_SCRAM[1]
    upsertions = []
    for name, password in users.items():
        for number, mechanism in SCRAM_MECHANISMS.items():
            salt = secrets.token_bytes(_SALT_BYTES)
            upsertions.append(
                part(
                    api,
                    version,
                    "ScramCredentialUpsertion",
                    name=name,
                    mechanism=number,
                    iterations=MIN_ITERATIONS,
                    salt=salt,
                    salted_password=salted(mechanism, password, salt, MIN_ITERATIONS),
                )
            )
    answer = ask(controller, api, _ALTER_SCRAM, flexible=True, deletions=(), upsertions=tuple(upsertions))
    for result in answer.results:
        check(result.error_code.value, f"user {result.user}", result.error_message)

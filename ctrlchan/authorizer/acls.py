"""Resources, operations, ACL entries and filters of them, with Kafka's numbers and names.

Source: ``org.apache.kafka.common.acl``, ``org.apache.kafka.common.resource``, ``AclEntry`` and
``SecurityUtils`` of Kafka 3.9.
"""

from __future__ import annotations

from enum import IntEnum
from functools import cache
from typing import Any, Final, NamedTuple, TypeVar

__all__ = [
    "ANY_HOST",
    "ANY_NAME",
    "ANY_PRINCIPAL",
    "CLUSTER_NAME",
    "AccessControlEntry",
    "AclBinding",
    "AclFilter",
    "EntryFilter",
    "Operation",
    "PatternType",
    "Permission",
    "ResourceFilter",
    "ResourcePattern",
    "ResourceType",
    "member_of",
    "pascal_case",
    "supported_operations",
]

#: The resource name, the principal and the host of entries that hold for all of them.
ANY_NAME: Final = "*"
ANY_PRINCIPAL: Final = "User:*"
ANY_HOST: Final = "*"
#: The name of the only resource of type CLUSTER.
CLUSTER_NAME: Final = "kafka-cluster"


class ResourceType(IntEnum):
    """``org.apache.kafka.common.resource.ResourceType``. ANY: in filters alone."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """``org.apache.kafka.common.resource.PatternType``. ANY and MATCH: in filters alone."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    """``org.apache.kafka.common.acl.AclOperation``. ANY: in filters alone; ALL: in entries and filters."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class Permission(IntEnum):
    """``org.apache.kafka.common.acl.AclPermissionType``. ANY: in filters alone."""

    ANY = 1
    DENY = 2
    ALLOW = 3


_SUPPORTED: Final = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (Operation.READ, Operation.DELETE, Operation.DESCRIBE),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
    ResourceType.DELEGATION_TOKEN: (Operation.DESCRIBE,),
    ResourceType.USER: (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS),
}


def supported_operations(kind: ResourceType) -> tuple[Operation, ...]:
    """Return the operations that a resource of this type can be authorized for."""
    return _SUPPORTED[kind]


class ResourcePattern(NamedTuple):
    """The resources that entries are for. ``pattern_type``: LITERAL (``*``: all names) or PREFIXED."""

    resource_type: ResourceType
    name: str
    pattern_type: PatternType = PatternType.LITERAL

    def __str__(self) -> str:
        return f"{pascal_case(self.resource_type)}:{self.pattern_type.name}:{self.name}"


class AccessControlEntry(NamedTuple):
    """Whom something is allowed or denied. ``principal``: as ``User:alice``."""

    principal: str
    host: str
    operation: Operation
    permission: Permission


class AclBinding(NamedTuple):
    """One entry of one resource pattern."""

    pattern: ResourcePattern
    entry: AccessControlEntry


class ResourceFilter(NamedTuple):
    """Which resource patterns are meant. ``name``: None for all.

    With the pattern type MATCH a filter finds every pattern that a resource of this name has entries from.
    """

    resource_type: ResourceType
    name: str | None
    pattern_type: PatternType

    def matches(self, pattern: ResourcePattern) -> bool:
        """Return whether the filter means this pattern."""
        if self.resource_type not in (ResourceType.ANY, pattern.resource_type):
            return False
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, pattern.pattern_type):
            return False
        if self.name is None:
            return True
        if self.pattern_type != PatternType.MATCH:
            return self.name == pattern.name
        if pattern.pattern_type == PatternType.PREFIXED:
            return self.name.startswith(pattern.name)
        return pattern.name in (self.name, ANY_NAME)

    def named_patterns(self) -> list[ResourcePattern]:
        """Return the patterns that the filter names; none if it describes them."""
        if self.resource_type == ResourceType.ANY or self.name is None:
            return []
        if self.pattern_type == PatternType.MATCH:
            return []
        types = [self.pattern_type]
        if self.pattern_type == PatternType.ANY:
            types = [PatternType.LITERAL, PatternType.PREFIXED]
        return [ResourcePattern(self.resource_type, self.name, one) for one in types]


class EntryFilter(NamedTuple):
    """Which entries are meant. ``principal``, ``host``: None for all."""

    principal: str | None
    host: str | None
    operation: Operation
    permission: Permission

    def matches(self, entry: AccessControlEntry) -> bool:
        """Return whether the filter means this entry."""
        return (
            self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (Operation.ANY, entry.operation)
            and self.permission in (Permission.ANY, entry.permission)
        )


class AclFilter(NamedTuple):
    """Which bindings are meant."""

    pattern: ResourceFilter
    entry: EntryFilter

    def matches(self, binding: AclBinding) -> bool:
        """Return whether the filter means this binding."""
        return self.pattern.matches(binding.pattern) and self.entry.matches(binding.entry)


_Member = TypeVar("_Member", bound=IntEnum)


def pascal_case(member: IntEnum) -> str:
    """Return the name that nodes and log lines have: ``ClusterAction``."""
    return "".join(map(str.capitalize, member.name.split("_")))


def member_of(kind: type[_Member], name: str) -> _Member | None:
    """Return the member with a name in Pascal case, in any case of letters, or None if there is none."""
    found: _Member | None = _members(kind).get(name.upper())
    return found


@cache
def _members(kind: type[IntEnum]) -> dict[str, Any]:
    return {pascal_case(one).upper(): one for one in kind}

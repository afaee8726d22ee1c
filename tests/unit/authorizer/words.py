"""Short names for requesters, entries and filters."""

from __future__ import annotations

from ctrlchan.authorizer.acls import (
    ANY_HOST,
    ANY_PRINCIPAL,
    AccessControlEntry,
    AclBinding,
    AclFilter,
    EntryFilter,
    Operation,
    PatternType,
    Permission,
    ResourceFilter,
    ResourcePattern,
    ResourceType,
)
from ctrlchan.authorizer.interface import Action, Authorizer, Requester

HOST = "192.168.0.1"


def requester(user: str = "alice", host: str = HOST) -> Requester:
    return Requester(f"User:{user}", host, "PLAINTEXT", "PLAINTEXT", "Fetch")


def topic(name: str, pattern_type: PatternType = PatternType.LITERAL) -> ResourcePattern:
    return ResourcePattern(ResourceType.TOPIC, name, pattern_type)


def group(name: str, pattern_type: PatternType = PatternType.LITERAL) -> ResourcePattern:
    return ResourcePattern(ResourceType.GROUP, name, pattern_type)


def prefix(name: str) -> ResourcePattern:
    return topic(name, PatternType.PREFIXED)


def allow(operation: Operation, principal: str = ANY_PRINCIPAL, host: str = ANY_HOST) -> AccessControlEntry:
    return AccessControlEntry(principal, host, operation, Permission.ALLOW)


def deny(operation: Operation, principal: str = ANY_PRINCIPAL, host: str = ANY_HOST) -> AccessControlEntry:
    return AccessControlEntry(principal, host, operation, Permission.DENY)


def all_of(pattern: ResourceFilter) -> AclFilter:
    return AclFilter(pattern, EntryFilter(None, None, Operation.ANY, Permission.ANY))


def exactly(pattern: ResourcePattern, entry: AccessControlEntry | None = None) -> AclFilter:
    """The filter of a pattern's entries, or of one of them."""
    of_pattern = ResourceFilter(pattern.resource_type, pattern.name, pattern.pattern_type)
    return all_of(of_pattern) if entry is None else AclFilter(of_pattern, EntryFilter(*entry))


EVERYTHING = all_of(ResourceFilter(ResourceType.ANY, None, PatternType.ANY))


def add(authorizer: Authorizer, pattern: ResourcePattern, *entries: AccessControlEntry) -> None:
    errors = authorizer.create_acls(requester(), [AclBinding(pattern, one) for one in entries])
    assert errors == [None] * len(entries)


def remove(authorizer: Authorizer, pattern: ResourcePattern, *entries: AccessControlEntry) -> None:
    """Remove entries; without any, all of the pattern."""
    filters = [exactly(pattern, one) for one in entries] or [exactly(pattern)]
    for found in authorizer.delete_acls(requester(), filters):
        assert found
        assert all(one.error is None for one in found)


def entries_of(authorizer: Authorizer, pattern: ResourcePattern) -> set[AccessControlEntry]:
    return {one.entry for one in authorizer.acls(exactly(pattern))}


def may(
    authorizer: Authorizer,
    operation: Operation,
    pattern: ResourcePattern,
    user: str = "alice",
    host: str = HOST,
) -> bool:
    [answer] = authorizer.authorize(requester(user, host), [Action(operation, pattern)])
    return answer

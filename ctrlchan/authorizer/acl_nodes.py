"""AclNodes: the ACLs of a cluster in ZooKeeper, as ``kafka.zk.KafkaZkClient`` of Kafka 3.9 has them.

A node has the entries of one resource pattern. Whoever changes one creates a sequential node that names it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, lru_cache
from typing import Final

from ctrlchan.authorizer.acl_cache import DAMAGED, VersionedAcls
from ctrlchan.authorizer.acls import (
    AccessControlEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
    member_of,
    pascal_case,
)
from ctrlchan.errors import MalformedError, NodeError, ResultCode
from ctrlchan.zookeeper import nodes, paths
from ctrlchan.zookeeper.change_notifications import ChangeNotifications
from ctrlchan.zookeeper.operations import Create, Delete, Node, SetData
from ctrlchan.zookeeper.session import ZooKeeperSession

__all__ = ["AclNodes"]

_LOG: Final = logging.getLogger("ctrlchan.authorizer")

_PATTERN_TYPES: Final = (PatternType.LITERAL, PatternType.PREFIXED)
_RESOURCE_TYPES: Final = tuple(kind for kind in ResourceType if kind != ResourceType.ANY)
#: Of so many different nodes the entries are kept.
_NODES_ALIKE: Final = 4_096


class AclNodes:
    """Reads, writes and watches the nodes with ACLs. All methods raise ZooKeeperError."""

    def __init__(self, session: ZooKeeperSession) -> None:
        self._session = session
        changes = (paths.ACL_CHANGES, paths.EXTENDED_ACL_CHANGES)
        self._notifications = ChangeNotifications(session, changes)

    def create_parents(self) -> None:
        """Create the nodes above the ACLs where they are missing."""
        self._notifications.create_parents()
        for pattern_type in _PATTERN_TYPES:
            for kind in _RESOURCE_TYPES:
                self._session.create_path(_parent(pattern_type, kind))

    def read_all(self) -> Iterator[tuple[ResourcePattern, VersionedAcls]]:
        """Yield all resource patterns with their ACLs."""
        for pattern_type in _PATTERN_TYPES:
            names = self._session.children(paths.acl_types(pattern_type.name.lower())) or []
            for name in sorted(names):
                kind = member_of(ResourceType, name)
                if kind is None or kind == ResourceType.ANY:
                    _LOG.warning("ACLs of the unknown resource type %s are ignored", name)
                    continue
                parent = paths.acls_of_type(pattern_type.name.lower(), name)
                patterns = [
                    ResourcePattern(kind, one, pattern_type)
                    for one in sorted(self._session.children(parent) or [])
                ]
                yield from zip(patterns, self.read(patterns), strict=True)

    def read(self, patterns: Sequence[ResourcePattern]) -> list[VersionedAcls]:
        """Return the ACLs of each pattern."""
        found = self._session.get_many([_path(one) for one in patterns])
        return [_acls(pattern, node) for pattern, node in zip(patterns, found, strict=True)]

    def write(
        self, pattern: ResourcePattern, entries: frozenset[AccessControlEntry], before: VersionedAcls
    ) -> VersionedAcls | None:
        """Replace the entries of the node that had ``before``, and tell all brokers if they are others.

        Return what the node has now, or None if somebody else has changed the node.
        """
        path, data = _path(pattern), nodes.encode_acls(map(_node_entry, sorted(entries)))
        change = Create(*_change(pattern), sequential=True)
        reports = [change] if entries != before.entries else []
        try:
            if not entries:
                if before.version is not None:
                    self._session.multi([Delete(path, before.version), *reports])
                return VersionedAcls()
            if before.version is not None:
                version = self._session.multi([SetData(path, data, before.version), *reports])[0]
                return VersionedAcls(entries, version)
            self._session.multi([Create(path, data), *reports])
            return VersionedAcls(entries, 0)
        except NodeError as error:
            if error.code == ResultCode.NO_NODE and before.version is None:
                self.create_parents()
                return None
            if error.code in (ResultCode.BAD_VERSION, ResultCode.NO_NODE, ResultCode.NODE_EXISTS):
                return None
            raise

    # -- notifications

    def watch(self, changed: Callable[[str], object]) -> None:
        """Set the watches, and take all notifications so far as read."""
        self._notifications.watch(changed)

    def read_changes(self, changed: Callable[[str], object]) -> list[ResourcePattern]:
        """Return the patterns that new notifications name, and set the watches again."""
        found = []
        for path, data in self._notifications.read_new(changed):
            try:
                found.append(_pattern(nodes.parse_acl_change(data)))
            except MalformedError as error:
                _LOG.error("%s: %s: it names no ACLs that have changed", path, error)
        return list(dict.fromkeys(found))


def _path(pattern: ResourcePattern) -> str:
    return f"{_parent(pattern.pattern_type, pattern.resource_type)}/{pattern.name}"


@cache
def _parent(pattern_type: PatternType, kind: ResourceType) -> str:
    return paths.acls_of_type(pattern_type.name.lower(), pascal_case(kind))


def _change(pattern: ResourcePattern) -> tuple[str, bytes]:
    """Return path and data of a notification."""
    is_literal = pattern.pattern_type == PatternType.LITERAL
    parent = paths.ACL_CHANGES if is_literal else paths.EXTENDED_ACL_CHANGES
    named = nodes.AclResource(pattern.resource_type.name, pattern.name, pattern.pattern_type.name)
    return paths.acl_change(parent), nodes.encode_acl_change(named)


def _pattern(named: nodes.AclResource) -> ResourcePattern:
    """Return the pattern that a notification names. Raises MalformedError."""
    kind = ResourceType.__members__.get(named.resource_type)
    pattern_type = PatternType.__members__.get(named.pattern_type)
    if kind in (None, ResourceType.ANY) or pattern_type not in _PATTERN_TYPES:
        raise MalformedError(f"no resource type {named.resource_type}, or no pattern {named.pattern_type}")
    assert kind is not None
    return ResourcePattern(kind, named.name, pattern_type)


def _acls(pattern: ResourcePattern, node: Node | None) -> VersionedAcls:
    """Return the ACLs of a node; those of a damaged one deny everything."""
    if node is None:
        return VersionedAcls()
    try:
        return VersionedAcls(_parsed(node.data), node.version)
    except MalformedError as error:
        _LOG.error("%s: %s: nobody but super users may use %s", _path(pattern), error, pattern)
        return VersionedAcls(DAMAGED, node.version, is_damaged=True)


@lru_cache(_NODES_ALIKE)
def _parsed(data: bytes) -> frozenset[AccessControlEntry]:
    """Return the entries of a node's data. Raises MalformedError. Nodes that are alike share them."""
    return frozenset(_entries(nodes.parse_acls(data)))


def _entries(found: Iterable[nodes.AclEntry]) -> Iterator[AccessControlEntry]:
    """Yield the entries of a node. Raises MalformedError."""
    for one in found:
        operation = member_of(Operation, one.operation)
        permission = member_of(Permission, one.permission)
        if operation in (None, Operation.ANY) or permission in (None, Permission.ANY):
            raise MalformedError(f"no ACL has the operation {one.operation}, permission {one.permission}")
        if ":" not in one.principal:
            raise MalformedError(f"the principal {one.principal} is not TYPE:NAME")
        assert operation is not None
        assert permission is not None
        yield AccessControlEntry(one.principal, one.host, operation, permission)


def _node_entry(entry: AccessControlEntry) -> nodes.AclEntry:
    return nodes.AclEntry(
        entry.principal, entry.host, pascal_case(entry.operation), pascal_case(entry.permission)
    )

"""AclCache: the ACLs of a cluster in memory, and the decisions that follow from them. No input, no output.

A decision looks up the name, ``*``, and one prefix of each length that any prefixed pattern has, however many
ACLs there are. Source: ``kafka.security.authorizer.AclAuthorizer`` of Kafka 3.9.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from ctrlchan.authorizer.acls import (
    ANY_HOST,
    ANY_NAME,
    ANY_PRINCIPAL,
    AccessControlEntry,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)

__all__ = ["DAMAGED", "AclCache", "VersionedAcls"]

#: Operations that one of the others implies, where it is allowed.
_IMPLIED_BY: Final[Mapping[Operation, tuple[Operation, ...]]] = {
    Operation.DESCRIBE: (
        Operation.DESCRIBE,
        Operation.READ,
        Operation.WRITE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.ALL,
    ),
    Operation.DESCRIBE_CONFIGS: (Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS, Operation.ALL),
}
#: What stands in the cache for a node that cannot be read: it denies everything. Kafka reads such a node as
#: one without ACLs.
DAMAGED: Final = frozenset((AccessControlEntry(ANY_PRINCIPAL, ANY_HOST, Operation.ALL, Permission.DENY),))


class VersionedAcls(NamedTuple):
    """The entries of one resource pattern, and the version of its node; None: there is no node.

    ``is_damaged``: the node cannot be read, and ``entries`` is ``DAMAGED``.
    """

    entries: frozenset[AccessControlEntry] = frozenset()
    version: int | None = None
    is_damaged: bool = False


#: Of so many prefixes the lengths are counted again for each request.
_FEW: Final = 1_000
#: Principal, host, operation, permission: an entry as a plain tuple, which is equal to it.
_Probe = tuple[str, str, Operation, Permission]


class _TypeAcls:
    """The ACLs of one resource type."""

    def __init__(self) -> None:
        self.literal: dict[str, VersionedAcls] = {}
        self.prefixed: dict[str, VersionedAcls] = {}
        #: How many prefixes have each length.
        self.lengths: Counter[int] = Counter()
        #: The same lengths, replaced as a whole.
        self.known_lengths: tuple[int, ...] = ()
        #: The names of the patterns that have an entry, for decisions about any resource of the type.
        self.literal_names: dict[_Probe, set[str]] = {}
        self.prefixed_names: dict[_Probe, set[str]] = {}

    def of(self, pattern_type: PatternType) -> dict[str, VersionedAcls]:
        return self.literal if pattern_type == PatternType.LITERAL else self.prefixed

    def matching(self, name: str) -> list[frozenset[AccessControlEntry]]:
        """Return the entries of each pattern that a name belongs to."""
        found = [self.literal.get(ANY_NAME), self.literal.get(name) if name != ANY_NAME else None]
        found += [self.prefixed.get(name[:length]) for length in self.known_lengths if length <= len(name)]
        return [acls.entries for acls in found if acls is not None]

    def named(self, names: set[str], probes: Iterable[_Probe]) -> set[str]:
        """Return those of the names that have one of these entries."""
        found: set[str] = set()
        lengths: set[int] = set()
        prefixes: list[set[str]] = []
        for probe in probes:
            literal = self.literal_names.get(probe)
            if literal is not None:
                if ANY_NAME in literal:
                    return names
                found |= names & literal
            prefixed = self.prefixed_names.get(probe)
            if prefixed is not None:
                prefixes.append(prefixed)
                lengths.update(self.known_lengths if len(prefixed) > _FEW else map(len, prefixed))
        for length in lengths:
            left = names - found
            starts = {name: name[:length] for name in left if len(name) >= length}
            for prefixed in prefixes:
                found.update(name for name, start in starts.items() if start in prefixed)
        return found

    def put(self, pattern: ResourcePattern, acls: VersionedAcls) -> None:
        patterns = self.of(pattern.pattern_type)
        before = patterns.get(pattern.name, VersionedAcls())
        if acls.entries:
            patterns[pattern.name] = acls
        else:
            patterns.pop(pattern.name, None)
        is_prefix = pattern.pattern_type == PatternType.PREFIXED
        if is_prefix and bool(before.entries) != bool(acls.entries):
            self.lengths[len(pattern.name)] += 1 if acls.entries else -1
            self.known_lengths = tuple(sorted(length for length, count in self.lengths.items() if count))
        names = self.prefixed_names if is_prefix else self.literal_names
        for entry in acls.entries - before.entries:
            names.setdefault(entry, set()).add(pattern.name)
        for entry in before.entries - acls.entries:
            names[entry].discard(pattern.name)
            if not names[entry]:
                del names[entry]


class AclCache:
    """ACLs by resource pattern. Any thread may ask; changes exclude each other and decisions about any name.

    ``allows_without_acls``: the answer where no pattern with an entry matches
    (``allow.everyone.if.no.acl.found``).
    """

    def __init__(self, *, allows_without_acls: bool = False) -> None:
        self._allows_without_acls = allows_without_acls
        self._types: dict[ResourceType, _TypeAcls] = {
            kind: _TypeAcls() for kind in ResourceType if kind != ResourceType.ANY
        }
        self._lock = threading.Lock()
        #: Rises with each change, after it.
        self.changes = 0

    def get(self, pattern: ResourcePattern) -> VersionedAcls | None:
        """Return the entries of a pattern, or None if it has none."""
        return self._types[pattern.resource_type].of(pattern.pattern_type).get(pattern.name)

    def put(self, pattern: ResourcePattern, acls: VersionedAcls) -> None:
        """Replace the entries of a pattern."""
        with self._lock:
            self._types[pattern.resource_type].put(pattern, acls)
            self.changes += 1

    def patterns(self) -> list[ResourcePattern]:
        """Return all patterns that have entries."""
        with self._lock:
            return [
                ResourcePattern(kind, name, pattern_type)
                for kind, acls in self._types.items()
                for pattern_type in (PatternType.LITERAL, PatternType.PREFIXED)
                for name in acls.of(pattern_type)
            ]

    def bindings(self) -> Iterator[AclBinding]:
        """Yield all bindings; a damaged node has none."""
        for pattern in self.patterns():
            acls = self.get(pattern)
            if acls is not None and not acls.is_damaged:
                for entry in acls.entries:
                    yield AclBinding(pattern, entry)

    def is_allowed(
        self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str
    ) -> bool:
        """Return whether the ACLs allow an operation on a resource."""
        acls = self._types[kind]
        # Each change is one entry of a dictionary. If none was made meanwhile, what was found is of one time.
        while True:
            changes = self.changes
            matching = acls.matching(name)
            if changes == self.changes:
                break
        if not matching:
            return self._allows_without_acls
        if _has(matching, principal, host, (operation, Operation.ALL), Permission.DENY):
            return False
        allowing = _IMPLIED_BY.get(operation, (operation, Operation.ALL))
        return _has(matching, principal, host, allowing, Permission.ALLOW)

    def allowed_names(
        self, principal: str, host: str, operation: Operation, kind: ResourceType, names: Collection[str]
    ) -> set[str]:
        """Return those of the names for which ``is_allowed`` is true: much faster than one by one."""
        acls = self._types[kind]
        wanted = set(names)
        allowing = _IMPLIED_BY.get(operation, (operation, Operation.ALL))
        with self._lock:
            allowed = acls.named(wanted, _probes(principal, host, allowing, Permission.ALLOW))
            if self._allows_without_acls:
                allowed |= {name for name in wanted - allowed if not acls.matching(name)}
            denying = _probes(principal, host, (operation, Operation.ALL), Permission.DENY)
            denied = acls.named(allowed, denying)
            return allowed - denied if denied else allowed

    def is_any_allowed(self, principal: str, host: str, operation: Operation, kind: ResourceType) -> bool:
        """Return whether the ACLs allow an operation on any resource of a type.

        Source: ``AclAuthorizer.authorizeByResourceType``; no operation implies another one here.
        """
        acls = self._types[kind]
        with self._lock:
            denied = _names(acls.literal_names, principal, host, operation, Permission.DENY)
            if ANY_NAME in denied:
                return False
            if self._allows_without_acls:
                return True
            denied_prefixes = _names(acls.prefixed_names, principal, host, operation, Permission.DENY)
            allowed = _names(acls.literal_names, principal, host, operation, Permission.ALLOW)
            allowed_prefixes = _names(acls.prefixed_names, principal, host, operation, Permission.ALLOW)
        if ANY_NAME in allowed:
            return True
        return any(not _has_denied_prefix(prefix, denied_prefixes) for prefix in allowed_prefixes) or any(
            name not in denied and not _has_denied_prefix(name, denied_prefixes) for name in allowed
        )


def _has(
    matching: list[frozenset[AccessControlEntry]],
    principal: str,
    host: str,
    operations: tuple[Operation, ...],
    permission: Permission,
) -> bool:
    """Return whether there is an entry for one of the operations, the principal and the host."""
    probes = _probes(principal, host, operations, permission)
    return any(probe in entries for entries in matching for probe in probes)


def _names(
    names: Mapping[_Probe, set[str]], principal: str, host: str, operation: Operation, permission: Permission
) -> set[str]:
    """Return the names of the patterns with an entry for the operation, the principal and the host."""
    probes = _probes(principal, host, (operation, Operation.ALL), permission)
    return set().union(*(names.get(probe, ()) for probe in probes))


def _probes(
    principal: str, host: str, operations: tuple[Operation, ...], permission: Permission
) -> list[_Probe]:
    return [
        (who, where, operation, permission)
        for operation in operations
        for who in (principal, ANY_PRINCIPAL)
        for where in (host, ANY_HOST)
    ]


def _has_denied_prefix(name: str, prefixes: set[str]) -> bool:
    return any(name.startswith(prefix) for prefix in prefixes)

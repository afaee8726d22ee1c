"""AclAuthorizer: decides by the ACLs that Kafka keeps in ZooKeeper, and changes them.

Source: ``kafka.security.authorizer.AclAuthorizer`` of Kafka 3.9. JVM brokers and ours read and write the same
nodes. A node that is no valid JSON lets super users alone in; Kafka takes it for one without ACLs.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from ctrlchan.authorizer.acl_cache import AclCache, VersionedAcls
from ctrlchan.authorizer.acl_nodes import AclNodes
from ctrlchan.authorizer.acls import (
    AccessControlEntry,
    AclBinding,
    AclFilter,
    Operation,
    ResourcePattern,
    ResourceType,
)
from ctrlchan.authorizer.audit_log import log_decision, logs_each_decision
from ctrlchan.authorizer.interface import Action, Authorizer, DeletedAcl, Requester
from ctrlchan.config import table
from ctrlchan.errors import ConfigError, ErrorCode, KafkaError, ZooKeeperError
from ctrlchan.zookeeper.session import ZooKeeperSession
from ctrlchan.zookeeper.settings import ZooKeeperSettings

__all__ = ["AclAuthorizer"]

_LOG: Final = logging.getLogger("ctrlchan.authorizer")

#: How often a node is written again that somebody else has changed meanwhile, and the pause in seconds.
_RETRIES: Final = 10
_BACKOFF: Final = 0.1
_BACKOFF_JITTER: Final = 0.05
#: Seconds that a request may wait for ZooKeeper, and until it is asked again after an error.
_REQUEST_SECONDS: Final = 30.0
_READ_AGAIN_SECONDS: Final = 0.5
#: How long ``close`` waits for the thread, which may wait for ZooKeeper.
_STOP_SECONDS: Final = 1.0

_Entries = frozenset[AccessControlEntry]
_NO_ACLS: Final = VersionedAcls()


class AclAuthorizer(Authorizer):
    """Kafka's authorizer on ZooKeeper. It has a session of its own, as Kafka's has.

    ``zookeeper``: where the broker's ZooKeeper is and how to connect; ``authorizer.zookeeper.url`` names
    other servers. ``name``: of the broker, for logs.
    """

    def __init__(self, zookeeper: ZooKeeperSettings, name: str = "broker") -> None:
        self._zookeeper = zookeeper
        self._name = name
        self._super_users: frozenset[str] = frozenset()
        self.cache = AclCache()
        self._session: ZooKeeperSession | None = None
        #: Set by ``configure``.
        self._nodes: AclNodes
        self._wake = threading.Event()
        self._reads_all = self._is_expired = False
        self._stopped = threading.Event()
        #: Held while a node is written or the cache is changed.
        self._changing = threading.Lock()
        self._thread = threading.Thread(target=self._follow, name=f"{name}-acls", daemon=True)

    def configure(self, configs: Mapping[str, str]) -> None:
        """Read all ACLs, and follow their changes from now on. Raises ConfigError, ZooKeeperError."""
        self._super_users = frozenset(_super_users(table.SUPER_USERS.of(configs)))
        self.cache = AclCache(allows_without_acls=table.ALLOW_EVERYONE_IF_NO_ACL_FOUND.of(configs))
        settings = self._zookeeper
        url = table.AUTHORIZER_ZOOKEEPER_URL.of(configs)
        if url:
            settings = replace(settings, connect=url)
        timeout = configs.get(table.AUTHORIZER_ZOOKEEPER_SESSION_TIMEOUT_MS.name)
        if timeout is not None:
            milliseconds = table.AUTHORIZER_ZOOKEEPER_SESSION_TIMEOUT_MS.parse(timeout)
            settings = replace(settings, session_timeout=milliseconds / 1000)
        self._session = ZooKeeperSession(settings, on_expired=self._expired, request_timeout=_REQUEST_SECONDS)
        try:
            self._session.start(settings.session_timeout)
            self._nodes = AclNodes(self._session)
            self._nodes.create_parents()
            self._read_all()
        except BaseException:
            self._session.close()
            raise
        self._thread.start()

    def close(self) -> None:
        """End the session and the thread."""
        self._stopped.set()
        self._wake.set()
        if self._session is not None:
            self._session.close()
        if self._thread.ident is not None:
            self._thread.join(_STOP_SECONDS)

    # -- decisions

    def authorize(self, requester: Requester, actions: Sequence[Action]) -> list[bool]:
        """Return for each action whether it is allowed."""
        is_super, cache = requester.principal in self._super_users, self.cache
        decisions = []
        for action in actions:
            pattern = action.pattern
            is_allowed = is_super or cache.is_allowed(
                requester.principal, requester.host, action.operation, pattern.resource_type, pattern.name
            )
            log_decision(requester, action, is_allowed)
            decisions.append(is_allowed)
        return decisions

    def allowed_names(
        self,
        requester: Requester,
        operation: Operation,
        kind: ResourceType,
        names: Mapping[str, int],
        *,
        logs_denied: bool,
    ) -> set[str] | None:
        """Return those of the names on which the operation is allowed, or None where each is logged."""
        if logs_each_decision():
            return None
        if requester.principal in self._super_users:
            return set(names)
        allowed = self.cache.allowed_names(requester.principal, requester.host, operation, kind, names)
        if logs_denied and len(allowed) < len(names):
            for name, references in names.items():
                if name not in allowed:
                    action = Action(operation, ResourcePattern(kind, name), references)
                    log_decision(requester, action, False)
        return allowed

    def authorize_any(self, requester: Requester, operation: Operation, kind: ResourceType) -> bool:
        """Return whether the operation is allowed on at least one resource of a type."""
        if requester.principal in self._super_users:
            return True
        is_allowed = self.cache.is_any_allowed(requester.principal, requester.host, operation, kind)
        # As Kafka's line: such a decision is about no name.
        log_decision(requester, Action(operation, ResourcePattern(kind, "NONE")), is_allowed)
        return is_allowed

    # -- ACLs

    def acls(self, filter: AclFilter) -> list[AclBinding]:
        """Return the bindings that a filter means."""
        return [one for one in self.cache.bindings() if filter.matches(one)]

    def create_acls(self, requester: Requester, bindings: Sequence[AclBinding]) -> list[KafkaError | None]:
        """Add bindings; return the error of each."""
        errors: dict[int, KafkaError] = {}
        by_pattern: dict[ResourcePattern, list[int]] = {}
        for place, binding in enumerate(bindings):
            if "/" in binding.pattern.name:
                errors[place] = KafkaError(ErrorCode.INVALID_REQUEST, "Failed to create ACL")
            else:
                by_pattern.setdefault(binding.pattern, []).append(place)
        for pattern, places in by_pattern.items():
            added = frozenset(bindings[place].entry for place in places)
            try:
                if not pattern.name or not all(":" in entry.principal for entry in added):
                    # Kafka has no node of this name, or cannot parse a principal of the resource's ACLs.
                    raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
                self._update(pattern, lambda entries, added=added: entries | added)  # type: ignore[misc]
            except KafkaError as error:
                errors |= dict.fromkeys(places, error)
        return [errors.get(place) for place in range(len(bindings))]

    def delete_acls(self, requester: Requester, filters: Sequence[AclFilter]) -> list[list[DeletedAcl]]:
        """Delete what the filters mean; return what each has found."""
        found: list[list[DeletedAcl]] = [[] for _ in filters]
        patterns = dict.fromkeys(self.cache.patterns())
        patterns |= dict.fromkeys(pattern for one in filters for pattern in one.pattern.named_patterns())
        for pattern in patterns:
            matching = [place for place, one in enumerate(filters) if one.pattern.matches(pattern)]
            if matching:
                for place, deleted in self._delete(pattern, filters, matching):
                    found[place].append(deleted)
        return found

    def _delete(
        self, pattern: ResourcePattern, filters: Sequence[AclFilter], matching: Sequence[int]
    ) -> list[tuple[int, DeletedAcl]]:
        """Delete entries of a pattern; return them with the place of the first filter that means each."""
        by_entry: dict[AccessControlEntry, int] = {}

        def remaining(entries: _Entries) -> _Entries:
            removed = set()
            for entry in sorted(entries):
                place = next((one for one in matching if filters[one].entry.matches(entry)), None)
                if place is not None:
                    by_entry.setdefault(entry, place)
                    removed.add(entry)
            return entries - removed

        failure = None
        try:
            self._update(pattern, remaining)
        except KafkaError as error:
            failure = error
        return [(place, DeletedAcl(AclBinding(pattern, one), failure)) for one, place in by_entry.items()]

    def _update(self, pattern: ResourcePattern, change: Callable[[_Entries], _Entries]) -> None:
        """Write what ``change`` makes of a pattern's entries. Raises KafkaError.

        A node that somebody else has changed is read again.
        """
        with self._changing:
            try:
                before = self.cache.get(pattern) or self._nodes.read([pattern])[0]
                for attempt in range(_RETRIES + 1):
                    if before.is_damaged:
                        raise KafkaError(
                            ErrorCode.UNKNOWN_SERVER_ERROR, f"The node with the ACLs of {pattern} is damaged."
                        )
                    after = self._nodes.write(pattern, change(before.entries), before)
                    if after is not None:
                        self._put(pattern, after)
                        return
                    if attempt < _RETRIES:
                        self._stopped.wait(_BACKOFF + random.uniform(0, _BACKOFF_JITTER))
                        before = self._nodes.read([pattern])[0]
            except ZooKeeperError as error:
                _LOG.error("%s: the ACLs of %s are not changed: %s", self._name, pattern, error)
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR) from error
        _LOG.error(
            "%s: the ACLs of %s are not changed: others changed them %d times", self._name, pattern, _RETRIES
        )
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)

    # -- what others change

    def _put(self, pattern: ResourcePattern, acls: VersionedAcls) -> None:
        """Take the ACLs of a pattern. Requires ``_changing``."""
        if self._take(pattern, acls):
            _LOG.info("%s: %s has %d ACLs now", self._name, pattern, len(acls.entries))
            self.changed()

    def _take(self, pattern: ResourcePattern, acls: VersionedAcls) -> bool:
        """Do the same without a line; return whether the entries have changed."""
        before = self.cache.get(pattern) or _NO_ACLS
        if acls == before:
            return False
        self.cache.put(pattern, acls)
        return acls.entries != before.entries

    def _expired(self) -> None:
        # Called by kazoo's own thread, which must not wait for ZooKeeper.
        self._is_expired = True
        self._wake.set()

    def _notified(self, _path: str) -> None:
        self._wake.set()

    def _follow(self) -> None:
        """Take the changes that notifications name; everything after a lost session or an error."""
        assert self._session is not None
        while True:
            self._wake.wait()
            self._wake.clear()
            if self._stopped.is_set():
                return
            try:
                if self._is_expired:
                    self._is_expired, self._reads_all = False, True
                    self._session.renew()
                if self._reads_all:
                    self._read_all()
                    self._reads_all = False
                else:
                    self._read_changes()
            except ZooKeeperError as error:
                if self._stopped.is_set():
                    return
                _LOG.warning("%s: the changed ACLs cannot be read: %s", self._name, error)
                self._reads_all = True
                self._stopped.wait(_READ_AGAIN_SECONDS)
                self._wake.set()

    def _read_all(self) -> None:
        # The watch is set before anything is read: what changes later is a change.
        self._nodes.watch(self._notified)
        with self._changing:
            gone = set(self.cache.patterns())
            count = 0
            for pattern, acls in self._nodes.read_all():
                gone.discard(pattern)
                count += self._take(pattern, acls)
            for pattern in gone:
                count += self._take(pattern, _NO_ACLS)
            if count:
                _LOG.info("%s: the ACLs of %d resource patterns are others now", self._name, count)
                self.changed()

    def _read_changes(self) -> None:
        patterns = self._nodes.read_changes(self._notified)
        # Read and taken under the lock: an older state of a node must not come after a newer one.
        with self._changing:
            for pattern, acls in zip(patterns, self._nodes.read(patterns), strict=True):
                self._put(pattern, acls)


def _super_users(text: str | None) -> Iterable[str]:
    """Return the principals of ``super.users``, which are separated by semicolons. Raises ConfigError."""
    if not text:
        return []
    users = [one.strip() for one in text.split(";")]
    # Java's split leaves out empty texts at the end.
    while users and not users[-1]:
        users.pop()
    for user in users:
        if ":" not in user:
            raise ConfigError(f"{table.SUPER_USERS}: {user!r} is not TYPE:NAME, such as User:alice")
    return users

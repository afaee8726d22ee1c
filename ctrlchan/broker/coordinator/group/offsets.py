"""Commits, reads, deletes and expires the offsets of groups.

Source: ``GroupCoordinator.doCommitOffsets``, and ``storeOffsets``, ``getOffsets`` and
``cleanupGroupMetadata`` of ``GroupMetadataManager``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from ctrlchan.broker.config.group_config import GroupConfig
from ctrlchan.broker.coordinator.common.partitions import TopicPartition
from ctrlchan.broker.coordinator.group.group import Group, GroupState
from ctrlchan.broker.coordinator.group.group_offsets import Offsets
from ctrlchan.broker.coordinator.group.rebalance import Rebalances
from ctrlchan.broker.coordinator.group.records import NO_TIMESTAMP, CommittedOffset
from ctrlchan.broker.coordinator.group.registry import GroupRegistry
from ctrlchan.broker.coordinator.group.requests import (
    NO_RETENTION,
    UNKNOWN_MEMBER,
    CommitRequest,
    FetchedOffset,
    OffsetToCommit,
)
from ctrlchan.broker.coordinator.group.store import GroupStore
from ctrlchan.errors import ErrorCode

__all__ = ["CommitCallback", "Committing", "OffsetCleaner", "fetch_offsets"]

_LOG = logging.getLogger(__name__)

CommitCallback = Callable[[dict[TopicPartition, ErrorCode]], None]


class Committing:
    """OffsetCommit. Every method requires the lock of its group."""

    def __init__(
        self, config: GroupConfig, rebalances: Rebalances, store: GroupStore, now_ms: Callable[[], int]
    ) -> None:
        self._config = config
        self._rebalances = rebalances
        self._store = store
        self._now_ms = now_ms

    def commit(self, group: Group, request: CommitRequest, callback: CommitCallback) -> None:
        """Check who commits, append the offsets, and answer when they are stored."""
        error = _error_of_committer(group, request)
        if not error and group.state is GroupState.COMPLETING_REBALANCE:
            error = ErrorCode.REBALANCE_IN_PROGRESS
        if error:
            group.answer(callback, {each.partition: error for each in request.offsets})
            return
        if group.state is not GroupState.EMPTY:
            # A commit is a sign of life, as a heartbeat is.
            self._rebalances.renew_session(group, group.members[request.member_id])
        self._store_offsets(group, request, callback)

    def _store_offsets(self, group: Group, request: CommitRequest, callback: CommitCallback) -> None:
        now = self._now_ms()
        expire_timestamp = NO_TIMESTAMP if request.retention == NO_RETENTION else now + request.retention
        errors: dict[TopicPartition, ErrorCode] = {}
        offsets: Offsets = {}
        for each in request.offsets:
            if _java_length(each.metadata or "") > self._config.offset_metadata_max:
                errors[each.partition] = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                offsets[each.partition] = _committed(each, now, expire_timestamp)
        if not offsets:
            group.answer(callback, errors)
            return
        group.offsets.prepare(offsets)

        def stored(error: ErrorCode, record_offset: int) -> None:
            if group.state is not GroupState.DEAD:
                if error:
                    group.offsets.fail(offsets)
                else:
                    group.offsets.complete(offsets, record_offset)
            group.answer(
                callback,
                {each.partition: errors.get(each.partition, error) for each in request.offsets},
            )

        self._store.store_offsets(group, offsets, stored)


def fetch_offsets(
    group: Group | None, partitions: Sequence[TopicPartition] | None, *, require_stable: bool
) -> dict[TopicPartition, FetchedOffset]:
    """Return the committed offsets of `partitions`, of all with an offset when None.

    `require_stable` (version 7 and later): UNSTABLE_OFFSET_COMMIT while a commit is not complete (KIP-447).
    """
    if group is None:
        return dict.fromkeys(partitions or (), FetchedOffset())
    with group.locked():
        if group.state is GroupState.DEAD:
            return dict.fromkeys(partitions or (), FetchedOffset())
        wanted = group.offsets.partitions() if partitions is None else partitions
        return {
            partition: FetchedOffset(error=ErrorCode.UNSTABLE_OFFSET_COMMIT)
            if require_stable and group.offsets.is_unstable(partition)
            else _fetched(group.offsets.get(partition))
            for partition in wanted
        }


class OffsetCleaner:
    """Removes offsets from groups, and groups that have none left. The caller holds no group's lock."""

    def __init__(self, config: GroupConfig, registry: GroupRegistry, store: GroupStore) -> None:
        self._config = config
        self._registry = registry
        self._store = store

    def expire(self, now_ms: int) -> int:
        """Remove the offsets whose retention is over; return how many."""
        return self._clean(
            self._registry.groups(), lambda group: _expire(group, now_ms, self._config.offsets_retention)
        )

    def remove(self, groups: Iterable[Group], partitions: Sequence[TopicPartition] | None) -> int:
        """Remove the offsets of `partitions`, or all, from the groups; return how many there were."""

        def removed(group: Group) -> list[TopicPartition]:
            return group.offsets.remove(group.offsets.partitions() if partitions is None else partitions)

        return self._clean(groups, removed)

    def _clean(self, groups: Iterable[Group], select: Callable[[Group], list[TopicPartition]]) -> int:
        count = 0
        for group in groups:
            with group.locked():
                removed = select(group)
                if group.state is GroupState.EMPTY and not group.offsets.any:
                    group.transition_to(GroupState.DEAD)
                known = group.state is GroupState.DEAD and self._registry.remove(group)
                # A group of generation 0 was never stored: it only has offsets.
                with_group = known and group.generation_id > 0
                if known:
                    _LOG.info("group %.100r is deleted, generation %d", group.group_id, group.generation_id)
                if removed or with_group:
                    self._store.store_tombstones(group, removed, with_group=with_group)
                count += len(removed)
        return count


def _error_of_committer(group: Group, request: CommitRequest) -> ErrorCode:
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if request.generation_id < 0 and group.state is GroupState.EMPTY:
        # An admin client, or a consumer that assigns partitions itself.
        return ErrorCode.NONE
    if request.generation_id < 0 and request.member_id == UNKNOWN_MEMBER and request.instance_id is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = group.error_of_member(request.member_id, request.instance_id)
    if not error and request.generation_id != group.generation_id:
        error = ErrorCode.ILLEGAL_GENERATION
    return error


def _expire(group: Group, now_ms: int, retention: int) -> list[TopicPartition]:
    """Remove the offsets that expire in the group's state.

    Empty: a retention after the group became empty. Stable consumers: a retention after the last commit, for
    topics that nobody is subscribed to. Without a protocol type (a consumer without group management): a
    retention after the last commit. Other groups: never.
    """
    if group.protocol_type is not None and group.state is GroupState.EMPTY:
        since = group.state_timestamp
        return group.offsets.expire(
            now_ms, retention, lambda offset: offset.commit_timestamp if since is None else since
        )
    if group.is_consumer_group and group.subscribed_topics is not None and group.state is GroupState.STABLE:
        return group.offsets.expire(now_ms, retention, _commit_timestamp, group.subscribed_topics)
    if group.protocol_type is None:
        return group.offsets.expire(now_ms, retention, _commit_timestamp)
    return []


def _commit_timestamp(offset: CommittedOffset) -> int:
    return offset.commit_timestamp


def _committed(each: OffsetToCommit, now: int, expire_timestamp: int) -> CommittedOffset:
    return CommittedOffset(
        each.offset,
        each.leader_epoch,
        each.metadata or "",
        now if each.commit_timestamp == NO_TIMESTAMP else each.commit_timestamp,
        expire_timestamp,
    )


def _fetched(offset: CommittedOffset | None) -> FetchedOffset:
    if offset is None:
        return FetchedOffset()
    return FetchedOffset(offset.offset, offset.leader_epoch, offset.metadata)


def _java_length(text: str) -> int:
    """Return ``String.length``: UTF-16 units."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2

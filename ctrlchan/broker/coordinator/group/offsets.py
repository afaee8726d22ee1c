"""Commits, reads, deletes and expires the offsets of groups.

Source: ``doCommitOffsets`` and ``doTxnCommitOffsets`` of ``GroupCoordinator``, and ``storeOffsets``,
``getOffsets`` and ``cleanupGroupMetadata`` of ``GroupMetadataManager``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ctrlchan.broker.config.group_config import GroupConfig
from ctrlchan.broker.coordinator.common.partitions import TopicPartition
from ctrlchan.broker.coordinator.common.topic import BatchProducer
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
    TransactionalCommitRequest,
)
from ctrlchan.broker.coordinator.group.store import GroupStore
from ctrlchan.errors import ErrorCode
from ctrlchan.log_context import ContextLogger

__all__ = ["CommitCallback", "Committing", "OffsetCleaner", "fetch_offsets", "java_length"]

CommitCallback = Callable[[dict[TopicPartition, ErrorCode]], None]


class Committing:
    """OffsetCommit and TxnOffsetCommit. Every method requires the lock of its group."""

    def __init__(
        self,
        config: GroupConfig,
        registry: GroupRegistry,
        rebalances: Rebalances,
        store: GroupStore,
        now_ms: Callable[[], int],
    ) -> None:
        self._config = config
        self._registry = registry
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

    def commit_in_transaction(
        self,
        group: Group,
        request: TransactionalCommitRequest,
        verification_guard: int,
        callback: CommitCallback,
    ) -> None:
        """Check who commits, append the offsets as a part of a transaction, and answer when they are stored.

        A producer that names no member may always commit. A commit renews no session, and a rebalance
        refuses none.
        """
        error = _error_of_member(group, request) or _error_of_producer(request)
        if error:
            group.answer(callback, {each.partition: error for each in request.offsets})
            return
        offsets, errors = self._accepted(request.offsets, NO_TIMESTAMP)
        if not offsets:
            group.answer(callback, errors)
            return
        group.note_commit(in_transaction=True)
        commit = group.offsets.prepare_in_transaction(request.producer_id, offsets)
        self._registry.open_transaction(request.producer_id, group)

        def stored(error: ErrorCode, record_offset: int) -> None:
            if group.state is not GroupState.DEAD:
                if record_offset >= 0:
                    # After an error too (REQUEST_TIMED_OUT): the marker will decide about the records in the
                    # log. Kafka forgets them, and knows again of those that survive when it loads the group.
                    group.offsets.complete_in_transaction(commit, record_offset)
                else:
                    group.offsets.fail_in_transaction(commit)
                    self._close_transaction(group, request.producer_id)
            _answer(group, callback, request.offsets, errors, error)

        producer = BatchProducer(request.producer_id, request.producer_epoch, verification_guard)
        self._store.store_offsets(group, offsets, stored, producer)

    def end_transaction(self, group: Group, producer_id: int, *, commits: bool) -> None:
        """Commit or forget the offsets of a transaction."""
        if group.state is not GroupState.DEAD:
            group.offsets.end_transaction(producer_id, commits=commits)
            self._close_transaction(group, producer_id)

    def _close_transaction(self, group: Group, producer_id: int) -> None:
        if not group.offsets.has_transaction(producer_id):
            self._registry.close_transaction(producer_id, group)

    def _store_offsets(self, group: Group, request: CommitRequest, callback: CommitCallback) -> None:
        expire_timestamp = (
            NO_TIMESTAMP if request.retention == NO_RETENTION else self._now_ms() + request.retention
        )
        offsets, errors = self._accepted(request.offsets, expire_timestamp)
        if not offsets:
            group.answer(callback, errors)
            return
        group.note_commit(in_transaction=False)
        group.offsets.prepare(offsets)

        def stored(error: ErrorCode, record_offset: int) -> None:
            if group.state is not GroupState.DEAD:
                if error:
                    group.offsets.fail(offsets)
                else:
                    group.offsets.complete(offsets, record_offset)
            _answer(group, callback, request.offsets, errors, error)

        self._store.store_offsets(group, offsets, stored)

    def _accepted(
        self, requested: Iterable[OffsetToCommit], expire_timestamp: int
    ) -> tuple[Offsets, dict[TopicPartition, ErrorCode]]:
        """Return the offsets to store, and the errors of the other ones."""
        now = self._now_ms()
        offsets: Offsets = {}
        errors: dict[TopicPartition, ErrorCode] = {}
        for each in requested:
            if java_length(each.metadata or "") > self._config.offset_metadata_max:
                errors[each.partition] = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                offsets[each.partition] = _committed(each, now, expire_timestamp)
        return offsets, errors


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

    def __init__(
        self, config: GroupConfig, registry: GroupRegistry, store: GroupStore, log: ContextLogger
    ) -> None:
        self._log = log
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
                    self._log.info(
                        "group %.100r is deleted, generation %d", group.group_id, group.generation_id
                    )
                if removed or with_group:
                    self._store.store_tombstones(group, removed, with_group=with_group)
                count += len(removed)
        return count


def _answer(
    group: Group,
    callback: CommitCallback,
    offsets: Iterable[OffsetToCommit],
    errors: dict[TopicPartition, ErrorCode],
    error: ErrorCode,
) -> None:
    """Answer a commit: `error` for the offsets that have none of their own."""
    group.answer(callback, {each.partition: errors.get(each.partition, error) for each in offsets})


def _names_nobody(request: CommitRequest | TransactionalCommitRequest) -> bool:
    return request.generation_id < 0 and request.member_id == UNKNOWN_MEMBER and request.instance_id is None


def _error_of_committer(group: Group, request: CommitRequest) -> ErrorCode:
    if group.state not in {GroupState.DEAD, GroupState.EMPTY} and _names_nobody(request):
        return ErrorCode.UNKNOWN_MEMBER_ID
    return _error_of_member(group, request)


def _error_of_member(group: Group, request: CommitRequest | TransactionalCommitRequest) -> ErrorCode:
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if request.generation_id < 0 and group.state is GroupState.EMPTY:
        # An admin client, or a consumer that assigns partitions itself.
        return ErrorCode.NONE
    if _names_nobody(request):
        return ErrorCode.NONE
    error = group.error_of_member(request.member_id, request.instance_id)
    if not error and request.generation_id != group.generation_id:
        error = ErrorCode.ILLEGAL_GENERATION
    return error


def _error_of_producer(request: TransactionalCommitRequest) -> ErrorCode:
    """Return the error of ids that no producer has: the verification finds them, if there is one."""
    if request.producer_id < 0:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return ErrorCode.INVALID_PRODUCER_EPOCH if request.producer_epoch < 0 else ErrorCode.NONE


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


def java_length(text: str) -> int:
    """Return ``String.length``: UTF-16 units."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2

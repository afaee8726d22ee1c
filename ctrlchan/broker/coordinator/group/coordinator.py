"""The requests of groups, and the leadership of partitions of ``__consumer_offsets``.

Source: ``kafka.coordinator.group.GroupCoordinator``.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

from ctrlchan.broker.config.group_config import GroupConfig
from ctrlchan.broker.coordinator.common.partitions import TopicPartition
from ctrlchan.broker.coordinator.common.purgatory import Purgatory
from ctrlchan.broker.coordinator.common.timing_wheel import Timer, Timers
from ctrlchan.broker.coordinator.common.topic import CoordinatorTopic
from ctrlchan.broker.coordinator.group.group import Group, GroupState
from ctrlchan.broker.coordinator.group.joining import Joining
from ctrlchan.broker.coordinator.group.loading import load_groups
from ctrlchan.broker.coordinator.group.members import JoinCallback, SyncCallback
from ctrlchan.broker.coordinator.group.offsets import CommitCallback, Committing, OffsetCleaner, fetch_offsets
from ctrlchan.broker.coordinator.group.rebalance import Rebalances
from ctrlchan.broker.coordinator.group.registry import GroupRegistry, TransactionEnd
from ctrlchan.broker.coordinator.group.requests import (
    UNKNOWN_MEMBER,
    CommitRequest,
    FetchedOffset,
    GroupFigures,
    GroupOverview,
    GroupSummary,
    HeartbeatRequest,
    JoinRequest,
    JoinResult,
    LeaveResult,
    LeavingMember,
    LeftMember,
    SyncRequest,
    SyncResult,
    TransactionalCommitRequest,
)
from ctrlchan.broker.coordinator.group.store import GroupStore, offset_error
from ctrlchan.broker.coordinator.group.syncing import Syncing
from ctrlchan.broker.coordinator.group.verification import Verify, unverified
from ctrlchan.errors import ErrorCode
from ctrlchan.log_context import ContextLogger

__all__ = ["GroupCoordinator"]

_LOG = logging.getLogger(__name__)

_CLASSIC: Final = "classic"


class GroupCoordinator:
    """The coordinator of the groups whose partition of ``__consumer_offsets`` this broker leads.

    Any thread may call every method. The thread that brings an answer calls the callback, without a lock.
    `now_ms` returns milliseconds since 1970. `verify` asks whether a commit belongs to an open transaction.
    """

    def __init__(
        self,
        broker_id: int,
        config: GroupConfig,
        topic: CoordinatorTopic,
        timers: Timers,
        now_ms: Callable[[], int],
        verify: Verify = unverified,
    ) -> None:
        self._log = ContextLogger(_LOG, f"[GroupCoordinator {broker_id}]: ")
        # Of what Kafka has in its GroupMetadataManager.
        self._storage_log = ContextLogger(_LOG, f"[GroupMetadataManager brokerId={broker_id}] ")
        self._config = config
        self._topic = topic
        self._timers = timers
        self._now_ms = now_ms
        self._verify = verify
        self._registry = GroupRegistry(config.offsets_topic_partitions, now_ms)
        self._purgatory = Purgatory(timers)
        acks = config.offsets_commit_required_acks
        store = GroupStore(topic, self._registry.partition_for, now_ms, self._storage_log, acks)
        self._rebalances = Rebalances(config, store, timers, self._purgatory, self._log)
        self._joining = Joining(config, self._rebalances, store, self._log)
        self._syncing = Syncing(self._rebalances, store)
        self._committing = Committing(config, self._registry, self._rebalances, store, now_ms)
        self._cleaner = OffsetCleaner(config, self._registry, store, self._storage_log)
        self._active = False
        self._expiration: Timer | None = None

    # Life cycle and leadership

    def start(self) -> None:
        """Answer requests from now on, and expire offsets from time to time."""
        self._active = True
        self._expire_offsets()

    def close(self) -> None:
        """Answer requests with COORDINATOR_NOT_AVAILABLE from now on."""
        self._active = False
        if self._expiration is not None:
            self._expiration.cancel()

    def elected(self, partition: int, epoch: int) -> None:
        """Load the groups of a partition that this broker leads since leader epoch `epoch`.

        Reads the whole partition, so it runs on a background thread: one for all calls of ``elected`` and
        ``resigned``, in the order of the controller's requests. A partition whose log cannot be read is
        served without groups, as in Kafka.
        """
        if not self._registry.begin_loading(partition, epoch):
            return
        try:
            groups = load_groups(self._topic.read(partition), self._now_ms, self._storage_log)
            for group in groups:
                if self._registry.add_loaded(group, partition):
                    with group.locked():
                        self._rebalances.resume(group)
                        for producer_id in group.offsets.producers:
                            self._registry.open_transaction(producer_id, group)
            self._storage_log.info(
                "partition %d of the offsets topic: %d groups loaded", partition, len(groups)
            )
        except Exception:  # noqa: BLE001 - the partition is served all the same
            self._storage_log.exception("partition %d of the offsets topic cannot be loaded", partition)
        finally:
            while ended := self._registry.end_loading(partition):
                for each in ended:
                    self._end_transaction(
                        each, self._registry.groups_with_transaction(each.producer_id, partition)
                    )

    def resigned(self, partition: int, epoch: int | None) -> None:
        """Forget the groups of a partition that another broker leads; no `epoch` if the replica is gone."""
        for group in self._registry.take_away(partition, epoch):
            with group.locked():
                self._rebalances.unload(group)

    def partitions_deleted(self, partitions: Sequence[TopicPartition]) -> None:
        """Remove the offsets of partitions whose topics are deleted."""
        self._cleaner.remove(self._registry.groups(), partitions)

    def use_partitions(self, count: int) -> None:
        """Take `count` for the number of partitions of ``__consumer_offsets``, instead of the setting."""
        self._registry.partitions = count

    def partition_for(self, group_id: str) -> int:
        """Return the partition of ``__consumer_offsets`` whose leader is the group's coordinator."""
        return self._registry.partition_for(group_id)

    # Membership

    def join(self, request: JoinRequest, callback: JoinCallback) -> None:
        """JoinGroup: answered when the rebalance is complete."""
        error = self._error_of(request.group_id)
        if not error and not (
            self._config.min_session_timeout <= request.session_timeout <= self._config.max_session_timeout
        ):
            error = ErrorCode.INVALID_SESSION_TIMEOUT
        group = None
        if not error:
            if request.member_id == UNKNOWN_MEMBER:
                group = self._registry.find_or_create(request.group_id)
                error = ErrorCode.NONE if group is not None else ErrorCode.NOT_COORDINATOR
            else:
                group = self._registry.find(request.group_id)
                error = ErrorCode.NONE if group is not None else ErrorCode.UNKNOWN_MEMBER_ID
        if group is None:
            callback(JoinResult(error, request.member_id))
            return
        with group.locked():
            self._joining.join(group, request, callback)

    def sync(self, request: SyncRequest, callback: SyncCallback) -> None:
        """SyncGroup: answered when the leader's assignments are stored."""
        error = self._error_of(request.group_id)
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            # The rebalance is lost. Old clients do not expect the error; with this one they join again.
            error = ErrorCode.REBALANCE_IN_PROGRESS
        group = None if error else self._registry.find(request.group_id)
        if group is None:
            callback(SyncResult(error or ErrorCode.UNKNOWN_MEMBER_ID))
            return
        with group.locked():
            self._syncing.sync(group, request, callback)

    def heartbeat(self, request: HeartbeatRequest) -> ErrorCode:
        """Heartbeat: renew the member's session."""
        error = self._error_of(request.group_id)
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return ErrorCode.NONE  # the sessions begin when the group is loaded
        group = None if error else self._registry.find(request.group_id)
        if group is None:
            return error or ErrorCode.UNKNOWN_MEMBER_ID
        with group.locked():
            error = group.error_of_request(request.member_id, request.instance_id, request.generation_id)
            if not error:
                self._rebalances.renew_session(group, group.members[request.member_id])
                if group.state is GroupState.PREPARING_REBALANCE:
                    error = ErrorCode.REBALANCE_IN_PROGRESS
            return error

    def leave(self, group_id: str, members: Sequence[LeavingMember]) -> LeaveResult:
        """LeaveGroup: remove the members. Before version 3 there is one, whose error is the response's."""
        error = self._error_of(group_id)
        if error:
            return LeaveResult(error)
        group = self._registry.find(group_id)
        if group is None:
            unknown = ErrorCode.UNKNOWN_MEMBER_ID
            return LeaveResult(
                ErrorCode.NONE, tuple(LeftMember(m.member_id, m.instance_id, unknown) for m in members)
            )
        with group.locked():
            if group.state is GroupState.DEAD:
                return LeaveResult(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return LeaveResult(
                ErrorCode.NONE,
                tuple(LeftMember(m.member_id, m.instance_id, self._leave(group, m)) for m in members),
            )

    # Groups

    def describe(self, group_id: str) -> GroupSummary:
        """DescribeGroups: a group that does not exist is Dead."""
        error = self._error_of(group_id, empty_allowed=True)
        if error:
            return GroupSummary(error)
        group = self._registry.find(group_id)
        if group is None:
            return GroupSummary(ErrorCode.NONE, GroupState.DEAD.value)
        with group.locked():
            return group.summary()

    def list_groups(
        self, states: Collection[str] = (), types: Collection[str] = ()
    ) -> tuple[ErrorCode, list[GroupOverview]]:
        """ListGroups: the groups in `states` and of `types`, by any case of letters; all when empty."""
        if not self._active:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, []
        error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if self._registry.loading else ErrorCode.NONE
        wanted = {state.lower() for state in states}
        if types and _CLASSIC not in {each.lower() for each in types}:
            return error, []
        return error, [
            GroupOverview(group.group_id, group.protocol_type or "", group.state.value)
            for group in self._registry.groups()
            if not wanted or group.state.value.lower() in wanted
        ]

    def delete(self, group_ids: Iterable[str]) -> dict[str, ErrorCode]:
        """DeleteGroups: remove groups without members, with their offsets."""
        return {group_id: self._delete(group_id) for group_id in dict.fromkeys(group_ids)}

    # Offsets

    def commit(self, request: CommitRequest, callback: CommitCallback) -> None:
        """OffsetCommit: answered when the offsets are stored.

        A commit without a generation creates the group if there is none: its consumer assigns partitions
        itself.
        """
        error = self._error_of(request.group_id, empty_allowed=True)
        group = None if error else self._registry.find(request.group_id)
        if group is None and not error:
            if request.generation_id < 0:
                group = self._registry.find_or_create(request.group_id)
                error = ErrorCode.NONE if group is not None else ErrorCode.NOT_COORDINATOR
            else:
                error = ErrorCode.ILLEGAL_GENERATION
        if group is None:
            callback({each.partition: error for each in request.offsets})
            return
        with group.locked():
            self._committing.commit(group, request, callback)

    def commit_in_transaction(self, request: TransactionalCommitRequest, callback: CommitCallback) -> None:
        """TxnOffsetCommit: answered when the offsets are stored, which count when the transaction commits.

        Creates the group if there is none. The transaction is verified first (KIP-890).
        """
        error = self._error_of(request.group_id)
        group = None if error else self._registry.find_or_create(request.group_id)
        if group is None:
            error = error or ErrorCode.NOT_COORDINATOR
            callback({each.partition: error for each in request.offsets})
            return

        def verified(error: int, guard: int) -> None:
            if error:
                callback({each.partition: offset_error(error) for each in request.offsets})
                return
            with group.locked():
                self._committing.commit_in_transaction(group, request, guard, callback)

        self._verify(self._registry.partition_for(request.group_id), request, verified)

    def complete_transactions(self, producer_id: int, partitions: Collection[int], commit: bool) -> None:
        """Commit or forget the offsets of a transaction whose marker is in these partitions of the topic.

        The caller holds no lock, and acknowledges the marker after this: before that the producer begins no
        other transaction, so all offsets of it here belong to the one that has ended.
        """
        ended = TransactionEnd(producer_id, commit)
        self._end_transaction(ended, self._registry.end_transaction(ended, partitions))

    def fetch(
        self, group_id: str, partitions: Sequence[TopicPartition] | None, *, require_stable: bool = False
    ) -> tuple[ErrorCode, dict[TopicPartition, FetchedOffset]]:
        """OffsetFetch: the committed offsets of `partitions`, or of all partitions."""
        error = self._error_of(group_id, empty_allowed=True)
        if error:
            return error, {}
        return error, fetch_offsets(self._registry.find(group_id), partitions, require_stable=require_stable)

    def delete_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition]
    ) -> tuple[ErrorCode, dict[TopicPartition, ErrorCode]]:
        """OffsetDelete: remove offsets of topics that no member consumes (KIP-496)."""
        error = self._error_of(group_id)
        if error:
            return error, {}
        group = self._registry.find(group_id)
        if group is None:
            return self._error_of_missing(group_id), {}
        with group.locked():
            if group.state is GroupState.DEAD:
                return self._error_of_missing(group_id), {}
            if group.state is not GroupState.EMPTY and not group.is_consumer_group:
                return ErrorCode.NON_EMPTY_GROUP, {}
            consumed = {
                partition: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
                for partition in partitions
                if group.state is not GroupState.EMPTY and group.is_subscribed_to(partition.topic)
            }
        removed = [partition for partition in partitions if partition not in consumed]
        if removed:
            self._cleaner.remove([group], removed)
        return ErrorCode.NONE, dict.fromkeys(removed, ErrorCode.NONE) | consumed

    def expire_offsets(self) -> int:
        """Remove offsets whose retention is over, and Empty groups without any; return how many offsets."""
        return self._cleaner.expire(self._now_ms())

    # Figures

    def figures(self) -> GroupFigures:
        """Return how many groups, offsets and delayed operations there are."""
        states: Counter[str] = Counter({state.value: 0 for state in GroupState})
        offsets = sessions = 0
        for group in self._registry.groups():
            with group.locked():
                states[group.state.value] += 1
                offsets += len(group.offsets)
                sessions += len(group.members) + len(group.pending_members)
        return GroupFigures(states, offsets, sessions, len(self._purgatory))

    # Parts

    def _end_transaction(self, ended: TransactionEnd, groups: Iterable[Group]) -> None:
        for group in groups:
            with group.locked():
                self._committing.end_transaction(group, ended.producer_id, commits=ended.commits)

    def _expire_offsets(self) -> None:
        if not self._active:
            return
        try:
            self.expire_offsets()
        finally:
            self._expiration = self._timers.after(
                self._config.offsets_retention_check_interval / 1000, self._expire_offsets
            )

    def _error_of(self, group_id: str, *, empty_allowed: bool = False) -> ErrorCode:
        """Return the error of every request for the group. `empty_allowed`: whether its name may be empty."""
        if not group_id and not empty_allowed:
            return ErrorCode.INVALID_GROUP_ID
        if not self._active:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return self._registry.error_of(group_id)

    def _error_of_missing(self, group_id: str) -> ErrorCode:
        served = not self._registry.error_of(group_id)
        return ErrorCode.GROUP_ID_NOT_FOUND if served else ErrorCode.NOT_COORDINATOR

    def _leave(self, group: Group, leaving: LeavingMember) -> ErrorCode:
        member_id = leaving.member_id
        if member_id == UNKNOWN_MEMBER:
            # An admin client removes a static member.
            if leaving.instance_id not in group.static_members:
                return ErrorCode.UNKNOWN_MEMBER_ID
            member_id = group.static_members[leaving.instance_id]
        elif member_id in group.pending_members:
            self._rebalances.remove_pending_member(group, member_id)
            return ErrorCode.NONE
        else:
            error = group.error_of_member(member_id, leaving.instance_id)
            if error:
                return error
        self._log.info(
            "group %.100r: %.100r leaves; the client's reason: %.100r",
            group.group_id,
            member_id,
            leaving.reason,
        )
        self._rebalances.remove_member(group, member_id, f"{member_id} has left")
        return ErrorCode.NONE

    def _delete(self, group_id: str) -> ErrorCode:
        error = self._error_of(group_id, empty_allowed=True)
        if error:
            return error
        group = self._registry.find(group_id)
        if group is None:
            return self._error_of_missing(group_id)
        with group.locked():
            if group.state is GroupState.DEAD:
                return self._error_of_missing(group_id)
            if group.state is not GroupState.EMPTY:
                return ErrorCode.NON_EMPTY_GROUP
            group.transition_to(GroupState.DEAD)
        self._cleaner.remove([group], None)
        return ErrorCode.NONE

"""Rebalances of a group, and the sessions of its members.

Source: ``kafka.coordinator.group.{GroupCoordinator,DelayedJoin,DelayedSync,DelayedHeartbeat}``.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from contextlib import AbstractContextManager
from typing import Final

from ctrlchan.broker.config.group_config import GroupConfig
from ctrlchan.broker.coordinator.common.purgatory import DelayedOperation, Purgatory
from ctrlchan.broker.coordinator.common.timing_wheel import Timers
from ctrlchan.broker.coordinator.group.group import Group, GroupState
from ctrlchan.broker.coordinator.group.members import Member
from ctrlchan.broker.coordinator.group.requests import JoinResult, SyncResult
from ctrlchan.broker.coordinator.group.store import GroupStore
from ctrlchan.errors import ErrorCode
from ctrlchan.log_context import ContextLogger

__all__ = ["NEW_MEMBER_JOIN_TIMEOUT", "Rebalances"]

#: Milliseconds that a new member's JoinGroup may wait (``NewMemberJoinTimeoutMs``). A new member cannot send
#: heartbeats, and one whose client went away would otherwise stay for the whole rebalance.
NEW_MEMBER_JOIN_TIMEOUT: Final = 300_000

_MILLISECOND: Final = 0.001


class _GroupOperation(DelayedOperation):
    """An operation that waits for a change of one group."""

    def __init__(self, rebalances: Rebalances, group: Group, timeout: int) -> None:
        super().__init__(timeout * _MILLISECOND)
        self.rebalances = rebalances
        self.group = group

    def lock(self) -> AbstractContextManager[object]:
        return self.group.locked()


class _DelayedJoin(_GroupOperation):
    """Waits until all members have joined. Members that have not joined in time are removed."""

    def try_complete(self) -> bool:
        over = self.group.all_members_joined or self.group.state is GroupState.DEAD
        return over and self.force_complete()

    def on_complete(self) -> None:
        with self.group.locked():
            self.rebalances.complete_join(self.group)


class _InitialDelayedJoin(_DelayedJoin):
    """Lets the first members arrive: each new one extends the time, up to the rebalance timeout."""

    def __init__(
        self, rebalances: Rebalances, group: Group, delay: int, timeout: int, remaining: int
    ) -> None:
        super().__init__(rebalances, group, timeout)
        self.delay = delay
        self.timeout = timeout
        self.remaining = remaining

    def try_complete(self) -> bool:
        return False

    def on_complete(self) -> None:
        with self.group.locked():
            if not (self.group.new_member_added and self.remaining):
                self.rebalances.complete_join(self.group)
                return
            self.group.new_member_added = False
            self.rebalances.await_join(
                _InitialDelayedJoin(
                    self.rebalances,
                    self.group,
                    self.delay,
                    min(self.delay, self.remaining),
                    max(self.remaining - self.timeout, 0),
                )
            )


class _DelayedSync(_GroupOperation):
    """Waits until all members have sent SyncGroup. Members that have not in time are removed."""

    def __init__(self, rebalances: Rebalances, group: Group) -> None:
        super().__init__(rebalances, group, group.rebalance_timeout)
        self.generation_id = group.generation_id

    @property
    def over(self) -> bool:
        """Whether no member has to send SyncGroup any more."""
        group = self.group
        return (
            group.generation_id != self.generation_id
            or group.state not in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE)
            or not group.pending_sync
        )

    def try_complete(self) -> bool:
        return self.over and self.force_complete()

    def on_expiration(self) -> None:
        with self.group.locked():
            if not self.over:
                self.rebalances.expire_sync(self.group)


class Rebalances:
    """Begins and completes rebalances, and removes members whose session ends.

    Every method requires the lock of its group; timers take it themselves.
    """

    def __init__(
        self,
        config: GroupConfig,
        store: GroupStore,
        timers: Timers,
        purgatory: Purgatory,
        log: ContextLogger,
    ) -> None:
        self._log = log
        self._config = config
        self._store = store
        self._timers = timers
        self._purgatory = purgatory

    # Sessions

    def renew_session(self, group: Group, member: Member, timeout: int | None = None) -> None:
        """Let the member's session, or `timeout` milliseconds, begin now."""
        member.end_session_timer()
        milliseconds = member.session_timeout if timeout is None else timeout
        member.session = self._timers.after(
            milliseconds * _MILLISECOND, lambda: self._expire_session(group, member)
        )

    def add_pending_member(self, group: Group, member_id: str, timeout: int) -> None:
        """Expect a JoinGroup with this new member id within `timeout` milliseconds."""
        group.pending_members[member_id] = self._timers.after(
            timeout * _MILLISECOND, lambda: self._expire_pending_member(group, member_id)
        )

    def _expire_session(self, group: Group, member: Member) -> None:
        with group.locked():
            # A member that waits for an answer is alive; its session begins again with the answer.
            if (
                group.state is GroupState.DEAD
                or group.members.get(member.member_id) is not member
                or member.waits
            ):
                return
            self.remove_member(group, member.member_id, f"the session of {member.member_id} has ended")

    def _expire_pending_member(self, group: Group, member_id: str) -> None:
        with group.locked():
            if group.state is not GroupState.DEAD and member_id in group.pending_members:
                self._log.info(
                    "group %.100r: %.100r did not join with its member id", group.group_id, member_id
                )
                self.remove_pending_member(group, member_id)

    # Members leave

    def remove_member(self, group: Group, member_id: str, reason: str) -> None:
        """Remove a member, and rebalance those that stay."""
        group.remove(member_id)
        if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self.prepare(group, reason)
        else:
            self.check_join(group)

    def remove_pending_member(self, group: Group, member_id: str) -> None:
        """Forget a member id that was given out; a rebalance waits for it no longer."""
        group.remove(member_id)
        self.check_join(group)

    # JoinGroup

    def maybe_prepare(self, group: Group, reason: str) -> None:
        """Begin a rebalance, unless one has begun."""
        if group.can_rebalance:
            self.prepare(group, reason)

    def prepare(self, group: Group, reason: str) -> None:
        """Begin a rebalance: members learn of it by REBALANCE_IN_PROGRESS and join again."""
        if group.state is GroupState.COMPLETING_REBALANCE:
            self.fail_assignment(group, ErrorCode.REBALANCE_IN_PROGRESS)
        self.cancel_sync(group)
        operation: _DelayedJoin
        if group.state is GroupState.EMPTY:
            delay = self._config.initial_rebalance_delay
            remaining = max(group.rebalance_timeout - delay, 0)
            operation = _InitialDelayedJoin(self, group, delay, delay, remaining)
        else:
            operation = _DelayedJoin(self, group, group.rebalance_timeout)
        group.transition_to(GroupState.PREPARING_REBALANCE)
        self._log.info(
            "group %.100r: rebalance after generation %d: %.200r", group.group_id, group.generation_id, reason
        )
        self.await_join(operation)

    def await_join(self, operation: _DelayedJoin) -> None:
        """Complete the rebalance now, or let it wait."""
        self._purgatory.try_complete_else_watch(operation, _join_key(operation.group))

    def check_join(self, group: Group) -> None:
        """Complete the rebalance if all members have joined."""
        if group.state is GroupState.PREPARING_REBALANCE:
            self._purgatory.check_and_complete(_join_key(group))

    def complete_join(self, group: Group) -> None:
        """Begin the next generation. Members that have not joined are removed, but for static ones."""
        if group.state is not GroupState.PREPARING_REBALANCE:  # Dead
            return
        for member in list(group.members.values()):
            if member.join_callback is None and member.instance_id is None:
                self._log.info("group %.100r: %.100r did not join", group.group_id, member.member_id)
                group.remove(member.member_id)
        if not group.elect_joined_leader() and group.members:
            # Static members alone, none of which has joined: wait until they do, or their sessions end.
            self._log.warning(
                "group %.100r: no member has joined within the rebalance timeout", group.group_id
            )
            self.await_join(_DelayedJoin(self, group, group.rebalance_timeout))
            return
        group.next_generation()
        if not group.members:
            self._log.info("group %.100r is empty, generation %d", group.group_id, group.generation_id)
            self._store.store_group(group, {}, lambda error: self._log_failed_store(group, error))
            return
        self._log.info(
            "group %.100r: generation %d has %d members",
            group.group_id,
            group.generation_id,
            len(group.members),
        )
        for member in group.members.values():
            group.answer_join(
                member,
                group.join_result(member.member_id, with_members=group.is_leader(member.member_id)),
            )
            self.renew_session(group, member)
            member.is_new = False
            group.pending_sync.add(member.member_id)
        self._purgatory.try_complete_else_watch(_DelayedSync(self, group), _sync_key(group))

    # SyncGroup

    def synced(self, group: Group, member_id: str) -> None:
        """Note that the member has sent SyncGroup."""
        group.pending_sync.discard(member_id)
        self._purgatory.check_and_complete(_sync_key(group))

    def cancel_sync(self, group: Group) -> None:
        """Expect no SyncGroup any more."""
        group.pending_sync.clear()
        self._purgatory.check_and_complete(_sync_key(group))

    def expire_sync(self, group: Group) -> None:
        """Remove the members that have not sent SyncGroup, and rebalance."""
        late = sorted(group.pending_sync)
        for member_id in late:
            group.remove(member_id)
        self.prepare(group, f"no SyncGroup of {', '.join(late)}")

    def assign(self, group: Group, assignments: Mapping[str, bytes]) -> None:
        """Answer the SyncGroups with the leader's assignments."""
        for member in group.members.values():
            member.assignment = assignments[member.member_id]
            self._answer_sync(
                group,
                member,
                SyncResult(ErrorCode.NONE, group.protocol_type, group.protocol_name, member.assignment),
            )

    def fail_assignment(self, group: Group, error: ErrorCode) -> None:
        """Forget all assignments, and answer the SyncGroups with the error."""
        for member in group.members.values():
            member.assignment = b""
            self._answer_sync(group, member, SyncResult(error))

    def _answer_sync(self, group: Group, member: Member, result: SyncResult) -> None:
        if group.answer_sync(member, result):
            # The session may have ended while the member waited.
            self.renew_session(group, member)

    # Leadership

    def unload(self, group: Group) -> None:
        """End the group here: another broker is its coordinator."""
        group.transition_to(GroupState.DEAD)
        for member in group.members.values():
            group.answer_join(member, JoinResult(ErrorCode.NOT_COORDINATOR, member.member_id))
            group.answer_sync(member, SyncResult(ErrorCode.NOT_COORDINATOR))
            member.end_session_timer()
        for member_id in list(group.pending_members):
            group.remove_pending(member_id)
        self._purgatory.check_and_complete(_join_key(group))
        self.cancel_sync(group)

    def resume(self, group: Group) -> None:
        """Go on with a group that was loaded."""
        if len(group.members) > self._config.max_size:
            self.prepare(group, "a group that was loaded has more than group.max.size members")
        for member in group.members.values():
            self.renew_session(group, member)

    def _log_failed_store(self, group: Group, error: ErrorCode) -> None:
        if error:
            # Harmless: a broker that loads the group finds the generation before, without living members.
            self._log.warning("group %.100r: that it is empty was not stored: %s", group.group_id, error.name)


def _join_key(group: Group) -> Hashable:
    return "join", group.group_id


def _sync_key(group: Group) -> Hashable:
    return "sync", group.group_id

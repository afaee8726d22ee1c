"""The state of one group: members, generation, leader, protocol.

    Empty ──join──▶ PreparingRebalance ──all joined──▶ CompletingRebalance ──leader's sync──▶ Stable
      ▲                 │    ▲                              │                                   │
      └──all left───────┘    └───────join, leave, failure───┴───────────────────────────────────┘

Dead follows every state: the group was deleted, or its partition has another leader.
Source: ``kafka.coordinator.group.GroupMetadata``.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections import Counter
from collections.abc import Callable
from enum import Enum
from typing import Final, Self, TypeVar

from ctrlchan.broker.coordinator.common.timing_wheel import Timer
from ctrlchan.broker.coordinator.group.group_offsets import GroupOffsets
from ctrlchan.broker.coordinator.group.members import JoinCallback, Member, SyncCallback
from ctrlchan.broker.coordinator.group.requests import (
    UNKNOWN_MEMBER,
    GroupSummary,
    JoinedMember,
    JoinResult,
    Protocols,
    SyncResult,
)
from ctrlchan.broker.coordinator.group.subscription import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from ctrlchan.errors import ErrorCode, IllegalStateError

__all__ = ["Group", "GroupState"]

_LOG = logging.getLogger(__name__)
_Result = TypeVar("_Result")


class GroupState(Enum):
    """The states of a group, by the names that clients see."""

    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    EMPTY = "Empty"


_PREPARING, _COMPLETING, _STABLE = (
    GroupState.PREPARING_REBALANCE,
    GroupState.COMPLETING_REBALANCE,
    GroupState.STABLE,
)
_DEAD, _EMPTY = GroupState.DEAD, GroupState.EMPTY

_VALID_PREVIOUS: Final = {
    _PREPARING: frozenset({_STABLE, _COMPLETING, _EMPTY}),
    _COMPLETING: frozenset({_PREPARING}),
    _STABLE: frozenset({_COMPLETING}),
    _DEAD: frozenset(GroupState),
    _EMPTY: frozenset({_PREPARING}),
}


class Group:
    """One group. Every method except ``locked`` requires ``locked`` to be entered by the calling thread.

    Answers of requests are given when the outermost ``locked`` is left, so no callback runs under the lock.

    Attributes: ``state_timestamp`` milliseconds since 1970 of the last change of the state, or None when the
    group was loaded from a record without it; ``subscribed_topics`` of a group of consumers, or
    None when not all subscriptions can be read; ``new_member_added`` since the initial rebalance delay began;
    ``pending_members`` have got a member id and must join with it (KIP-394), each with the timer that
    removes it; ``pending_sync`` have joined this generation and not yet sent SyncGroup.
    """

    def __init__(self, group_id: str, state: GroupState, now_ms: Callable[[], int]) -> None:
        self.group_id = group_id
        self.state = state
        self.state_timestamp: int | None = now_ms()
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.generation_id = 0
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        self.pending_members: dict[str, Timer] = {}
        self.pending_sync: set[str] = set()
        self.subscribed_topics: frozenset[str] | None = None
        self.new_member_added = False
        self.offsets = GroupOffsets()
        self._commits_seen: set[bool] = set()
        self.awaiting_join = 0
        self._supported: Counter[str] = Counter()
        self._now_ms = now_ms
        self._lock = threading.RLock()
        self._depth = 0
        self._answers: list[Callable[[], None]] = []

    def locked(self) -> Self:
        """Return the lock of the group, which is reentrant. Answers are given when it is released."""
        return self

    def __enter__(self) -> None:
        self._lock.acquire()
        self._depth += 1

    def __exit__(self, *exception: object) -> None:
        answers: list[Callable[[], None]] = []
        self._depth -= 1
        if not self._depth and self._answers:
            answers, self._answers = self._answers, []
        self._lock.release()
        for answer in answers:
            try:
                answer()
            except Exception:  # noqa: BLE001 - the other answers are given
                _LOG.exception("group %.100r: an answer could not be given", self.group_id)

    def answer(self, callback: Callable[[_Result], None], result: _Result) -> None:
        """Give `result` to `callback` when the lock is released."""
        self._answers.append(lambda: callback(result))

    # States and generations

    def transition_to(self, state: GroupState) -> None:
        """Change the state. Raises IllegalStateError when Kafka does not allow it."""
        if self.state not in _VALID_PREVIOUS[state]:
            raise IllegalStateError(
                f"group {self.group_id} cannot go from {self.state.value} to {state.value}"
            )
        self.state = state
        self.state_timestamp = self._now_ms()

    @property
    def can_rebalance(self) -> bool:
        """Whether a rebalance may begin."""
        return self.state in _VALID_PREVIOUS[_PREPARING]

    def next_generation(self) -> None:
        """Begin the next generation: CompletingRebalance with the present members, or Empty without any."""
        self.generation_id += 1
        self.protocol_name = self.select_protocol() if self.members else None
        self.update_subscribed_topics()
        self.transition_to(_COMPLETING if self.members else _EMPTY)
        self.pending_sync.clear()
        self._commits_seen.clear()

    def note_commit(self, *, in_transaction: bool) -> None:
        """Warn when a generation has commits of consumers and in transactions: they undo each other."""
        if in_transaction not in self._commits_seen:
            self._commits_seen.add(in_transaction)
            if len(self._commits_seen) > 1:
                _LOG.warning(
                    "group %.100r: offsets are committed by consumers and by transactional producers",
                    self.group_id,
                )

    def update_subscribed_topics(self) -> None:
        """Read the topics of all members' subscriptions."""
        self.subscribed_topics = None
        if not self.is_consumer_group:
            return
        topics: set[str] = set()
        for member in self.members.values():
            if self.protocol_name is None:
                return
            subscribed = subscribed_topics(member.metadata(self.protocol_name))
            if subscribed is None:
                # Not a warning: any client can cause it as often as it wants.
                _LOG.info(
                    "group %.100r: a subscription of %.100r cannot be read", self.group_id, member.member_id
                )
                return
            topics |= subscribed
        self.subscribed_topics = frozenset(topics)

    @property
    def is_consumer_group(self) -> bool:
        """Whether the members are consumers, so that their subscriptions can be read."""
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether a member consumes the topic; True when that is not known."""
        return self.subscribed_topics is None or topic in self.subscribed_topics

    # Members

    def is_leader(self, member_id: str) -> bool:
        """Return whether the member is the leader."""
        return self.leader_id == member_id

    def error_of_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Return FENCED_INSTANCE_ID or UNKNOWN_MEMBER_ID unless this is a member, under this instance id."""
        if instance_id is not None:
            current = self.static_members.get(instance_id)
            if current is not None and current != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def error_of_request(self, member_id: str, instance_id: str | None, generation_id: int) -> ErrorCode:
        """Return the error of a Heartbeat or SyncGroup of a member, which has to know the generation."""
        if self.state is _DEAD:
            # It was deleted or has moved a moment ago.
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = self.error_of_member(member_id, instance_id)
        if error:
            return error
        if generation_id != self.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        return ErrorCode.UNKNOWN_MEMBER_ID if self.state is _EMPTY else ErrorCode.NONE

    @property
    def rebalance_timeout(self) -> int:
        """The longest rebalance timeout of the members, in milliseconds."""
        return max((member.rebalance_timeout for member in self.members.values()), default=0)

    @property
    def all_members_joined(self) -> bool:
        """Whether every member has sent JoinGroup, and no member id was given out without one."""
        return len(self.members) == self.awaiting_join and not self.pending_members

    @staticmethod
    def new_member_id(client_id: str, instance_id: str | None) -> str:
        """Return a new, unique member id."""
        return f"{client_id if instance_id is None else instance_id}-{uuid.uuid4()}"

    def add(self, member: Member, protocol_type: str, callback: JoinCallback | None) -> None:
        """Add a member. The first one decides the protocol type, and is the leader."""
        if member.instance_id is not None:
            if member.instance_id in self.static_members:
                raise IllegalStateError(f"group {self.group_id} has a static member {member.instance_id}")
            self.static_members[member.instance_id] = member.member_id
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._supported.update(member.protocol_names)
        self.set_join_callback(member, callback)
        self.remove_pending(member.member_id)

    def remove(self, member_id: str) -> None:
        """Remove a member or a pending one. Its requests that wait are answered with UNKNOWN_MEMBER_ID."""
        member = self.members.get(member_id)
        if member is not None:
            self.answer_join(member, JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, UNKNOWN_MEMBER))
            self.answer_sync(member, SyncResult(ErrorCode.UNKNOWN_MEMBER_ID))
            member.end_session_timer()
            del self.members[member_id]
            self._supported.subtract(member.protocol_names)
            if member.instance_id is not None:
                self.static_members.pop(member.instance_id, None)
        if self.is_leader(member_id):
            self.leader_id = next(iter(self.members), None)
        self.remove_pending(member_id)
        self.pending_sync.discard(member_id)

    def remove_pending(self, member_id: str) -> None:
        """Forget a member id that was given out."""
        timer = self.pending_members.pop(member_id, None)
        if timer is not None:
            timer.cancel()

    def replace_static_member(self, instance_id: str, old_id: str, new_id: str) -> Member:
        """Give the static member another member id, and fence the requests that wait under the old one."""
        member = self.members.pop(old_id)
        self.answer_join(member, JoinResult(ErrorCode.FENCED_INSTANCE_ID, old_id))
        self.answer_sync(member, SyncResult(ErrorCode.FENCED_INSTANCE_ID))
        member.member_id = new_id
        self.members[new_id] = member
        self.static_members[instance_id] = new_id
        if self.is_leader(old_id):
            self.leader_id = new_id
        if old_id in self.pending_sync:
            self.pending_sync.remove(old_id)
            self.pending_sync.add(new_id)
        return member

    def update(
        self,
        member: Member,
        protocols: Protocols,
        rebalance_timeout: int,
        session_timeout: int,
        callback: JoinCallback | None,
    ) -> None:
        """Change the protocols and timeouts of a member that joins again."""
        self._supported.subtract(member.protocol_names)
        member.protocols = protocols
        self._supported.update(member.protocol_names)
        member.rebalance_timeout = rebalance_timeout
        member.session_timeout = session_timeout
        self.set_join_callback(member, callback)

    def elect_joined_leader(self) -> bool:
        """Keep the leader if it has joined again, else elect a member that has; return False if none has."""
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].join_callback is None:
            joined = (m.member_id for m in self.members.values() if m.join_callback is not None)
            leader = next(joined, None)
            if leader is None:
                return False
            _LOG.info(
                "group %.100r: %.100r is the leader, %.100r did not join",
                self.group_id,
                leader,
                self.leader_id,
            )
            self.leader_id = leader
        return True

    # Protocols

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Return whether a member with these protocols can be in the group."""
        if self.state is _EMPTY:
            return bool(protocol_type and protocols)
        return self.protocol_type == protocol_type and any(
            self._supported[name] == len(self.members) for name, _ in protocols
        )

    def select_protocol(self) -> str:
        """Return the protocol with the most votes among those that every member supports."""
        candidates = {name for name, count in self._supported.items() if count == len(self.members)}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    # Requests that wait

    def set_join_callback(self, member: Member, callback: JoinCallback | None) -> None:
        """Let a JoinGroup of the member wait, if given. An earlier one ends with REBALANCE_IN_PROGRESS."""
        self.answer_join(member, JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
        if callback is not None:
            member.join_callback = callback
            self.awaiting_join += 1

    def set_sync_callback(self, member: Member, callback: SyncCallback) -> None:
        """Let a SyncGroup of the member wait. An earlier one ends with REBALANCE_IN_PROGRESS."""
        self.answer_sync(member, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))
        member.sync_callback = callback

    def answer_join(self, member: Member, result: JoinResult) -> None:
        """Answer the JoinGroup of the member, if one waits."""
        if member.join_callback is not None:
            self.answer(member.join_callback, result)
            member.join_callback = None
            self.awaiting_join -= 1

    def answer_sync(self, member: Member, result: SyncResult) -> bool:
        """Answer the SyncGroup of the member; return whether one waited."""
        if member.sync_callback is None:
            return False
        self.answer(member.sync_callback, result)
        member.sync_callback = None
        return True

    # Views

    def join_result(self, member_id: str, *, with_members: bool, skip_assignment: bool = False) -> JoinResult:
        """Return the answer to a JoinGroup of the current generation."""
        members: tuple[JoinedMember, ...] = ()
        if with_members:
            protocol = self.protocol_name
            assert protocol is not None
            members = tuple(
                JoinedMember(member.member_id, member.instance_id, member.metadata(protocol))
                for member in self.members.values()
            )
        return JoinResult(
            ErrorCode.NONE,
            member_id,
            self.generation_id,
            self.protocol_type,
            self.protocol_name,
            self.leader_id or "",
            skip_assignment,
            members,
        )

    def summary(self) -> GroupSummary:
        """Return the group for DescribeGroups."""
        protocol = self.protocol_name if self.state is _STABLE else None
        return GroupSummary(
            ErrorCode.NONE,
            self.state.value,
            self.protocol_type or "",
            protocol or "",
            tuple(member.summary(protocol) for member in self.members.values()),
        )

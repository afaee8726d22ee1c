"""JoinGroup: new, pending, static and known members.

Source: ``GroupCoordinator.handleJoinGroup``; KIP-345 (static members), KIP-394 (member id required), KIP-814
(skip assignment).
"""

from __future__ import annotations

from ctrlchan.broker.config.group_config import GroupConfig
from ctrlchan.broker.coordinator.group.group import Group, GroupState
from ctrlchan.broker.coordinator.group.members import JoinCallback, Member
from ctrlchan.broker.coordinator.group.rebalance import NEW_MEMBER_JOIN_TIMEOUT, Rebalances
from ctrlchan.broker.coordinator.group.requests import UNKNOWN_MEMBER, JoinRequest, JoinResult
from ctrlchan.broker.coordinator.group.store import GroupStore
from ctrlchan.errors import ErrorCode, IllegalStateError
from ctrlchan.log_context import ContextLogger

__all__ = ["Joining"]


class Joining:
    """Lets members into groups. Every method requires the lock of its group."""

    def __init__(
        self, config: GroupConfig, rebalances: Rebalances, store: GroupStore, log: ContextLogger
    ) -> None:
        self._log = log
        self._config = config
        self._rebalances = rebalances
        self._store = store

    def join(self, group: Group, request: JoinRequest, callback: JoinCallback) -> None:
        """Answer the request now, or let it wait for the rebalance."""
        if not self._has_room(group, request.member_id):
            group.remove(request.member_id)
            group.answer(callback, JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER))
        elif group.state is GroupState.DEAD:
            # It was deleted or has moved a moment ago.
            group.answer(callback, JoinResult(ErrorCode.COORDINATOR_NOT_AVAILABLE, request.member_id))
        elif not group.supports(request.protocol_type, request.protocols):
            group.answer(callback, JoinResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id))
        elif request.member_id == UNKNOWN_MEMBER:
            self._join_new(group, request, callback)
        elif request.member_id in group.pending_members:
            self._join_pending(group, request, callback)
        else:
            self._join_known(group, request, callback)
        self._rebalances.check_join(group)

    def _has_room(self, group: Group, member_id: str) -> bool:
        """Return whether the member may join, by group.max.size.

        While members join, those that have joined count: the last ones to join again are refused when
        the limit was lowered.
        """
        member = group.members.get(member_id)
        if group.state in (GroupState.EMPTY, GroupState.DEAD):
            return True
        if group.state is GroupState.PREPARING_REBALANCE:
            joined = member is not None and member.join_callback is not None
            return joined or group.awaiting_join < self._config.max_size
        return member is not None or len(group.members) < self._config.max_size

    def _join_new(self, group: Group, request: JoinRequest, callback: JoinCallback) -> None:
        member_id = group.new_member_id(request.client_id, request.instance_id)
        if request.instance_id is not None and request.instance_id in group.static_members:
            self._replace_static(group, request, request.instance_id, member_id, callback)
        elif request.instance_id is None and request.requires_member_id:
            # A client that goes away before it reads the answer leaves no member behind.
            self._rebalances.add_pending_member(group, member_id, request.session_timeout)
            group.answer(callback, JoinResult(ErrorCode.MEMBER_ID_REQUIRED, member_id))
        else:
            self._add(group, request, member_id, callback)

    def _join_pending(self, group: Group, request: JoinRequest, callback: JoinCallback) -> None:
        if request.instance_id is not None:
            # No client does this: static members get no pending id. Kafka throws IllegalStateException.
            group.answer(callback, JoinResult(ErrorCode.UNKNOWN_SERVER_ERROR, ""))
            return
        self._add(group, request, request.member_id, callback)

    def _add(self, group: Group, request: JoinRequest, member_id: str, callback: JoinCallback) -> None:
        member = Member(
            member_id,
            request.instance_id,
            request.client_id,
            request.client_host,
            request.rebalance_timeout,
            request.session_timeout,
            request.protocols,
            is_new=True,
        )
        if group.state is GroupState.PREPARING_REBALANCE and group.generation_id == 0:
            group.new_member_added = True
        group.add(member, request.protocol_type, callback)
        self._rebalances.renew_session(group, member, NEW_MEMBER_JOIN_TIMEOUT)
        self._rebalances.maybe_prepare(
            group, f"new member {member_id}; the client's reason: {request.reason!r}"
        )

    def _join_known(self, group: Group, request: JoinRequest, callback: JoinCallback) -> None:
        error = group.error_of_member(request.member_id, request.instance_id)
        if not error and group.state is GroupState.EMPTY:
            error = ErrorCode.UNKNOWN_MEMBER_ID
        if error:
            group.answer(callback, JoinResult(error, request.member_id))
            return
        member = group.members[request.member_id]
        leads = group.is_leader(member.member_id)
        # A leader of a stable group that joins wants a rebalance, for partitions may have come. A member of a
        # rebalance that joins again has not read its answer.
        unchanged = member.protocols == request.protocols and (
            group.state is GroupState.COMPLETING_REBALANCE or (group.state is GroupState.STABLE and not leads)
        )
        if unchanged:
            group.answer(callback, group.join_result(member.member_id, with_members=leads))
            return
        self._update(group, member, request, callback)
        self._rebalances.maybe_prepare(
            group, f"{member.member_id} joins again; the client's reason: {request.reason!r}"
        )

    @staticmethod
    def _update(group: Group, member: Member, request: JoinRequest, callback: JoinCallback) -> None:
        group.update(member, request.protocols, request.rebalance_timeout, request.session_timeout, callback)

    def _replace_static(
        self, group: Group, request: JoinRequest, instance_id: str, new_id: str, callback: JoinCallback
    ) -> None:
        """Give a static member that has restarted its old place. Raises IllegalStateError when Empty."""
        if group.state is GroupState.EMPTY:
            raise IllegalStateError(f"group {group.group_id} is Empty, with a static member {instance_id}")
        old_id = group.static_members[instance_id]
        old_leader = group.leader_id
        self._log.info(
            "group %.100r: static member %.100r is %.100r, was %.100r",
            group.group_id,
            instance_id,
            new_id,
            old_id,
        )
        member = group.replace_static_member(instance_id, old_id, new_id)
        old_timeouts = member.rebalance_timeout, member.session_timeout
        self._rebalances.renew_session(group, member)
        self._update(group, member, request, callback)
        reason = f"static member {instance_id} has joined; the client's reason: {request.reason!r}"
        if group.state is GroupState.COMPLETING_REBALANCE:
            # The leader assigns to the old member id, perhaps.
            self._rebalances.prepare(group, reason)
        elif group.state is GroupState.STABLE:
            if group.select_protocol() != group.protocol_name:
                self._rebalances.maybe_prepare(group, reason)
            else:
                self._store_replaced(group, request, member, old_id, old_leader, old_timeouts)

    def _store_replaced(
        self,
        group: Group,
        request: JoinRequest,
        member: Member,
        old_id: str,
        old_leader: str | None,
        old_timeouts: tuple[int, int],
    ) -> None:
        """Store the new member id of a static member, without a rebalance; then answer its JoinGroup."""
        generation_id, new_id = group.generation_id, member.member_id

        def stored(error: ErrorCode) -> None:
            # As Kafka, this answers also while the next rebalance is prepared: the member joins that later.
            if group.generation_id != generation_id or group.members.get(new_id) is not member:
                return  # it has been answered
            if error:
                self._log.warning(
                    "group %.100r: %.100r was not stored: %s", group.group_id, new_id, error.name
                )
                group.answer_join(
                    member,
                    JoinResult(
                        error,
                        UNKNOWN_MEMBER,
                        group.generation_id,
                        group.protocol_type,
                        group.protocol_name,
                        old_leader or "",
                    ),
                )
                # As Kafka: the protocols stay the new ones.
                group.update(member, member.protocols, *old_timeouts, None)
                assert member.instance_id is not None
                group.replace_static_member(member.instance_id, new_id, old_id)
                self._rebalances.renew_session(group, member)
            elif request.can_skip_assignment:
                # The leader learns that it leads, to watch topics; the group keeps its assignment.
                leads = group.is_leader(new_id)
                group.answer_join(
                    member, group.join_result(new_id, with_members=leads, skip_assignment=leads)
                )
            else:
                # With the leader's old id no member thinks that it leads, so nobody assigns.
                result = group.join_result(new_id, with_members=False)
                group.answer_join(member, result._replace(leader_id=old_leader or ""))

        self._store.store_group(
            group, {each.member_id: each.assignment for each in group.members.values()}, stored
        )

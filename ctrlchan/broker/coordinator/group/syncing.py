"""SyncGroup: the leader's assignments are stored, and each member is answered with its own.

Source: ``GroupCoordinator.doSyncGroup``.
"""

from __future__ import annotations

from ctrlchan.broker.coordinator.group.group import Group, GroupState
from ctrlchan.broker.coordinator.group.members import SyncCallback
from ctrlchan.broker.coordinator.group.rebalance import Rebalances
from ctrlchan.broker.coordinator.group.requests import SyncRequest, SyncResult
from ctrlchan.broker.coordinator.group.store import GroupStore
from ctrlchan.errors import ErrorCode

__all__ = ["Syncing"]


class Syncing:
    """Gives members their assignments. Every method requires the lock of its group."""

    def __init__(self, rebalances: Rebalances, store: GroupStore) -> None:
        self._rebalances = rebalances
        self._store = store

    def sync(self, group: Group, request: SyncRequest, callback: SyncCallback) -> None:
        """Answer the request now, or let it wait for the leader's assignments."""
        error = group.error_of_request(request.member_id, request.instance_id, request.generation_id)
        if not error and (
            request.protocol_type not in (None, group.protocol_type)
            or request.protocol_name not in (None, group.protocol_name)
        ):
            error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if not error and group.state is GroupState.PREPARING_REBALANCE:
            error = ErrorCode.REBALANCE_IN_PROGRESS
        if error:
            group.answer(callback, SyncResult(error))
            return
        member = group.members[request.member_id]
        if group.state is GroupState.STABLE:
            self._rebalances.synced(group, member.member_id)
            group.answer(
                callback,
                SyncResult(ErrorCode.NONE, group.protocol_type, group.protocol_name, member.assignment),
            )
            self._rebalances.renew_session(group, member)
            return
        group.set_sync_callback(member, callback)
        self._rebalances.synced(group, member.member_id)
        if group.is_leader(member.member_id):
            self._store_assignments(group, request)

    def _store_assignments(self, group: Group, request: SyncRequest) -> None:
        assignments = {member_id: request.assignments.get(member_id, b"") for member_id in group.members}

        def stored(error: ErrorCode) -> None:
            if (
                group.state is not GroupState.COMPLETING_REBALANCE
                or group.generation_id != request.generation_id
            ):
                return  # a member came or went, and the next rebalance has begun
            if error:
                self._rebalances.fail_assignment(group, error)
                self._rebalances.prepare(group, f"the assignments were not stored: {error.name}")
            else:
                self._rebalances.assign(group, assignments)
                group.transition_to(GroupState.STABLE)

        self._store.store_group(group, assignments, stored)

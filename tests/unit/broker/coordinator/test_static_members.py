"""Static members (KIP-345) and the skipped assignment (KIP-814), as GroupCoordinatorTest has them."""

from __future__ import annotations

import pytest

from ctrlchan.broker.coordinator.group.group import GroupState
from ctrlchan.broker.coordinator.group.requests import LeavingMember
from ctrlchan.errors import ErrorCode, IllegalStateError
from tests.unit.broker.coordinator.support import (
    GROUP,
    PROTOCOL_SUPERSET,
    PROTOCOLS,
    REBALANCE,
    SESSION,
    Rig,
)


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_a_static_member_needs_no_second_join(rig: Rig) -> None:
    joined = rig.join(instance_id="leader", requires_member_id=False)
    assert joined.error is ErrorCode.NONE
    assert joined.member_id.startswith("leader-")
    assert rig.join("someone", instance_id="leader").error is ErrorCode.FENCED_INSTANCE_ID
    assert rig.join(joined.member_id, instance_id="unknown").error is ErrorCode.UNKNOWN_MEMBER_ID


def test_requests_under_another_member_id_are_fenced(rig: Rig) -> None:
    leader, follower = rig.stable_static()
    assert rig.join(follower.member_id, instance_id="leader").error is ErrorCode.FENCED_INSTANCE_ID
    assert rig.join(leader.member_id, instance_id="follower").error is ErrorCode.FENCED_INSTANCE_ID
    assert rig.sync(2, "invalid", instance_id="leader").error is ErrorCode.FENCED_INSTANCE_ID
    assert rig.heartbeat("invalid", 2, "leader") is ErrorCode.FENCED_INSTANCE_ID
    assert rig.heartbeat(leader.member_id, 2, "leader") is ErrorCode.NONE
    left = rig.coordinator.leave(GROUP, [LeavingMember("invalid", "leader")])
    assert [member.error for member in left.members] == [ErrorCode.FENCED_INSTANCE_ID]


@pytest.mark.parametrize("skips", [True, False])
def test_a_leader_that_restarts_keeps_generation_and_assignment(rig: Rig, skips: bool) -> None:
    leader, follower = rig.stable_static()
    again = rig.join(instance_id="leader", protocols=PROTOCOL_SUPERSET, can_skip_assignment=skips, wait=0)
    assert again.error is ErrorCode.NONE
    assert again.generation_id == 2
    assert again.skip_assignment is skips
    # Before version 9 the old id keeps the member from assigning.
    assert again.leader_id == (again.member_id if skips else leader.member_id)
    assert len(again.members) == (2 if skips else 0)
    assert rig.state == "Stable"
    assert rig.join(leader.member_id, instance_id="leader").error is ErrorCode.FENCED_INSTANCE_ID
    assert rig.sync(2, leader.member_id).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.sync(2, again.member_id, instance_id="leader").assignment == b"a"
    assert rig.heartbeat(follower.member_id, 2) is ErrorCode.NONE


def test_a_follower_that_restarts_keeps_generation_and_assignment(rig: Rig) -> None:
    leader, follower = rig.stable_static()
    again = rig.join(
        instance_id="follower",
        protocols=PROTOCOLS,  # fewer, but the chosen one stays
        can_skip_assignment=True,
        session_timeout=2 * SESSION,
        rebalance_timeout=2 * REBALANCE,
        wait=0,
    )
    assert (again.leader_id, again.skip_assignment, again.members) == (leader.member_id, False, ())
    assert again.member_id != follower.member_id
    assert rig.sync(2, again.member_id).assignment == b"b"
    assert rig.sync(2, follower.member_id, instance_id="follower").error is ErrorCode.FENCED_INSTANCE_ID
    member = rig.group().members[again.member_id]
    assert (member.session_timeout, member.rebalance_timeout) == (2 * SESSION, 2 * REBALANCE)
    # The record has the new member id.
    _, records, _, _ = rig.topic.appended[-1]
    assert again.member_id.encode() in (records[0].value or b"")


def test_a_restart_that_changes_the_chosen_protocol_starts_a_rebalance(rig: Rig) -> None:
    _, follower = rig.stable_static()
    answer = rig.send_join(instance_id="follower", protocols=(("roundrobin", b""),))
    assert not answer.given
    assert rig.state == "PreparingRebalance"
    assert rig.heartbeat(follower.member_id, 2, "follower") is ErrorCode.FENCED_INSTANCE_ID
    rig.advance(REBALANCE + 1)
    assert answer.result.protocol_name == "roundrobin"
    assert answer.result.generation_id == 3


def test_a_restart_that_cannot_be_stored_changes_nothing(rig: Rig) -> None:
    _, follower = rig.stable_static()
    rig.topic.error = ErrorCode.MESSAGE_TOO_LARGE
    failed = rig.join(
        instance_id="follower", protocols=PROTOCOL_SUPERSET, session_timeout=2 * SESSION, wait=0
    )
    assert (failed.error, failed.generation_id, failed.member_id) == (ErrorCode.UNKNOWN_SERVER_ERROR, 2, "")
    rig.topic.error = 0
    member = rig.group().members[follower.member_id]
    assert member.session_timeout == SESSION
    assert rig.group().awaiting_join == 0
    assert (
        rig.join(follower.member_id, instance_id="follower", protocols=PROTOCOL_SUPERSET, wait=0).error == 0
    )
    assert rig.sync(2, follower.member_id, instance_id="follower").assignment == b"b"


def test_a_rebalance_that_begins_while_a_restart_is_stored_answers_it(rig: Rig) -> None:
    leader, _ = rig.stable_static()
    rig.topic.held = []
    restarted = rig.send_join(instance_id="follower", protocols=PROTOCOL_SUPERSET)
    assert not restarted.given
    rig.send_join(leader.member_id, instance_id="leader", protocols=PROTOCOL_SUPERSET)
    assert restarted.result.generation_id == 3
    rig.topic.release(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert restarted.result.member_id in rig.group().members
    assert rig.state == "CompletingRebalance"


def test_a_duplicate_fences_a_join_that_waits(rig: Rig) -> None:
    _, follower = rig.stable_static()
    rig.send_join(protocols=PROTOCOL_SUPERSET)
    old = rig.send_join(follower.member_id, instance_id="follower")
    new = rig.send_join(instance_id="follower")
    assert (old.result.error, old.result.member_id) == (ErrorCode.FENCED_INSTANCE_ID, follower.member_id)
    assert not new.given


def test_a_duplicate_fences_a_sync_that_waits_and_starts_a_rebalance(rig: Rig) -> None:
    leader, follower = rig.stable_static()
    rig.send_join(leader.member_id, instance_id="leader")
    assert rig.join(follower.member_id, instance_id="follower", wait=0).generation_id == 3
    sync = rig.send_sync(3, follower.member_id, instance_id="follower")
    new = rig.send_join(instance_id="follower")
    assert sync.result.error is ErrorCode.FENCED_INSTANCE_ID
    assert rig.state == "PreparingRebalance"
    rig.advance(REBALANCE + 1)
    assert new.result.leader_id == new.result.member_id
    assert new.result.generation_id == 4


def test_every_restart_has_another_member_id(rig: Rig) -> None:
    leader, _ = rig.stable_static()
    ids = {rig.join(instance_id="leader", wait=0).member_id for _ in range(5)}
    assert len(ids | {leader.member_id}) == 6


def test_a_static_member_stays_when_it_does_not_rejoin(rig: Rig) -> None:
    leader, follower = rig.stable_static(session_timeout=10 * REBALANCE)
    answer = rig.send_join(protocols=PROTOCOL_SUPERSET)
    rig.advance(REBALANCE + 1)
    assert answer.result.leader_id == answer.result.member_id
    assert [member.instance_id for member in answer.result.members] == ["leader", "follower", None]
    assert rig.heartbeat(leader.member_id, 2) is ErrorCode.ILLEGAL_GENERATION
    assert list(rig.group().members)[:2] == [leader.member_id, follower.member_id]


def _only_static_members_that_do_not_join(rig: Rig) -> str:
    leader, follower = rig.stable_static(session_timeout=2 * SESSION)
    dynamic = rig.send_join(protocols=PROTOCOL_SUPERSET, session_timeout=2 * SESSION)
    rig.advance(REBALANCE + 1)
    assert dynamic.result.generation_id == 3
    left = rig.coordinator.leave(GROUP, [LeavingMember(follower.member_id)])
    assert left.members[0].error is ErrorCode.NONE
    rig.advance(REBALANCE + 1)
    assert list(rig.group().members) == [leader.member_id]
    assert rig.state == "PreparingRebalance"
    return leader.member_id


def test_a_rebalance_that_nobody_joins_ends_with_the_last_session(rig: Rig) -> None:
    _only_static_members_that_do_not_join(rig)
    rig.advance(REBALANCE + 1)
    assert rig.state == "Empty"
    assert rig.group().generation_id == 4
    assert rig.group().leader_id is None


def test_a_rebalance_that_nobody_joins_goes_on_when_a_member_does(rig: Rig) -> None:
    _only_static_members_that_do_not_join(rig)
    joined = rig.join(instance_id="leader", protocols=PROTOCOL_SUPERSET, wait=0)
    assert (joined.generation_id, len(joined.members)) == (4, 1)


def test_a_known_member_of_an_empty_group_joins_anew(rig: Rig) -> None:
    leader, _ = rig.stable_static()
    with rig.group().locked():
        rig.group().transition_to(GroupState.PREPARING_REBALANCE)
        rig.group().transition_to(GroupState.EMPTY)
    assert rig.join(leader.member_id, instance_id="leader", wait=0).error is ErrorCode.UNKNOWN_MEMBER_ID
    with pytest.raises(IllegalStateError, match=r"groupId.*follower"):
        rig.join(instance_id="follower")


def test_an_admin_removes_static_members(rig: Rig) -> None:
    rig.stable_static()
    left = rig.coordinator.leave(
        GROUP, [LeavingMember("", "leader"), LeavingMember("", "nobody"), LeavingMember("", "follower")]
    )
    assert [(member.member_id, member.instance_id, member.error) for member in left.members] == [
        ("", "leader", ErrorCode.NONE),
        ("", "nobody", ErrorCode.UNKNOWN_MEMBER_ID),
        ("", "follower", ErrorCode.NONE),
    ]
    assert rig.state == "Empty"


def test_a_leaving_member_without_any_id_is_nobody(rig: Rig) -> None:
    rig.stable(instance_id="")
    left = rig.coordinator.leave(GROUP, [LeavingMember("")])
    assert left.members[0].error is ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.state == "Stable"


def test_a_restart_before_the_sync_of_a_stable_group_still_has_to_sync(rig: Rig) -> None:
    first = rig.stable(instance_id="leader", session_timeout=10 * REBALANCE)
    second = rig.send_join(instance_id="follower", session_timeout=10 * REBALANCE)
    rig.send_join(first.member_id, instance_id="leader", session_timeout=10 * REBALANCE)
    rig.sync(2, first.member_id, {second.result.member_id: b"b"})
    assert rig.state == "Stable"
    again = rig.join(instance_id="follower", session_timeout=10 * REBALANCE, wait=0)
    assert rig.sync(2, again.member_id).assignment == b"b"
    rig.advance(REBALANCE + 1)
    assert rig.state == "Stable"

"""JoinGroup of dynamic and pending members, as GroupCoordinatorTest has it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from ctrlchan.broker.coordinator.group.group import GroupState
from ctrlchan.broker.coordinator.group.rebalance import NEW_MEMBER_JOIN_TIMEOUT
from ctrlchan.broker.coordinator.group.requests import JoinResult, LeavingMember
from ctrlchan.errors import ErrorCode
from tests.unit.broker.coordinator.support import (
    CONFIG,
    DELAY,
    GROUP,
    MAX_SIZE,
    OTHER_GROUP,
    PROTOCOL_SUPERSET,
    REBALANCE,
    SESSION,
    Rig,
)


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_the_first_member_leads_and_gets_the_members(rig: Rig) -> None:
    joined = rig.join()
    assert joined.error is ErrorCode.NONE
    assert joined.generation_id == 1
    assert joined.leader_id == joined.member_id
    assert joined.member_id.startswith("client-")
    assert (joined.protocol_type, joined.protocol_name) == ("consumer", "range")
    assert [(m.member_id, m.instance_id, m.metadata) for m in joined.members] == [
        (joined.member_id, None, b"range-metadata")
    ]
    assert rig.state == "CompletingRebalance"


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"group_id": OTHER_GROUP}, ErrorCode.NOT_COORDINATOR),
        ({"session_timeout": CONFIG.min_session_timeout - 1}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout": CONFIG.max_session_timeout + 1}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"member_id": "someone"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_refused(rig: Rig, fields: dict[str, object], error: ErrorCode) -> None:
    result = rig.join(**fields)  # type: ignore[arg-type]
    assert result == JoinResult(error, str(fields.get("member_id", "")))


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": (("roundrobin", b""),)}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"member_id": "someone"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_refused_by_a_group_with_members(rig: Rig, fields: dict[str, object], error: ErrorCode) -> None:
    rig.join()
    assert rig.join(**fields).error is error  # type: ignore[arg-type]


def test_a_group_that_was_just_deleted_is_looked_for_again(rig: Rig) -> None:
    joined = rig.stable()
    with rig.group().locked():
        rig.group().transition_to(GroupState.DEAD)
    assert rig.join().error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert rig.join(joined.member_id).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert rig.sync(1, joined.member_id).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert rig.heartbeat(joined.member_id, 1) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert rig.coordinator.leave(GROUP, [LeavingMember("x")]).error is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_the_protocol_with_the_most_votes_is_chosen(rig: Rig) -> None:
    first = rig.send_join(protocols=(("a", b"1"), ("b", b"2"), ("only", b"")))
    second = rig.send_join(protocols=(("b", b"3"), ("a", b"4")))
    third = rig.send_join(protocols=(("b", b"5"), ("other", b""), ("a", b"6")))
    rig.advance(2 * DELAY + 2)
    assert {answer.result.protocol_name for answer in (first, second, third)} == {"b"}
    assert [member.metadata for member in first.result.members] == [b"2", b"3", b"5"]
    assert second.result.members == third.result.members == ()


# The initial rebalance delay


def test_the_first_rebalance_waits_for_the_initial_delay(rig: Rig) -> None:
    answer = rig.send_join()
    rig.advance(DELAY - 1)
    assert not answer.given
    rig.advance(1)
    assert answer.result.error is ErrorCode.NONE


def test_a_new_member_extends_the_initial_delay(rig: Rig) -> None:
    answers = [rig.send_join(rebalance_timeout=3 * DELAY)]
    rig.advance(DELAY - 1)
    answers.append(rig.send_join(rebalance_timeout=3 * DELAY))
    rig.advance(2)
    assert not any(answer.given for answer in answers)
    rig.advance(DELAY)
    assert {answer.result.generation_id for answer in answers} == {1}


def test_the_initial_delay_ends_with_the_rebalance_timeout(rig: Rig) -> None:
    answers = [rig.send_join(rebalance_timeout=2 * DELAY)]
    for _ in range(2):
        assert not any(answer.given for answer in answers)
        rig.advance(DELAY - 1)
        answers.append(rig.send_join(rebalance_timeout=2 * DELAY))
    rig.advance(2)
    assert all(answer.given for answer in answers)


def test_without_a_delay_the_first_member_is_answered_within_a_tick() -> None:
    assert Rig(replace(CONFIG, initial_rebalance_delay=0)).join(wait=1).error is ErrorCode.NONE


# group.max.size


def test_a_full_group_refuses_new_members(rig: Rig) -> None:
    answers = [rig.send_join() for _ in range(MAX_SIZE + 1)]
    rig.advance(2 * DELAY + 2)
    errors = [answer.result.error for answer in answers]
    assert errors == [ErrorCode.NONE] * MAX_SIZE + [ErrorCode.GROUP_MAX_SIZE_REACHED]
    assert answers[-1].result.member_id == ""
    assert rig.join(wait=0).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    for answer in answers[:MAX_SIZE]:
        assert rig.join(answer.result.member_id, wait=0).error is ErrorCode.NONE


def test_a_full_group_refuses_members_with_ids_of_their_own(rig: Rig) -> None:
    ids = [rig.join(requires_member_id=True, wait=0).member_id for _ in range(MAX_SIZE + 1)]
    answers = [rig.send_join(member_id, requires_member_id=True) for member_id in ids]
    again = [rig.send_join(member_id, requires_member_id=True) for member_id in ids[:MAX_SIZE]]
    rig.advance(2 * DELAY + 2)
    assert answers[-1].result.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert {answer.result.error for answer in again} == {ErrorCode.NONE}
    # Nobody waits for the answers of requests that the client has repeated.
    assert {answer.result.error for answer in answers[:-1]} == {ErrorCode.REBALANCE_IN_PROGRESS}


def test_static_members_count(rig: Rig) -> None:
    answers = [rig.send_join(instance_id=f"instance-{i}") for i in range(MAX_SIZE + 1)]
    rig.advance(2 * DELAY + 2)
    assert Counter(answer.result.error for answer in answers) == {
        ErrorCode.NONE: MAX_SIZE,
        ErrorCode.GROUP_MAX_SIZE_REACHED: 1,
    }


# Known members


def test_a_follower_that_joins_again_unchanged_starts_no_rebalance(rig: Rig) -> None:
    leader, follower = _two_members(rig)
    again = rig.join(follower.member_id, wait=0)
    assert (again.error, again.generation_id) == (ErrorCode.NONE, leader.generation_id)
    assert again.members == ()
    assert rig.state == "Stable"


def test_a_leader_that_joins_again_starts_a_rebalance(rig: Rig) -> None:
    leader, follower = _two_members(rig)
    answer = rig.send_join(leader.member_id)
    assert not answer.given
    assert rig.heartbeat(follower.member_id, leader.generation_id) is ErrorCode.REBALANCE_IN_PROGRESS
    assert rig.join(follower.member_id, wait=0).generation_id == leader.generation_id + 1
    assert answer.result.generation_id == leader.generation_id + 1


def test_a_follower_with_other_protocols_starts_a_rebalance(rig: Rig) -> None:
    _, follower = _two_members(rig)
    rig.send_join(follower.member_id, protocols=(("range", b"other"),))
    assert rig.state == "PreparingRebalance"


def test_a_member_that_joins_again_before_the_sync_gets_the_same_answer(rig: Rig) -> None:
    joined = rig.join()
    assert rig.join(joined.member_id, wait=0) == joined
    changed = rig.join(joined.member_id, protocols=PROTOCOL_SUPERSET, wait=0)
    assert changed.generation_id == joined.generation_id + 1


def test_a_member_that_does_not_rejoin_is_removed(rig: Rig) -> None:
    first = rig.stable(session_timeout=10_000)
    second = rig.send_join()
    rig.advance(REBALANCE + 1)
    assert second.result.leader_id == second.result.member_id
    assert len(second.result.members) == 1
    assert rig.heartbeat(first.member_id, 1) is ErrorCode.UNKNOWN_MEMBER_ID


# Member ids are required (KIP-394)


def test_a_member_gets_an_id_and_joins_with_it(rig: Rig) -> None:
    required = rig.join(requires_member_id=True, wait=0)
    assert required.error is ErrorCode.MEMBER_ID_REQUIRED
    assert required.generation_id == -1
    assert rig.state == "Empty"
    refused = rig.join(required.member_id, requires_member_id=True, protocols=(), wait=0)
    assert refused.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert rig.join(required.member_id, requires_member_id=True).member_id == required.member_id


def test_a_member_id_that_nobody_joins_with_is_forgotten(rig: Rig) -> None:
    first = rig.stable()
    required = rig.join(requires_member_id=True, wait=0)
    rig.advance(SESSION // 2)
    rig.heartbeat(first.member_id, 1)
    assert list(rig.group().pending_members) == [required.member_id]
    rig.advance(SESSION // 2 + 1)
    assert not rig.group().pending_members
    assert rig.state == "Stable"
    assert rig.join(required.member_id, wait=0).error is ErrorCode.UNKNOWN_MEMBER_ID


def _rebalancing_with_pending_member(rig: Rig) -> tuple[JoinResult, list[str]]:
    """Make two members that have rejoined and wait for a third, which has got its id only."""
    leader, follower = _two_members(rig)
    rig.send_join(leader.member_id)
    pending = rig.join(requires_member_id=True, session_timeout=100, wait=0)
    rig.send_join(follower.member_id)
    assert rig.state == "PreparingRebalance"
    return pending, [leader.member_id, follower.member_id]


def test_a_rebalance_waits_for_a_pending_member(rig: Rig) -> None:
    pending, _ = _rebalancing_with_pending_member(rig)
    joined = rig.join(pending.member_id, wait=0)
    assert joined.error is ErrorCode.NONE
    assert len(rig.group().members) == 3


def test_a_rebalance_goes_on_without_a_pending_member_that_does_not_join(rig: Rig) -> None:
    _, members = _rebalancing_with_pending_member(rig)
    rig.advance(101)
    assert rig.state == "CompletingRebalance"
    assert list(rig.group().members) == members


def test_a_rebalance_goes_on_without_a_pending_member_that_leaves(rig: Rig) -> None:
    pending, members = _rebalancing_with_pending_member(rig)
    left = rig.coordinator.leave(GROUP, [LeavingMember(pending.member_id)])
    assert [member.error for member in left.members] == [ErrorCode.NONE]
    assert rig.state == "CompletingRebalance"
    assert list(rig.group().members) == members


def test_a_pending_member_is_not_static(rig: Rig) -> None:
    pending = rig.join(requires_member_id=True, wait=0)
    joined = rig.join(pending.member_id, instance_id="i", wait=0)
    assert (joined.error, joined.member_id) == (ErrorCode.UNKNOWN_SERVER_ERROR, "")


# New members have a time limit of their own


def test_a_new_member_that_waits_too_long_is_removed(rig: Rig) -> None:
    session = NEW_MEMBER_JOIN_TIMEOUT + 5_000
    first = rig.join(session_timeout=session, rebalance_timeout=2 * NEW_MEMBER_JOIN_TIMEOUT)
    answer = rig.send_join(session_timeout=session, rebalance_timeout=2 * NEW_MEMBER_JOIN_TIMEOUT)
    rig.advance(NEW_MEMBER_JOIN_TIMEOUT - 1)
    assert not answer.given
    rig.advance(1)
    assert answer.result == JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, "")
    assert list(rig.group().members) == [first.member_id]


def test_a_new_member_that_has_joined_has_its_session(rig: Rig) -> None:
    session = NEW_MEMBER_JOIN_TIMEOUT + 5_000
    rig.stable(session_timeout=session)
    rig.advance(NEW_MEMBER_JOIN_TIMEOUT + 100)
    assert rig.state == "Stable"
    rig.advance(session)
    assert rig.state == "Empty"


def _two_members(rig: Rig) -> tuple[JoinResult, JoinResult]:
    """Make a Stable group, generation 2, of two dynamic members."""
    first = rig.stable()
    second = rig.send_join()
    leader = rig.join(first.member_id, wait=0)
    follower = second.result
    assert rig.sync(2, leader.member_id).error is ErrorCode.NONE
    assert rig.sync(2, follower.member_id).error is ErrorCode.NONE
    assert rig.state == "Stable"
    return leader, follower

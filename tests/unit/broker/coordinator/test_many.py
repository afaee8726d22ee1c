"""Thousands of groups, and thousands of members in one group."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ctrlchan.broker.coordinator.common.partitions import TopicPartition
from ctrlchan.broker.coordinator.group.requests import LeavingMember, OffsetToCommit
from ctrlchan.errors import ErrorCode
from tests.unit.broker.coordinator.support import CONFIG, DELAY, GROUP, SESSION, Rig

GROUPS = 3_000
MEMBERS = 2_000
FOO = TopicPartition("foo", 0)
#: All groups are in the partition that is led; nobody is silent for too long.
MANY = replace(CONFIG, max_size=2**31 - 1, offsets_topic_partitions=1)
LONG: dict[str, Any] = {"session_timeout": 60_000, "rebalance_timeout": 60_000}


def test_one_group_of_many_members() -> None:
    rig = Rig(MANY)
    answers = [rig.send_join(**LONG) for _ in range(MEMBERS)]
    rig.advance(10 * DELAY)
    joined = [answer.result for answer in answers]
    assert {(one.error, one.generation_id) for one in joined} == {(ErrorCode.NONE, 1)}
    [leader] = [one for one in joined if one.members]
    ids = [member.member_id for member in leader.members]
    assert sorted(ids) == sorted(one.member_id for one in joined)
    followers = [rig.send_sync(1, one.member_id) for one in joined if one is not leader]
    assert rig.sync(1, leader.member_id, {one: one.encode() for one in ids}).error is ErrorCode.NONE
    assert all(answer.result.assignment for answer in followers)
    assert rig.coordinator.figures().sessions == MEMBERS

    # One leaves: all others hear of it, and join again.
    rig.coordinator.leave(GROUP, [LeavingMember(ids[-1])])
    stay = ids[:-1]
    assert {rig.heartbeat(one, 1) for one in stay} == {ErrorCode.REBALANCE_IN_PROGRESS}
    again = [rig.send_join(one, **LONG) for one in stay]
    assert {answer.result.generation_id for answer in again} == {2}

    # All fall silent.
    rig.advance(120_000)
    assert rig.state == "Empty"
    assert rig.coordinator.figures()[2:] == (0, 0)


def test_many_groups_move_to_another_broker() -> None:
    rig = Rig(MANY)
    names = [f"group-{number}" for number in range(GROUPS)]
    answers = [rig.send_join(group_id=name) for name in names]
    rig.advance(DELAY + 1)
    members = [answer.result.member_id for answer in answers]
    for name, member_id in zip(names, members, strict=True):
        rig.sync(1, member_id, {member_id: b"all"}, group_id=name)
        rig.commit(OffsetToCommit(FOO, 7), group_id=name, member_id=member_id, generation_id=1)
    figures = rig.coordinator.figures()
    assert (figures.groups["Stable"], figures.offsets, figures.sessions, figures.rebalances) == (
        GROUPS,
        GROUPS,
        GROUPS,
        0,
    )

    other = Rig(MANY, rig.topic)
    rig.coordinator.resigned(0, 2)
    assert sum(rig.coordinator.figures().groups.values()) == len(rig.timers) - 1 == 0
    assert other.coordinator.figures() == figures
    other.advance(SESSION - 1)
    for name, member_id in zip(names, members, strict=True):
        assert other.heartbeat(member_id, 1, group_id=name) is ErrorCode.NONE
    other.advance(SESSION - 1)
    assert other.coordinator.figures().groups["Stable"] == GROUPS
    other.advance(SESSION)
    assert other.coordinator.figures().groups["Empty"] == GROUPS

"""SyncGroup, Heartbeat, LeaveGroup and sessions, as GroupCoordinatorTest has them."""

from __future__ import annotations

import logging
import threading

import pytest

from ctrlchan.broker.coordinator.group.requests import JoinRequest, JoinResult, LeavingMember, SyncResult
from ctrlchan.errors import ErrorCode
from tests.unit.broker.coordinator.support import (
    DELAY,
    GROUP,
    OTHER_GROUP,
    PROTOCOLS,
    REBALANCE,
    SESSION,
    Rig,
)


@pytest.fixture
def rig() -> Rig:
    return Rig()


def _joined(rig: Rig, count: int, **fields: object) -> list[JoinResult]:
    """Let members join for generation 1; the first one leads."""
    answers = [rig.send_join(**fields) for _ in range(count)]  # type: ignore[arg-type]
    rig.advance(2 * DELAY + 2)
    results = [answer.result for answer in answers]
    assert {result.leader_id for result in results} == {results[0].member_id}
    return results


# SyncGroup


def test_followers_wait_for_the_leader(rig: Rig) -> None:
    leader, follower = _joined(rig, 2)
    waiting = rig.send_sync(1, follower.member_id)
    assert not waiting.given
    synced = rig.sync(1, leader.member_id, {leader.member_id: b"1", follower.member_id: b"2"})
    assert synced == SyncResult(ErrorCode.NONE, "consumer", "range", b"1")
    assert waiting.result.assignment == b"2"
    assert rig.state == "Stable"


def test_a_follower_after_the_leader_is_answered_at_once(rig: Rig) -> None:
    leader, follower = _joined(rig, 2)
    rig.sync(1, leader.member_id, {follower.member_id: b"2"})
    assert rig.sync(1, follower.member_id).assignment == b"2"
    # The leader forgot itself.
    assert rig.sync(1, leader.member_id).assignment == b""


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"group_id": OTHER_GROUP}, ErrorCode.NOT_COORDINATOR),
        ({"member_id": "someone"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation_id": 2}, ErrorCode.ILLEGAL_GENERATION),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_name": "roundrobin"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": "consumer", "protocol_name": "range"}, ErrorCode.NONE),
    ],
)
def test_sync_is_checked(rig: Rig, fields: dict[str, object], error: ErrorCode) -> None:
    (joined,) = _joined(rig, 1)
    fields = {"generation_id": 1, "member_id": joined.member_id, **fields}
    assert rig.sync(**fields).error is error  # type: ignore[arg-type]


def test_sync_of_an_unknown_group(rig: Rig) -> None:
    assert rig.sync(1, "someone") == SyncResult(ErrorCode.UNKNOWN_MEMBER_ID)


def test_sync_during_a_rebalance(rig: Rig) -> None:
    joined = rig.stable()
    rig.send_join()
    assert rig.sync(1, joined.member_id).error is ErrorCode.REBALANCE_IN_PROGRESS


def test_syncs_that_wait_are_sent_back_by_a_rebalance(rig: Rig) -> None:
    leader, follower = _joined(rig, 2)
    waiting = rig.send_sync(1, follower.member_id)
    rig.coordinator.leave(GROUP, [LeavingMember(leader.member_id)])
    assert waiting.result.error is ErrorCode.REBALANCE_IN_PROGRESS
    again = rig.join(follower.member_id, wait=0)
    assert (again.generation_id, again.leader_id) == (2, follower.member_id)


def test_a_member_that_leaves_while_it_waits_is_answered(rig: Rig) -> None:
    _, follower = _joined(rig, 2)
    waiting = rig.send_sync(1, follower.member_id)
    rig.coordinator.leave(GROUP, [LeavingMember(follower.member_id)])
    assert waiting.result.error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_sync_that_is_repeated_replaces_the_first(rig: Rig) -> None:
    leader, follower = _joined(rig, 2)
    first, second = rig.send_sync(1, follower.member_id), rig.send_sync(1, follower.member_id)
    assert first.result.error is ErrorCode.REBALANCE_IN_PROGRESS
    rig.sync(1, leader.member_id)
    assert second.result.error is ErrorCode.NONE


@pytest.mark.parametrize(
    ("append_error", "error"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REBALANCE_IN_PROGRESS),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.INVALID_FETCH_SIZE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.INVALID_TOPIC_EXCEPTION),
        (12_345, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_assignments_that_cannot_be_stored(rig: Rig, append_error: int, error: ErrorCode) -> None:
    leader, follower = _joined(rig, 2)
    waiting = rig.send_sync(1, follower.member_id)
    rig.topic.error = append_error
    assert rig.sync(1, leader.member_id) == SyncResult(error)
    assert waiting.result == SyncResult(error)
    assert rig.state == "PreparingRebalance"


def test_a_name_that_no_record_can_hold_is_no_crash(rig: Rig) -> None:
    name = "g" * 40_000
    rig.coordinator.elected(rig.coordinator.partition_for(name), 1)
    joined = rig.join(group_id=name)
    assert rig.sync(1, joined.member_id, group_id=name).error is ErrorCode.UNKNOWN_SERVER_ERROR


def test_an_append_that_raises_is_an_error_for_the_members(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    leader, follower = _joined(rig, 2)
    waiting = rig.send_sync(1, follower.member_id)

    def fail(*_: object, **_fields: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(rig.topic, "append", fail)
    assert rig.sync(1, leader.member_id).error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert waiting.result.error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert "no space left" in caplog.text


def test_names_of_clients_are_one_short_line_in_the_log(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    name = "g\nERROR forged" + 10_000 * "x"
    joined = rig.join(group_id=name, client_id=name)
    rig.sync(1, joined.member_id, group_id=name)
    assert "[GroupCoordinator 1]: group 'g\\nERROR forged" in caplog.text
    assert "rebalance after generation 0" in caplog.text
    for record in caplog.records:
        assert "\n" not in record.getMessage()
        assert len(record.getMessage()) < 1000


def test_assignments_count_when_they_are_stored(rig: Rig) -> None:
    leader, follower = _joined(rig, 2)
    rig.topic.held = []
    syncs = [rig.send_sync(1, follower.member_id), rig.send_sync(1, leader.member_id)]
    assert rig.state == "CompletingRebalance"
    assert not any(sync.given for sync in syncs)
    rig.topic.release()
    assert {sync.result.error for sync in syncs} == {ErrorCode.NONE}
    assert rig.state == "Stable"


def test_assignments_of_a_generation_that_has_ended_do_not_count(rig: Rig) -> None:
    (leader,) = _joined(rig, 1)
    rig.topic.held = []
    sync = rig.send_sync(1, leader.member_id, {leader.member_id: b"old"})
    rig.send_join()
    assert sync.result.error is ErrorCode.REBALANCE_IN_PROGRESS
    rig.topic.release()
    assert rig.state == "PreparingRebalance"
    assert rig.group().members[leader.member_id].assignment == b""


def test_a_session_does_not_end_while_the_assignments_are_stored(rig: Rig) -> None:
    (leader,) = _joined(rig, 1)
    rig.topic.held = []
    sync = rig.send_sync(1, leader.member_id)
    rig.advance(10 * SESSION)
    rig.topic.release()
    assert sync.result.error is ErrorCode.NONE
    rig.advance(SESSION - 1)
    assert rig.state == "Stable"
    rig.advance(1)
    assert rig.state == "Empty"


# Members that do not send SyncGroup (KAFKA-12890)


def _half_of_the_sync_time(rig: Rig, results: list[JoinResult]) -> None:
    rig.advance(REBALANCE // 2)
    assert {rig.heartbeat(result.member_id, 1) for result in results} == {ErrorCode.NONE}


def test_members_without_sync_are_removed_though_they_send_heartbeats(rig: Rig) -> None:
    results = _joined(rig, 3)
    _half_of_the_sync_time(rig, results)
    rig.advance(REBALANCE // 2 + 1)
    assert {rig.heartbeat(result.member_id, 1) for result in results} == {ErrorCode.UNKNOWN_MEMBER_ID}
    assert rig.state == "Empty"


def test_followers_without_sync_are_removed(rig: Rig) -> None:
    leader, *followers = _joined(rig, 3)
    _half_of_the_sync_time(rig, [leader, *followers])
    assert rig.sync(1, leader.member_id).error is ErrorCode.NONE
    rig.advance(REBALANCE // 2 + 1)
    assert rig.heartbeat(leader.member_id, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert {rig.heartbeat(each.member_id, 1) for each in followers} == {ErrorCode.UNKNOWN_MEMBER_ID}


def test_a_leader_without_sync_is_removed(rig: Rig) -> None:
    leader, *followers = _joined(rig, 3)
    _half_of_the_sync_time(rig, [leader, *followers])
    waiting = [rig.send_sync(1, each.member_id) for each in followers]
    rig.advance(REBALANCE // 2 + 1)
    assert {each.result.error for each in waiting} == {ErrorCode.REBALANCE_IN_PROGRESS}
    assert rig.heartbeat(leader.member_id, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert {rig.heartbeat(each.member_id, 1) for each in followers} == {ErrorCode.REBALANCE_IN_PROGRESS}


def test_a_group_whose_members_have_all_synced_stays(rig: Rig) -> None:
    leader, *followers = results = _joined(rig, 3)
    _half_of_the_sync_time(rig, results)
    rig.sync(1, leader.member_id)
    for each in followers:
        assert rig.sync(1, each.member_id).error is ErrorCode.NONE
    for _ in range(4):
        rig.advance(REBALANCE // 2 - 1)
        assert {rig.heartbeat(result.member_id, 1) for result in results} == {ErrorCode.NONE}


# Heartbeats and sessions


def test_heartbeat_is_checked(rig: Rig) -> None:
    assert rig.heartbeat("someone", 1, group_id="") is ErrorCode.INVALID_GROUP_ID
    assert rig.heartbeat("someone", 1, group_id=OTHER_GROUP) is ErrorCode.NOT_COORDINATOR
    assert rig.heartbeat("someone", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    joined = rig.stable()
    assert rig.heartbeat("someone", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.heartbeat(joined.member_id, 2) is ErrorCode.ILLEGAL_GENERATION
    assert rig.heartbeat(joined.member_id, 1, "instance") is ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.heartbeat(joined.member_id, 1) is ErrorCode.NONE
    rig.send_join()
    assert rig.heartbeat(joined.member_id, 1) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_session_ends_without_heartbeats(rig: Rig) -> None:
    joined = rig.stable()
    rig.advance(SESSION - 1)
    assert rig.heartbeat(joined.member_id, 1) is ErrorCode.NONE
    rig.advance(SESSION)
    assert rig.heartbeat(joined.member_id, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.state == "Empty"
    assert rig.group().generation_id == 2


def test_a_session_that_ends_during_a_rebalance_completes_it(rig: Rig) -> None:
    first = rig.stable(session_timeout=1_000, rebalance_timeout=20_000)
    second = rig.send_join()
    rig.advance(500)
    assert rig.heartbeat(first.member_id, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    rig.advance(999)
    assert not second.given
    rig.advance(1)
    assert second.result.leader_id == second.result.member_id


def test_heartbeats_do_not_keep_a_member_that_does_not_join(rig: Rig) -> None:
    first = rig.stable(session_timeout=10_000)
    second = rig.send_join()
    for _ in range(5):
        assert rig.heartbeat(first.member_id, 1) is ErrorCode.REBALANCE_IN_PROGRESS
        rig.advance(REBALANCE // 5)
    assert second.result.generation_id == 2
    assert rig.heartbeat(first.member_id, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_members_fail_after_join_and_after_sync(rig: Rig) -> None:
    leader, follower = _joined(rig, 2)
    rig.advance(SESSION)
    assert rig.state == "Empty"
    assert rig.heartbeat(leader.member_id, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.heartbeat(follower.member_id, 1) is ErrorCode.UNKNOWN_MEMBER_ID


# LeaveGroup


def test_leave_is_checked(rig: Rig) -> None:
    leaving = [LeavingMember("someone")]
    assert rig.coordinator.leave(OTHER_GROUP, leaving).error is ErrorCode.NOT_COORDINATOR
    assert rig.coordinator.leave("", leaving).error is ErrorCode.INVALID_GROUP_ID
    assert rig.coordinator.leave(GROUP, leaving).members[0].error is ErrorCode.UNKNOWN_MEMBER_ID
    rig.stable()
    assert rig.coordinator.leave(GROUP, leaving).members[0].error is ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.state == "Stable"


def test_the_last_member_leaves_an_empty_group(rig: Rig) -> None:
    joined = rig.stable()
    left = rig.coordinator.leave(GROUP, [LeavingMember(joined.member_id, None, "closing")])
    assert left.members[0].error is ErrorCode.NONE
    assert rig.state == "Empty"
    assert len(rig.timers) == 1  # of the expiration of offsets
    # A member that comes later begins the next generation.
    assert rig.join().generation_id == 3


def test_a_member_that_leaves_starts_a_rebalance(rig: Rig) -> None:
    leader, follower = _joined(rig, 2)
    rig.sync(1, leader.member_id)
    rig.sync(1, follower.member_id)
    rig.coordinator.leave(GROUP, [LeavingMember(leader.member_id)])
    assert rig.heartbeat(follower.member_id, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert rig.join(follower.member_id, wait=0).leader_id == follower.member_id


# Describe and list


def test_describe(rig: Rig) -> None:
    assert rig.coordinator.describe(OTHER_GROUP).error is ErrorCode.NOT_COORDINATOR
    missing = rig.coordinator.describe(GROUP)
    assert (missing.error, missing.state, missing.members) == (ErrorCode.NONE, "Dead", ())
    leader, _ = rig.stable_static()
    summary = rig.coordinator.describe(GROUP)
    assert (summary.state, summary.protocol_type, summary.protocol) == ("Stable", "consumer", "range")
    member = next(member for member in summary.members if member.instance_id == "leader")
    assert member == (leader.member_id, "leader", "client", "/127.0.0.1", b"range-metadata", b"a")
    rig.send_join(leader.member_id, instance_id="leader")
    summary = rig.coordinator.describe(GROUP)
    assert (summary.state, summary.protocol) == ("PreparingRebalance", "")
    assert {(member.metadata, member.assignment) for member in summary.members} == {(b"", b"")}


def test_list(rig: Rig) -> None:
    coordinator = rig.coordinator
    assert coordinator.list_groups() == (ErrorCode.NONE, [])
    rig.stable()
    listed = (ErrorCode.NONE, [(GROUP, "consumer", "Stable", "classic")])
    assert coordinator.list_groups() == listed
    assert coordinator.list_groups(["Empty", "stable"], ["CLASSIC"]) == listed
    assert coordinator.list_groups(["Empty"]) == (ErrorCode.NONE, [])
    assert coordinator.list_groups(types=["consumer"]) == (ErrorCode.NONE, [])
    coordinator.close()
    assert coordinator.list_groups()[0] is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert coordinator.describe(GROUP).error is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_no_lock_is_held_while_answers_are_given(rig: Rig) -> None:
    free: list[bool] = []

    def check(_: object) -> None:
        lock = rig.group()._lock
        other = threading.Thread(target=lambda: free.append(lock.acquire(blocking=False)))
        other.start()
        other.join()

    request = JoinRequest(GROUP, "", "client", "", SESSION, REBALANCE, "consumer", PROTOCOLS)
    rig.coordinator.join(request, check)
    rig.advance(DELAY + 1)
    assert free == [True]

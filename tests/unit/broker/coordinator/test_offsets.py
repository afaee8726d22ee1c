"""OffsetCommit, OffsetFetch, OffsetDelete, DeleteGroups and the expiry of offsets."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from ctrlchan.broker.coordinator.common.partitions import TopicPartition
from ctrlchan.broker.coordinator.group.records import read_key, read_offset_value
from ctrlchan.broker.coordinator.group.requests import FetchedOffset, LeavingMember, OffsetToCommit
from ctrlchan.errors import ErrorCode
from tests.unit.broker.coordinator.support import (
    CONFIG,
    GROUP,
    OTHER_GROUP,
    SESSION,
    START_MS,
    Rig,
)

FOO = TopicPartition("foo", 0)
BAR = TopicPartition("bar", 3)
RETENTION = 1_000


def subscription(*topics: str) -> bytes:
    """Return a ConsumerProtocolSubscription of version 1, without owned partitions."""
    names = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    return struct.pack(">hi", 1, len(topics)) + names + struct.pack(">ii", -1, 0)


@pytest.fixture
def rig() -> Rig:
    return Rig(replace(CONFIG, offsets_retention=RETENTION))


def _fetched(rig: Rig, *partitions: TopicPartition, stable: bool = False) -> list[FetchedOffset]:
    error, offsets = rig.coordinator.fetch(GROUP, partitions, require_stable=stable)
    assert error is ErrorCode.NONE
    return list(offsets.values())


# Commits


def test_a_consumer_without_a_group_commits(rig: Rig) -> None:
    assert rig.commit(OffsetToCommit(FOO, 5, 7, "note"), OffsetToCommit(BAR, 6)) == {FOO: 0, BAR: 0}
    assert _fetched(rig, FOO, BAR) == [FetchedOffset(5, 7, "note"), FetchedOffset(6, -1, "")]
    assert rig.state == "Empty"
    error, everything = rig.coordinator.fetch(GROUP, None)
    assert (error, everything) == (ErrorCode.NONE, {FOO: (5, 7, "note", 0), BAR: (6, -1, "", 0)})
    _, records, timestamp, acks = rig.topic.appended[-1]
    assert (timestamp, acks) == (START_MS, -1)
    assert [read_key(record.key) for record in records] == [(GROUP, "foo", 0), (GROUP, "bar", 3)]
    assert read_offset_value(records[0].value or b"") == (5, 7, "note", START_MS, -1)


def test_null_metadata_is_empty(rig: Rig) -> None:
    rig.commit(OffsetToCommit(FOO, 5, metadata=None))
    assert _fetched(rig, FOO)[0].metadata == ""


def test_the_empty_group_id_has_offsets(rig: Rig) -> None:
    rig.coordinator.elected(rig.coordinator.partition_for(""), 1)
    assert rig.commit(OffsetToCommit(FOO, 5), group_id="") == {FOO: ErrorCode.NONE}
    assert rig.coordinator.fetch("", [FOO])[1][FOO].offset == 5
    assert rig.coordinator.describe("").state == "Empty"
    assert rig.coordinator.delete([""]) == {"": ErrorCode.NONE}


def test_commits_are_checked(rig: Rig) -> None:
    offset = OffsetToCommit(FOO, 1)
    assert rig.commit(offset, group_id=OTHER_GROUP) == {FOO: ErrorCode.NOT_COORDINATOR}
    assert rig.commit(offset, generation_id=1, member_id="m") == {FOO: ErrorCode.ILLEGAL_GENERATION}
    leader, _ = rig.stable_static()
    member = {"generation_id": 2, "member_id": leader.member_id}
    assert rig.commit(offset, **member) == {FOO: ErrorCode.NONE}
    assert rig.commit(offset, **member, instance_id="leader") == {FOO: ErrorCode.NONE}
    assert rig.commit(offset) == {FOO: ErrorCode.UNKNOWN_MEMBER_ID}
    assert rig.commit(offset, **{**member, "generation_id": 1}) == {FOO: ErrorCode.ILLEGAL_GENERATION}
    assert rig.commit(offset, **{**member, "member_id": "x"}) == {FOO: ErrorCode.UNKNOWN_MEMBER_ID}
    fenced = rig.commit(offset, generation_id=2, member_id="x", instance_id="leader")
    assert fenced == {FOO: ErrorCode.FENCED_INSTANCE_ID}


def test_commits_during_a_rebalance(rig: Rig) -> None:
    joined = rig.join()
    offset = OffsetToCommit(FOO, 1)
    member = {"generation_id": 1, "member_id": joined.member_id}
    assert rig.commit(offset, **member) == {FOO: ErrorCode.REBALANCE_IN_PROGRESS}
    assert rig.commit(offset, generation_id=1, member_id="x") == {FOO: ErrorCode.UNKNOWN_MEMBER_ID}
    assert rig.commit(offset, **{**member, "generation_id": 2}) == {FOO: ErrorCode.ILLEGAL_GENERATION}
    rig.sync(1, joined.member_id)
    rig.send_join()
    assert rig.state == "PreparingRebalance"
    # Members commit what they have before they give their partitions away.
    assert rig.commit(offset, **member) == {FOO: ErrorCode.NONE}


def test_a_manual_commit_to_an_empty_group_needs_no_member(rig: Rig) -> None:
    joined = rig.stable()
    rig.coordinator.leave(GROUP, [LeavingMember(joined.member_id)])
    assert rig.commit(OffsetToCommit(FOO, 1), member_id="x", instance_id="y") == {FOO: ErrorCode.NONE}
    late = rig.commit(OffsetToCommit(FOO, 2), generation_id=1, member_id=joined.member_id)
    assert late == {FOO: ErrorCode.UNKNOWN_MEMBER_ID}


def test_a_commit_renews_the_session(rig: Rig) -> None:
    joined = rig.stable()
    rig.advance(SESSION // 2)
    rig.commit(OffsetToCommit(FOO, 1), generation_id=1, member_id=joined.member_id)
    rig.advance(SESSION // 2 + 10)
    assert rig.heartbeat(joined.member_id, 1) is ErrorCode.NONE


def test_metadata_that_is_too_long(rig: Rig) -> None:
    longest = "x" * CONFIG.offset_metadata_max
    assert rig.commit(
        OffsetToCommit(FOO, 1, metadata=longest + "x"), OffsetToCommit(BAR, 2, metadata=longest)
    ) == {FOO: ErrorCode.OFFSET_METADATA_TOO_LARGE, BAR: ErrorCode.NONE}
    appended = len(rig.topic.appended)
    # Java counts two units for this character.
    beyond = "\N{GRINNING FACE}" * (CONFIG.offset_metadata_max // 2 + 1)
    assert rig.commit(OffsetToCommit(FOO, 1, metadata=beyond)) == {FOO: ErrorCode.OFFSET_METADATA_TOO_LARGE}
    assert len(rig.topic.appended) == appended
    assert [each.offset for each in _fetched(rig, FOO, BAR)] == [-1, 2]


@pytest.mark.parametrize(
    ("append_error", "error"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        (ErrorCode.NETWORK_EXCEPTION, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REQUEST_TIMED_OUT),
    ],
)
def test_a_commit_that_cannot_be_stored(rig: Rig, append_error: int, error: ErrorCode) -> None:
    rig.commit(OffsetToCommit(FOO, 1))
    rig.topic.error = append_error
    assert rig.commit(OffsetToCommit(FOO, 2)) == {FOO: error}
    assert _fetched(rig, FOO, stable=True)[0].offset == 1


def test_an_offset_is_visible_when_it_is_stored(rig: Rig) -> None:
    rig.topic.held = []
    answer = rig.send_commit(OffsetToCommit(FOO, 1))
    assert not answer.given
    assert _fetched(rig, FOO) == [FetchedOffset()]
    assert _fetched(rig, FOO, stable=True) == [FetchedOffset(error=ErrorCode.UNSTABLE_OFFSET_COMMIT)]
    rig.topic.release()
    assert answer.result == {FOO: ErrorCode.NONE}
    assert _fetched(rig, FOO, stable=True)[0].offset == 1


def test_the_later_record_counts_when_appends_end_in_another_order(rig: Rig) -> None:
    rig.topic.held = []
    rig.send_commit(OffsetToCommit(FOO, 1))
    rig.send_commit(OffsetToCommit(FOO, 2))
    assert rig.topic.held is not None
    rig.topic.held.reverse()
    rig.topic.release()
    assert _fetched(rig, FOO, stable=True)[0].offset == 2


def test_fetch_is_checked(rig: Rig) -> None:
    assert rig.coordinator.fetch(OTHER_GROUP, [FOO]) == (ErrorCode.NOT_COORDINATOR, {})
    assert rig.coordinator.fetch(GROUP, [FOO]) == (ErrorCode.NONE, {FOO: FetchedOffset()})
    assert rig.coordinator.fetch(GROUP, None) == (ErrorCode.NONE, {})


# Deletion


def test_groups_with_members_are_not_deleted(rig: Rig) -> None:
    rig.stable()
    assert rig.coordinator.delete([GROUP, OTHER_GROUP]) == {
        GROUP: ErrorCode.NON_EMPTY_GROUP,
        OTHER_GROUP: ErrorCode.NOT_COORDINATOR,
    }


def test_an_empty_group_is_deleted_with_its_offsets(rig: Rig) -> None:
    assert rig.coordinator.delete([GROUP]) == {GROUP: ErrorCode.GROUP_ID_NOT_FOUND}
    joined = rig.stable()
    rig.commit(OffsetToCommit(FOO, 1), generation_id=1, member_id=joined.member_id)
    rig.coordinator.leave(GROUP, [LeavingMember(joined.member_id)])
    assert rig.coordinator.delete([GROUP, GROUP]) == {GROUP: ErrorCode.NONE}
    assert rig.state == "Dead"
    assert _fetched(rig, FOO) == [FetchedOffset()]
    _, records, _, acks = rig.topic.appended[-1]
    assert [(read_key(record.key), record.value) for record in records] == [
        ((GROUP, "foo", 0), None),
        ((GROUP,), None),
    ]
    assert acks == 0
    assert rig.coordinator.delete([GROUP]) == {GROUP: ErrorCode.GROUP_ID_NOT_FOUND}


def test_offsets_of_topics_that_members_consume_are_not_deleted(rig: Rig) -> None:
    assert rig.coordinator.delete_offsets(GROUP, [FOO]) == (ErrorCode.GROUP_ID_NOT_FOUND, {})
    assert rig.coordinator.delete_offsets(OTHER_GROUP, [FOO]) == (ErrorCode.NOT_COORDINATOR, {})
    assert rig.coordinator.delete_offsets("", [FOO]) == (ErrorCode.INVALID_GROUP_ID, {})
    joined = rig.stable(protocols=(("range", subscription("foo")),))
    member = {"generation_id": 1, "member_id": joined.member_id}
    rig.commit(OffsetToCommit(FOO, 1), OffsetToCommit(BAR, 2), **member)
    error, errors = rig.coordinator.delete_offsets(GROUP, [FOO, BAR])
    assert error is ErrorCode.NONE
    assert errors == {FOO: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, BAR: ErrorCode.NONE}
    assert [each.offset for each in _fetched(rig, FOO, BAR)] == [1, -1]
    rig.coordinator.leave(GROUP, [LeavingMember(joined.member_id)])
    assert rig.coordinator.delete_offsets(GROUP, [FOO]) == (ErrorCode.NONE, {FOO: ErrorCode.NONE})
    # The group has nothing left.
    assert rig.state == "Dead"


def test_subscriptions_that_cannot_be_read_keep_all_offsets(rig: Rig) -> None:
    rig.stable(protocols=(("range", b"\x00\x00\x7f"),))
    assert rig.coordinator.delete_offsets(GROUP, [FOO])[1] == {FOO: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}


def test_offsets_of_other_groups_with_members_are_not_deleted(rig: Rig) -> None:
    rig.stable(protocol_type="connect")
    assert rig.coordinator.delete_offsets(GROUP, [FOO]) == (ErrorCode.NON_EMPTY_GROUP, {})


def test_offsets_go_with_their_topic(rig: Rig) -> None:
    rig.commit(OffsetToCommit(FOO, 1), OffsetToCommit(BAR, 2))
    rig.coordinator.partitions_deleted([FOO])
    assert [each.offset for each in _fetched(rig, FOO, BAR)] == [-1, 2]


def test_a_commit_of_a_deleted_topic_does_not_come_back(rig: Rig) -> None:
    rig.commit(OffsetToCommit(BAR, 1))
    rig.topic.held = []
    answer = rig.send_commit(OffsetToCommit(FOO, 1))
    rig.coordinator.partitions_deleted([FOO])
    rig.topic.release()
    assert answer.result == {FOO: ErrorCode.NONE}
    assert _fetched(rig, FOO) == [FetchedOffset()]


# Expiry


def test_offsets_without_a_group_expire_after_their_commit(rig: Rig) -> None:
    rig.commit(OffsetToCommit(FOO, 1))
    rig.advance(RETENTION - 1)
    rig.commit(OffsetToCommit(BAR, 2))
    assert rig.coordinator.expire_offsets() == 0
    rig.advance(1)
    assert rig.coordinator.expire_offsets() == 1
    assert [each.offset for each in _fetched(rig, FOO, BAR)] == [-1, 2]
    rig.advance(RETENTION)
    assert rig.coordinator.expire_offsets() == 1
    assert rig.state == "Dead"
    # A group that was never stored needs no tombstone of its own.
    assert [read_key(record.key) for record in rig.topic.appended[-1][1]] == [(GROUP, "bar", 3)]


def test_offsets_of_an_empty_group_expire_after_it_became_empty(rig: Rig) -> None:
    joined = rig.stable(session_timeout=100_000)
    rig.commit(OffsetToCommit(FOO, 1), generation_id=1, member_id=joined.member_id)
    rig.advance(5 * RETENTION)
    rig.coordinator.leave(GROUP, [LeavingMember(joined.member_id)])
    rig.advance(RETENTION - 1)
    assert rig.coordinator.expire_offsets() == 0
    rig.advance(1)
    assert rig.coordinator.expire_offsets() == 1
    assert rig.state == "Dead"


def test_offsets_of_topics_that_nobody_consumes_expire(rig: Rig) -> None:
    joined = rig.stable(session_timeout=100_000, protocols=(("range", subscription("foo")),))
    member = {"generation_id": 1, "member_id": joined.member_id}
    rig.commit(OffsetToCommit(FOO, 1), OffsetToCommit(BAR, 2), **member)
    rig.advance(RETENTION)
    rig.topic.held = []
    pending = rig.send_commit(OffsetToCommit(BAR, 3), **member)  # type: ignore[arg-type]
    assert rig.coordinator.expire_offsets() == 0
    rig.topic.release()
    assert pending.given
    rig.advance(RETENTION)
    assert rig.coordinator.expire_offsets() == 1
    assert [each.offset for each in _fetched(rig, FOO, BAR)] == [1, -1]
    assert rig.state == "Stable"


@pytest.mark.parametrize("protocol_type", ["connect", "consumer"])
def test_offsets_of_other_groups_with_members_do_not_expire(rig: Rig, protocol_type: str) -> None:
    # The subscription of these consumers cannot be read.
    joined = rig.stable(session_timeout=100_000, protocol_type=protocol_type)
    rig.commit(OffsetToCommit(FOO, 1), generation_id=1, member_id=joined.member_id)
    rig.advance(10 * RETENTION)
    assert rig.coordinator.expire_offsets() == 0


def test_a_retention_of_the_request_counts_from_the_commit(rig: Rig) -> None:
    rig.commit(OffsetToCommit(FOO, 1), retention=3 * RETENTION)
    _, records, _, _ = rig.topic.appended[-1]
    assert read_offset_value(records[0].value or b"").expire_timestamp == START_MS + 3 * RETENTION
    rig.advance(3 * RETENTION - 1)
    assert rig.coordinator.expire_offsets() == 0
    rig.advance(1)
    assert rig.coordinator.expire_offsets() == 1


def test_numbers_that_no_record_can_hold_are_no_crash(rig: Rig) -> None:
    assert rig.commit(OffsetToCommit(FOO, 1), retention=2**63 - 1) == {FOO: ErrorCode.UNKNOWN_SERVER_ERROR}
    assert _fetched(rig, FOO, stable=True) == [FetchedOffset()]


def test_offsets_are_expired_from_time_to_time() -> None:
    config = replace(CONFIG, offsets_retention=RETENTION, offsets_retention_check_interval=400)
    rig = Rig(config)
    rig.commit(OffsetToCommit(FOO, 1))
    rig.advance(1_199)
    assert rig.state == "Empty"
    rig.advance(1)
    assert rig.state == "Dead"
    rig.coordinator.close()
    assert len(rig.timers) == 0

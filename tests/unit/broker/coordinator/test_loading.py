"""What the records of ``__consumer_offsets`` leave, and leadership that comes and goes."""

from __future__ import annotations

from typing import Any

import pytest

from ctrlchan.broker.coordinator.common.partitions import TopicPartition
from ctrlchan.broker.coordinator.common.topic import StoredBatch
from ctrlchan.broker.coordinator.group.records import (
    CommittedOffset,
    GroupValue,
    MemberValue,
    group_key,
    group_value,
    offset_key,
    offset_value,
)
from ctrlchan.broker.coordinator.group.requests import FetchedOffset, OffsetToCommit
from ctrlchan.errors import ErrorCode
from ctrlchan.internal_topics import coordinator_partition, java_hash
from tests.unit.broker.coordinator.support import (
    GROUP,
    MAX_SIZE,
    OTHER_GROUP,
    REBALANCE,
    SESSION,
    START_MS,
    MemoryTopic,
    Rig,
)

FOO = TopicPartition("foo", 0)
BAR = TopicPartition("bar", 3)

Pair = tuple[bytes | None, bytes | None]


def _offset(offset: int, partition: TopicPartition = FOO, group_id: str = GROUP) -> Pair:
    return offset_key(group_id, *partition), offset_value(CommittedOffset(offset, -1, "", START_MS))


def _no_offset(partition: TopicPartition = FOO) -> Pair:
    return offset_key(GROUP, *partition), None


def _group(*members: MemberValue, generation_id: int = 3) -> Pair:
    leader = members[0].member_id if members else None
    protocol = "range" if members else None
    value = GroupValue("consumer", generation_id, protocol, leader, START_MS, members)
    return group_key(GROUP), group_value(value)


def _member(member_id: str, instance_id: str | None = None) -> MemberValue:
    return MemberValue(member_id, instance_id, "client", "/host", REBALANCE, SESSION, b"meta", b"mine")


def _batches(*records: Pair) -> list[StoredBatch]:
    return [StoredBatch(offset, [record]) for offset, record in enumerate(records)]


def _rig(*batches: StoredBatch) -> Rig:
    return Rig(topic=MemoryTopic({coordinator_partition(GROUP, 2): list(batches)}))


def _committed(rig: Rig, *partitions: TopicPartition, stable: bool = False) -> list[FetchedOffset]:
    return list(rig.coordinator.fetch(GROUP, partitions, require_stable=stable)[1].values())


def test_offsets_without_a_group() -> None:
    rig = _rig(*_batches(_offset(1), _offset(2, BAR), _offset(3)))
    assert [each.offset for each in _committed(rig, FOO, BAR)] == [3, 2]
    assert rig.state == "Empty"
    assert rig.commit(OffsetToCommit(FOO, 4)) == {FOO: ErrorCode.NONE}


def test_tombstones_remove_offsets_and_groups() -> None:
    rig = _rig(*_batches(_group(_member("m")), _offset(1), _no_offset(), (group_key(GROUP), None)))
    assert rig.state == "Dead"
    rig = _rig(*_batches((group_key(GROUP), None), _group(_member("m"))))
    assert rig.state == "Stable"
    rig = _rig(*_batches(_group(_member("m")), _offset(1), (group_key(GROUP), None)))
    assert (rig.state, _committed(rig, FOO)[0].offset) == ("Empty", 1)


def test_members_go_on_after_a_load() -> None:
    rig = _rig(*_batches(_offset(5), _group(_member("m"), _member("s", "instance"))))
    assert rig.heartbeat("m", 3) is ErrorCode.NONE
    assert rig.heartbeat("s", 3, "instance") is ErrorCode.NONE
    assert rig.sync(3, "m").assignment == b"mine"
    rejoined = rig.join("s", instance_id="instance", protocols=(("range", b"meta"),), wait=0)
    assert (rejoined.generation_id, rejoined.leader_id) == (3, "m")
    summary = rig.coordinator.describe(GROUP)
    assert summary.members[0] == ("m", None, "client", "/host", b"meta", b"mine")
    assert rig.group().state_timestamp == START_MS
    rig.advance(SESSION)
    assert rig.state == "Empty"
    assert rig.group().generation_id == 4


def test_an_empty_group() -> None:
    rig = _rig(*_batches(_group(), _offset(1)))
    assert rig.state == "Empty"
    assert rig.group().protocol_type == "consumer"
    assert rig.join().generation_id == 4


def test_a_group_with_too_many_members_rebalances() -> None:
    members = [_member(f"m{number}") for number in range(MAX_SIZE + 2)]
    rig = _rig(*_batches(_group(*members)))
    assert rig.state == "PreparingRebalance"
    answers = [rig.send_join(member.member_id, protocols=(("range", b"meta"),)) for member in members]
    errors = [answer.result.error for answer in answers]
    assert errors == [ErrorCode.NONE] * MAX_SIZE + [ErrorCode.GROUP_MAX_SIZE_REACHED] * 2
    assert len(rig.group().members) == MAX_SIZE


def test_transactions_count_by_their_markers() -> None:
    batches = [
        StoredBatch(0, [_offset(10)]),
        StoredBatch(1, [_offset(11), _offset(21, BAR)], producer_id=1, transactional=True),
        StoredBatch(3, [_offset(12)], producer_id=2, transactional=True),
        StoredBatch(4, [], producer_id=2, commits=True),
        StoredBatch(5, [], producer_id=1, commits=True),
        StoredBatch(6, [_offset(13)], producer_id=1, transactional=True),
        StoredBatch(7, [], producer_id=1, commits=False),
    ]
    # The commit of producer 1 came later, but its record is the earlier one.
    assert [each.offset for each in _committed(_rig(*batches), FOO, BAR)] == [12, 21]


def test_offsets_of_an_open_transaction_are_unstable() -> None:
    rig = _rig(StoredBatch(0, [_offset(1)], producer_id=1, transactional=True))
    assert _committed(rig, FOO, stable=True) == [FetchedOffset(error=ErrorCode.UNSTABLE_OFFSET_COMMIT)]
    assert _committed(rig, FOO) == [FetchedOffset()]


def test_records_that_cannot_be_read_are_skipped(caplog: pytest.LogCaptureFixture) -> None:
    key, value = _offset(9)
    assert key is not None
    assert value is not None
    broken: list[Pair] = [
        (None, value),
        (b"", value),
        (key[:-1], value),
        (key, value[:-1]),
        (key, b"\x00\x63" + value[2:]),
        (b"\x00\x03group of a later Kafka", value),
        (group_key(GROUP), b"\x00\x03\x7f\xff"),
        (
            group_key(GROUP),
            b"\x00\x03\x00\x00\x00\x00\x00\x01\xff\xff\xff\xff" + b"\xff" * 8 + b"\x7f\xff\xff\xff",
        ),
    ]
    rig = _rig(*_batches(_offset(1), *broken, _offset(2, BAR)))
    assert [each.offset for each in _committed(rig, FOO, BAR)] == [1, 2]
    assert "[GroupMetadataManager brokerId=1] 7 records cannot be read" in caplog.text
    assert "1 records of a later Kafka" in caplog.text


def test_a_log_that_cannot_be_read_leaves_an_empty_partition(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig(topic=MemoryTopic({coordinator_partition(GROUP, 2): _batches(_offset(1))}, fail_reads=True))
    assert "cannot be loaded" in caplog.text
    assert _committed(rig, FOO) == [FetchedOffset()]


def test_what_is_stored_is_what_is_loaded() -> None:
    first = Rig()
    leader, follower = first.stable_static()
    first.commit(OffsetToCommit(FOO, 5, 2, "note"), generation_id=2, member_id=leader.member_id)
    second = Rig(topic=first.topic)
    assert second.coordinator.describe(GROUP) == first.coordinator.describe(GROUP)
    assert _committed(second, FOO) == _committed(first, FOO)
    assert second.heartbeat(follower.member_id, 2, "follower") is ErrorCode.NONE


# Leadership


def test_requests_while_a_partition_is_loaded() -> None:
    class _Asked(MemoryTopic):
        def read(self, partition: int, into: dict[str, Any] | None = None) -> list[StoredBatch]:
            if partition == coordinator_partition(OTHER_GROUP, 2):
                coordinator = rig.coordinator
                loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
                assert rig.join(group_id=OTHER_GROUP, wait=0).error is loading
                syncing = rig.sync(1, "m", group_id=OTHER_GROUP)
                assert syncing.error is ErrorCode.REBALANCE_IN_PROGRESS
                assert rig.heartbeat("m", 1, group_id=OTHER_GROUP) is ErrorCode.NONE
                assert rig.commit(OffsetToCommit(FOO, 1), group_id=OTHER_GROUP) == {FOO: loading}
                assert coordinator.fetch(OTHER_GROUP, [FOO]) == (loading, {})
                assert coordinator.describe(OTHER_GROUP).error is loading
                assert coordinator.list_groups()[0] is loading
                assert coordinator.delete([OTHER_GROUP]) == {OTHER_GROUP: loading}
                assert coordinator.describe(GROUP).error is ErrorCode.NONE
                asked.append(partition)
            return []

    asked: list[int] = []
    rig = Rig(topic=_Asked())
    partition = coordinator_partition(OTHER_GROUP, 2)
    rig.coordinator.elected(partition, 1)
    assert asked == [partition]
    assert rig.coordinator.describe(OTHER_GROUP).error is ErrorCode.NONE
    rig.coordinator.elected(partition, 2)
    assert len(asked) == 1  # it is served already


def test_resigned_groups_are_forgotten_and_requests_answered() -> None:
    rig = Rig()
    first = rig.stable()
    second = rig.send_join()
    rig.coordinator.resigned(rig.coordinator.partition_for(GROUP), 2)
    assert second.result.error is ErrorCode.NOT_COORDINATOR
    assert rig.heartbeat(first.member_id, 1) is ErrorCode.NOT_COORDINATOR
    assert rig.coordinator.describe(GROUP).error is ErrorCode.NOT_COORDINATOR
    rig.advance(10 * REBALANCE)
    assert len(rig.timers) == 1  # of the expiration of offsets
    assert len(rig.coordinator._purgatory) == 0


def test_a_sync_that_waits_when_leadership_goes_is_answered() -> None:
    rig = Rig()
    joined = rig.join()
    rig.topic.held = []
    sync = rig.send_sync(1, joined.member_id)
    commit = rig.send_commit(OffsetToCommit(FOO, 1), group_id=GROUP)
    rig.coordinator.resigned(rig.coordinator.partition_for(GROUP), None)
    assert sync.result.error is ErrorCode.NOT_COORDINATOR
    rig.topic.release(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert commit.given


def test_old_epochs_change_nothing() -> None:
    rig = Rig()
    partition = rig.coordinator.partition_for(GROUP)
    rig.coordinator.resigned(partition, 0)
    assert rig.coordinator.describe(GROUP).error is ErrorCode.NONE
    rig.coordinator.resigned(partition, 5)
    rig.coordinator.elected(partition, 4)
    assert rig.coordinator.describe(GROUP).error is ErrorCode.NOT_COORDINATOR
    rig.coordinator.elected(partition, 5)
    assert rig.coordinator.describe(GROUP).error is ErrorCode.NONE


def test_a_partition_that_goes_while_it_is_loaded_is_not_served() -> None:
    class _Resigning(MemoryTopic):
        def read(self, partition: int, into: dict[str, Any] | None = None) -> list[StoredBatch]:
            rigs[0].coordinator.resigned(partition, 3)
            return _batches(_offset(1))

    rigs = [Rig()]
    rigs[0].coordinator._topic = _Resigning()
    partition = rigs[0].coordinator.partition_for(OTHER_GROUP)
    rigs[0].coordinator.elected(partition, 2)
    assert rigs[0].coordinator.describe(OTHER_GROUP).error is ErrorCode.NOT_COORDINATOR
    assert rigs[0].coordinator.list_groups() == (ErrorCode.NONE, [])


# Placement


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("groupId", 293428218),
        ("polygenelubricants", -(2**31)),
        ("\N{GRINNING FACE}", 1772899),
        ("consumer-group-7", None),
    ],
)
def test_java_hash(text: str, value: int | None) -> None:
    assert value is None or java_hash(text) == value
    hashed = java_hash(text)
    assert coordinator_partition(text, 50) == (0 if hashed == -(2**31) else abs(hashed) % 50)

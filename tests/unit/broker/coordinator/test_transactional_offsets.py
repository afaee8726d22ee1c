"""Offsets that are committed in transactions: TxnOffsetCommit, markers, loading.

Twins of Kafka 3.9's cases about transactions in ``GroupCoordinatorTest``, ``GroupMetadataTest`` and
``GroupMetadataManagerTest``, and what follows from appends and markers that overtake each other.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctrlchan.broker.coordinator.common.partitions import TopicPartition
from ctrlchan.broker.coordinator.common.topic import BatchProducer, StoredBatch
from ctrlchan.broker.coordinator.group.records import read_key, read_offset_value
from ctrlchan.broker.coordinator.group.requests import FetchedOffset, OffsetToCommit
from ctrlchan.errors import ErrorCode
from tests.unit.broker.coordinator.support import (
    CONFIG,
    GROUP,
    OTHER_GROUP,
    PRODUCER,
    PRODUCER_EPOCH,
    SESSION,
    START_MS,
    MemoryTopic,
    Rig,
)

FOO = TopicPartition("foo", 0)
BAR = TopicPartition("bar", 3)
SECOND_PRODUCER = 2000
RETENTION = 1_000
UNSTABLE = FetchedOffset(error=ErrorCode.UNSTABLE_OFFSET_COMMIT)
NOTHING = FetchedOffset()


@pytest.fixture
def rig() -> Rig:
    return Rig(replace(CONFIG, offsets_retention=RETENTION))


def fetched(
    rig: Rig, *partitions: TopicPartition, stable: bool = True, group_id: str = GROUP
) -> list[FetchedOffset]:
    error, offsets = rig.coordinator.fetch(group_id, partitions or [FOO], require_stable=stable)
    assert error is ErrorCode.NONE
    return list(offsets.values())


def group_in_the_same_partition(rig: Rig) -> str:
    partition = rig.coordinator.partition_for(GROUP)
    return next(name for name in map(str, range(100)) if rig.coordinator.partition_for(name) == partition)


def reloaded(rig: Rig) -> Rig:
    """Return a coordinator that has loaded what the other one has appended."""
    return Rig(topic=MemoryTopic(rig.topic.batches))


# Commit and abort


def test_offsets_count_when_the_transaction_commits(rig: Rig) -> None:
    assert rig.transactional_commit(OffsetToCommit(FOO, 25, 7, "note")) == {FOO: ErrorCode.NONE}
    assert fetched(rig, FOO, BAR) == [UNSTABLE, NOTHING]
    assert fetched(rig, stable=False) == [NOTHING]
    rig.end_transaction(commits=True)
    assert fetched(rig, FOO, BAR) == [FetchedOffset(25, 7, "note"), NOTHING]
    assert not rig.group().offsets.has_transaction(PRODUCER)


def test_offsets_of_an_aborted_transaction_are_forgotten(rig: Rig) -> None:
    rig.commit(OffsetToCommit(FOO, 1))
    rig.transactional_commit(OffsetToCommit(FOO, 25), OffsetToCommit(BAR, 26))
    assert fetched(rig, FOO, BAR) == [UNSTABLE, UNSTABLE]
    rig.end_transaction(commits=False)
    assert fetched(rig, FOO, BAR) == [FetchedOffset(1), NOTHING]


def test_a_commit_after_an_abort_changes_nothing(rig: Rig) -> None:
    rig.transactional_commit(OffsetToCommit(FOO, 25))
    rig.end_transaction(commits=False)
    rig.end_transaction(commits=True)
    assert fetched(rig) == [NOTHING]


def test_the_records_are_a_part_of_the_transaction(rig: Rig) -> None:
    rig.verified = (0, 77)
    rig.transactional_commit(OffsetToCommit(FOO, 25, 7, "note"), OffsetToCommit(BAR, 6, metadata=None))
    _, records, timestamp, acks = rig.topic.appended[-1]
    assert (timestamp, acks) == (START_MS, -1)
    assert [read_key(record.key) for record in records] == [(GROUP, "foo", 0), (GROUP, "bar", 3)]
    assert read_offset_value(records[0].value or b"") == (25, 7, "note", START_MS, -1)
    assert read_offset_value(records[1].value or b"").metadata == ""
    assert rig.topic.producers == [BatchProducer(PRODUCER, PRODUCER_EPOCH, verification_guard=77)]
    rig.commit(OffsetToCommit(FOO, 1))
    assert rig.topic.producers[1] is None


def test_the_last_commit_of_a_transaction_counts(rig: Rig) -> None:
    rig.transactional_commit(OffsetToCommit(FOO, 1), OffsetToCommit(BAR, 1))
    rig.transactional_commit(OffsetToCommit(FOO, 2))
    rig.end_transaction(commits=True)
    assert fetched(rig, FOO, BAR) == [FetchedOffset(2), FetchedOffset(1)]


def test_one_producer_with_several_groups(rig: Rig) -> None:
    rig.coordinator.elected(rig.coordinator.partition_for(OTHER_GROUP), 1)
    rig.transactional_commit(OffsetToCommit(FOO, 1))
    rig.transactional_commit(OffsetToCommit(FOO, 2), group_id=OTHER_GROUP)
    # The marker of one partition completes the groups of that partition.
    rig.end_transaction(commits=True)
    assert fetched(rig) == [FetchedOffset(1)]
    assert fetched(rig, group_id=OTHER_GROUP) == [UNSTABLE]
    rig.end_transaction(commits=True, group_id=OTHER_GROUP)
    assert fetched(rig, group_id=OTHER_GROUP) == [FetchedOffset(2)]


def test_two_groups_of_one_partition(rig: Rig) -> None:
    other = group_in_the_same_partition(rig)
    rig.transactional_commit(OffsetToCommit(FOO, 1))
    rig.transactional_commit(OffsetToCommit(FOO, 2), group_id=other)
    rig.end_transaction(commits=True)
    assert fetched(rig) + fetched(rig, group_id=other) == [FetchedOffset(1), FetchedOffset(2)]


def test_several_producers_with_one_group(rig: Rig) -> None:
    rig.transactional_commit(OffsetToCommit(FOO, 1))
    rig.transactional_commit(OffsetToCommit(BAR, 2), producer_id=SECOND_PRODUCER)
    rig.end_transaction(commits=True)
    assert fetched(rig, FOO, BAR) == [FetchedOffset(1), UNSTABLE]
    rig.end_transaction(commits=True, producer_id=SECOND_PRODUCER)
    assert fetched(rig, FOO, BAR) == [FetchedOffset(1), FetchedOffset(2)]


def test_markers_of_others_end_nothing(rig: Rig) -> None:
    rig.transactional_commit(OffsetToCommit(FOO, 1))
    rig.coordinator.complete_transactions(SECOND_PRODUCER, [0, 1], True)
    rig.coordinator.complete_transactions(PRODUCER, [1 - rig.coordinator.partition_for(GROUP)], True)
    assert fetched(rig) == [UNSTABLE]


# Beside the commits of consumers: the later record wins, not the later decision


def test_a_consumers_commit_after_that_of_the_transaction_wins(rig: Rig) -> None:
    rig.transactional_commit(OffsetToCommit(FOO, 37))
    rig.commit(OffsetToCommit(FOO, 57))
    assert fetched(rig, stable=False) == [FetchedOffset(57)]
    rig.end_transaction(commits=True)
    assert fetched(rig) == [FetchedOffset(57)]
    assert fetched(reloaded(rig)) == [FetchedOffset(57)]


def test_a_transactions_commit_after_that_of_the_consumer_wins(rig: Rig) -> None:
    rig.commit(OffsetToCommit(FOO, 57))
    rig.transactional_commit(OffsetToCommit(FOO, 37))
    assert fetched(rig, stable=False) == [FetchedOffset(57)]
    rig.end_transaction(commits=True)
    assert fetched(rig) == [FetchedOffset(37)]
    assert fetched(reloaded(rig)) == [FetchedOffset(37)]


def test_a_consumers_commit_stays_when_the_transaction_aborts(rig: Rig) -> None:
    rig.commit(OffsetToCommit(FOO, 57))
    rig.transactional_commit(OffsetToCommit(FOO, 37))
    rig.end_transaction(commits=False)
    assert fetched(rig) == [FetchedOffset(57)]


def test_a_group_with_both_kinds_of_commits_is_logged_once(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        rig.commit(OffsetToCommit(FOO, 1))
        rig.transactional_commit(OffsetToCommit(FOO, 1))
    assert caplog.text.count("by consumers and by transactional producers") == 1
    caplog.clear()
    joined = rig.stable()  # the next generation
    member = {"generation_id": joined.generation_id, "member_id": joined.member_id}
    rig.transactional_commit(OffsetToCommit(FOO, 1), **member)
    assert "transactional producers" not in caplog.text
    rig.commit(OffsetToCommit(FOO, 1), **member)
    assert "transactional producers" in caplog.text


# Who may commit


def test_members_of_a_group_are_checked(rig: Rig) -> None:
    leader, _ = rig.stable_static()
    offset = OffsetToCommit(FOO, 1)
    fenced = {FOO: ErrorCode.FENCED_INSTANCE_ID}
    assert rig.transactional_commit(offset, instance_id="leader") == fenced
    assert rig.transactional_commit(offset, member_id="x", instance_id="leader") == fenced
    assert rig.transactional_commit(offset, member_id="x") == {FOO: ErrorCode.UNKNOWN_MEMBER_ID}
    member = {"member_id": leader.member_id, "instance_id": "leader"}
    illegal = {FOO: ErrorCode.ILLEGAL_GENERATION}
    assert rig.transactional_commit(offset, **member, generation_id=7) == illegal
    assert rig.transactional_commit(offset, **member) == illegal
    assert rig.transactional_commit(offset, **member, generation_id=2) == {FOO: ErrorCode.NONE}


def test_a_producer_that_names_no_member_commits_for_a_group_with_members(rig: Rig) -> None:
    rig.stable()
    assert rig.transactional_commit(OffsetToCommit(FOO, 1)) == {FOO: ErrorCode.NONE}


def test_a_member_that_left_is_unknown(rig: Rig) -> None:
    offset = OffsetToCommit(FOO, 1)
    assert rig.transactional_commit(offset, member_id="x") == {FOO: ErrorCode.NONE}  # an empty group
    unknown = {FOO: ErrorCode.UNKNOWN_MEMBER_ID}
    assert rig.transactional_commit(offset, generation_id=1, member_id="x") == unknown


def test_a_rebalance_refuses_no_commit(rig: Rig) -> None:
    joined = rig.join()
    member = {"generation_id": 1, "member_id": joined.member_id}
    assert rig.state == "CompletingRebalance"
    assert rig.transactional_commit(OffsetToCommit(FOO, 1), **member) == {FOO: ErrorCode.NONE}
    rig.sync(1, joined.member_id)
    rig.send_join()
    assert rig.state == "PreparingRebalance"
    assert rig.transactional_commit(OffsetToCommit(FOO, 2), **member) == {FOO: ErrorCode.NONE}


def test_a_commit_renews_no_session(rig: Rig) -> None:
    joined = rig.stable()
    rig.advance(SESSION // 2)
    rig.transactional_commit(OffsetToCommit(FOO, 1), generation_id=1, member_id=joined.member_id)
    rig.advance(SESSION // 2 + 10)
    assert rig.heartbeat(joined.member_id, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_requests_that_this_broker_does_not_serve(rig: Rig) -> None:
    offset = OffsetToCommit(FOO, 1)
    assert rig.transactional_commit(offset, group_id="") == {FOO: ErrorCode.INVALID_GROUP_ID}
    assert rig.transactional_commit(offset, group_id=OTHER_GROUP) == {FOO: ErrorCode.NOT_COORDINATOR}
    rig.coordinator.close()
    assert rig.transactional_commit(offset) == {FOO: ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert rig.verifications == []


def test_metadata_that_is_too_long(rig: Rig) -> None:
    long = OffsetToCommit(FOO, 1, metadata="x" * (CONFIG.offset_metadata_max + 1))
    assert rig.transactional_commit(long) == {FOO: ErrorCode.OFFSET_METADATA_TOO_LARGE}
    assert rig.topic.appended == []
    assert not rig.group().offsets.has_transaction(PRODUCER)
    assert rig.transactional_commit(long, OffsetToCommit(BAR, 2)) == {
        FOO: ErrorCode.OFFSET_METADATA_TOO_LARGE,
        BAR: ErrorCode.NONE,
    }
    rig.end_transaction(commits=True)
    assert fetched(rig, FOO, BAR) == [NOTHING, FetchedOffset(2)]


# Verification


@pytest.mark.parametrize(
    ("error", "answered"),
    [
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.NETWORK_EXCEPTION, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
    ],
)
def test_errors_of_the_verification(rig: Rig, error: int, answered: ErrorCode) -> None:
    rig.verified = (error, 5)
    assert rig.transactional_commit(OffsetToCommit(FOO, 1), OffsetToCommit(BAR, 2)) == {
        FOO: answered,
        BAR: answered,
    }
    assert rig.topic.appended == []
    assert fetched(rig) == [NOTHING]


def test_the_transaction_coordinator_is_asked_for_the_groups_partition(rig: Rig) -> None:
    rig.transactional_commit(OffsetToCommit(FOO, 1))
    [(partition, request)] = rig.verifications
    assert partition == rig.coordinator.partition_for(GROUP)
    assert (request.transactional_id, request.producer_id, request.producer_epoch) == (
        "tx",
        PRODUCER,
        PRODUCER_EPOCH,
    )


def test_a_group_that_goes_while_its_commit_is_verified(rig: Rig) -> None:
    rig.unverified = []
    answer = rig.send_transactional_commit(OffsetToCommit(FOO, 1))
    rig.coordinator.resigned(rig.coordinator.partition_for(GROUP), 2)
    [verified] = rig.unverified
    verified(0, 5)
    assert answer.result == {FOO: ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert rig.topic.appended == []


# Appends that fail, or end late


@pytest.mark.parametrize(
    ("append_error", "answered"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        (ErrorCode.INVALID_FETCH_SIZE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
    ],
)
def test_offsets_that_are_not_appended_are_forgotten(
    rig: Rig, append_error: int, answered: ErrorCode
) -> None:
    rig.topic.error = append_error
    assert rig.transactional_commit(OffsetToCommit(FOO, 37)) == {FOO: answered}
    assert not rig.group().offsets.any
    assert fetched(rig) == [NOTHING]
    rig.end_transaction(commits=True)
    assert fetched(rig) == [NOTHING]


def test_a_failed_append_leaves_earlier_offsets_of_the_transaction(rig: Rig) -> None:
    rig.transactional_commit(OffsetToCommit(FOO, 1))
    rig.topic.error = ErrorCode.NOT_ENOUGH_REPLICAS
    rig.transactional_commit(OffsetToCommit(FOO, 2), OffsetToCommit(BAR, 2))
    assert fetched(rig, FOO, BAR) == [UNSTABLE, NOTHING]
    rig.end_transaction(commits=True)
    assert fetched(rig, FOO, BAR) == [FetchedOffset(1), NOTHING]


@pytest.mark.parametrize("commits", [True, False])
def test_records_that_survive_a_timeout_are_decided_by_the_marker(rig: Rig, commits: bool) -> None:
    """Kafka forgets them, and commits them when it loads the group the next time."""
    rig.topic.held = []
    answer = rig.send_transactional_commit(OffsetToCommit(FOO, 37))
    rig.topic.release(ErrorCode.REQUEST_TIMED_OUT, written=True)
    assert answer.result == {FOO: ErrorCode.REQUEST_TIMED_OUT}
    assert fetched(rig) == [UNSTABLE]
    rig.end_transaction(commits=commits)
    assert fetched(rig) == fetched(reloaded(rig)) == [FetchedOffset(37) if commits else NOTHING]


@pytest.mark.parametrize("commits", [True, False])
def test_a_marker_that_overtakes_the_end_of_the_append(rig: Rig, commits: bool) -> None:
    """Kafka throws an exception here: the record is in the log, but its offset is not known yet."""
    rig.topic.held = []
    answer = rig.send_transactional_commit(OffsetToCommit(FOO, 37))
    rig.end_transaction(commits=commits)
    assert fetched(rig) == [UNSTABLE]
    assert not answer.given
    assert rig.coordinator.expire_offsets() == 0
    assert rig.state == "Empty"
    rig.topic.release()
    assert answer.result == {FOO: ErrorCode.NONE}
    assert fetched(rig) == [FetchedOffset(37) if commits else NOTHING]


def test_an_append_that_fails_after_the_marker(rig: Rig) -> None:
    rig.topic.held = []
    answer = rig.send_transactional_commit(OffsetToCommit(FOO, 37))
    rig.coordinator.complete_transactions(PRODUCER, [rig.coordinator.partition_for(GROUP)], True)
    rig.topic.release(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert answer.result == {FOO: ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert fetched(rig) == [NOTHING]
    assert not rig.group().offsets.any


def test_appends_that_end_in_another_order(rig: Rig) -> None:
    rig.topic.held = []
    first = rig.send_transactional_commit(OffsetToCommit(FOO, 1), OffsetToCommit(BAR, 1))
    second = rig.send_transactional_commit(OffsetToCommit(FOO, 2))
    rig.topic.held.reverse()
    rig.topic.release()
    assert (first.result[FOO], second.result[FOO]) == (ErrorCode.NONE, ErrorCode.NONE)
    rig.end_transaction(commits=True)
    assert fetched(rig, FOO, BAR) == [FetchedOffset(2), FetchedOffset(1)]


def test_an_append_that_ends_after_the_group_has_moved(rig: Rig) -> None:
    rig.topic.held = []
    answer = rig.send_transactional_commit(OffsetToCommit(FOO, 1))
    rig.coordinator.resigned(rig.coordinator.partition_for(GROUP), 2)
    rig.coordinator.complete_transactions(PRODUCER, [0, 1], True)
    rig.topic.release()
    assert answer.result == {FOO: ErrorCode.NONE}


# Deletion and expiry


def test_deleted_offsets_leave_open_transactions(rig: Rig) -> None:
    rig.transactional_commit(OffsetToCommit(FOO, 1), OffsetToCommit(BAR, 2))
    rig.coordinator.partitions_deleted([FOO])
    assert fetched(rig, FOO, BAR) == [NOTHING, UNSTABLE]
    rig.end_transaction(commits=True)
    assert fetched(rig, FOO, BAR) == [NOTHING, FetchedOffset(2)]


@pytest.mark.parametrize("ended", [True, False])
def test_offsets_that_are_deleted_while_they_are_appended(rig: Rig, ended: bool) -> None:
    rig.topic.held = []
    rig.send_transactional_commit(OffsetToCommit(FOO, 1), OffsetToCommit(BAR, 2))
    if ended:
        rig.end_transaction(commits=True)
    rig.coordinator.partitions_deleted([FOO])
    rig.topic.release()
    if not ended:
        rig.end_transaction(commits=True)
    assert fetched(rig, FOO, BAR) == [NOTHING, FetchedOffset(2)]


def test_a_group_lives_as_long_as_a_transaction_has_offsets_of_it(rig: Rig) -> None:
    rig.transactional_commit(OffsetToCommit(FOO, 1))
    rig.advance(2 * RETENTION)
    assert rig.coordinator.expire_offsets() == 0
    assert rig.state == "Empty"
    rig.end_transaction(commits=False)
    rig.coordinator.expire_offsets()
    assert rig.state == "Dead"


def test_committed_offsets_expire_during_a_transaction(rig: Rig) -> None:
    rig.commit(OffsetToCommit(FOO, 1))
    rig.advance(RETENTION)
    rig.transactional_commit(OffsetToCommit(FOO, 2))
    assert rig.coordinator.expire_offsets() == 1
    rig.end_transaction(commits=True)
    assert fetched(rig) == [FetchedOffset(2)]


def test_a_deleted_group_forgets_its_transactions(rig: Rig) -> None:
    rig.transactional_commit(OffsetToCommit(FOO, 1))
    assert rig.coordinator.delete([GROUP]) == {GROUP: ErrorCode.NONE}
    rig.commit(OffsetToCommit(BAR, 2))  # another group of the same name
    rig.coordinator.complete_transactions(PRODUCER, [rig.coordinator.partition_for(GROUP)], True)
    assert fetched(rig, FOO, BAR) == [NOTHING, FetchedOffset(2)]


def test_the_coordinator_forgets_what_has_ended(rig: Rig) -> None:
    registry = rig.coordinator._registry
    rig.transactional_commit(OffsetToCommit(FOO, 1))
    rig.end_transaction(commits=True)
    rig.topic.error = ErrorCode.NOT_ENOUGH_REPLICAS
    rig.transactional_commit(OffsetToCommit(FOO, 1))
    rig.topic.error = 0
    rig.transactional_commit(OffsetToCommit(FOO, 1), producer_id=SECOND_PRODUCER)
    assert registry._groups_of == {SECOND_PRODUCER: {GROUP}}
    assert registry._producers_of == {GROUP: {SECOND_PRODUCER}}
    rig.coordinator.resigned(rig.coordinator.partition_for(GROUP), 2)
    assert (registry._groups_of, registry._producers_of, registry._ended) == ({}, {}, {})


# Loading


def test_a_transaction_that_is_open_when_its_partition_is_loaded(rig: Rig) -> None:
    rig.commit(OffsetToCommit(FOO, 1))
    rig.transactional_commit(OffsetToCommit(FOO, 2))
    rig.transactional_commit(OffsetToCommit(BAR, 3), producer_id=SECOND_PRODUCER)
    loaded = reloaded(rig)
    assert fetched(loaded, FOO, BAR) == [UNSTABLE, UNSTABLE]
    assert fetched(loaded, FOO, BAR, stable=False) == [FetchedOffset(1), NOTHING]
    loaded.end_transaction(commits=True)
    loaded.end_transaction(commits=False, producer_id=SECOND_PRODUCER)
    assert fetched(loaded, FOO, BAR) == [FetchedOffset(2), NOTHING]


def test_transactions_that_have_ended_are_loaded(rig: Rig) -> None:
    """Committed, aborted and open ones of one producer, in this order."""
    rig.transactional_commit(OffsetToCommit(FOO, 1))
    rig.end_transaction(commits=True)
    rig.transactional_commit(OffsetToCommit(FOO, 2), OffsetToCommit(BAR, 2))
    rig.end_transaction(commits=False)
    rig.transactional_commit(OffsetToCommit(BAR, 3))
    loaded = reloaded(rig)
    assert fetched(loaded, FOO, BAR) == [FetchedOffset(1), UNSTABLE]
    loaded.end_transaction(commits=True)
    assert fetched(loaded, FOO, BAR) == [FetchedOffset(1), FetchedOffset(3)]


def test_a_marker_that_is_appended_while_its_partition_is_loaded() -> None:
    class _Loading(MemoryTopic):
        """After the last batch is read, and before the groups are there, a marker is appended."""

        def read(self, partition: int, into: dict[str, Any] | None = None) -> list[StoredBatch]:
            batches = [*self.batches.get(partition, [])]
            self.append_marker(partition, PRODUCER, commits=True)
            rigs[0].coordinator.complete_transactions(PRODUCER, [partition], True)
            return batches

    first = Rig()
    first.transactional_commit(OffsetToCommit(FOO, 5))
    rigs = [Rig()]
    partition = rigs[0].coordinator.partition_for(GROUP)
    rigs[0].coordinator.resigned(partition, 2)
    rigs[0].coordinator._topic = _Loading(first.topic.batches)
    rigs[0].coordinator.elected(partition, 3)
    assert fetched(rigs[0]) == [FetchedOffset(5)]
    assert rigs[0].coordinator._registry._ended == {}


@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["commit", "transactional", "hold", "release", "end", "abort"]),
            st.sampled_from([FOO, BAR]),
            st.sampled_from([PRODUCER, SECOND_PRODUCER]),
        ),
        max_size=25,
    )
)
def test_what_is_known_is_what_would_be_loaded(
    steps: list[tuple[str, TopicPartition, int]],
) -> None:
    rig = Rig()
    for offset, (step, partition, producer_id) in enumerate(steps):
        if step == "commit":
            rig.send_commit(OffsetToCommit(partition, offset))
        elif step == "transactional":
            rig.send_transactional_commit(OffsetToCommit(partition, offset), producer_id=producer_id)
        elif step == "hold" and rig.topic.held is None:
            rig.topic.held = []  # the ends of appends, so that markers overtake them
        elif step == "release" and rig.topic.held is not None:
            rig.topic.release()
        elif step in {"end", "abort"}:
            rig.end_transaction(commits=step == "end", producer_id=producer_id)
    if rig.topic.held is not None:
        rig.topic.release()
    loaded = reloaded(rig)
    for stable in (True, False):
        assert fetched(rig, FOO, BAR, stable=stable) == fetched(loaded, FOO, BAR, stable=stable)

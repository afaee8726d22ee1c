"""Markers that a broker appends to its own partitions, and what follows for groups."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from ctrlchan.broker.coordinator.common.partitions import TopicPartition
from ctrlchan.broker.coordinator.marker_appends import Marker, MarkerAppends
from ctrlchan.broker.coordinator.transaction.requests import ProducerIdentity
from ctrlchan.errors import ErrorCode
from ctrlchan.internal_topics import OFFSETS_TOPIC
from tests.unit.broker.coordinator.marker_partitions import TIMEOUT_MS, LaterCalls, MarkedPartitions

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)
UNKNOWN = TopicPartition("unknown", 0)
OFFSETS = TopicPartition(OFFSETS_TOPIC, 7)
MARKER = Marker(ProducerIdentity(5, 2), True, 3)


class Rig:
    """MarkerAppends with partitions. ``events``: the answers and the completed groups, in order."""

    def __init__(self) -> None:
        self.partitions = MarkedPartitions(FIRST, SECOND, OFFSETS)
        self.later = LaterCalls()
        self.events: list[object] = []
        self.group_error: Exception | None = None
        self.appends = MarkerAppends(self.partitions.find, self._complete_groups, self.later, TIMEOUT_MS)

    def append(self, *partitions: TopicPartition, marker: Marker = MARKER) -> None:
        self.appends.append(marker, partitions, self.events.append)

    def _complete_groups(self, producer_id: int, partitions: Collection[int], commit: bool) -> None:
        self.events.append((producer_id, list(partitions), commit))
        if self.group_error is not None:
            raise self.group_error


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_a_marker_for_several_partitions_without_a_wait(rig: Rig) -> None:
    rig.append(FIRST, UNKNOWN, SECOND, FIRST)
    assert rig.events == [{FIRST: 0, UNKNOWN: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, SECOND: 0}]
    assert rig.partitions[FIRST].markers == rig.partitions[SECOND].markers == [MARKER]
    assert rig.later.calls == []


def test_a_partition_without_a_log(rig: Rig) -> None:
    """``ReplicaManager.getMagic`` finds none, also when the log directory has failed."""
    rig.partitions[FIRST].log = None
    rig.append(FIRST)
    assert rig.events == [{FIRST: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}]


def test_no_partitions(rig: Rig) -> None:
    rig.append()
    assert rig.events == [{}]


def test_errors_of_partitions(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.partitions[FIRST].errors = [ErrorCode.INVALID_PRODUCER_EPOCH]
    rig.partitions[SECOND].errors = [OSError("a test")]
    rig.append(FIRST, SECOND)
    assert rig.events == [{FIRST: ErrorCode.INVALID_PRODUCER_EPOCH, SECOND: ErrorCode.UNKNOWN_SERVER_ERROR}]
    assert "a marker for t-1 cannot be written" in caplog.text


def test_an_append_that_waits_ends_without_the_locks_of_its_thread(rig: Rig) -> None:
    waiting = rig.partitions[SECOND]
    waiting.held, waiting.errors = [], [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]
    rig.append(FIRST, SECOND)
    assert (rig.events, rig.later.calls) == ([], [])
    waiting.release()
    assert rig.events == []
    rig.later.run()
    assert rig.events == [{FIRST: 0, SECOND: ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND}]


@pytest.mark.parametrize("waits", [False, True])
def test_groups_are_complete_before_the_coordinator_hears_of_it(rig: Rig, waits: bool) -> None:
    if waits:
        rig.partitions[OFFSETS].held = []
    rig.append(FIRST, OFFSETS)
    rig.partitions[OFFSETS].release()
    assert rig.events == []
    rig.later.run()
    assert rig.events == [(5, [7], True), {FIRST: 0, OFFSETS: 0}]


def test_groups_go_on_when_the_marker_was_not_written(rig: Rig) -> None:
    rig.partitions[OFFSETS].errors = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    rig.append(OFFSETS)
    assert rig.events == [{OFFSETS: ErrorCode.NOT_LEADER_OR_FOLLOWER}]


def test_a_group_that_cannot_be_completed(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.group_error = ValueError("a test")
    rig.append(OFFSETS, FIRST)
    rig.later.run()
    assert rig.events[1:] == [{OFFSETS: ErrorCode.UNKNOWN_SERVER_ERROR, FIRST: 0}]
    assert "the offset commits of producer 5 in ['__consumer_offsets-7']" in caplog.text

"""Which broker gets which markers: twins of Kafka's cases, and what Kafka leaves open.

Source: ``TransactionMarkerChannelManagerTest`` and ``TransactionMarkerRequestCompletionHandlerTest`` of 3.9.
What those say about a coordinator that has moved or loads is said here by ``forget``, which the coordinator
calls then. The Complete record and its retries are the coordinator's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

import pytest

from ctrlchan.broker.coordinator.common.partitions import TopicPartition
from ctrlchan.broker.coordinator.transaction.pending_markers import (
    UNKNOWN_BROKER,
    Changes,
    PendingMarker,
    PendingMarkers,
)
from ctrlchan.broker.coordinator.transaction.requests import EndedTransaction, ProducerIdentity
from ctrlchan.errors import ErrorCode

FIRST, SECOND = TopicPartition("topic1", 0), TopicPartition("topic1", 1)
MANY = 1_000
COORDINATOR_EPOCH = 3
RETRIABLE = [
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.KAFKA_STORAGE_ERROR,
]
UNEXPECTED = [
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.INVALID_REQUIRED_ACKS,
    12345,
]


class Coordinator:
    """The markers of a coordinator, and the leaders that its metadata have."""

    def __init__(self) -> None:
        self.leaders: dict[TopicPartition, int | None] = {FIRST: 1, SECOND: 2}
        self.completed: list[str] = []
        self.state_partitions: list[int] = []
        self.markers = PendingMarkers(1, self._find_broker, lambda: 0)

    def _find_broker(self, partition: TopicPartition, state_partition: int) -> int | None:
        self.state_partitions.append(state_partition)
        return self.leaders[partition]

    def end(
        self, number: int, partitions: Iterable[TopicPartition], *, epoch: int = COORDINATOR_EPOCH
    ) -> Changes:
        """End the transaction of id ``txn<number>``, with the producer and the state partition <number>."""
        name = f"txn{number}"
        ended = EndedTransaction(
            transactional_id=name,
            state_partition=number,
            coordinator_epoch=epoch,
            producer=ProducerIdentity(number, 0),
            commit=True,
            partitions=frozenset(partitions),
        )
        return self.apply(self.markers.add(ended, lambda: self.completed.append(f"{name} {epoch}")))

    def take(self, broker: int, most: int = MANY) -> list[PendingMarker]:
        return self.markers.take(broker, most)

    def answered(self, broker: int, sent: list[PendingMarker], error: int = 0) -> Changes:
        """Answer with an error for each partition of each marker."""
        errors = {
            marker.ended.producer.producer_id: dict.fromkeys(marker.partitions, error) for marker in sent
        }
        return self.apply(self.markers.answered(broker, sent, errors))

    def apply(self, changes: Changes) -> Changes:
        for then in changes.then:
            then()
        return changes


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()


def summary(taken: list[PendingMarker]) -> dict[str, list[TopicPartition]]:
    return {marker.ended.transactional_id: sorted(marker.partitions) for marker in taken}


# -- TransactionMarkerChannelManagerTest


def test_nothing_is_taken_when_nothing_waits(coordinator: Coordinator) -> None:
    """shouldGenerateEmptyMapWhenNoRequestsOutstanding"""
    assert coordinator.take(1) == []


def test_each_broker_gets_the_markers_of_its_partitions(coordinator: Coordinator) -> None:
    """shouldGenerateRequestPerPartitionPerBroker"""
    assert coordinator.end(1, [FIRST, SECOND]).brokers == {1, 2}
    assert coordinator.end(2, [FIRST]).brokers == {1}
    assert len(coordinator.markers) == 2
    assert summary(coordinator.take(1)) == {"txn1": [FIRST], "txn2": [FIRST]}
    assert summary(coordinator.take(2)) == {"txn1": [SECOND]}
    assert coordinator.take(1) == coordinator.take(2) == []


def test_a_transaction_is_complete_once_after_its_last_marker(coordinator: Coordinator) -> None:
    """shouldCompleteAppendToLogOnEndTxnWhenSendMarkersSucceed, shouldOnlyWriteTxnCompletionOnce"""
    coordinator.end(1, [FIRST, SECOND])
    coordinator.answered(1, coordinator.take(1))
    assert coordinator.completed == []
    sent = coordinator.take(2)
    coordinator.answered(2, sent)
    assert coordinator.completed == ["txn1 3"]
    # A broker that answers twice ends nothing twice.
    coordinator.answered(2, sent)
    assert coordinator.completed == ["txn1 3"]
    assert len(coordinator.markers) == 0


def test_a_transaction_without_partitions_is_complete_at_once(coordinator: Coordinator) -> None:
    coordinator.end(1, [])
    assert coordinator.completed == ["txn1 3"]


def test_a_deleted_partition_needs_no_marker(coordinator: Coordinator) -> None:
    """shouldSkipSendMarkersWhenLeaderNotFound"""
    coordinator.leaders[FIRST] = None
    assert coordinator.end(1, [FIRST, SECOND]).brokers == {2}
    assert len(coordinator.markers) == 1
    coordinator.answered(2, coordinator.take(2))
    assert coordinator.completed == ["txn1 3"]
    coordinator.end(2, [FIRST])
    assert coordinator.completed == ["txn1 3", "txn2 3"]
    # The owner decides by the transaction's own partition whether its metadata are complete.
    assert set(coordinator.state_partitions) == {1, 2}


def test_a_marker_waits_for_a_leader(coordinator: Coordinator) -> None:
    """shouldSaveForLaterWhenLeaderUnknownButNotAvailable"""
    coordinator.leaders[FIRST] = UNKNOWN_BROKER
    coordinator.end(1, [FIRST, SECOND])
    coordinator.end(2, [FIRST])
    assert coordinator.markers.unknown_destinations == 2
    assert summary(coordinator.take(2)) == {"txn1": [SECOND]}
    assert coordinator.markers.metadata_changed().brokers == set()
    assert coordinator.markers.unknown_destinations == 2
    coordinator.leaders[FIRST] = 1
    assert coordinator.markers.metadata_changed().brokers == {1}
    assert coordinator.markers.unknown_destinations == 0
    assert summary(coordinator.take(1)) == {"txn1": [FIRST], "txn2": [FIRST]}
    assert coordinator.take(2) == []


def test_a_pause_finds_the_leader_too(coordinator: Coordinator) -> None:
    coordinator.leaders[FIRST] = UNKNOWN_BROKER
    [(seconds, marker)] = coordinator.end(1, [FIRST]).pauses
    assert seconds > 0
    coordinator.leaders[FIRST] = 1
    assert coordinator.markers.retry(marker).brokers == {1}
    # Metadata that come later send nothing twice, nor does the pause.
    assert coordinator.markers.metadata_changed() == Changes()
    assert coordinator.markers.retry(marker) == Changes()
    assert summary(coordinator.take(1)) == {"txn1": [FIRST]}


def test_a_partition_that_is_deleted_while_it_has_no_leader(coordinator: Coordinator) -> None:
    coordinator.leaders[FIRST] = UNKNOWN_BROKER
    coordinator.end(1, [FIRST])
    coordinator.leaders[FIRST] = None
    coordinator.apply(coordinator.markers.metadata_changed())
    assert coordinator.completed == ["txn1 3"]


def test_markers_of_a_partition_that_moved_are_forgotten(coordinator: Coordinator) -> None:
    """shouldRemoveMarkersForTxnPartitionWhenPartitionEmigrated"""
    coordinator.end(1, [FIRST, SECOND])
    coordinator.end(2, [FIRST])
    coordinator.markers.forget(1)
    assert len(coordinator.markers) == 1
    assert summary(coordinator.take(1)) == {"txn2": [FIRST]}
    assert coordinator.take(2) == []
    coordinator.markers.forget(7)


@pytest.mark.parametrize("is_answered", [True, False])
@pytest.mark.parametrize("forgets", [True, False])
def test_an_answer_to_an_earlier_epoch_completes_nothing(
    coordinator: Coordinator, *, is_answered: bool, forgets: bool
) -> None:
    """shouldNotLoseTxnCompletionAfterLoad, shouldCompleteDelayedOperationWhenNotCoordinator,
    shouldCompleteDelayedOperationWhenCoordinatorLoading,
    shouldCompleteDelayedOperationWhenCoordinatorEpochChanged,
    shouldAbortAppendToLogOnEndTxnWhenNotCoordinatorError"""
    coordinator.end(1, [FIRST])
    earlier = coordinator.take(1)
    if forgets:
        coordinator.markers.forget(1)
    coordinator.end(1, [FIRST], epoch=COORDINATOR_EPOCH + 1)
    if is_answered:
        coordinator.answered(1, earlier)
    else:
        assert coordinator.markers.failed(earlier) == Changes()
    assert coordinator.completed == []
    [later] = coordinator.take(1)
    assert later.ended.coordinator_epoch == COORDINATOR_EPOCH + 1
    coordinator.answered(1, [later])
    assert coordinator.completed == ["txn1 4"]


def test_a_forgotten_marker_is_not_sent_after_its_pause(coordinator: Coordinator) -> None:
    coordinator.end(1, [FIRST])
    [(_, marker)] = coordinator.markers.failed(coordinator.take(1)).pauses
    coordinator.markers.forget(1)
    assert coordinator.markers.unknown_destinations == 0
    assert coordinator.markers.retry(marker) == Changes()
    assert not coordinator.markers


# -- TransactionMarkerRequestCompletionHandlerTest


def test_markers_are_sent_again_when_the_broker_does_not_answer(coordinator: Coordinator) -> None:
    """shouldReEnqueuePartitionsWhenBrokerDisconnected"""
    coordinator.end(1, [FIRST])
    [(_, marker)] = coordinator.markers.failed(coordinator.take(1)).pauses
    # The partition has another leader meanwhile.
    coordinator.leaders[FIRST] = 2
    assert coordinator.markers.retry(marker).brokers == {2}
    assert summary(coordinator.take(2)) == {"txn1": [FIRST]}


@pytest.mark.parametrize(
    "error",
    [ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION],
)
def test_a_partition_that_has_its_marker_or_can_have_none(coordinator: Coordinator, error: int) -> None:
    """shouldCompleteDelayedOperationWhenNoErrors,
    shouldRemoveTopicPartitionFromWaitingSetOnUnsupportedForMessageFormat"""
    coordinator.end(1, [FIRST])
    assert coordinator.answered(1, coordinator.take(1), error).pauses == []
    assert coordinator.completed == ["txn1 3"]


@pytest.mark.parametrize(
    "error", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED]
)
def test_a_partition_with_a_newer_epoch(
    coordinator: Coordinator, error: int, caplog: pytest.LogCaptureFixture
) -> None:
    """shouldCompleteDelayedOperationWhen{InvalidProducerEpoch,CoordinatorEpochFenced}

    Kafka sends nothing more of the transaction, which stays prepared. Here the other partitions get their
    markers.
    """
    caplog.set_level(logging.INFO, "ctrlchan.broker")
    coordinator.end(1, [FIRST, SECOND])
    assert coordinator.answered(1, coordinator.take(1), error).pauses == []
    assert coordinator.completed == []
    assert "'txn1' (producer 1, epoch 0) for topic1-0 at broker 1" in caplog.text
    coordinator.answered(2, coordinator.take(2))
    assert coordinator.completed == ["txn1 3"]


@pytest.mark.parametrize("error", RETRIABLE)
def test_a_partition_whose_leader_may_take_the_marker_later(coordinator: Coordinator, error: int) -> None:
    """shouldRetryPartitionWhen...Error"""
    coordinator.end(1, [FIRST])
    [(_, marker)] = coordinator.answered(1, coordinator.take(1), error).pauses
    assert (coordinator.completed, coordinator.take(1)) == ([], [])
    coordinator.markers.retry(marker)
    coordinator.answered(1, coordinator.take(1))
    assert coordinator.completed == ["txn1 3"]


@pytest.mark.parametrize("error", UNEXPECTED)
def test_an_error_that_nobody_expects(
    coordinator: Coordinator, error: int, caplog: pytest.LogCaptureFixture
) -> None:
    """shouldThrowIllegalStateExceptionWhen...Error: Kafka's transaction ends no more."""
    coordinator.end(1, [FIRST])
    [(unexpected, marker)] = coordinator.answered(1, coordinator.take(1), error).pauses
    [line] = caplog.records
    assert line.levelno == logging.ERROR
    assert f"for topic1-0 at broker 1: {ErrorCode.name_of(error)}" in line.getMessage()
    assert line.getMessage().startswith("[Transaction Marker Request Completion Handler 1]: ")
    coordinator.end(2, [FIRST])
    [(expected, _)] = coordinator.answered(1, coordinator.take(1), ErrorCode.NOT_LEADER_OR_FOLLOWER).pauses
    assert unexpected > expected
    # Metadata do not help.
    assert summary_after(coordinator.markers.metadata_changed, coordinator) == {"txn2": [FIRST]}
    coordinator.markers.retry(marker)
    coordinator.answered(1, coordinator.take(1))
    assert coordinator.completed == ["txn1 3"]


def summary_after(call: Callable[[], Changes], coordinator: Coordinator) -> dict[str, list[TopicPartition]]:
    call()
    return summary(coordinator.take(1))


@pytest.mark.parametrize(
    "errors", [{}, {2: {FIRST: 0}}, {1: {}}, {1: {SECOND: 0}}, {1: {TopicPartition("topic2", 0): 0}}]
)
def test_an_answer_without_the_partition(
    coordinator: Coordinator, errors: dict[int, dict[TopicPartition, int]]
) -> None:
    """shouldThrowIllegalStateExceptionIfErrorCodeNotAvailableForPid: the marker is sent again."""
    coordinator.end(1, [FIRST])
    changes = coordinator.apply(coordinator.markers.answered(1, coordinator.take(1), errors))
    assert coordinator.completed == []
    [(_, marker)] = changes.pauses
    coordinator.markers.retry(marker)
    assert summary(coordinator.take(1)) == {"txn1": [FIRST]}


# -- beyond Kafka's cases


def test_the_partitions_of_one_answer_go_different_ways(coordinator: Coordinator) -> None:
    partitions = [TopicPartition("t", number) for number in range(4)]
    coordinator.leaders |= dict.fromkeys(partitions, 1)
    coordinator.end(1, partitions)
    codes = [0, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.CORRUPT_MESSAGE, ErrorCode.REQUEST_TIMED_OUT]
    sent = coordinator.take(1)
    changes = coordinator.markers.answered(1, sent, {1: dict(zip(partitions, codes, strict=True))})
    assert [sorted(marker.partitions) for _, marker in changes.pauses] == [
        [partitions[1], partitions[3]],
        [partitions[2]],
    ]


def test_markers_of_one_transaction_are_one_marker_of_a_request(coordinator: Coordinator) -> None:
    """A request has one error map for each producer id."""
    coordinator.end(1, [FIRST, SECOND])
    [(_, marker)] = coordinator.markers.failed(coordinator.take(2)).pauses
    coordinator.leaders[SECOND] = 1
    coordinator.markers.retry(marker)
    [taken] = coordinator.take(1)
    assert sorted(taken.partitions) == [FIRST, SECOND]
    assert taken.attempts == 1


def test_a_request_has_a_limit(coordinator: Coordinator) -> None:
    for number in range(5):
        coordinator.end(number, [FIRST])
    assert [len(coordinator.take(1, 2)) for _ in range(4)] == [2, 2, 1, 0]


def test_pauses_grow_to_a_limit(coordinator: Coordinator) -> None:
    coordinator.end(1, [FIRST])
    pauses = []
    for _ in range(20):
        [(seconds, marker)] = coordinator.answered(
            1, coordinator.take(1), ErrorCode.NOT_ENOUGH_REPLICAS
        ).pauses
        pauses.append(seconds)
        coordinator.markers.retry(marker)
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (0.02, 1.0)


def test_two_transactional_ids_with_one_producer_id(coordinator: Coordinator) -> None:
    """A damaged state topic: the answer has one error map for both."""
    producer = ProducerIdentity(1, 0)
    for name in ("a", "b"):
        coordinator.markers.add(
            EndedTransaction(name, 1, 0, producer, True, frozenset([FIRST])),
            lambda name=name: coordinator.completed.append(name),  # type: ignore[misc]
        )
    coordinator.answered(1, coordinator.take(1))
    assert coordinator.completed == ["a", "b"]

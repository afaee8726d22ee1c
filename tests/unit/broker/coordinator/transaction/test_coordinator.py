"""Twins of Kafka's TransactionCoordinatorTest: what producers are answered, in Kafka's order of errors.

Left out: ``shouldFailToAbortTransactionOnHandleInitPidWhenProducerEpochIsSmaller`` and
``shouldNotAcceptSmallerEpochDuringTransactionExpiration`` change the epoch between the fence and the abort,
which are one step here.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from ctrlchan.broker.coordinator.transaction.requests import InitResult, ProducerIdentity
from ctrlchan.broker.coordinator.transaction.states import TransactionState
from ctrlchan.broker.coordinator.transaction.transaction import HIGHEST_EPOCH
from ctrlchan.errors import ErrorCode, KafkaError
from tests.unit.broker.coordinator.support import START_MS
from tests.unit.broker.coordinator.transaction.support import (
    ALONE,
    BOTH,
    CONFIG,
    FIRST,
    ID,
    NONE,
    SECOND,
    TIMEOUT,
    WAIT_MS,
    Rig,
)

EMPTY, ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
PREPARE_COMMIT, PREPARE_ABORT = TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT
COMPLETE_COMMIT, COMPLETE_ABORT = TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT
EXHAUSTED = HIGHEST_EPOCH - 1
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
FENCED = ErrorCode.PRODUCER_FENCED
INVALID_STATE = ErrorCode.INVALID_TXN_STATE
NO_MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING


@pytest.fixture
def rig() -> Rig:
    return Rig()


def other_id(rig: Rig) -> str:
    """Return an id of a partition that this broker does not lead."""
    return next(
        name for name in map("id-{}".format, range(99)) if rig.coordinator.partition_for(name) != rig.number
    )


def begin_loading(rig: Rig) -> None:
    rig.coordinator.resigned(rig.number, 6)
    assert rig.coordinator.begin_loading(rig.number, 7) is not None


# InitProducerId


def test_empty_id_is_invalid(rig: Rig) -> None:
    assert rig.init("") == InitResult(ErrorCode.INVALID_REQUEST)
    assert rig.init("", timeout_ms=-1) == InitResult(ErrorCode.INVALID_REQUEST)


def test_without_an_id_each_request_gets_another_producer_id(rig: Rig) -> None:
    assert rig.init(None, timeout_ms=0) == InitResult(NONE, 10, 0)
    assert rig.init(None, timeout_ms=-1) == InitResult(NONE, 11, 0)


def test_timeouts(rig: Rig) -> None:
    for timeout in (0, -1, CONFIG.max_timeout + 1):
        assert rig.init(timeout_ms=timeout) == InitResult(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        assert rig.init(other_id(rig), timeout) == InitResult(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
    assert rig.init(timeout_ms=CONFIG.max_timeout) == InitResult(NONE, 10, 0)


def test_a_new_id_gets_epoch_0(rig: Rig) -> None:
    assert rig.init() == InitResult(NONE, 10, 0)
    (partition, records, timestamp, acks, timeout), *_ = rig.topic.appended
    assert (partition, len(records), timestamp, acks, timeout) == (rig.number, 1, START_MS, -1, TIMEOUT)


def test_a_new_id_with_a_producer_id_gets_another_one(rig: Rig) -> None:
    assert rig.init(expected=(3, 1)) == InitResult(NONE, 10, 0)


def test_exhausted_epochs_give_another_producer_id(rig: Rig) -> None:
    rig.put(EMPTY, producer_id=3, epoch=EXHAUSTED)
    assert rig.init() == InitResult(NONE, 10, 0)
    assert rig.transaction().last_epoch == -1


def test_the_highest_epoch_gives_another_producer_id(rig: Rig) -> None:
    rig.put(COMPLETE_ABORT, producer_id=3, epoch=HIGHEST_EPOCH)
    assert rig.init() == InitResult(NONE, 10, 0)


def test_exhausted_epochs_with_another_expected_epoch(rig: Rig) -> None:
    """Kafka throws."""
    rig.put(EMPTY, producer_id=3, epoch=EXHAUSTED)
    assert rig.init(expected=(3, 5)) == InitResult(ErrorCode.UNKNOWN_SERVER_ERROR)
    assert rig.transaction().pending is None


def test_not_coordinator(rig: Rig) -> None:
    other, producer = other_id(rig), ProducerIdentity(10, 0)
    assert rig.init(other) == InitResult(ErrorCode.NOT_COORDINATOR)
    assert rig.add(FIRST, transactional_id=other) is ErrorCode.NOT_COORDINATOR
    assert rig.end(transactional_id=other) is ErrorCode.NOT_COORDINATOR
    assert rig.coordinator.describe(other).error is ErrorCode.NOT_COORDINATOR
    verified = rig.coordinator.verify_partitions(other, producer, [FIRST])
    assert verified == {FIRST: ErrorCode.NOT_COORDINATOR}


def test_coordinator_loading(rig: Rig) -> None:
    begin_loading(rig)
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert rig.init() == InitResult(loading)
    assert rig.add(FIRST) is loading
    assert rig.end() is loading
    assert rig.coordinator.describe(ID).error is loading
    assert rig.coordinator.list((), (), -1) == (loading, [], [])
    assert rig.coordinator.verify_partitions(ID, ProducerIdentity(10, 0), [FIRST]) == {FIRST: loading}


@pytest.mark.parametrize("state", [EMPTY, COMPLETE_ABORT, COMPLETE_COMMIT])
def test_increment_epoch(rig: Rig, state: TransactionState) -> None:
    rig.put(state, epoch=5)
    assert rig.init(timeout_ms=20) == InitResult(NONE, 10, 6)
    known = rig.transaction()
    assert (known.timeout_ms, known.update_ms, known.epoch, known.producer_id) == (20, START_MS, 6, 10)
    assert (known.state, known.partitions) == (EMPTY, frozenset())


@pytest.mark.parametrize("state", [PREPARE_COMMIT, PREPARE_ABORT])
def test_init_waits_for_a_prepared_transaction(rig: Rig, state: TransactionState) -> None:
    rig.put(state, partitions=[FIRST])
    waiting = rig.send_init(), rig.send_init(expected=(10, 0))
    assert rig.init(expected=(9, 0)) == InitResult(FENCED)
    rig.advance(WAIT_MS - 1)
    assert not any(each.given for each in waiting)
    rig.advance(2)
    assert [each.result for each in waiting] == [InitResult(CONCURRENT)] * 2


def test_init_aborts_an_ongoing_transaction(rig: Rig) -> None:
    rig.put(ONGOING, epoch=5, partitions=[FIRST, SECOND])
    assert rig.init() == InitResult(CONCURRENT)
    (stored,) = rig.topic.stored()
    assert stored is not None
    assert (stored.state, stored.epoch, stored.partitions) == (PREPARE_ABORT, 6, BOTH)
    ended = rig.markers.write()
    assert (ended.producer, ended.commit, ended.partitions) == (
        ProducerIdentity(10, 6),
        False,
        BOTH,
    )
    assert rig.state == "CompleteAbort"


def test_a_fence_that_cannot_be_appended_raises_the_epoch_once(rig: Rig) -> None:
    rig.put(ONGOING, epoch=5, partitions=[FIRST])
    rig.topic.error = ErrorCode.NOT_ENOUGH_REPLICAS
    for _ in range(2):
        assert rig.init() == InitResult(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        known = rig.transaction()
        assert (known.epoch, known.has_failed_fence, known.pending) == (6, True, None)
        assert rig.end(producer=(10, 5)) is FENCED
    rig.topic.error = 0
    assert rig.init() == InitResult(CONCURRENT)
    assert (known.epoch, known.has_failed_fence) == (6, False)
    rig.markers.write()
    assert rig.init() == InitResult(NONE, 10, 7)


def test_the_highest_epoch_fences(rig: Rig) -> None:
    rig.put(ONGOING, producer_id=3, epoch=EXHAUSTED, partitions=[FIRST])
    assert rig.init() == InitResult(CONCURRENT)
    (stored,) = rig.topic.stored()
    assert stored is not None
    assert (stored.epoch, stored.state) == (HIGHEST_EPOCH, PREPARE_ABORT)
    rig.markers.write()
    assert rig.init() == InitResult(NONE, 10, 0)


def test_no_last_producer_data(rig: Rig) -> None:
    """They are not in the records: a request that is repeated after a move of the coordinator fails."""
    rig.put(EMPTY, epoch=6)
    assert rig.init(expected=(10, 5)) == InitResult(FENCED)


def test_another_producer_id(rig: Rig) -> None:
    rig.put(EMPTY, producer_id=11, epoch=5).last_producer_id = 10
    assert rig.init(expected=(10, 5)) == InitResult(FENCED)


def test_the_current_epoch_and_a_request_that_is_repeated(rig: Rig) -> None:
    rig.put(EMPTY, epoch=10)
    for _ in range(2):
        assert rig.init(expected=(10, 10)) == InitResult(NONE, 10, 11)


def test_a_stale_epoch(rig: Rig) -> None:
    rig.put(EMPTY, epoch=10)
    assert rig.init() == InitResult(NONE, 10, 11)
    assert rig.init(expected=(10, 10)) == InitResult(FENCED)


def test_a_request_that_is_repeated_after_another_producer_id(rig: Rig) -> None:
    rig.put(EMPTY, producer_id=3, epoch=EXHAUSTED)
    for _ in range(2):
        assert rig.init(expected=(3, EXHAUSTED)) == InitResult(NONE, 10, 0)
    assert rig.init(expected=(3, EXHAUSTED - 1)) == InitResult(FENCED)


def test_init_while_a_change_is_appended(rig: Rig) -> None:
    rig.put(ONGOING, pending=PREPARE_COMMIT, partitions=[FIRST])
    assert rig.init(expected=(9, 9)) == InitResult(CONCURRENT)
    assert rig.transaction().epoch == 0


def test_no_producer_id_can_be_had(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.ids.error = KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "no block")
    for transactional_id in (None, ID):
        assert rig.init(transactional_id) == InitResult(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    rig.put(EMPTY, producer_id=3, epoch=EXHAUSTED)
    assert rig.init() == InitResult(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    rig.ids.error = OSError("odd")
    assert rig.init() == InitResult(ErrorCode.UNKNOWN_SERVER_ERROR)
    assert "odd" in caplog.text


def test_the_coordinator_moves_while_a_producer_id_is_awaited(rig: Rig) -> None:
    rig.ids.held = []
    first, second = rig.send_init(), rig.send_init()
    assert not first.given
    rig.coordinator.resigned(rig.number, 6)
    rig.ids.give(rig.ids.held.pop())
    assert second.result == InitResult(ErrorCode.NOT_COORDINATOR)
    rig.coordinator.elected(rig.number, 7)
    rig.ids.give(rig.ids.held.pop())
    assert first.result == InitResult(NONE, 11, 0)


def test_two_new_producers_at_once(rig: Rig) -> None:
    rig.ids.held = []
    answers = [rig.send_init(), rig.send_init()]
    for future in rig.ids.held:
        rig.ids.give(future)
    assert [answer.result for answer in answers] == [InitResult(NONE, 10, 0), InitResult(NONE, 10, 1)]


def test_an_id_that_no_record_can_hold(rig: Rig) -> None:
    assert rig.init("é" * 16_384) == InitResult(ErrorCode.UNKNOWN_SERVER_ERROR)
    assert rig.topic.appended == []


# AddPartitionsToTxn


def test_add_to_an_unknown_id(rig: Rig) -> None:
    assert rig.add(FIRST) is NO_MAPPING


def test_add_to_an_empty_id(rig: Rig) -> None:
    assert rig.add(FIRST, transactional_id="") is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("state", [PREPARE_COMMIT, PREPARE_ABORT])
def test_add_to_a_prepared_transaction(rig: Rig, state: TransactionState) -> None:
    rig.put(state)
    answer = rig.send_add(FIRST)
    rig.advance(WAIT_MS + 1)
    assert answer.result is CONCURRENT


def test_add_while_a_change_is_appended(rig: Rig) -> None:
    rig.put(ONGOING, partitions=[FIRST], pending=PREPARE_COMMIT)
    assert rig.add(FIRST) is CONCURRENT


def test_add_with_other_producers(rig: Rig) -> None:
    rig.put(PREPARE_COMMIT, epoch=10)
    assert rig.add(FIRST, producer=(10, 0)) is FENCED
    assert rig.add(FIRST, producer=(10, 11)) is FENCED
    assert rig.add(FIRST, producer=(9, 10)) is NO_MAPPING


@pytest.mark.parametrize("state", [EMPTY, ONGOING, COMPLETE_COMMIT, COMPLETE_ABORT])
def test_add_appends(rig: Rig, state: TransactionState) -> None:
    rig.put(state)
    rig.advance(5)
    assert rig.add(FIRST, SECOND) is NONE
    (stored,) = rig.topic.stored()
    assert stored is not None
    assert (stored.state, stored.partitions) == (ONGOING, BOTH)
    assert stored.start_ms == START_MS + (0 if state is ONGOING else 5)


def test_adding_what_is_there_appends_nothing(rig: Rig) -> None:
    rig.put(ONGOING, partitions=[FIRST, SECOND])
    assert rig.add(FIRST) is NONE
    assert rig.topic.appended == []


def test_verification(rig: Rig) -> None:
    def verify(producer_id: int, epoch: int) -> set[ErrorCode]:
        producer = ProducerIdentity(producer_id, epoch)
        verified = rig.coordinator.verify_partitions(ID, producer, [FIRST, SECOND])
        assert list(verified) == [FIRST, SECOND]
        return set(verified.values())

    assert verify(10, 0) == {NO_MAPPING}
    rig.put(PREPARE_COMMIT)
    assert verify(9, 0) == {NO_MAPPING}
    assert verify(10, 1) == {FENCED}
    assert verify(10, 0) == {CONCURRENT}
    rig.put(ONGOING, pending=COMPLETE_COMMIT)
    assert verify(10, 0) == {ErrorCode.TRANSACTION_ABORTABLE}
    rig.put(ONGOING, partitions=[FIRST, SECOND])
    assert verify(10, 0) == {NONE}
    rig.put(ONGOING, partitions=[FIRST])
    assert verify(10, 0) == {NONE, ErrorCode.TRANSACTION_ABORTABLE}
    rig.put(COMPLETE_COMMIT)
    assert verify(10, 0) == {ErrorCode.TRANSACTION_ABORTABLE}
    empty = rig.coordinator.verify_partitions("", ProducerIdentity(10, 0), [FIRST])
    assert empty == {FIRST: ErrorCode.INVALID_REQUEST}


# EndTxn


def test_end_of_an_unknown_id(rig: Rig) -> None:
    assert rig.end() is NO_MAPPING
    assert rig.end(transactional_id="") is ErrorCode.INVALID_REQUEST


def test_end_with_other_producers(rig: Rig) -> None:
    rig.put(COMPLETE_COMMIT, epoch=1)
    assert rig.end(producer=(9, 1)) is NO_MAPPING
    assert rig.end(producer=(10, 0)) is FENCED
    assert rig.end(producer=(10, 2)) is FENCED


@pytest.mark.parametrize(
    ("state", "commit", "error"),
    [
        (COMPLETE_COMMIT, True, NONE),
        (COMPLETE_COMMIT, False, INVALID_STATE),
        (COMPLETE_ABORT, False, NONE),
        (COMPLETE_ABORT, True, INVALID_STATE),
        (PREPARE_COMMIT, True, CONCURRENT),
        (PREPARE_COMMIT, False, INVALID_STATE),
        (PREPARE_ABORT, False, CONCURRENT),
        (PREPARE_ABORT, True, INVALID_STATE),
        (EMPTY, True, INVALID_STATE),
        (EMPTY, False, INVALID_STATE),
    ],
)
def test_end_of_what_is_not_ongoing(
    rig: Rig, state: TransactionState, commit: bool, error: ErrorCode
) -> None:
    rig.put(state)
    answer = rig.send_end(commit)
    # It is repeated while the markers are written: it waits for them.
    assert answer.given is (error is not CONCURRENT)
    rig.advance(WAIT_MS + 1)
    assert answer.result is error
    assert rig.topic.appended == []


@pytest.mark.parametrize(("commit", "state"), [(True, PREPARE_COMMIT), (False, PREPARE_ABORT)])
def test_end_of_an_ongoing_transaction(rig: Rig, commit: bool, state: TransactionState) -> None:
    rig.put(ONGOING, partitions=[FIRST])
    rig.topic.held = []
    answer = rig.send_end(commit)
    assert rig.end(commit) is CONCURRENT
    assert not answer.given
    assert rig.markers.sent == []
    rig.topic.release()
    assert answer.result is NONE
    (stored,) = rig.topic.stored()
    assert stored is not None
    assert (stored.state, stored.partitions) == (state, ALONE)
    assert rig.markers.write().commit is commit


def test_a_transaction_without_partitions(rig: Rig) -> None:
    rig.put(EMPTY)
    assert rig.add() is NONE
    assert rig.end() is NONE
    assert rig.markers.write().partitions == frozenset()
    assert rig.state == "CompleteCommit"


# Time


def test_a_transaction_whose_time_is_over_is_aborted_and_fenced(rig: Rig) -> None:
    rig.put(ONGOING, epoch=5, partitions=[FIRST])
    rig.advance(TIMEOUT + 1)
    (stored,) = rig.topic.stored()
    assert stored is not None
    assert (stored.state, stored.epoch, stored.partitions) == (PREPARE_ABORT, 6, ALONE)
    assert rig.end(producer=(10, 5)) is FENCED
    rig.markers.write()
    assert rig.state == "CompleteAbort"
    assert rig.init() == InitResult(NONE, 10, 7)


def test_a_change_that_is_appended_outlives_the_time(rig: Rig) -> None:
    rig.put(ONGOING, partitions=[FIRST])
    rig.topic.held = []
    answer = rig.send_end()
    rig.advance(TIMEOUT + 1)
    assert rig.topic.states() == ["PrepareCommit"]
    rig.topic.release()
    assert answer.result is NONE


def test_a_transaction_is_aborted_though_its_change_fails_when_its_time_is_over(rig: Rig) -> None:
    rig.put(ONGOING, partitions=[FIRST])
    rig.topic.held = []
    answer = rig.send_end()
    rig.advance(TIMEOUT + 1)
    rig.topic.release(ErrorCode.REQUEST_TIMED_OUT)
    assert answer.result is ErrorCode.COORDINATOR_NOT_AVAILABLE
    rig.advance(CONFIG.abort_retry)
    assert rig.state == "PrepareAbort"


def test_an_abort_that_cannot_be_appended_is_repeated_with_the_same_epoch(rig: Rig) -> None:
    rig.put(ONGOING, epoch=5, partitions=[FIRST])
    rig.topic.error = ErrorCode.NOT_ENOUGH_REPLICAS
    rig.advance(TIMEOUT + 1 + CONFIG.abort_retry)
    known = rig.transaction()
    assert (known.epoch, known.has_failed_fence, known.pending, known.state) == (6, True, None, ONGOING)
    rig.topic.error = 0
    rig.advance(CONFIG.abort_retry)
    assert (known.epoch, known.state) == (6, PREPARE_ABORT)


def test_a_timer_counts_the_time_of_the_transaction_that_is_open_then() -> None:
    rig = Rig(at_once=True)
    rig.init()
    rig.add(FIRST)
    rig.advance(600)
    rig.end()
    rig.advance(100)
    rig.add(FIRST)
    assert len(rig.timers) == 2  # the other one is for ids that expire
    rig.advance(TIMEOUT)
    assert rig.state == "Ongoing"
    rig.advance(1)
    assert rig.state == "CompleteAbort"


def test_a_shorter_timeout_counts_at_once() -> None:
    rig = Rig(at_once=True)
    rig.init(timeout_ms=10_000)
    rig.add(FIRST)
    rig.end()
    rig.init(timeout_ms=50)
    rig.add(FIRST, producer=(10, 1))
    rig.advance(51)
    assert rig.state == "CompleteAbort"


# DescribeTransactions, ListTransactions


def test_describe(rig: Rig) -> None:
    rig.put(ONGOING, epoch=5, partitions=[FIRST, SECOND])
    described = rig.coordinator.describe(ID)
    assert described == (NONE, "Ongoing", TIMEOUT, START_MS, 10, 5, BOTH)


def test_describe_what_is_not_there(rig: Rig) -> None:
    assert rig.coordinator.describe("").error is ErrorCode.INVALID_REQUEST
    assert rig.coordinator.describe(ID).error is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    rig.coordinator.close()
    assert rig.coordinator.describe("").error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert rig.coordinator.list((), (), -1)[0] is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert rig.init() == InitResult(ErrorCode.NOT_COORDINATOR)


def test_list_filters() -> None:
    rig = Rig(replace(CONFIG, topic_partitions=1))
    for number, state in enumerate(
        [ONGOING, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT, COMPLETE_ABORT]
    ):
        if number in (2, 4):
            rig.advance(1_000)
        rig.put(state, producer_id=number, transactional_id=f"t{number}", timeout_ms=100_000)
    rig.advance(1_000)

    def listed(states: tuple[str, ...] = (), ids: tuple[int, ...] = (), longer_than: int = -1) -> str:
        error, unknown, listings = rig.coordinator.list(states, ids, longer_than)
        assert error is NONE
        assert unknown == [state for state in states if state == "Unknown"]
        return "".join(sorted(each.transactional_id[1] for each in listings))

    assert listed() == "0123456"
    assert listed(longer_than=0) == "0123456"
    assert listed(longer_than=1_000) == "0123"
    assert listed(longer_than=2_000) == "01"
    assert listed(longer_than=3_000) == ""
    assert listed(("Ongoing",)) == "01"
    assert listed(("Ongoing", "Unknown")) == "01"
    assert listed(("PrepareCommit", "CompleteCommit")) == "24"
    assert listed(("Unknown",)) == ""
    assert listed(ids=(5,)) == "5"
    assert listed(ids=(5, 6, 8, 9)) == "56"
    assert listed(("CompleteCommit",), (4, 5)) == "4"
    assert listed(("CompleteCommit", "CompleteAbort"), (4, 5)) == "45"
    assert listed(("Unknown",), (3, 6)) == ""
    assert listed(("CompleteCommit",), (10,)) == ""
    assert listed(("Dead",)) == ""


def test_figures(rig: Rig) -> None:
    rig.put(ONGOING)
    rig.put(COMPLETE_COMMIT, transactional_id=f"{ID}\0")
    figures = rig.coordinator.figures()
    assert {state: count for state, count in figures.transactional_ids.items() if count} == {
        "Ongoing": 1,
        "CompleteCommit": 1,
    }
    assert set(figures.transactional_ids) == {state.value for state in TransactionState}
    assert (figures.unfinished_appends, figures.load_time_max, figures.load_time_avg) == (0, 0, 0)
    rig.advance(30_001)
    assert rig.coordinator.figures().load_time_max != rig.coordinator.figures().load_time_max

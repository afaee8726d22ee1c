"""Twins of Kafka's TransactionMetadataTest: the steps of one transactional id."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ctrlchan.broker.coordinator.transaction.requests import ProducerIdentity
from ctrlchan.broker.coordinator.transaction.states import (
    VALID_PREVIOUS,
    TransactionState,
    state_named,
    state_of,
)
from ctrlchan.broker.coordinator.transaction.transaction import HIGHEST_EPOCH, Transaction, is_exhausted
from ctrlchan.errors import IllegalStateError
from tests.unit.broker.coordinator.transaction.support import ALONE, BOTH, FIRST, ID, SECOND

PID = 23_423
NOW = 1_000_000
EARLIER = NOW - 1  # clocks are set back
EXHAUSTED = HIGHEST_EPOCH - 1

EMPTY, ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
PREPARE_COMMIT, PREPARE_ABORT = TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT
COMPLETE_COMMIT, COMPLETE_ABORT = TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT


def transaction(epoch: int, state: TransactionState = EMPTY, start_ms: int = 1) -> Transaction:
    partitions = frozenset() if state in (EMPTY, COMPLETE_ABORT, COMPLETE_COMMIT) else ALONE
    return Transaction(ID, PID, epoch, 30_000, NOW, state, partitions, start_ms)


def take_epoch(known: Transaction, expected: int | None, now_ms: int = NOW) -> bool:
    """Give the next epoch; return False when the producer is fenced."""
    to = known.prepare_epoch(30_000, expected, now_ms)
    if to is None:
        assert known.pending is None
        return False
    assert to.last_producer_id == known.producer_id
    known.complete(to)
    return True


def test_initialize_epoch() -> None:
    known = transaction(-1)
    assert take_epoch(known, None)
    assert (known.producer_id, known.epoch, known.last_epoch) == (PID, 0, -1)


def test_normal_epoch_bump() -> None:
    known = transaction(735)
    assert take_epoch(known, None)
    assert (known.producer_id, known.epoch, known.last_epoch) == (PID, 736, -1)


@pytest.mark.parametrize("epoch", [EXHAUSTED, HIGHEST_EPOCH])
def test_bump_epoch_not_allowed_if_epochs_exhausted(epoch: int) -> None:
    known = transaction(epoch)
    assert is_exhausted(known.epoch)
    for expected in (None, epoch, epoch - 1):
        with pytest.raises(IllegalStateError):
            known.prepare_epoch(30_000, expected, NOW)
    assert known.pending is None


def test_attempted_epoch_bump_with_newly_created_metadata() -> None:
    known = transaction(-1)
    assert take_epoch(known, 5)
    assert (known.epoch, known.last_epoch) == (0, -1)


def test_epoch_bump_with_current_epoch_provided() -> None:
    known = transaction(735)
    assert take_epoch(known, 735)
    assert (known.epoch, known.last_epoch) == (736, 735)


def test_attempted_epoch_bump_with_last_epoch() -> None:
    """A request that is repeated gets the same epoch."""
    known = transaction(735)
    known.last_epoch = 734
    assert take_epoch(known, 734)
    assert (known.epoch, known.last_epoch) == (735, 734)


def test_attempted_epoch_bump_with_fenced_epoch() -> None:
    known = transaction(735)
    known.last_epoch = 734
    assert not take_epoch(known, 733)
    assert (known.epoch, known.last_epoch) == (735, 734)


def test_tolerate_update_time_shift_during_epoch_bump() -> None:
    known = transaction(1)
    assert take_epoch(known, 1, EARLIER)
    assert (known.epoch, known.last_epoch, known.start_ms, known.update_ms) == (2, 1, 1, EARLIER)


def test_tolerate_update_time_reset_during_producer_id_rotation() -> None:
    known = transaction(1)
    known.complete(known.prepare_producer_id(PID + 1, 30_000, EARLIER, keeps_last_epoch=True))
    assert (known.producer_id, known.epoch) == (PID + 1, 0)
    assert (known.last_producer_id, known.last_epoch) == (PID, 1)
    assert (known.start_ms, known.update_ms) == (1, EARLIER)


def test_tolerate_time_shift_during_add_partitions() -> None:
    known = transaction(1, start_ms=NOW)
    known.complete(known.prepare_partitions([FIRST], NOW - 1))
    assert (known.partitions, known.start_ms, known.update_ms) == (ALONE, NOW - 1, NOW - 1)
    known.complete(known.prepare_partitions([SECOND], NOW - 2))
    assert (known.partitions, known.start_ms, known.update_ms) == (BOTH, NOW - 1, NOW - 2)
    assert (known.producer_id, known.epoch, known.last_epoch) == (PID, 1, -1)


@pytest.mark.parametrize(("commit", "state"), [(True, PREPARE_COMMIT), (False, PREPARE_ABORT)])
def test_tolerate_time_shift_during_prepare(commit: bool, state: TransactionState) -> None:
    known = transaction(1, ONGOING)
    known.complete(known.prepare_end(commit=commit, now_ms=EARLIER))
    assert (known.state, known.epoch, known.start_ms, known.update_ms) == (state, 1, 1, EARLIER)
    assert known.partitions == ALONE


@pytest.mark.parametrize(
    ("prepared", "complete"), [(PREPARE_COMMIT, COMPLETE_COMMIT), (PREPARE_ABORT, COMPLETE_ABORT)]
)
def test_tolerate_time_shift_during_complete(prepared: TransactionState, complete: TransactionState) -> None:
    known = transaction(1, prepared)
    known.complete(known.prepare_complete(EARLIER))
    assert (known.state, known.epoch, known.start_ms, known.update_ms) == (complete, 1, 1, EARLIER)
    assert known.partitions == frozenset()


def test_fence_producer_after_epochs_exhausted() -> None:
    known = transaction(EXHAUSTED, ONGOING)
    to = known.prepare_fence(NOW)
    assert (to.state, to.epoch, to.last_epoch) == (PREPARE_ABORT, HIGHEST_EPOCH, -1)
    known.complete(to)
    assert (known.producer_id, known.epoch, known.state) == (PID, HIGHEST_EPOCH, PREPARE_ABORT)


def test_fence_producer_does_not_overflow() -> None:
    """Kafka throws here, and its search for transactions whose time is over ends then."""
    known = transaction(HIGHEST_EPOCH, ONGOING)
    assert known.prepare_fence(NOW).epoch == HIGHEST_EPOCH


def test_a_fence_that_failed_takes_its_epoch_again() -> None:
    known = transaction(5, ONGOING)
    assert known.prepare_fence(NOW).epoch == 6
    known.pending, known.has_failed_fence = None, True
    known.complete(known.prepare_fence(NOW))
    assert known.epoch == 6
    known.complete(known.prepare_complete(NOW))
    assert not known.has_failed_fence


def test_rotate_producer_id() -> None:
    known = transaction(5)
    known.complete(known.prepare_producer_id(PID + 1, 30_000, NOW, keeps_last_epoch=False))
    assert (known.producer_id, known.epoch, known.last_epoch) == (PID + 1, 0, -1)


@pytest.mark.parametrize("state", [ONGOING, PREPARE_ABORT, PREPARE_COMMIT])
def test_rotate_producer_id_with_an_open_transaction(state: TransactionState) -> None:
    known = transaction(5, state)
    with pytest.raises(IllegalStateError):
        known.prepare_producer_id(PID + 1, 30_000, NOW, keeps_last_epoch=False)


def test_transaction_state_id_and_name_mapping() -> None:
    for number, state in enumerate(TransactionState):
        assert state_of(number) is state
        assert state.number == number
        assert state_named(state.value) is state
    assert state_of(8) is None
    assert state_of(-1) is None
    assert state_named("empty") is None


def test_all_transaction_states_are_mapped() -> None:
    assert set(VALID_PREVIOUS) == set(TransactionState)
    assert not any(previous is TransactionState.DEAD for each in VALID_PREVIOUS.values() for previous in each)


def prepare_all(known: Transaction) -> list[Callable[[], object]]:
    """Return all first steps of a change."""
    return [
        lambda: known.prepare_epoch(30_000, None, NOW),
        lambda: known.prepare_producer_id(PID + 1, 30_000, NOW, keeps_last_epoch=True),
        lambda: known.prepare_partitions([FIRST], NOW),
        lambda: known.prepare_end(commit=True, now_ms=NOW),
        lambda: known.prepare_fence(NOW),
        lambda: known.prepare_complete(NOW),
        known.prepare_dead,
    ]


@pytest.mark.parametrize("pending", TransactionState)
def test_nothing_is_prepared_while_a_change_is_appended(pending: TransactionState) -> None:
    for state in TransactionState:
        known = transaction(5, state)
        known.pending = pending
        for prepare in prepare_all(known):
            with pytest.raises(IllegalStateError):
                prepare()
        assert known.epoch == 5


def test_changes_that_do_not_fit_are_refused() -> None:
    known = transaction(5, ONGOING)
    to = known.prepare_end(commit=True, now_ms=NOW)
    for wrong in (
        to._replace(state=PREPARE_ABORT),
        to._replace(epoch=6),
        to._replace(producer_id=PID + 1),
        to._replace(timeout_ms=1),
        to._replace(partitions=frozenset()),
        to._replace(start_ms=2),
    ):
        with pytest.raises(IllegalStateError):
            known.complete(wrong)
    assert known.state is ONGOING
    known.complete(to)
    with pytest.raises(IllegalStateError):  # nothing is pending
        known.complete(to)


def test_who_may_be_the_producer() -> None:
    known = transaction(5)
    known.last_producer_id = PID - 1
    assert known.accepts(ProducerIdentity(PID, 3))
    assert known.accepts(ProducerIdentity(PID - 1, EXHAUSTED))
    assert not known.accepts(ProducerIdentity(PID - 1, 3))
    assert not known.accepts(ProducerIdentity(PID + 1, EXHAUSTED))
    assert transaction(-1).accepts(ProducerIdentity(7, 7))

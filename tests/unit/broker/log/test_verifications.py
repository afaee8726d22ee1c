"""Transactions that the coordinator is asked for before they begin in a partition (KIP-890).

Twins of Kafka's cases of ``ProducerStateManagerTest`` and ``UnifiedLogTest``.
"""

from __future__ import annotations

import pytest

from ctrlchan.broker.log._batches import Origin
from ctrlchan.broker.log._producers import Appended, ProducerStates
from ctrlchan.errors import ErrorCode
from tests.unit.broker.log.batches import TRANSACTIONAL
from tests.unit.broker.log.test_producers import (
    APPENDED,
    COMMIT,
    OUT_OF_ORDER,
    append,
    data_batch,
    marker_batch,
)

NOW = 5_000_000
NOT_IN_A_TRANSACTION = Appended(ErrorCode.INVALID_TXN_STATE, None, None)
NO_GUARD = 0


def send(
    states: ProducerStates,
    guard: int,
    sequence: int = 0,
    *,
    offset: int = 0,
    epoch: int = 0,
    origin: Origin = Origin.CLIENT,
) -> Appended:
    batch = data_batch(7, sequence, offset, epoch=epoch, attributes=TRANSACTIONAL)
    return states.append_batch(batch.encoded(), origin, guard)


@pytest.mark.parametrize("origin", [Origin.CLIENT, Origin.COORDINATOR])
def test_a_transaction_begins_with_its_guard(origin: Origin) -> None:
    states = ProducerStates()
    guard = states.begin_verification(7, 0, 4, NOW)
    assert guard > 0
    # A plain batch changes nothing.
    assert append(states, data_batch(7, 3, 0), origin) == APPENDED
    for wrong in (NO_GUARD, guard + 1):
        assert send(states, wrong, 4, offset=1, origin=origin) == NOT_IN_A_TRANSACTION
    assert states.first_undecided_offset() == -1
    assert send(states, guard, 4, offset=1, origin=origin) == APPENDED
    assert states.first_undecided_offset() == 1
    assert (states.verification_count, states.begin_verification(7, 0, 5, NOW)) == (0, NO_GUARD)
    # The transaction is open: no guard is asked for.
    assert send(states, NO_GUARD, 5, offset=2, origin=origin) == APPENDED
    assert append(states, marker_batch(7, 3, COMMIT), Origin.COORDINATOR).completed_txn == (1, False)
    # The next transaction is another one, and the guard has been used.
    another = states.begin_verification(7, 0, 6, NOW)
    assert another not in (NO_GUARD, guard)
    assert send(states, guard, 6, offset=4, origin=origin) == NOT_IN_A_TRANSACTION
    assert send(states, another, 6, offset=4, origin=origin) == APPENDED


def test_a_marker_ends_the_verification_of_an_empty_transaction() -> None:
    states = ProducerStates()
    guard = states.begin_verification(7, 1, 0, NOW)
    assert append(states, marker_batch(7, 0, COMMIT, epoch=1), Origin.COORDINATOR) == APPENDED
    assert states.verification_count == 0
    assert send(states, guard, epoch=1) == NOT_IN_A_TRANSACTION
    assert states.begin_verification(7, 1, 0, NOW) not in (NO_GUARD, guard)


def test_verification_ends_where_it_is_not_demanded() -> None:
    states = ProducerStates()
    states.begin_verification(7, 1, 0, NOW)
    assert send(states, -1, epoch=1) == APPENDED
    assert states.verification_count == 0


def test_followers_verify_nothing() -> None:
    states = ProducerStates()
    assert send(states, NO_GUARD, origin=Origin.REPLICATION) == APPENDED


def test_verification_goes_on_with_its_guard() -> None:
    states = ProducerStates()
    guard = states.begin_verification(7, 0, 0, NOW)
    assert states.begin_verification(7, 0, 0, NOW + 1) == guard
    assert states.begin_verification(8, 0, 0, NOW) not in (NO_GUARD, guard)
    assert states.verification_count == 2
    # Of another log, too.
    assert ProducerStates().begin_verification(7, 0, 0, NOW) not in (NO_GUARD, guard)


@pytest.mark.parametrize(
    ("asked", "epoch", "lowest"),
    [
        ([(0, 1)], 0, 1),
        ([(0, 1), (0, 0)], 0, 0),
        ([(0, 0), (0, 1)], 0, 0),
        # A higher epoch begins anew.
        ([(0, 1), (0, 0), (1, 2)], 1, 2),
        ([(1, 2), (0, 0)], 1, 2),
    ],
)
def test_no_batch_passes_the_lowest_sequence_that_has_asked(
    asked: list[tuple[int, int]], epoch: int, lowest: int
) -> None:
    states = ProducerStates()
    for one, sequence in asked:
        guard = states.begin_verification(7, one, sequence, NOW)
    assert send(states, guard, lowest + 1, epoch=epoch) == OUT_OF_ORDER
    # Plain batches of the producer wait, too; those of the coordinator have no numbers.
    assert append(states, data_batch(7, lowest + 1, 0, epoch=epoch)) == OUT_OF_ORDER
    assert states.verification_count == 1
    assert send(states, guard, lowest, epoch=epoch) == APPENDED
    assert send(states, NO_GUARD, lowest + 1, offset=1, epoch=epoch) == APPENDED


def test_the_epoch_is_looked_at_first() -> None:
    states = ProducerStates()
    append(states, data_batch(7, 0, 0, epoch=3))
    guard = states.begin_verification(7, 2, 0, NOW)
    fenced = Appended(ErrorCode.INVALID_PRODUCER_EPOCH, None, None)
    assert send(states, guard, 9, offset=1, epoch=2) == fenced
    assert send(states, NO_GUARD, 9, offset=1, epoch=2) == NOT_IN_A_TRANSACTION


def test_a_batch_that_comes_again_needs_no_guard() -> None:
    states = ProducerStates()
    guard = states.begin_verification(7, 0, 0, NOW)
    send(states, guard)
    append(states, marker_batch(7, 1, COMMIT), Origin.COORDINATOR)
    assert send(states, NO_GUARD, offset=2).duplicate is not None


def test_what_is_never_verified_expires() -> None:
    states = ProducerStates(1000)
    guards = [states.begin_verification(n, 0, 0, NOW + n) for n in range(100)]
    states.remove_expired(NOW + 999)
    assert states.verification_count == 100
    # It began with the first batch that asked.
    assert states.begin_verification(0, 0, 0, NOW + 900) == guards[0]
    states.remove_expired(NOW + 1049)
    assert states.verification_count == 50
    assert [states.begin_verification(n, 0, 0, NOW) for n in range(50, 100)] == guards[50:]
    assert states.begin_verification(49, 0, 0, NOW) not in guards
    states.remove_expired(NOW + 5000)
    assert states.verification_count == 0

"""Ends transactions: the decision is appended, markers are written, the end is appended.

Source: ``TransactionCoordinator.endTransaction``, and ``writeTxnCompletion`` and ``tryAppendToLog`` of
``TransactionMarkerChannelManager``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from ctrlchan.broker.coordinator.common.timing_wheel import Timers
from ctrlchan.broker.coordinator.transaction.first_batches import FirstBatches
from ctrlchan.broker.coordinator.transaction.gates import Decision
from ctrlchan.broker.coordinator.transaction.records import record_of
from ctrlchan.broker.coordinator.transaction.registry import StatePartition
from ctrlchan.broker.coordinator.transaction.requests import EndedTransaction, ProducerIdentity
from ctrlchan.broker.coordinator.transaction.states import TransactionState
from ctrlchan.broker.coordinator.transaction.store import TransactionStore
from ctrlchan.broker.coordinator.transaction.transaction import Transaction, Transition
from ctrlchan.errors import ErrorCode
from ctrlchan.log_context import ContextLogger

__all__ = ["Ending", "Markers"]

#: Seconds before the end is appended again: doubled with each attempt. Kafka appends at once.
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 10.0


class Markers(Protocol):
    """Writes markers to the partitions of ended transactions. No method is called with a lock."""

    def send(self, ended: EndedTransaction, then: Callable[[], None], is_current: Callable[[], bool]) -> None:
        """Call `then` once, when every partition has its marker or is deleted.

        Markers of an earlier transaction of the id are forgotten. Nothing is sent when `is_current` returns
        False: this broker has given the partition of ``__transaction_state`` up, and ``forget`` may have been
        called before.
        """

    def forget(self, partition: int) -> None:
        """Write no further markers for this partition of ``__transaction_state``: another broker does."""


class Ending:
    """Ends transactions. Every method requires the lock of the partition, and ``then`` is called with it."""

    def __init__(
        self,
        store: TransactionStore,
        markers: Markers,
        first_batches: FirstBatches,
        timers: Timers,
        now_ms: Callable[[], int],
        log: ContextLogger,
    ) -> None:
        self._log = log
        self._store = store
        self._markers = markers
        self._first_batches = first_batches
        self._timers = timers
        self._now_ms = now_ms
        # Their last record could not be appended so far.
        self._unfinished: set[Transaction] = set()

    @property
    def unfinished(self) -> int:
        """The number of transactions whose last record is going to be appended again."""
        return len(self._unfinished)

    def end(
        self,
        partition: StatePartition,
        transaction: Transaction,
        then: Callable[[ErrorCode], None],
        *,
        commit: bool,
    ) -> None:
        """Commit or abort an Ongoing transaction; `then` is called before any marker is written.

        What `then` gives to ``partition.after`` is called before that, too.
        """
        to = transaction.prepare_end(commit=commit, now_ms=self._now_ms())
        self._first_batches.withdraw(transaction.producer_id, transaction.partitions)

        def done(error: ErrorCode) -> None:
            then(error)
            if not error:
                self.write_markers(partition, transaction)

        self._store.append(partition, transaction, to, done)

    def abort(
        self, partition: StatePartition, transaction: Transaction, then: Callable[[ErrorCode], None]
    ) -> None:
        """Fence the producer of an Ongoing transaction, and abort it; otherwise as ``end``."""
        to = transaction.prepare_fence(self._now_ms())
        self._first_batches.withdraw(transaction.producer_id, transaction.partitions)

        def done(error: ErrorCode) -> None:
            if error and partition.holds(transaction):
                # The record may be in the log. Nobody has got the epoch, so the next attempt takes it again.
                transaction.has_failed_fence = True
                self._log.warning(
                    "epoch %d of transactional id %.100r, which fences its producer, cannot be appended: %s",
                    transaction.epoch,
                    transaction.transactional_id,
                    error.name,
                )
            then(error)
            if not error:
                self.write_markers(partition, transaction)

        self._store.append(partition, transaction, to, done)

    def lend(self, partition: StatePartition, transaction: Transaction, first_connection: int) -> None:
        """Let processors end an Ongoing transaction, for connections from this number on."""
        gate = partition.gate
        if gate is not None and gate.lends():
            record = record_of(transaction.transactional_id, transaction.decision_to_lend())
            transaction.end_right = gate.lend(transaction, record, first_connection)

    def take_over(self, partition: StatePartition, decision: Decision) -> None:
        """Go on with a transaction that a processor has ended: its decision is in the log, and answered."""
        transaction = decision.transaction
        transaction.end_right = None
        to = transaction.prepare_end(commit=decision.commit, now_ms=decision.at_ms)
        self._store.take_over(partition, transaction, to)
        self.write_markers(partition, transaction)

    def write_markers(self, partition: StatePartition, transaction: Transaction) -> None:
        """Have the markers of a transaction written whose end is decided, and append its end then."""
        ended = EndedTransaction(
            transaction.transactional_id,
            partition.number,
            partition.epoch,
            ProducerIdentity(transaction.producer_id, transaction.epoch),
            transaction.state is TransactionState.PREPARE_COMMIT,
            transaction.partitions,
        )
        to = transaction.prepare_complete(self._now_ms())
        then = partial(self._finish, partition, transaction, to, _FIRST_PAUSE)
        partition.after(lambda one: self._markers.send(one, then, lambda: partition.is_active), ended)

    def _finish(
        self, partition: StatePartition, transaction: Transaction, to: Transition, pause: float
    ) -> None:
        """Append the end, again and again until it is in the log. The lock is not held."""
        self._unfinished.discard(transaction)

        def done(error: ErrorCode) -> None:
            if not error or not partition.holds(transaction):
                return
            self._log.warning(
                "the end of the transaction of %.100r cannot be appended yet: %s",
                transaction.transactional_id,
                error.name,
            )
            self._unfinished.add(transaction)
            again = partial(self._finish, partition, transaction, to, min(2 * pause, _LONGEST_PAUSE))
            self._timers.after(pause, again)

        with partition:
            if partition.holds(transaction):
                self._store.append(partition, transaction, to, done, stays_pending=True)

"""Ends transactions whose time is over, and removes transactional ids that were not used for long.

A transaction has a timer from its start on. The timer is started once and outlives the transaction: when it
is due it looks at the transaction of that time, so a transaction that ends in time starts and cancels none.
The ids of a partition have one timer, for the id that was not used for the longest time.

Kafka looks at all transactions every ten seconds, and at all ids every hour.
Source: ``TransactionCoordinator.abortTimedOutTransactions`` and
``TransactionStateManager.removeExpiredTransactionalIds``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from ctrlchan.broker.config.transaction_config import TransactionConfig
from ctrlchan.broker.coordinator.common.timing_wheel import Timers
from ctrlchan.broker.coordinator.common.topic import Record
from ctrlchan.broker.coordinator.transaction.records import tombstone_of
from ctrlchan.broker.coordinator.transaction.registry import StatePartition
from ctrlchan.broker.coordinator.transaction.states import EXPIRABLE, TransactionState
from ctrlchan.broker.coordinator.transaction.store import TransactionStore
from ctrlchan.broker.coordinator.transaction.transaction import Transaction
from ctrlchan.errors import ErrorCode
from ctrlchan.internal_topics import TRANSACTIONS_TOPIC
from ctrlchan.log_context import ContextLogger

__all__ = ["IdExpiration", "Timeouts"]

#: Bytes of the tombstones of one batch, as Kafka's buffer for them.
_BATCH: Final = 16_384
#: ... that a record has besides its key, at most.
_OVERHEAD: Final = 24


class Timeouts:
    """Timers of transactions. Every method requires the lock of the partition.

    `abort` fences the producer of an Ongoing transaction and aborts it, then calls its argument with the
    error.
    """

    def __init__(
        self,
        config: TransactionConfig,
        timers: Timers,
        now_ms: Callable[[], int],
        abort: Callable[[StatePartition, Transaction, Callable[[ErrorCode], None]], None],
        log: ContextLogger,
    ) -> None:
        self._log = log
        self._config = config
        self._timers = timers
        self._now_ms = now_ms
        self._abort = abort

    def watch(self, partition: StatePartition, transaction: Transaction) -> None:
        """Have the transaction, which is Ongoing, aborted when its time is over."""
        due_ms = _due_ms(transaction)
        if transaction.timer is not None:
            if transaction.timer_due_ms <= due_ms:
                return
            transaction.timer.cancel()
        self._start(partition, transaction, due_ms - self._now_ms(), due_ms)

    def _start(self, partition: StatePartition, transaction: Transaction, wait_ms: int, due_ms: int) -> None:
        transaction.timer_due_ms = due_ms
        transaction.timer = self._timers.after(
            max(wait_ms, 0) / 1000, partial(self._look, partition, transaction)
        )

    def _look(self, partition: StatePartition, transaction: Transaction) -> None:
        with partition:
            transaction.timer = None
            if not partition.holds(transaction) or transaction.state is not TransactionState.ONGOING:
                return
            now_ms = self._now_ms()
            due_ms = _due_ms(transaction)
            if due_ms > now_ms:
                self._start(partition, transaction, due_ms - now_ms, due_ms)
                return
            # Again, if its state is the same then: a change is being appended, or this append fails.
            retry = self._config.abort_retry
            self._start(partition, transaction, retry, now_ms + retry)
            if transaction.pending is None:
                self._abort(partition, transaction, partial(self._log_abort, transaction))

    def _log_abort(self, transaction: Transaction, error: ErrorCode) -> None:
        if error:
            self._log.warning(
                "the transaction of %.100r, whose time is over, cannot be aborted yet: %s",
                transaction.transactional_id,
                error.name,
            )
        else:
            self._log.info(
                "the transaction of %.100r is aborted: its time is over", transaction.transactional_id
            )


def _due_ms(transaction: Transaction) -> int:
    """Return when the time of a transaction is over, in milliseconds since 1970."""
    return transaction.start_ms + transaction.timeout_ms + 1


class IdExpiration:
    """Removes transactional ids. Every method requires the lock of the partition."""

    def __init__(
        self,
        config: TransactionConfig,
        timers: Timers,
        now_ms: Callable[[], int],
        store: TransactionStore,
        log: ContextLogger,
    ) -> None:
        self._log = log
        self._config = config
        self._timers = timers
        self._now_ms = now_ms
        self._store = store

    def changed(self, partition: StatePartition, transaction: Transaction) -> None:
        """Count the time of an id from now on, if its state lets it expire."""
        partition.idle.pop(transaction.transactional_id, None)
        if transaction.state in EXPIRABLE:
            partition.idle[transaction.transactional_id] = None
            if partition.expiration is None:
                self._plan(partition, transaction.update_ms)

    def loaded(self, partition: StatePartition) -> None:
        """Count the times of all ids of the partition."""
        partition.idle = partition.transactions.expirable()
        for first in partition.idle:
            self._plan(partition, self._known(partition, first).update_ms)
            break

    @staticmethod
    def _known(partition: StatePartition, transactional_id: str) -> Transaction:
        transaction = partition.transactions.get(transactional_id)
        assert transaction is not None  # ``idle`` has no other ids
        return transaction

    def _plan(self, partition: StatePartition, update_ms: int, least_ms: int = 0) -> None:
        wait_ms = max(update_ms + self._config.id_expiration - self._now_ms(), least_ms)
        partition.expiration = self._timers.after(wait_ms / 1000, partial(self._expire, partition))

    def _expire(self, partition: StatePartition) -> None:
        """Append tombstones for the ids whose time is over."""
        with partition:
            partition.expiration = None
            if not partition.is_active:
                return
            latest = self._now_ms() - self._config.id_expiration
            expired: list[Transaction] = []
            left = False
            following: Transaction | None = None
            for transactional_id in partition.idle:
                transaction = self._known(partition, transactional_id)
                if transaction.update_ms > latest:
                    following = transaction
                    break
                if transaction.pending is None:
                    expired.append(transaction)
                else:
                    left = True
            for batch in _batches(expired):
                self._remove(partition, batch)
            if following is not None:
                self._plan(partition, following.update_ms, self._config.expiration_retry if left else 0)
            elif partition.idle:
                self._plan(partition, 0, self._config.expiration_retry)

    def _remove(self, partition: StatePartition, batch: Sequence[tuple[Transaction, Record]]) -> None:
        transactions = [transaction for transaction, _ in batch]
        for transaction in transactions:
            transaction.prepare_dead()

        def done(error: ErrorCode) -> None:
            if error:
                self._log.warning(
                    "%s-%d: %d transactional ids cannot be removed yet: %s",
                    TRANSACTIONS_TOPIC,
                    partition.number,
                    len(transactions),
                    error.name,
                )
            for transaction in transactions:
                if not partition.holds(transaction):
                    continue
                if error:
                    transaction.pending = None
                else:
                    partition.transactions.remove(transaction.transactional_id)
                    partition.idle.pop(transaction.transactional_id, None)

        self._store.append_records(
            partition, [record for _, record in batch], self._config.request_timeout, done
        )


def _batches(expired: Sequence[Transaction]) -> list[list[tuple[Transaction, Record]]]:
    """Return the transactions with their tombstones, as many at once as one batch takes."""
    batches: list[list[tuple[Transaction, Record]]] = []
    room = 0
    for transaction in expired:
        record = tombstone_of(transaction.transactional_id)
        size = len(record.key) + _OVERHEAD
        if not batches or size > room:
            batches.append([])
            room = _BATCH
        batches[-1].append((transaction, record))
        room -= size
    return batches

"""Appends records to ``__transaction_state``, and translates the errors of appends.

Source: ``TransactionStateManager.appendTransactionToLog``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Final

from ctrlchan.broker.coordinator.common.topic import Appended, CoordinatorTopic, Record
from ctrlchan.broker.coordinator.transaction.records import record_of
from ctrlchan.broker.coordinator.transaction.registry import StatePartition, TransactionRegistry
from ctrlchan.broker.coordinator.transaction.transaction import Transaction, Transition
from ctrlchan.errors import ErrorCode, IllegalStateError
from ctrlchan.log_context import ContextLogger

__all__ = ["TransactionStore"]

_ALL_IN_SYNC: Final = -1

_ERRORS: Final[Mapping[int, ErrorCode]] = {
    **dict.fromkeys(
        (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.NOT_ENOUGH_REPLICAS,
            ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
            # Clients repeat the request.
            ErrorCode.REQUEST_TIMED_OUT,
        ),
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ),
    **dict.fromkeys(
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR), ErrorCode.NOT_COORDINATOR
    ),
    **dict.fromkeys(
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE), ErrorCode.UNKNOWN_SERVER_ERROR
    ),
}


class TransactionStore:
    """Appends changes. Every method requires the lock of the partition.

    ``then`` is called with that lock held, by this thread or by the one that ends the append. ``stored`` is
    called, with the lock too, for each transaction whose change was taken over, before its ``then``.
    """

    def __init__(
        self,
        topic: CoordinatorTopic,
        registry: TransactionRegistry,
        now_ms: Callable[[], int],
        stored: Callable[[StatePartition, Transaction], None],
        log: ContextLogger,
    ) -> None:
        self._log = log
        self._topic = topic
        self._registry = registry
        self._now_ms = now_ms
        self._stored = stored

    def append(
        self,
        partition: StatePartition,
        transaction: Transaction,
        to: Transition,
        then: Callable[[ErrorCode], None],
        *,
        stays_pending: bool = False,
    ) -> None:
        """Append a change, and take it over when the record is replicated.

        `then` gets the error for a client. After an error nothing is pending; `stays_pending`: the caller
        appends the change again.
        """

        def done(error: ErrorCode) -> None:
            if not partition.holds(transaction):
                error = error or self._registry.error_of(partition.number)
            elif error:
                if not stays_pending:
                    transaction.pending = None
            else:
                try:
                    self.take_over(partition, transaction, to)
                except IllegalStateError:
                    self._log.exception("a record of the transactions' topic does not fit")
                    transaction.pending = None
                    error = ErrorCode.UNKNOWN_SERVER_ERROR
            then(error)

        record = record_of(transaction.transactional_id, to)
        self.append_records(partition, [record], to.timeout_ms, done)

    def take_over(self, partition: StatePartition, transaction: Transaction, to: Transition) -> None:
        """Take a change over that is in the log."""
        transaction.complete(to)
        self._stored(partition, transaction)

    def append_records(
        self,
        partition: StatePartition,
        records: Sequence[Record],
        timeout_ms: int,
        then: Callable[[ErrorCode], None],
    ) -> None:
        """Append one batch; `then` gets the error for a client."""
        try:
            appended = self._topic.append(
                partition.number, records, self._now_ms(), _ALL_IN_SYNC, max(timeout_ms, 0)
            )
        except Exception:  # noqa: BLE001 - a client waits for the answer
            self._log.exception("partition %d of the transactions' topic: an append failed", partition.number)
            then(ErrorCode.UNKNOWN_SERVER_ERROR)
            return

        def done(future: Future[Appended]) -> None:
            failure = future.exception()
            if failure is not None:
                self._log.error(
                    "partition %d of the transactions' topic: an append failed",
                    partition.number,
                    exc_info=failure,
                )
            with partition:
                then(
                    ErrorCode.UNKNOWN_SERVER_ERROR
                    if failure is not None
                    else _translated(future.result().error)
                )

        if isinstance(appended, Appended):
            then(_translated(appended.error))
        else:
            appended.add_done_callback(done)


def _translated(error: int) -> ErrorCode:
    return _ERRORS.get(error) or ErrorCode.known(error)

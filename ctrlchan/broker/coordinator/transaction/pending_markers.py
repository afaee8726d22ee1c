"""PendingMarkers: which broker gets which markers of ended transactions, until each partition has its marker.

Nothing here sends, waits or reads a clock: each method returns in ``Changes`` what its caller does next.
Source: ``TransactionMarkerChannelManager``, ``TransactionMarkerRequestCompletionHandler`` of Kafka 3.9.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from ctrlchan.broker.coordinator.common.partitions import TopicPartition
from ctrlchan.broker.coordinator.transaction.requests import EndedTransaction
from ctrlchan.errors import ErrorCode
from ctrlchan.log_context import ContextLogger
from ctrlchan.rate_limit import LogRateLimit

__all__ = ["UNKNOWN_BROKER", "Changes", "PartitionErrors", "PendingMarker", "PendingMarkers"]

_LOG: Final = logging.getLogger("ctrlchan.broker")

#: Of a partition whose leader is not known, or does not live.
UNKNOWN_BROKER: Final = -1

#: Errors of a partition's leader, by producer id.
PartitionErrors = Mapping[int, Mapping[TopicPartition, int]]

#: The partition has its marker, or can have none: its producer failed there.
_DONE: Final = frozenset(
    {ErrorCode.NONE, ErrorCode.UNSUPPORTED_VERSION, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT}
)
#: A newer epoch of the producer or of the coordinator has written to the partition, so the transaction is not
#: open there any more. Kafka sends no further marker of the whole transaction, which stays in its Prepare
#: state until the coordinator moves. Here the other partitions go on: a coordinator that was replaced cannot
#: write the Complete record that follows.
_FENCED: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})
_RETRIABLE: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)

#: Seconds before a marker is sent again: doubled with each attempt. Kafka sends at once.
_FIRST_PAUSE: Final = 0.02
_LONGEST_PAUSE: Final = 1.0
#: ... after an error that Kafka does not expect; there the transaction ends no more.
_UNEXPECTED_PAUSE: Final = 10.0


@dataclass(slots=True, eq=False)
class _Transaction:
    """An ended transaction. ``left``: partitions without a marker. ``is_over``: nobody waits for it."""

    ended: EndedTransaction
    then: Callable[[], None]
    left: set[TopicPartition]
    is_over: bool = False


@dataclass(slots=True, eq=False)
class PendingMarker:
    """The marker of a transaction for partitions that one broker leads. ``attempts``: made before."""

    transaction: _Transaction
    partitions: list[TopicPartition]
    attempts: int = 0

    @property
    def ended(self) -> EndedTransaction:
        return self.transaction.ended


@dataclass(slots=True)
class Changes:
    """What follows from a call.

    ``brokers``: there are markers to take for them. ``then``: is called, of transactions that are finished.
    ``pauses``: ``retry`` is called with the marker after so many seconds.
    """

    brokers: set[int] = field(default_factory=set)
    then: list[Callable[[], None]] = field(default_factory=list)
    pauses: list[tuple[float, PendingMarker]] = field(default_factory=list)


class PendingMarkers:
    """The markers of the transactions that this broker coordinates. The owner calls one method at a time.

    ``find_broker(partition, state_partition)`` returns the live leader of a partition, UNKNOWN_BROKER, or
    None: the partition is deleted. ``now_ns``: monotonic nanoseconds, for log lines.
    """

    def __init__(
        self,
        broker_id: int,
        find_broker: Callable[[TopicPartition, int], int | None],
        now_ns: Callable[[], int],
    ) -> None:
        self._log = ContextLogger(_LOG, f"[Transaction Marker Channel Manager {broker_id}]: ")
        self._answer_log = ContextLogger(
            _LOG, f"[Transaction Marker Request Completion Handler {broker_id}]: "
        )
        self._find_broker = find_broker
        self._now_ns = now_ns
        self._lines = LogRateLimit()
        #: By partition of ``__transaction_state``, by transactional id.
        self._transactions: dict[int, dict[str, _Transaction]] = {}
        #: What each broker gets next.
        self._queues: dict[int, list[PendingMarker]] = {}
        #: Those that ``retry`` is called with. True: other metadata may help.
        self._pauses: dict[PendingMarker, bool] = {}

    def __len__(self) -> int:
        """Return how many transactions have partitions without a marker."""
        return sum(map(len, self._transactions.values()))

    def __bool__(self) -> bool:
        """Whether there is such a transaction. Any thread may ask."""
        return bool(self._transactions)

    @property
    def unknown_destinations(self) -> int:
        """The number of markers whose leader is not known (``UnknownDestinationQueueSize``)."""
        return sum(1 for marker, waits in self._pauses.items() if waits and not marker.transaction.is_over)

    def add(self, ended: EndedTransaction, then: Callable[[], None]) -> Changes:
        """Send a transaction's markers, in place of those of an earlier transaction with its id."""
        own = self._transactions.setdefault(ended.state_partition, {})
        earlier = own.get(ended.transactional_id)
        if earlier is not None:
            self._log.info(
                "the markers of transactional id %r are replaced by newer ones", ended.transactional_id
            )
            earlier.is_over = True
        transaction = _Transaction(ended, then, set(ended.partitions))
        own[ended.transactional_id] = transaction
        changes = Changes()
        self._route(transaction, ended.partitions, 0, changes)
        self._finish(transaction, changes)
        return changes

    def forget(self, state_partition: int) -> None:
        """Send no further markers of a partition of ``__transaction_state``: another broker does."""
        for transaction in self._transactions.pop(state_partition, {}).values():
            transaction.is_over = True

    def take(self, broker: int, most: int) -> list[PendingMarker]:
        """Return what a broker gets now: one marker of each transaction, for about ``most`` partitions."""
        queue = self._queues.get(broker)
        if not queue:
            return []
        taken: dict[_Transaction, PendingMarker] = {}
        count = place = 0
        for marker in queue:
            place += 1
            if not marker.transaction.is_over:
                count += len(marker.partitions)
                known = taken.setdefault(marker.transaction, marker)
                if known is not marker:
                    known.partitions += marker.partitions
                    known.attempts = max(known.attempts, marker.attempts)
                if count >= most:
                    break
        del queue[:place]
        if not queue:
            del self._queues[broker]
        return list(taken.values())

    def answered(self, broker: int, sent: Iterable[PendingMarker], errors: PartitionErrors) -> Changes:
        """Take a broker's answer. A partition that it does not name has not got its marker."""
        changes = Changes()
        for marker in sent:
            if not marker.transaction.is_over:
                self._take_errors(broker, marker, errors.get(marker.ended.producer.producer_id, {}), changes)
        return changes

    def failed(self, sent: Iterable[PendingMarker]) -> Changes:
        """Have markers sent again, to the leaders of that time: a broker has not answered."""
        changes = Changes()
        for marker in sent:
            if not marker.transaction.is_over:
                self._pause(marker, _pause_before(marker.attempts), changes, waits_for_metadata=True)
        return changes

    def retry(self, marker: PendingMarker) -> Changes:
        """Send a marker whose pause is over, unless that was done."""
        changes = Changes()
        if marker in self._pauses:
            self._resume(marker, changes)
        return changes

    def metadata_changed(self) -> Changes:
        """Send the markers that wait for a leader and have one now."""
        changes = Changes()
        for marker in [marker for marker, waits in self._pauses.items() if waits]:
            self._resume(marker, changes)
        return changes

    # -- steps

    def _resume(self, marker: PendingMarker, changes: Changes) -> None:
        del self._pauses[marker]
        transaction = marker.transaction
        if not transaction.is_over:
            self._route(transaction, marker.partitions, marker.attempts, changes)
            self._finish(transaction, changes)

    def _route(
        self,
        transaction: _Transaction,
        partitions: Collection[TopicPartition],
        attempts: int,
        changes: Changes,
    ) -> None:
        """Queue a marker for the leaders of these partitions. A deleted partition needs none."""
        ended = transaction.ended
        by_broker: dict[int | None, list[TopicPartition]] = {}
        for partition in partitions:
            broker = self._find_broker(partition, ended.state_partition)
            by_broker.setdefault(broker, []).append(partition)
        deleted = by_broker.pop(None, None)
        if deleted:
            transaction.left.difference_update(deleted)
            self._log.info(
                "transactional id %r needs no markers in deleted partitions: %s",
                ended.transactional_id,
                ", ".join(map(str, deleted)),
            )
        for broker, own in by_broker.items():
            assert broker is not None
            marker = PendingMarker(transaction, own, attempts)
            if broker == UNKNOWN_BROKER:
                self._pause(marker, _LONGEST_PAUSE, changes, waits_for_metadata=True)
            else:
                self._queues.setdefault(broker, []).append(marker)
                changes.brokers.add(broker)

    def _take_errors(
        self, broker: int, marker: PendingMarker, errors: Mapping[TopicPartition, int], changes: Changes
    ) -> None:
        transaction = marker.transaction
        again: list[TopicPartition] = []
        unexpected: list[TopicPartition] = []
        for partition in marker.partitions:
            error = errors.get(partition, ErrorCode.UNKNOWN_SERVER_ERROR)
            if error in _DONE:
                transaction.left.discard(partition)
                continue
            if error in _FENCED:
                transaction.left.discard(partition)
            else:
                (again if error in _RETRIABLE else unexpected).append(partition)
            self._log_error(broker, marker, partition, error)
        for partitions, pause in ((again, _pause_before(marker.attempts)), (unexpected, _UNEXPECTED_PAUSE)):
            if partitions:
                self._pause(
                    PendingMarker(transaction, partitions, marker.attempts),
                    pause,
                    changes,
                    waits_for_metadata=partitions is again,
                )
        self._finish(transaction, changes)

    def _pause(
        self, marker: PendingMarker, seconds: float, changes: Changes, *, waits_for_metadata: bool
    ) -> None:
        marker.attempts += 1
        self._pauses[marker] = waits_for_metadata
        changes.pauses.append((seconds, marker))

    def _finish(self, transaction: _Transaction, changes: Changes) -> None:
        """Hand out ``then`` of a transaction that has all its markers."""
        if transaction.left or transaction.is_over:
            return
        transaction.is_over = True
        ended = transaction.ended
        own = self._transactions[ended.state_partition]
        del own[ended.transactional_id]
        if not own:
            del self._transactions[ended.state_partition]
        changes.then.append(transaction.then)

    def _log_error(self, broker: int, marker: PendingMarker, partition: TopicPartition, error: int) -> None:
        left_out = self._lines.admit(broker, self._now_ns())
        if left_out is None:
            return
        is_expected = error in _RETRIABLE or error in _FENCED
        self._answer_log.log(
            logging.INFO if is_expected else logging.ERROR,
            "the marker of transactional id %r (producer %d, epoch %d) for %s-%d at broker %d: %s; %s%s",
            marker.ended.transactional_id,
            marker.ended.producer.producer_id,
            marker.ended.producer.epoch,
            partition.topic,
            partition.partition,
            broker,
            ErrorCode.name_of(error),
            "the transaction is not open there any more" if error in _FENCED else "it is sent again",
            left_out,
        )


def _pause_before(attempts: int) -> float:
    """Return the seconds before the next attempt, after so many."""
    return min(_LONGEST_PAUSE, _FIRST_PAUSE * (1 << min(attempts, 10)))

"""The requests of transactional producers, and the leadership of partitions of ``__transaction_state``.

Source: ``kafka.coordinator.transaction.{TransactionCoordinator,TransactionStateManager}``.
"""

from __future__ import annotations

import logging
import math
from collections import Counter, deque
from collections.abc import Callable, Collection
from concurrent.futures import Future
from functools import partial
from typing import Final, Protocol

from ctrlchan.broker.config.transaction_config import TransactionConfig
from ctrlchan.broker.coordinator.common.partitions import TopicPartition
from ctrlchan.broker.coordinator.common.timing_wheel import Timers
from ctrlchan.broker.coordinator.common.topic import CoordinatorTopic
from ctrlchan.broker.coordinator.transaction.ending import Ending, Markers
from ctrlchan.broker.coordinator.transaction.expiration import IdExpiration, Timeouts
from ctrlchan.broker.coordinator.transaction.first_batches import FirstBatches
from ctrlchan.broker.coordinator.transaction.gates import Gates
from ctrlchan.broker.coordinator.transaction.ids import TransactionalIds
from ctrlchan.broker.coordinator.transaction.late_ends import LateEnds
from ctrlchan.broker.coordinator.transaction.loading import load_transactions
from ctrlchan.broker.coordinator.transaction.registry import StatePartition, TransactionRegistry
from ctrlchan.broker.coordinator.transaction.requests import (
    NO_CONNECTION,
    NO_EPOCH,
    InitResult,
    ProducerIdentity,
    TransactionDescription,
    TransactionFigures,
    TransactionListing,
)
from ctrlchan.broker.coordinator.transaction.states import (
    EXPIRABLE,
    PREPARED,
    TransactionState,
    state_named,
)
from ctrlchan.broker.coordinator.transaction.store import TransactionStore
from ctrlchan.broker.coordinator.transaction.transaction import Transaction, is_exhausted
from ctrlchan.errors import ErrorCode, KafkaError
from ctrlchan.log_context import ContextLogger

__all__ = ["ProducerIdSource", "TransactionCoordinator"]

_LOG = logging.getLogger(__name__)

_FIRST_EPOCH: Final = 0
#: Bytes of a transactional id that a record can have.
_LONGEST_ID: Final = 2**15 - 1
#: Seconds for which a request waits for the markers of the producer's last transaction. Markers of other
#: brokers, and a busy machine, take milliseconds; clients wait for an answer for many seconds.
_WAIT_FOR_MARKERS: Final = 0.5
#: Milliseconds for which the time of a loaded partition counts in the figures.
_LOADS_WINDOW: Final = 30_000
_LOADS: Final = 1_000

InitCallback = Callable[[InitResult], None]
ErrorCallback = Callable[[ErrorCode], None]

_ENDED: Final = frozenset({TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})
_COMMITTED: Final = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT})


class ProducerIdSource(Protocol):
    """Hands out producer ids."""

    def take(self) -> Future[int]:
        """Return the future of an id that nobody has; it fails with KafkaError if no id can be had."""


class TransactionCoordinator:
    """The coordinator of the transactional ids whose partition of ``__transaction_state`` this broker leads.

    Any thread may call every method. The thread that brings an answer calls the callback, once and without
    a lock. `now_ms` returns milliseconds since 1970. `gates`: where processors may end transactions.
    """

    def __init__(
        self,
        broker_id: int,
        config: TransactionConfig,
        topic: CoordinatorTopic,
        producer_ids: ProducerIdSource,
        markers: Markers,
        first_batches: FirstBatches,
        timers: Timers,
        now_ms: Callable[[], int],
        gates: Gates | None = None,
    ) -> None:
        self._log = ContextLogger(_LOG, f"[TransactionCoordinator id={broker_id}] ")
        # Of what Kafka has in its TransactionStateManager.
        self._state_log = ContextLogger(_LOG, f"[Transaction State Manager {broker_id}]: ")
        self._config = config
        self._topic = topic
        self._gates = gates
        self._producer_ids = producer_ids
        self._markers = markers
        self._first_batches = first_batches
        self._timers = timers
        self._now_ms = now_ms
        self._registry = TransactionRegistry(config.topic_partitions, self._open)
        self._store = TransactionStore(topic, self._registry, now_ms, self._stored, self._state_log)
        self._ending = Ending(self._store, markers, first_batches, timers, now_ms, self._log)
        self._timeouts = Timeouts(config, timers, now_ms, self._ending.abort, self._log)
        self._expiration = IdExpiration(config, timers, now_ms, self._store, self._state_log)
        self._active = False
        self._late_ends = LateEnds(now_ms, self._log)
        # When a partition was loaded, and how long that took.
        self._loads: deque[tuple[int, int]] = deque(maxlen=_LOADS)

    # Life cycle and leadership

    def start(self) -> None:
        """Answer ListTransactions and DescribeTransactions from now on. Others only need a partition."""
        self._active = True

    def close(self) -> None:
        """Forget all partitions: requests get NOT_COORDINATOR from now on."""
        self._active = False
        for number in self._registry.numbers():
            self.resigned(number, None)

    def use_partitions(self, count: int) -> None:
        """Take `count` for the number of partitions of ``__transaction_state``, instead of the setting."""
        self._registry.count = count

    def partition_for(self, transactional_id: str) -> int:
        """Return the partition of ``__transaction_state`` whose leader is the id's coordinator."""
        return self._registry.partition_for(transactional_id)

    def begin_loading(self, number: int, epoch: int) -> Callable[[], bool] | None:
        """Answer COORDINATOR_LOAD_IN_PROGRESS for a partition that this broker leads since epoch `epoch`.

        Return what loads it: it reads the whole partition, so it is called on a background thread. It returns
        False if the log cannot be read, and may be called again. None: the partition is or was loaded in this
        epoch, or the epoch is old.
        """
        begun = self._registry.begin_loading(number, epoch)
        if begun is None:
            return None
        partition, earlier = begun
        if earlier is not None:
            self._forget(earlier)
        return partial(self._load, partition, self._now_ms())

    def _open(self, number: int, epoch: int) -> StatePartition:
        partition = StatePartition(number, epoch, self._ending.take_over, self._state_log)
        if self._gates is not None:
            partition.gate = self._gates.open(number, epoch, partition.settle)
        return partition

    def elected(self, number: int, epoch: int) -> None:
        """Load the transactional ids of a partition that this broker leads since leader epoch `epoch`."""
        load = self.begin_loading(number, epoch)
        if load is not None:
            load()

    def resigned(self, number: int, epoch: int | None) -> None:
        """Forget the ids of a partition that another broker leads; `epoch` None: the replica is gone.

        Nothing is appended for them once this has returned.
        """
        partition = self._registry.take_away(number, epoch)
        if partition is not None:
            self._forget(partition)

    def _forget(self, partition: StatePartition) -> None:
        with partition:
            partition.is_active = False
            for transaction in partition.transactions.used():
                if transaction.state is TransactionState.ONGOING:
                    transaction.take_end_right_back()
                    self._first_batches.withdraw(transaction.producer_id, transaction.partitions)
            if partition.gate is not None:
                partition.gate.close()
            # Timers of transactions, and of requests that wait, find that they are gone.
            partition.transactions, partition.idle = TransactionalIds(), {}
            if partition.expiration is not None:
                partition.expiration.cancel()
        self._markers.forget(partition.number)

    def _load(self, partition: StatePartition, begun_ms: int) -> bool:
        number = partition.number
        if not self._registry.is_loading(partition):
            return True  # another broker leads it
        try:
            loaded = load_transactions(
                number,
                partial(self._topic.read, number),
                lambda: self._registry.is_loading(partition),
                self._state_log,
            )
        except Exception:  # noqa: BLE001 - Kafka serves what it has read so far, which ends open transactions
            self._state_log.exception("partition %d of the transactions' topic cannot be loaded", number)
            return False
        with partition:
            if not self._registry.end_loading(partition):
                return True
            partition.is_active = True
            partition.transactions = TransactionalIds(loaded)
            self._expiration.loaded(partition)
            for transaction in partition.transactions.used():
                if transaction.state in PREPARED:
                    self._ending.write_markers(partition, transaction)
                elif transaction.state is TransactionState.ONGOING:
                    self._timeouts.watch(partition, transaction)
        now_ms = self._now_ms()
        self._loads.append((now_ms, now_ms - begun_ms))
        self._state_log.info(
            "partition %d of the transactions' topic: %d transactional ids loaded", number, len(loaded)
        )
        return True

    def _stored(self, partition: StatePartition, transaction: Transaction) -> None:
        """Take note of a change that is in the log. Requires the lock of the partition."""
        self._expiration.changed(partition, transaction)
        if transaction.state is TransactionState.ONGOING:
            self._timeouts.watch(partition, transaction)
        elif transaction.waiting and transaction.state in _ENDED:
            waiting, transaction.waiting = transaction.waiting, ()
            for call, timer in waiting:
                timer.cancel()
                partition.after(lambda each: each(), call)

    # Producers

    def init_producer_id(
        self,
        transactional_id: str | None,
        timeout_ms: int,
        expected: ProducerIdentity | None,
        answer: InitCallback,
    ) -> None:
        """InitProducerId. `expected`: what the producer believes to be, of version 3 and later."""
        if transactional_id is None:
            self._take_producer_id(
                answer, lambda taken: answer(InitResult(ErrorCode.NONE, taken, _FIRST_EPOCH))
            )
        elif not transactional_id:
            answer(InitResult(ErrorCode.INVALID_REQUEST))
        elif not 0 < timeout_ms <= self._config.max_timeout:
            answer(InitResult(ErrorCode.INVALID_TRANSACTION_TIMEOUT))
        elif len(transactional_id.encode("utf-8", "replace")) > _LONGEST_ID:
            self._log.warning("transactional id %.100r is too long to be stored", transactional_id)
            answer(InitResult(ErrorCode.UNKNOWN_SERVER_ERROR))
        else:
            self._init(transactional_id, timeout_ms, expected, answer, None)

    def _init(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: ProducerIdentity | None,
        answer: InitCallback,
        new_id: int | None,
        *,
        waits: bool = True,
    ) -> None:
        """Initialize a producer. `new_id`: a producer id that was taken for it, if it needs one.

        `waits`: for the markers of the last transaction, as ``add_partitions``.
        """
        partition = self._registry.find(transactional_id)
        if isinstance(partition, ErrorCode):
            answer(InitResult(partition))
            return
        with partition:
            if not partition.is_active:
                partition.after(answer, InitResult(self._registry.error_of(partition.number)))
                return
            transaction = partition.transactions.get(transactional_id)
            if new_id is None and _needs_producer_id(transaction, expected):
                again = partial(self._init, transactional_id, timeout_ms, expected, answer)
                partition.after(partial(self._take_producer_id, answer), again)
                return
            if (
                waits
                and transaction is not None
                and transaction.state in PREPARED
                and (expected is None or transaction.accepts(expected))
            ):
                init = partial(self._init, transactional_id, timeout_ms, expected, answer, None, waits=False)
                self._wait_for_end(partition, transaction, init)
                return
            if transaction is None:
                assert new_id is not None
                transaction = Transaction(transactional_id, new_id, NO_EPOCH, timeout_ms, self._now_ms())
                partition.transactions.add(transaction)
                self._expiration.changed(partition, transaction)
            error = self._init_known(partition, transaction, timeout_ms, expected, answer, new_id)
            if error:
                partition.after(answer, InitResult(error))

    def _init_known(
        self,
        partition: StatePartition,
        transaction: Transaction,
        timeout_ms: int,
        expected: ProducerIdentity | None,
        answer: InitCallback,
        new_id: int | None,
    ) -> ErrorCode:
        """Append what makes the producer the current one, or return the error."""
        if transaction.pending is not None:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        if expected is not None and not transaction.accepts(expected):
            return ErrorCode.PRODUCER_FENCED
        if transaction.state in PREPARED:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        if transaction.state is TransactionState.ONGOING:
            # The client sends the request again, and gets the epoch after the one that fences.
            self._ending.abort(
                partition,
                transaction,
                lambda error: partition.after(answer, InitResult(error or ErrorCode.CONCURRENT_TRANSACTIONS)),
            )
            return ErrorCode.NONE
        now_ms = self._now_ms()
        if new_id is not None and _needs_producer_id(transaction, expected):
            to = transaction.prepare_producer_id(
                new_id, timeout_ms, now_ms, keeps_last_epoch=expected is not None
            )
        elif is_exhausted(transaction.epoch):
            self._log.warning(
                "transactional id %.100r: its epochs are exhausted", transaction.transactional_id
            )
            return ErrorCode.UNKNOWN_SERVER_ERROR
        else:
            expected_epoch = None if expected is None else expected.epoch
            bumped = transaction.prepare_epoch(timeout_ms, expected_epoch, now_ms)
            if bumped is None:
                return ErrorCode.PRODUCER_FENCED
            to = bumped

        def done(error: ErrorCode) -> None:
            result = InitResult(error) if error else InitResult(error, to.producer_id, to.epoch)
            partition.after(answer, result)

        self._store.append(partition, transaction, to, done)
        return ErrorCode.NONE

    def _take_producer_id(self, answer: InitCallback, then: Callable[[int], None]) -> None:
        """Call `then` with a producer id that nobody has, or answer with the error."""

        def done(taken: Future[int]) -> None:
            failure = taken.exception()
            if failure is None:
                then(taken.result())
            elif isinstance(failure, KafkaError):
                answer(InitResult(ErrorCode.known(failure.code)))
            else:
                self._log.error("no producer id can be had", exc_info=failure)
                answer(InitResult(ErrorCode.UNKNOWN_SERVER_ERROR))

        self._producer_ids.take().add_done_callback(done)

    # Transactions

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Collection[TopicPartition],
        answer: ErrorCallback,
        connection: int = NO_CONNECTION,
    ) -> None:
        """AddPartitionsToTxn and AddOffsetsToTxn: the first partitions begin the transaction.

        While the markers of the producer's last transaction are being written, the request waits for a short
        time. Kafka answers CONCURRENT_TRANSACTIONS at once.
        """
        self._add(transactional_id, producer, partitions, answer, connection, waits=True)

    def _add(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Collection[TopicPartition],
        answer: ErrorCallback,
        connection: int,
        *,
        waits: bool,
    ) -> None:
        found = self._find(transactional_id)
        if isinstance(found, ErrorCode):
            answer(found)
            return
        partition, transaction = found
        with partition:
            error = self._error_of(partition, transaction, producer)
            if not error:
                if waits and transaction.state in PREPARED:
                    add = partial(self._add, transactional_id, producer, partitions, answer, connection)
                    self._wait_for_end(partition, transaction, partial(add, waits=False))
                    return
                if transaction.pending is not None or transaction.state in PREPARED:
                    error = ErrorCode.CONCURRENT_TRANSACTIONS
                elif transaction.state is not TransactionState.ONGOING or not (
                    transaction.partitions.issuperset(partitions)
                ):
                    if transaction.state is not TransactionState.ONGOING:
                        transaction.connection = connection
                    self._append_partitions(partition, transaction, producer, partitions, answer)
                    return
            partition.after(answer, error)

    def _append_partitions(
        self,
        partition: StatePartition,
        transaction: Transaction,
        producer: ProducerIdentity,
        partitions: Collection[TopicPartition],
        answer: ErrorCallback,
    ) -> None:
        """Add partitions to the transaction. Requires the lock of the partition."""
        to = transaction.prepare_partitions(partitions, self._now_ms())
        begun = self._first_batches.begin(producer, to.partitions - transaction.partitions)

        def done(error: ErrorCode) -> None:
            if not error:
                self._first_batches.confirm(transaction.transactional_id, producer, begun)
                is_strict = self._config.refuses_late_ends
                first_connection = transaction.connection if is_strict else NO_CONNECTION
                self._ending.lend(partition, transaction, first_connection)
            partition.after(answer, error)

        self._store.append(partition, transaction, to, done)

    def _wait_for_end(
        self, partition: StatePartition, transaction: Transaction, call: Callable[[], None]
    ) -> None:
        """Call `call` once: when the transaction is complete, or soon. Requires the lock of the partition."""
        stop = partial(self._stop_waiting, partition, transaction, call)
        transaction.waiting += ((call, self._timers.after(_WAIT_FOR_MARKERS, stop)),)

    def _stop_waiting(
        self, partition: StatePartition, transaction: Transaction, call: Callable[[], None]
    ) -> None:
        with partition:
            left = tuple(each for each in transaction.waiting if each[0] is not call)
            if len(left) < len(transaction.waiting):  # else the transaction is complete
                transaction.waiting = left
                partition.after(lambda each: each(), call)

    def verify_partitions(
        self, transactional_id: str, producer: ProducerIdentity, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """AddPartitionsToTxn that only verifies: TRANSACTION_ABORTABLE for partitions that were not added."""
        found = self._find(transactional_id)
        if isinstance(found, ErrorCode):
            return dict.fromkeys(partitions, found)
        partition, transaction = found
        with partition:
            error = self._error_of(partition, transaction, producer)
            # Nobody asks whether a change is being appended: the append of the records is checked again.
            if not error and transaction.state in PREPARED:
                error = ErrorCode.CONCURRENT_TRANSACTIONS
            if error:
                return dict.fromkeys(partitions, error)
            added = transaction.partitions
            return {
                each: ErrorCode.NONE if each in added else ErrorCode.TRANSACTION_ABORTABLE
                for each in partitions
            }

    def end(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        commit: bool,
        answer: ErrorCallback,
        connection: int = NO_CONNECTION,
    ) -> None:
        """EndTxn: answered when the decision is in the log; the markers follow.

        A request that is repeated meanwhile waits for them for a short time, as ``add_partitions``.

        A request on a connection older than the one that has begun the transaction is of an earlier
        transaction, whose end the client has asked for again meanwhile. Kafka ends the wrong transaction then
        (KAFKA-17754). Here it gets INVALID_TXN_STATE.
        """
        self._end(transactional_id, producer, commit, answer, connection, waits=True)

    def _end(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        commit: bool,
        answer: ErrorCallback,
        connection: int,
        *,
        waits: bool,
    ) -> None:
        found = self._find(transactional_id)
        if isinstance(found, ErrorCode):
            answer(found)
            return
        partition, transaction = found
        with partition:
            error = self._error_of(partition, transaction, producer)
            is_repeated = transaction.state in PREPARED and (transaction.state in _COMMITTED) is commit
            if not error and waits and is_repeated:
                end = partial(self._end, transactional_id, producer, commit, answer, connection)
                self._wait_for_end(partition, transaction, partial(end, waits=False))
                return
            if not error and transaction.pending is not None:
                error = ErrorCode.CONCURRENT_TRANSACTIONS
            if not error and transaction.state is TransactionState.ONGOING:
                if self._config.refuses_late_ends and NO_CONNECTION < connection < transaction.connection:
                    self._late_ends.add(transactional_id)
                    partition.after(answer, ErrorCode.INVALID_TXN_STATE)
                    return
                self._ending.end(partition, transaction, partial(partition.after, answer), commit=commit)
                return
            partition.after(answer, error or _error_of_end(transaction.state, commit=commit))

    # Transactional ids

    def describe(self, transactional_id: str) -> TransactionDescription:
        """DescribeTransactions, for one id."""
        if not self._active:
            return TransactionDescription(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        found = self._find(transactional_id)
        if isinstance(found, ErrorCode):
            if found is ErrorCode.INVALID_PRODUCER_ID_MAPPING:
                found = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
            return TransactionDescription(found)
        partition, transaction = found
        with partition:
            if not partition.is_active:
                return TransactionDescription(self._registry.error_of(partition.number))
            return TransactionDescription(
                ErrorCode.NONE,
                transaction.state.value,
                transaction.timeout_ms,
                transaction.start_ms,
                transaction.producer_id,
                transaction.epoch,
                transaction.partitions,
            )

    def list(
        self, states: Collection[str], producer_ids: Collection[int], longer_than_ms: int
    ) -> tuple[ErrorCode, list[str], list[TransactionListing]]:
        """ListTransactions: error, names of `states` that no state has, and the ids that pass all filters.

        An empty collection and a negative time are no filter.
        """
        if not self._active:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, [], []
        if self._registry.loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [], []
        wanted = {name: state_named(name) for name in states}
        known = {state for state in wanted.values() if state is not None} if states else set(TransactionState)
        now_ms = self._now_ms()
        listings = []
        for partition in self._registry.served():
            with partition:
                listings += [
                    TransactionListing(each.transactional_id, each.producer_id, each.state.value)
                    for each in partition.transactions.in_states(known)
                    if (not producer_ids or each.producer_id in producer_ids)
                    and (longer_than_ms < 0 or now_ms - each.start_ms > longer_than_ms)
                ]
        return ErrorCode.NONE, [name for name, state in wanted.items() if state is None], listings

    # Figures

    def figures(self) -> TransactionFigures:
        """Return how many transactional ids there are, and how long partitions took to load."""
        states: Counter[str] = Counter({state.value: 0 for state in TransactionState})
        for partition in self._registry.served():
            with partition:
                states.update(state.value for state in partition.transactions.states())
        earliest = self._now_ms() - _LOADS_WINDOW
        loads = [duration for ended, duration in tuple(self._loads) if ended >= earliest]
        return TransactionFigures(
            states,
            self._ending.unfinished,
            self._late_ends.count,
            max(loads, default=math.nan),
            sum(loads) / len(loads) if loads else math.nan,
        )

    def _find(self, transactional_id: str) -> tuple[StatePartition, Transaction] | ErrorCode:
        """Return the id's transaction with its partition, or the error of a request that needs it."""
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        partition = self._registry.find(transactional_id)
        if isinstance(partition, ErrorCode):
            return partition
        transaction = partition.transactions.find(transactional_id)
        if transaction is not None:
            return partition, transaction
        with partition:  # it may not have been used yet, have just been loaded, or have resigned
            transaction = partition.transactions.get(transactional_id)
            if transaction is not None:
                return partition, transaction
            return (
                ErrorCode.INVALID_PRODUCER_ID_MAPPING
                if partition.is_active
                else self._registry.error_of(partition.number)
            )

    def _error_of(
        self, partition: StatePartition, transaction: Transaction, producer: ProducerIdentity
    ) -> ErrorCode:
        """Return why the producer is not the current one of the id. Requires the lock of the partition."""
        if not partition.holds(transaction):
            return (
                ErrorCode.INVALID_PRODUCER_ID_MAPPING  # it has just expired
                if partition.is_active
                else self._registry.error_of(partition.number)
            )
        if transaction.producer_id != producer.producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        return ErrorCode.NONE if transaction.epoch == producer.epoch else ErrorCode.PRODUCER_FENCED


def _needs_producer_id(transaction: Transaction | None, expected: ProducerIdentity | None) -> bool:
    """Whether InitProducerId needs another producer id: the id is new, or its epochs are exhausted."""
    if transaction is None:
        return True
    return (
        is_exhausted(transaction.epoch)
        and transaction.pending is None
        and transaction.state in EXPIRABLE
        and (expected is None or (expected.epoch == transaction.epoch and transaction.accepts(expected)))
    )


def _error_of_end(state: TransactionState, *, commit: bool) -> ErrorCode:
    """Return the result of an EndTxn in a state other than Ongoing: the request may be repeated."""
    if state is TransactionState.EMPTY or (state in _COMMITTED) is not commit:
        return ErrorCode.INVALID_TXN_STATE
    return ErrorCode.CONCURRENT_TRANSACTIONS if state in PREPARED else ErrorCode.NONE

"""A transaction coordinator with a simulated clock, logs in memory, and markers that tests write."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

from ctrlchan.broker.config.transaction_config import TransactionConfig
from ctrlchan.broker.coordinator.common.partitions import TopicPartition
from ctrlchan.broker.coordinator.common.timing_wheel import TimingWheel
from ctrlchan.broker.coordinator.common.topic import Appended, BatchProducer, Record, StoredBatch
from ctrlchan.broker.coordinator.transaction.coordinator import TransactionCoordinator
from ctrlchan.broker.coordinator.transaction.end_rights import EndRight
from ctrlchan.broker.coordinator.transaction.first_batches import ConfirmedPartition, FirstBatches
from ctrlchan.broker.coordinator.transaction.gates import Decision
from ctrlchan.broker.coordinator.transaction.records import read_value, record_of
from ctrlchan.broker.coordinator.transaction.requests import (
    NO_EPOCH,
    EndedTransaction,
    InitResult,
    ProducerIdentity,
)
from ctrlchan.broker.coordinator.transaction.states import TransactionState
from ctrlchan.broker.coordinator.transaction.transaction import Transaction, Transition
from ctrlchan.errors import ErrorCode
from tests.unit.broker.coordinator.support import BROKER, START_MS, Answer

ID = "transactional-id"
TIMEOUT = 1_000
#: For how long a request waits for the markers of the last transaction.
WAIT_MS = 500
FIRST, SECOND = TopicPartition("topic1", 0), TopicPartition("topic1", 1)
BOTH = frozenset({FIRST, SECOND})
ALONE = frozenset({FIRST})
NONE = ErrorCode.NONE

CONFIG = replace(TransactionConfig(), topic_partitions=2)


@dataclass
class MemoryTopic:
    """``__transaction_state`` in memory.

    ``error``: of the next appends. ``held``: the appends that wait for ``release``, when it is not None.
    """

    batches: dict[int, list[StoredBatch]] = field(default_factory=dict)
    appended: list[tuple[int, list[Record], int, int, int | None]] = field(default_factory=list)
    error: int = 0
    held: list[tuple[Future[Appended], Appended]] | None = None
    failing_reads: int = 0

    def append(
        self,
        partition: int,
        records: Sequence[Record],
        timestamp: int,
        acks: int,
        timeout_ms: int | None = None,
        producer: BatchProducer | None = None,
    ) -> Appended | Future[Appended]:
        result = Appended(self.error)
        if not self.error:
            log = self.batches.setdefault(partition, [])
            result = Appended(0, len(log))
            log.append(StoredBatch(len(log), list(records)))
            self.appended.append((partition, list(records), timestamp, acks, timeout_ms))
        if self.held is None:
            return result
        future: Future[Appended] = Future()
        self.held.append((future, result))
        return future

    def release(self, error: int | None = None) -> None:
        """End the appends that wait."""
        assert self.held is not None
        held, self.held = self.held, None
        for future, result in held:
            future.set_result(result if error is None else Appended(error))

    def read(self, partition: int, into: dict[str, Any] | None = None) -> Iterable[StoredBatch]:
        if self.failing_reads:
            self.failing_reads -= 1
            raise OSError("the disk")
        yield from list(self.batches.get(partition, []))

    def stored(self, transactional_id: str = ID) -> list[Transaction | None]:
        """Return what the records of the id say, None for a tombstone."""
        key = b"\0\0" + len(transactional_id).to_bytes(2, "big") + transactional_id.encode()
        return [
            None if record.value is None else read_value(transactional_id, record.value)
            for _, records, *_ in self.appended
            for record in records
            if record.key == key
        ]

    def states(self, transactional_id: str = ID) -> list[str]:
        """Return the states that were appended."""
        stored = self.stored(transactional_id)
        return ["tombstone" if each is None else each.state.value for each in stored]


@dataclass
class MemoryMarkers:
    """Markers that wait for ``write``, or are written at once (``at_once``)."""

    at_once: bool = False
    sent: list[tuple[EndedTransaction, Callable[[], None]]] = field(default_factory=list)
    forgotten: list[int] = field(default_factory=list)

    def send(self, ended: EndedTransaction, then: Callable[[], None], is_current: Callable[[], bool]) -> None:
        self.sent.append((ended, then))
        if self.at_once:
            then()

    def forget(self, partition: int) -> None:
        self.forgotten.append(partition)

    def write(self, place: int = -1) -> EndedTransaction:
        """Write the markers of a transaction that was sent."""
        ended, then = self.sent.pop(place)
        then()
        return ended


@dataclass(eq=False)
class MemoryGate:
    """The gate of one partition. ``end`` is what a processor does with the right to end a transaction."""

    topic: MemoryTopic
    number: int
    epoch: int
    settle: Callable[[], None]
    is_entered: bool = False
    is_closed: bool = False
    rights: dict[str, MemoryRight] = field(default_factory=dict)
    decisions: list[Decision] = field(default_factory=list)

    def enter(self) -> Sequence[Decision]:
        assert not self.is_entered
        self.is_entered = True
        decisions, self.decisions = self.decisions, []
        return decisions

    def leave(self) -> None:
        assert self.is_entered
        self.is_entered = False

    def lends(self) -> bool:
        return self.topic.held is None

    def lend(self, transaction: Transaction, commit: Record, first_connection: int) -> EndRight:
        assert self.is_entered
        assert not self.is_closed
        assert transaction.transactional_id not in self.rights
        right = MemoryRight(self, transaction, commit, first_connection)
        self.rights[transaction.transactional_id] = right
        return right

    def close(self) -> None:
        assert self.is_entered
        assert not self.rights
        self.is_closed = True

    def end(self, transactional_id: str, producer: ProducerIdentity, commit: bool, now_ms: int) -> bool:
        """Return whether the transaction is ended; if not, the coordinator is asked."""
        right = self.rights.get(transactional_id)
        if self.is_entered or right is None:
            return False
        transaction = right.transaction
        if producer != (transaction.producer_id, transaction.epoch) or self.topic.held is not None:
            return False
        # What the record says, and not what the coordinator knows by now.
        assert right.commit.value is not None
        stored = read_value(transactional_id, right.commit.value)
        state = TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT
        to = Transition(
            state,
            stored.producer_id,
            stored.producer_id,
            stored.epoch,
            NO_EPOCH,
            stored.timeout_ms,
            stored.partitions,
            stored.start_ms,
            now_ms,
        )
        appended = self.topic.append(self.number, [record_of(transactional_id, to)], now_ms, -1)
        if not isinstance(appended, Appended) or appended.error:
            return False
        del self.rights[transactional_id]
        self.decisions.append(Decision(transaction, commit, now_ms))
        return True


@dataclass(eq=False)
class MemoryRight:
    gate: MemoryGate
    transaction: Transaction
    commit: Record
    first_connection: int

    def take_back(self) -> None:
        assert self.gate.is_entered
        del self.gate.rights[self.transaction.transactional_id]


@dataclass
class MemoryGates:
    """The gates of a broker; the last one of a partition counts."""

    topic: MemoryTopic
    opened: dict[int, MemoryGate] = field(default_factory=dict)

    def open(self, number: int, epoch: int, settle: Callable[[], None]) -> MemoryGate:
        gate = self.opened[number] = MemoryGate(self.topic, number, epoch, settle)
        return gate


@dataclass
class ProducerIds:
    """Producer ids from 10 on. ``held``: those that wait, when it is not None."""

    following: int = 10
    error: Exception | None = None
    held: list[Future[int]] | None = None

    def take(self) -> Future[int]:
        future: Future[int] = Future()
        if self.held is not None:
            self.held.append(future)
        else:
            self.give(future)
        return future

    def give(self, future: Future[int]) -> None:
        if self.error is not None:
            future.set_exception(self.error)
        else:
            future.set_result(self.following)
            self.following += 1


class Rig:
    """One coordinator that leads the partition of ID since leader epoch 5, not the other one of two."""

    def __init__(
        self, config: TransactionConfig = CONFIG, topic: MemoryTopic | None = None, *, at_once: bool = False
    ) -> None:
        self.now = 0  # milliseconds
        self.config = config
        self.topic = topic or MemoryTopic()
        self.markers = MemoryMarkers(at_once)
        self.gates = MemoryGates(self.topic)
        self.ids = ProducerIds()
        self.hosted: dict[tuple[str, int], ConfirmedPartition] = {}
        self.timers = TimingWheel(lambda: self.now / 1000)
        self.coordinator = TransactionCoordinator(
            BROKER,
            config,
            self.topic,
            self.ids,
            self.markers,
            FirstBatches(lambda topic, number: self.hosted.get((topic, number))),
            self.timers,
            lambda: START_MS + self.now,
            self.gates,
        )
        self.coordinator.start()
        self.number = self.coordinator.partition_for(ID)
        self.epoch = 5
        self.coordinator.elected(self.number, self.epoch)
        self.markers.forgotten.clear()

    def advance(self, milliseconds: int) -> None:
        """Let time pass, timers being called when they are due."""
        until = self.now + milliseconds
        while (due := self.timers.next_due()) is not None and due * 1000 <= until:
            self.now = max(self.now, round(due * 1000))
            self.timers.advance(due)
        self.now = until
        self.timers.advance(until / 1000)

    def transaction(self, transactional_id: str = ID) -> Transaction:
        partition = self.coordinator._registry.find(transactional_id)
        assert not isinstance(partition, ErrorCode)
        found = partition.transactions.get(transactional_id)
        assert found is not None
        return found

    @property
    def state(self) -> str:
        return self.coordinator.describe(ID).state

    def put(
        self,
        state: TransactionState,
        *,
        producer_id: int = 10,
        epoch: int = 0,
        partitions: Collection[TopicPartition] = (),
        pending: TransactionState | None = None,
        timeout_ms: int = TIMEOUT,
        transactional_id: str = ID,
    ) -> Transaction:
        """Have the coordinator know an id in a state, as if it had been loaded."""
        partition = self.coordinator._registry.find(transactional_id)
        assert not isinstance(partition, ErrorCode)
        now = START_MS + self.now
        start = -1 if state is TransactionState.EMPTY else now
        transaction = Transaction(
            transactional_id, producer_id, epoch, timeout_ms, now, state, frozenset(partitions), start
        )
        transaction.pending = pending
        with partition:
            partition.transactions.add(transaction)
            self.coordinator._expiration.changed(partition, transaction)
            if state is TransactionState.ONGOING:
                self.coordinator._timeouts.watch(partition, transaction)
        return transaction

    def send_init(
        self,
        transactional_id: str | None = ID,
        timeout_ms: int = TIMEOUT,
        expected: tuple[int, int] | None = None,
    ) -> Answer[InitResult]:
        answer: Answer[InitResult] = Answer()
        producer = None if expected is None else ProducerIdentity(*expected)
        self.coordinator.init_producer_id(transactional_id, timeout_ms, producer, answer)
        return answer

    def init(
        self,
        transactional_id: str | None = ID,
        timeout_ms: int = TIMEOUT,
        expected: tuple[int, int] | None = None,
    ) -> InitResult:
        return self.send_init(transactional_id, timeout_ms, expected).result

    def send_add(
        self,
        *partitions: TopicPartition,
        producer: tuple[int, int] = (10, 0),
        transactional_id: str = ID,
    ) -> Answer[ErrorCode]:
        answer: Answer[ErrorCode] = Answer()
        self.coordinator.add_partitions(transactional_id, ProducerIdentity(*producer), partitions, answer)
        return answer

    def add(
        self,
        *partitions: TopicPartition,
        producer: tuple[int, int] = (10, 0),
        transactional_id: str = ID,
    ) -> ErrorCode:
        return self.send_add(*partitions, producer=producer, transactional_id=transactional_id).result

    def send_end(
        self, commit: bool = True, producer: tuple[int, int] = (10, 0), transactional_id: str = ID
    ) -> Answer[ErrorCode]:
        answer: Answer[ErrorCode] = Answer()
        self.coordinator.end(transactional_id, ProducerIdentity(*producer), commit, answer)
        return answer

    def end(
        self, commit: bool = True, producer: tuple[int, int] = (10, 0), transactional_id: str = ID
    ) -> ErrorCode:
        return self.send_end(commit, producer, transactional_id).result

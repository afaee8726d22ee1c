"""Twins of Kafka's TransactionCoordinatorConcurrencyTest: many threads, appends that end on another one.

Producers on threads of their own, markers, timers and moves of the coordinator at the same time.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

import pytest

from ctrlchan.broker.coordinator.common.timing_wheel import TimingWheel
from ctrlchan.broker.coordinator.common.topic import Appended, BatchProducer, Record
from ctrlchan.broker.coordinator.transaction.coordinator import TransactionCoordinator
from ctrlchan.broker.coordinator.transaction.first_batches import FirstBatches
from ctrlchan.broker.coordinator.transaction.requests import (
    EndedTransaction,
    InitResult,
    ProducerIdentity,
)
from ctrlchan.errors import ErrorCode
from tests.unit.broker.coordinator.support import BROKER, START_MS
from tests.unit.broker.coordinator.transaction.support import (
    CONFIG,
    FIRST,
    NONE,
    SECOND,
    MemoryTopic,
    ProducerIds,
)

DEADLINE = 60.0
PARTITIONS = 4
PRODUCERS = 8
ROUNDS = 30
TIMEOUT = 60_000
#: Clients repeat a request after these.
RETRIABLE = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)

_Result = TypeVar("_Result")


class _Topic(MemoryTopic):
    """Ends appends on another thread."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        super().__init__()
        self.pool = pool
        self.lock = threading.Lock()

    def append(
        self,
        partition: int,
        records: Sequence[Record],
        timestamp: int,
        acks: int,
        timeout_ms: int | None = None,
        producer: BatchProducer | None = None,
    ) -> Appended | Future[Appended]:
        with self.lock:
            result = super().append(partition, records, timestamp, acks, timeout_ms, producer)
        assert isinstance(result, Appended)
        return self.pool.submit(lambda: result)


class _Markers:
    """Writes markers on another thread, and counts those of each producer."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self.pool = pool
        self.written: queue.SimpleQueue[EndedTransaction] = queue.SimpleQueue()

    def send(self, ended: EndedTransaction, then: Callable[[], None], is_current: Callable[[], bool]) -> None:
        def write() -> None:
            self.written.put(ended)
            then()

        self.pool.submit(write)

    def forget(self, partition: int) -> None:
        """Nothing waits here: ``then`` is called once more."""


class _Ids(ProducerIds):
    """Producer ids for several threads."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()

    def take(self) -> Future[int]:
        with self.lock:
            return super().take()


class _Running:
    """A coordinator of all partitions whose timers are called by a thread."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self.now = 0.0
        self.timers = TimingWheel(lambda: self.now)
        self.topic = _Topic(pool)
        self.markers = _Markers(pool)
        self.coordinator = TransactionCoordinator(
            BROKER,
            replace(CONFIG, topic_partitions=PARTITIONS),
            self.topic,
            _Ids(),
            self.markers,
            FirstBatches(lambda topic, number: None),
            self.timers,
            lambda: START_MS + int(self.now * 1000),
        )
        self.coordinator.start()
        self.epochs = [1] * PARTITIONS
        for partition in range(PARTITIONS):
            self.coordinator.elected(partition, 1)
        self.over = threading.Event()

    def tick(self) -> None:
        while not self.over.wait(0.0005):
            self.now += 0.005
            self.timers.advance(self.now)

    def init(self, name: str, expected: ProducerIdentity | None = None, timeout: int = TIMEOUT) -> InitResult:
        answers: queue.Queue[InitResult] = queue.Queue()
        self.coordinator.init_producer_id(name, timeout, expected, answers.put)
        return answers.get(timeout=DEADLINE)

    def add(self, name: str, producer: ProducerIdentity) -> ErrorCode:
        answers: queue.Queue[ErrorCode] = queue.Queue()
        self.coordinator.add_partitions(name, producer, [FIRST, SECOND], answers.put)
        return answers.get(timeout=DEADLINE)

    def end(self, name: str, producer: ProducerIdentity, commit: bool) -> ErrorCode:
        answers: queue.Queue[ErrorCode] = queue.Queue()
        self.coordinator.end(name, producer, commit, answers.put)
        return answers.get(timeout=DEADLINE)

    def init_until_done(self, name: str, timeout: int = TIMEOUT) -> ProducerIdentity:
        result = _until_done(lambda: self.init(name, timeout=timeout), lambda result: result.error)
        assert result.error is NONE
        return ProducerIdentity(result.producer_id, result.epoch)

    def transact(self, name: str, producer: ProducerIdentity, commit: bool) -> None:
        assert _until_done(lambda: self.add(name, producer), lambda error: error) is NONE
        assert _until_done(lambda: self.end(name, producer, commit), lambda error: error) is NONE

    def current(self, name: str) -> ProducerIdentity:
        described = self.coordinator.describe(name)
        return ProducerIdentity(described.producer_id, described.epoch)


def _until_done(ask: Callable[[], _Result], error_of: Callable[[_Result], ErrorCode]) -> _Result:
    """Repeat a request as clients do."""
    while True:
        result = ask()
        if error_of(result) not in RETRIABLE:
            return result


@contextmanager
def running() -> Iterator[_Running]:
    with ThreadPoolExecutor(2) as pool:
        rig = _Running(pool)
        ticking = threading.Thread(target=rig.tick)
        ticking.start()
        try:
            yield rig
        finally:
            rig.over.set()
            ticking.join()


def _settled(rig: _Running) -> list[str]:
    """Wait until no transaction is open; return the states."""
    while True:
        error, _, listings = rig.coordinator.list((), (), -1)
        states = {each.state for each in listings}
        if not error and states <= {"Empty", "CompleteCommit", "CompleteAbort"}:
            return [each.state for each in listings]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("moves", [False, True])
def test_producers_and_moves_at_the_same_time(moves: bool) -> None:
    with running() as rig, ThreadPoolExecutor(PRODUCERS) as clients:

        def produce(number: int) -> ProducerIdentity:
            name = f"id-{number}"
            producer = rig.init_until_done(name)
            for turn in range(ROUNDS):
                if turn % 10 == 9:
                    following = rig.init_until_done(name)
                    assert following.producer_id == producer.producer_id
                    assert following.epoch > producer.epoch
                    producer = following
                rig.transact(name, producer, commit=turn % 3 > 0)
            return producer

        runs = [clients.submit(produce, number) for number in range(PRODUCERS)]
        while moves and not all(run.done() for run in runs):
            for partition in range(PARTITIONS):
                rig.epochs[partition] += 2
                rig.coordinator.resigned(partition, rig.epochs[partition])
                rig.coordinator.elected(partition, rig.epochs[partition] + 1)
        producers = [run.result(DEADLINE) for run in runs]
        assert len({producer.producer_id for producer in producers}) == PRODUCERS
        assert len(_settled(rig)) == PRODUCERS
        for number, producer in enumerate(producers):
            assert rig.current(f"id-{number}") == producer
            assert rig.coordinator.describe(f"id-{number}").state == "CompleteCommit"


def _at_once(rig: _Running, name: str, expected: Sequence[ProducerIdentity | None]) -> list[InitResult]:
    """Send InitProducerId requests at the same time; return the results of those that were not refused."""
    barrier = threading.Barrier(len(expected))

    def init(one: ProducerIdentity | None) -> InitResult:
        barrier.wait(DEADLINE)
        return rig.init(name, one)

    with ThreadPoolExecutor(len(expected)) as clients:
        results = list(clients.map(init, expected))
    refused = (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.PRODUCER_FENCED)
    assert all(result.error in (NONE, *refused) for result in results)
    return [result for result in results if not result.error]


@pytest.mark.timeout(300)
def test_producers_that_begin_at_the_same_time() -> None:
    with running() as rig:
        for number in range(20):
            name = f"id-{number}"
            new = _at_once(rig, name, [None] * 4)
            assert new
            assert len({result.epoch for result in new}) == len(new)
            current = rig.current(name)
            # One new and one that continues: each epoch is of one producer.
            both = _at_once(rig, name, [None, current])
            assert both
            assert len({result.epoch for result in both}) == len(both)
            # Several copies of a request of one producer: all get the same epoch.
            current = rig.current(name)
            same = _at_once(rig, name, [current] * 3)
            assert {result.epoch for result in same} == {current.epoch + 1}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("repeated", [False, True])
def test_producers_that_begin_when_the_epochs_are_exhausted(repeated: bool) -> None:
    with running() as rig:
        for number in range(10):
            name = f"id-{number}"
            producer = rig.init_until_done(name)
            partition = rig.coordinator._registry.find(name)
            assert not isinstance(partition, ErrorCode)
            with partition:
                transaction = partition.transactions.get(name)
                assert transaction is not None
                transaction.epoch = 2**15 - 2
            exhausted = ProducerIdentity(producer.producer_id, 2**15 - 2)
            results = _at_once(rig, name, [exhausted] * 3 if repeated else [None] * 3)
            assert results
            assert len({result.producer_id for result in results}) == 1
            assert producer.producer_id not in {result.producer_id for result in results}
            if repeated:
                assert {result.epoch for result in results} == {0}
            else:
                assert len({result.epoch for result in results}) == len(results)


@pytest.mark.timeout(300)
def test_transactions_whose_time_is_over_while_they_end() -> None:
    """Each transaction ends once: as its producer says, or by the coordinator, which fences the producer."""
    with running() as rig, ThreadPoolExecutor(PRODUCERS) as clients:

        def produce(number: int) -> list[tuple[ProducerIdentity, bool]]:
            committed = []
            for turn in range(ROUNDS):
                name = f"id-{number}"
                producer = rig.init_until_done(name, timeout=30)
                if rig.add(name, producer):
                    continue
                for _ in range(turn % 4):
                    rig.coordinator.describe(name)
                error = rig.end(name, producer, commit=True)
                assert error in (NONE, ErrorCode.PRODUCER_FENCED, ErrorCode.CONCURRENT_TRANSACTIONS)
                committed.append((producer, error is NONE))
            return committed

        runs = [clients.submit(produce, number) for number in range(PRODUCERS)]
        ends = dict(end for run in runs for end in run.result(DEADLINE))
        assert len(_settled(rig)) == PRODUCERS
        marked: dict[ProducerIdentity, bool] = {}
        while not rig.markers.written.empty():
            ended = rig.markers.written.get()
            assert marked.setdefault(ended.producer, ended.commit) is ended.commit
        for producer, committed in ends.items():
            fence = ProducerIdentity(producer.producer_id, producer.epoch + 1)
            assert marked.get(producer, False) is committed
            assert committed or marked.get(fence) is False

"""Measures transactions: our broker beside Kafka's, under the same load, in turns.

Command: ``python -m bench transactions``, or by itself ``python -m pytest bench/test_transactions.py
--benchmark-json=build/bench/transactions.json`` (``--no-kafka``, ``--quick``, ``-k loading``).

Each side is one broker, Kafka's with its default configuration, internal topics of one replica, and a heap of
1 GB. The producers and the consumer are processes of their own (``peers/transact.c``); processor time is that
of the broker's process, user and system. A round is a turn of Kafka's, then of ours. Logs that would take
hours to write through requests are files, the same for both (``transaction_files.py``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import Final, TypeVar

import pytest
from confluent_kafka import Producer
from pytest_benchmark.fixture import BenchmarkFixture

from bench.alternate import OURS
from bench.figures import Figures, processor_seconds, processor_seconds_of
from bench.peers.brokers import HOST, DurableBroker, Kafka, Ours, wait_for_leaders
from bench.peers.transactions import Transactor
from bench.transaction_files import (
    STATE_PARTITIONS,
    open_transactions,
    put_log,
    state_topic,
    transactional_id,
    transactions_of,
)
from ctrlchan.internal_topics import TRANSACTIONS_TOPIC, coordinator_partition
from tests.acceptance.children import Children
from tests.acceptance.committed_reader import CommittedReader
from tests.acceptance.word_count import EXACTLY_ONCE, INPUT, OUTPUT, WORDS, Program
from tests.kafka.waiting import wait_until

T = TypeVar("T")

ROUNDS: Final = 5
_TIMEOUT: Final = 2400
_KAFKA: Final = "kafka"
#: Producers at once, in one of the figures and before the first round, for Kafka's compiler.
_PRODUCERS: Final = 8
_WARMUPS: Final = 3_000
_TRANSACTIONS: Final = 200
#: Transactions of 100 requests: each is long.
_LONG_TRANSACTIONS: Final = 50
_RATE: Final = 50.0
_READ_BYTES: Final = 200_000_000
_READ_RECORDS: Final = 150
_ABORTS_EVERY: Final = 100
_INDEXED: Final = (1_000, 100_000)
#: Kafka reads the whole index for each.
_FETCHES: Final = {OURS: 2_000, _KAFKA: 40}
_OPEN: Final = (0, 100_000)
_LINES: Final = 20_000
_WORDS_OF_A_LINE: Final = 3
_STREAMS_PARTITIONS: Final = 4
_STREAMS_WARMUPS: Final = 5
_STREAMS_SECONDS: Final = 300.0
_IDS: Final = 1_000_000
_LOADS: Final = 2

#: What is to hold of a row: Kafka / ours, or what it says of ours.
_QUARTER, _EIGHTH, _HALF, _THIRD = "≥ 4", "≥ 8", "≥ 2", "≥ 3"


class Sides:
    """The brokers that are measured, and their figures. ``goals``: what is to hold, by figure."""

    def __init__(self, brokers: dict[str, DurableBroker]) -> None:
        self.brokers = brokers
        self.figures = Figures()
        self.goals: dict[str, str] = {}

    def add(self, side: str, what: str, unit: str, figure: float, goal: str = "") -> None:
        self.figures.add(side, what, unit, figure)
        self.goals[what] = goal

    def processor(self, side: str, work: Callable[[], T]) -> tuple[float, T]:
        """Return the processor time of a broker during `work`, in seconds, and the result."""
        return processor_seconds_of(self.brokers[side].process, work)

    def run(self, benchmark: BenchmarkFixture, turn: Callable[[str], None], rounds: int) -> None:
        """Let the sides take turns, and hand the figures to the report."""

        def run(side: str) -> None:
            if side in self.brokers:
                turn(side)

        benchmark.pedantic(  # type: ignore[no-untyped-call]
            lambda: run(OURS), setup=lambda: run(_KAFKA), rounds=rounds
        )
        benchmark.extra_info.update(suite="transactions", figures=self.figures.all, goals=self.goals)


@contextmanager
def running(folder: Path, with_kafka: bool) -> Iterator[Sides]:
    """Start the brokers."""
    with ExitStack() as stack:
        brokers: dict[str, DurableBroker] = {}
        if with_kafka:
            (folder / _KAFKA).mkdir(parents=True)
            brokers[_KAFKA] = stack.enter_context(closing(Kafka(folder / _KAFKA)))
        brokers[OURS] = stack.enter_context(closing(Ours(folder / OURS)))
        yield Sides(brokers)


@pytest.mark.timeout(_TIMEOUT)
def test_transactions(
    benchmark: BenchmarkFixture, with_kafka: bool, scaled: Callable[[int], int], tmp_path: Path
) -> None:
    """Measure what one transaction costs the broker, and how long its producer waits for the commit."""
    with running(tmp_path, with_kafka) as sides, ExitStack() as stack:
        producers: dict[str, list[Transactor]] = {}
        pool = stack.enter_context(ThreadPoolExecutor(_PRODUCERS))

        def together(side: str, transactions: int) -> None:
            """Run transactions of all producers at once."""
            work = (
                pool.submit(one.run, f"t-{number}", transactions)
                for number, one in enumerate(producers[side])
            )
            for each in list(work):
                each.result()

        for side, broker in sides.brokers.items():
            producers[side] = []
            for number in range(_PRODUCERS):
                broker.create_topic(f"t-{number}")
                one = stack.enter_context(Transactor(broker.port))
                one.begin(f"id-{number}")
                producers[side].append(one)
            together(side, scaled(_WARMUPS))

        def turn(side: str) -> None:
            one = producers[side][0]

            def cost(what: str, goal: str, transactions: int, work: Callable[[], T]) -> T:
                used, result = sides.processor(side, work)
                sides.add(side, what, "processor time, µs", used / transactions * 1e6, goal)
                return result

            count = scaled(_TRANSACTIONS)
            ran = cost("1 record", _QUARTER, count, lambda: one.run("t-0", count))
            sides.add(side, "back to back", "ms", ran.seconds / count * 1e3, _THIRD)
            share = ran.concurrent / count * 100
            sides.add(side, "CONCURRENT_TRANSACTIONS of 100 transactions", "answers", share, "ours = 0")
            cost(
                f"1 record, {_PRODUCERS} producers at once",
                _QUARTER,
                count * _PRODUCERS,
                lambda: together(side, count),
            )
            cost("1 batch of 100 records", _QUARTER, count, lambda: one.run("t-0", count, records=100))
            few = scaled(_LONG_TRANSACTIONS)
            cost("100 requests of 1 record", _EIGHTH, few, lambda: one.run("t-0", few, requests=100))
            paced = one.run("t-0", count, rate=_RATE, watches=True)
            for what, took in (
                ("EndTxn to its answer", paced.commits),
                ("EndTxn until visible", paced.visible),
            ):
                sides.add(side, f"{what}: median", "µs", median(took), _HALF)
                sides.add(side, f"{what}: 99th percentile", "µs", quantiles(took, n=100)[98], _HALF)

        sides.run(benchmark, turn, scaled(ROUNDS))


@pytest.mark.timeout(_TIMEOUT)
def test_reading(
    benchmark: BenchmarkFixture, with_kafka: bool, scaled: Callable[[int], int], tmp_path: Path
) -> None:
    """Measure read_committed beside read_uncommitted, and with short and long ``.txnindex`` files."""
    with running(tmp_path, with_kafka) as sides:
        large, size = tmp_path / "large", scaled(_READ_BYTES)
        transactions_of(large, size // (_READ_RECORDS * 110), _READ_RECORDS, _ABORTS_EVERY)
        files = {"large": large}
        last = {}
        for count in map(scaled, _INDEXED):
            files[f"aborted-{count}"] = file = tmp_path / f"aborted-{count}"
            last[count] = transactions_of(file, count, 1, 1)
        start_with(sides, files)

        def turn(side: str) -> None:
            # Not for all turns: a broker closes a connection without requests after ten minutes.
            with Transactor(sides.brokers[side].port) as one:
                measure(side, one)

        def measure(side: str, one: Transactor) -> None:
            # Each twice, so that none of them is always the first one.
            used = {False: 0.0, True: 0.0}
            for committed in (False, True, True, False):
                read = partial(one.fetch, "large", committed=committed, max_bytes=1 << 20)
                processor, fetched = sides.processor(side, read)
                assert bool(fetched.aborted) == committed
                used[committed] += processor / fetched.bytes * 1e9 / 2
            unit = "processor time, s/GB"
            sides.add(side, "Fetch of 1 MiB, read_uncommitted", unit, used[False])
            sides.add(
                side, "Fetch of 1 MiB, read_committed, 1 % of transactions aborted", unit, used[True], "≥ 2.5"
            )
            sides.add(side, "read_committed / read_uncommitted", "×", used[True] / used[False], "ours ≤ 1.05")
            times = scaled(_FETCHES[side])
            costs = dict.fromkeys(last, 0.0)
            for count in (*last, *reversed(last)):
                read = partial(
                    one.fetch_again, f"aborted-{count}", committed=True, offset=last[count], times=times
                )
                processor, _ = sides.processor(side, read)
                costs[count] += processor / times * 1e6 / 2
            for count, cost in costs.items():
                sides.add(
                    side,
                    f"read_committed Fetch of one batch, {count:,} entries in .txnindex",
                    "processor time, µs",
                    cost,
                )
            sides.add(
                side,
                "the longest index / the shortest",
                "×",
                costs[max(costs)] / costs[min(costs)],
                "ours ≤ 1.1",
            )

        for broker in sides.brokers.values():
            with Transactor(broker.port) as one:
                for _ in range(2):
                    one.fetch("large", committed=True, max_bytes=1 << 20)
        sides.run(benchmark, turn, scaled(ROUNDS))


@pytest.mark.timeout(_TIMEOUT)
def test_open_transactions(
    benchmark: BenchmarkFixture, with_kafka: bool, scaled: Callable[[int], int], tmp_path: Path
) -> None:
    """Measure the append of a transaction where many other producers have one open."""
    with running(tmp_path, with_kafka) as sides, ExitStack() as stack:
        files = {}
        for count in map(scaled, filter(None, _OPEN)):
            files[f"open-{count}"] = file = tmp_path / f"open-{count}"
            open_transactions(file, count)
        start_with(sides, files)
        topics = {0: "open-0", **{int(name.removeprefix("open-")): name for name in files}}
        producers = {}
        for side, broker in sides.brokers.items():
            broker.create_topic("open-0")
            producers[side] = stack.enter_context(Transactor(broker.port))
            producers[side].begin("id")
            for topic in topics.values():
                producers[side].run(topic, scaled(_LONG_TRANSACTIONS), requests=100)

        def turn(side: str) -> None:
            count = scaled(_LONG_TRANSACTIONS)
            costs = []
            for others, topic in topics.items():
                used, _ = sides.processor(side, partial(producers[side].run, topic, count, requests=100))
                costs.append(used / count * 1e6)
                sides.add(
                    side,
                    f"100 requests of 1 record, {others:,} other producers have open transactions",
                    "processor time, µs",
                    costs[-1],
                )
            sides.add(side, "with these producers / without", "×", costs[-1] / costs[0], "ours ≤ 1.1")

        sides.run(benchmark, turn, scaled(ROUNDS))


@pytest.mark.timeout(_TIMEOUT)
def test_loading(
    benchmark: BenchmarkFixture, with_kafka: bool, scaled: Callable[[int], int], tmp_path: Path
) -> None:
    """Measure starts with many transactional ids beside starts with none, after orderly stops."""
    ids = scaled(_IDS)
    # One id for each partition of the topic: the first one of it.
    firsts: dict[int, str] = {}
    for number in range(ids):
        name = transactional_id(number)
        firsts.setdefault(coordinator_partition(name, STATE_PARTITIONS), name)
        if len(firsts) == STATE_PARTITIONS:
            break
    (tmp_path / "state").mkdir()
    files = state_topic(tmp_path / "state", ids)
    with running(tmp_path / "full", with_kafka) as sides, running(tmp_path / "empty", with_kafka) as empty:

        def load(broker: DurableBroker) -> tuple[float, float, float]:
            """Start a broker; return its processor time, seconds of the clock, and its memory in bytes."""
            began = time.perf_counter()
            broker.start()
            with Transactor(broker.port) as producer:
                for name in firsts.values():
                    producer.begin(name)
            took = time.perf_counter() - began
            used = processor_seconds(broker.process), took, broker.process.memory_full_info().pss
            broker.stop()
            return used

        for brokers in (empty.brokers, sides.brokers):
            for broker in brokers.values():
                with Transactor(broker.port) as producer:
                    producer.begin("first")
                broker.stop()
        for broker in sides.brokers.values():
            for partition, file in enumerate(files):
                put_log(broker.logs, TRANSACTIONS_TOPIC, partition, file)
            # Its indexes are written, so that no later start recovers anything.
            load(broker)

        def turn(side: str) -> None:
            without, with_ids = load(empty.brokers[side]), load(sides.brokers[side])
            sides.add(side, "start without transactional ids", "processor time, s", without[0])
            sides.add(side, f"start with {ids:,} transactional ids", "processor time, s", with_ids[0])
            sides.add(
                side, f"the loading of {ids:,} ids", "processor time, s", with_ids[0] - without[0], _HALF
            )
            sides.add(side, f"start with {ids:,} transactional ids: time", "s", with_ids[1])
            sides.add(side, "memory of one id", "bytes", (with_ids[2] - without[2]) / ids, "ours ≤ 1,024")

        sides.run(benchmark, turn, scaled(_LOADS))


@pytest.mark.timeout(_TIMEOUT)
def test_streams(
    benchmark: BenchmarkFixture, with_kafka: bool, scaled: Callable[[int], int], tmp_path: Path
) -> None:
    """Measure a Kafka Streams program with exactly_once_v2, which counts the words of its input."""
    with running(tmp_path, with_kafka) as sides, ExitStack() as stack:
        counted = scaled(_LINES) * _WORDS_OF_A_LINE
        producers, readers = {}, {}
        for side, broker in sides.brokers.items():
            bootstrap = f"{HOST}:{broker.port}"
            for topic in (INPUT, OUTPUT):
                broker.create_topic(topic, _STREAMS_PARTITIONS)
            (tmp_path / f"streams-{side}").mkdir()
            children = stack.enter_context(closing(Children(tmp_path / f"streams-{side}")))
            Program(bootstrap, children, EXACTLY_ONCE, replicas=1).start_and_wait()
            producers[side] = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
            readers[side] = stack.enter_context(
                closing(CommittedReader(bootstrap, OUTPUT, _STREAMS_PARTITIONS))
            )

        def count(side: str) -> None:
            """Write the input of a turn; return when all its words are counted."""
            goal = readers[side].count + counted
            for number in range(scaled(_LINES)):
                words = WORDS[number % 7], WORDS[number % 3], f"number-{number % 50}"
                producers[side].produce(INPUT, " ".join(words).encode(), b"%d" % number)
                producers[side].poll(0)
            producers[side].flush(_STREAMS_SECONDS)
            wait_until(
                lambda: readers[side].count >= goal, timeout=_STREAMS_SECONDS, what="all words are counted"
            )

        def turn(side: str) -> None:
            used, _ = sides.processor(side, partial(count, side))
            sides.add(
                side,
                "Kafka Streams, exactly_once_v2: 1,000 words counted",
                "processor time, ms",
                used / counted * 1e6,
                _THIRD,
            )

        for side in sides.brokers:
            for _ in range(scaled(_STREAMS_WARMUPS)):
                count(side)
        sides.run(benchmark, turn, scaled(ROUNDS))


def start_with(sides: Sides, files: dict[str, Path]) -> None:
    """Create topics, and start the brokers again with these files as the topics' logs."""
    for broker in sides.brokers.values():
        for topic in files:
            broker.create_topic(topic)
        broker.stop()
        for topic, file in files.items():
            put_log(broker.logs, topic, 0, file)
        broker.start()
        for topic in files:
            wait_for_leaders(broker.port, topic)

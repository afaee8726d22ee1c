"""Measures brokers that store records: ours, Kafka's, kfake and a limit in C, under the same load, in turns.

Command: ``python -m bench broker``, or by itself ``python -m pytest bench/test_broker.py
--benchmark-json=build/bench/broker.json`` (``--no-kafka``, ``--quick``).

All brokers run all the time, Kafka's with its default configuration and a heap of 1 GB; each has topics of
one partition. The clients are in this process, so processor time is the broker's alone: of its process, user
and system. A round is a turn of Kafka's, of kfake where there is Go, of the limit, then of ours. Records are
written into memory that was in use before (``fill_page_cache``).
"""

from __future__ import annotations

import compileall
import os
import shutil
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from statistics import quantiles
from typing import Final

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench.alternate import OURS
from bench.figures import Figures, processor_seconds
from bench.memory import fill_page_cache
from bench.peers.brokers import DurableBroker, Kafka, Kfake, Ours, Store, StoringBroker, wait_for_leaders
from bench.peers.process import ROOT
from bench.peers.record_load import Connection, batch_of
from ctrlchan.memory import MIB

ROUNDS: Final = 5
_TIMEOUT: Final = 2400
#: Requests before the first round, for Kafka's compiler.
_WARMUPS: Final = 20_000
_SMALL_REQUESTS: Final = 20_000
#: Bytes of records that are produced and fetched for each figure.
_BYTES: Final = 100_000_000
_LATENCY_REQUESTS: Final = 1_000
_RATE: Final = 200.0
_SMALL_FETCHES: Final = 3_000
_STARTS: Final = 3
#: Rounds of the two that take minutes.
_LONG_ROUNDS: Final = 2
#: Of the log that is recovered, and partitions of the topic that is there at a start.
_UNCLEAN_BYTES: Final = 10_000_000_000
_PARTITIONS: Final = 10_000
#: The side that ours is compared with, too: ``store.c``.
LIMIT: Final = "limit"
KFAKE: Final = "kfake"

#: One record of 100 bytes; 16 KiB and 256 KiB of such records.
_ONE: Final = batch_of(1, 100)
_MIDDLE_RECORDS: Final = 150
_MIDDLE: Final = batch_of(_MIDDLE_RECORDS, 100)
_LARGE: Final = batch_of(2_400, 100)


def turn(side: str, broker: StoringBroker, figures: Figures, scaled: Callable[[int], int]) -> None:
    """Measure everything once on one broker."""

    def seconds(work: Callable[[], object]) -> tuple[float, float]:
        """Return processor seconds of the broker, and seconds of the clock."""
        before, began = processor_seconds(broker.process), time.perf_counter()
        work()
        return processor_seconds(broker.process) - before, time.perf_counter() - began

    with closing(Connection(broker.port)) as client:
        count = scaled(_SMALL_REQUESTS)
        processor, clock = seconds(lambda: client.produce("small", _ONE, count))
        figures.add(side, "Produce of one record of 100 B", "processor time, µs", processor / count * 1e6)
        figures.add(
            side, "Produce of one record, five in flight: time of a request", "µs", clock / count * 1e6
        )
        for what, topic, batch in (("16 KiB", "middle", _MIDDLE), ("256 KiB", "large", _LARGE)):
            count = scaled(_BYTES) // len(batch)
            processor, _ = seconds(lambda: client.produce(topic, batch, count))  # noqa: B023  (called at once)
            gigabytes = count * len(batch) / 1e9
            figures.add(side, f"Produce of batches of {what}", "processor time, s/GB", processor / gigabytes)
        took = client.produce("slow", _ONE, scaled(_LATENCY_REQUESTS), in_flight=1, rate=_RATE)
        cuts = quantiles(took, n=100)
        figures.add(side, "Produce at 200/s: median", "µs", cuts[49] * 1e6)
        figures.add(side, "Produce at 200/s: 99th percentile", "µs", cuts[98] * 1e6)
        total = scaled(_BYTES)
        # What this turn has produced: one request more than it measured.
        before = (figures.turns(side) - 1) * (total // len(_MIDDLE) + 1) * _MIDDLE_RECORDS
        processor, _ = seconds(
            lambda: client.fetch("middle", 1 << 20, _MIDDLE, _MIDDLE_RECORDS, total, before)
        )
        figures.add(side, "Fetch of 1 MiB", "processor time, s/GB", processor / (total / 1e9))
        count = scaled(_SMALL_FETCHES)
        read = 1024 // len(_ONE) * len(_ONE) * count
        requests = 0
        before = (figures.turns(side) - 1) * (scaled(_SMALL_REQUESTS) + 1)

        def fetch() -> None:
            nonlocal requests
            requests = client.fetch("small", 1024, _ONE, 1, read, before)

        processor, _ = seconds(fetch)
        figures.add(side, "Fetch of 1 KB", "processor time, µs", processor / requests * 1e6)


@pytest.mark.timeout(_TIMEOUT)
def test_records(
    benchmark: BenchmarkFixture, with_kafka: bool, scaled: Callable[[int], int], tmp_path: Path
) -> None:
    figures = Figures()
    with ExitStack() as stack:
        fill = stack.enter_context(fill_page_cache(tmp_path / "holes"))
        brokers: dict[str, StoringBroker] = {OURS: stack.enter_context(closing(Ours(tmp_path / OURS)))}
        if with_kafka:
            (tmp_path / "kafka").mkdir()
            brokers["kafka"] = stack.enter_context(closing(Kafka(tmp_path / "kafka")))
        if shutil.which("go"):
            brokers[KFAKE] = stack.enter_context(closing(Kfake(tmp_path / KFAKE)))
        brokers[LIMIT] = stack.enter_context(closing(Store(tmp_path / LIMIT)))
        for broker in brokers.values():
            for topic in ("small", "middle", "large", "slow"):
                broker.create_topic(topic)
            with closing(Connection(broker.port)) as client:
                client.produce("slow", _ONE, scaled(_WARMUPS))

        def run(side: str) -> None:
            if side in brokers:
                if scaled(ROUNDS) == ROUNDS:
                    fill()
                turn(side, brokers[side], figures, scaled)

        def run_others() -> None:
            for side in ("kafka", KFAKE, LIMIT):
                run(side)

        benchmark.pedantic(  # type: ignore[no-untyped-call]
            lambda: run(OURS), setup=run_others, rounds=scaled(ROUNDS)
        )
        for side, broker in brokers.items():
            figures.add(side, "memory afterwards (PSS)", "MiB", broker.process.memory_full_info().pss / MIB)
    benchmark.extra_info.update(suite="broker", figures=figures.all)


@pytest.mark.timeout(_TIMEOUT)
def test_start(
    benchmark: BenchmarkFixture, with_kafka: bool, scaled: Callable[[int], int], tmp_path: Path
) -> None:
    figures = Figures()
    number = 0
    # As pip does it for an installed package; a checkout may be without, for PYTHONDONTWRITEBYTECODE.
    compileall.compile_dir(ROOT / "ctrlchan", quiet=1)

    def run(side: str, kind: Callable[[Path], StoringBroker]) -> None:
        nonlocal number
        number += 1
        folder = tmp_path / f"{side}-{number}"
        folder.mkdir()
        began = time.perf_counter()
        with closing(kind(folder)) as broker:
            broker.create_topic("first")
            with closing(Connection(broker.port)) as client:
                client.produce("first", _ONE, 1)
            clock = time.perf_counter() - began
            figures.add(side, "start to the first record", "s", clock)
            processor = processor_seconds(broker.process)
            figures.add(side, "start to the first record: the broker", "processor time, s", processor)

    benchmark.pedantic(  # type: ignore[no-untyped-call]
        lambda: run(OURS, Ours),
        setup=lambda: run("kafka", Kafka) if with_kafka else None,
        rounds=scaled(_STARTS),
    )
    benchmark.extra_info.update(suite="broker", figures=figures.all)


def start_again(side: str, broker: DurableBroker, topic: str, what: str, figures: Figures) -> None:
    """Start a broker that was stopped, and measure until all partitions of a topic have a leader."""
    began = time.perf_counter()
    broker.start()
    wait_for_leaders(broker.port, topic)
    figures.add(side, what, "s", time.perf_counter() - began)
    figures.add(side, f"{what}: the broker", "processor time, s", processor_seconds(broker.process))


def durable_brokers(folder: Path, with_kafka: bool, stack: ExitStack) -> dict[str, DurableBroker]:
    """Start both sides. Kafka's comes first where it is there."""
    brokers: dict[str, DurableBroker] = {}
    if with_kafka:
        (folder / "kafka").mkdir()
        brokers["kafka"] = stack.enter_context(closing(Kafka(folder / "kafka")))
    brokers[OURS] = stack.enter_context(closing(Ours(folder / OURS)))
    return brokers


@pytest.mark.timeout(_TIMEOUT)
def test_recovery(
    benchmark: BenchmarkFixture, with_kafka: bool, scaled: Callable[[int], int], tmp_path: Path
) -> None:
    """Let each side recover the same log, which no checkpoint calls flushed. Kafka has written it."""
    figures = Figures()
    topic, size = "load", scaled(_UNCLEAN_BYTES)
    written = tmp_path / "written"

    def lose_checkpoints(broker: DurableBroker) -> None:
        """Put what was written in the place of the partition, as after the power was lost."""
        partition = broker.logs / f"{topic}-0"
        for file in partition.iterdir():
            if file.name != "partition.metadata":
                file.unlink()
        for file in written.iterdir():
            if file.suffix == ".log":
                # Recovery changes no byte of it: all batches are valid.
                os.link(file, partition / file.name)
            elif file.name != "partition.metadata":
                shutil.copyfile(file, partition / file.name)
        (broker.logs / ".kafka_cleanshutdown").unlink(missing_ok=True)
        (broker.logs / "recovery-point-offset-checkpoint").unlink(missing_ok=True)

    with ExitStack() as stack:
        brokers = durable_brokers(tmp_path, with_kafka, stack)
        for number, broker in enumerate(brokers.values()):
            broker.create_topic(topic)
            if number == 0:
                with closing(Connection(broker.port)) as client:
                    client.produce(topic, _LARGE, size // len(_LARGE))
            broker.stop()
            if number == 0:
                shutil.copytree(broker.logs / f"{topic}-0", written)

        def run(side: str) -> None:
            if side in brokers:
                lose_checkpoints(brokers[side])
                start_again(side, brokers[side], topic, f"recovery of {size / 1e9:.0f} GB", figures)
                brokers[side].stop()

        benchmark.pedantic(  # type: ignore[no-untyped-call]
            lambda: run(OURS), setup=lambda: run("kafka"), rounds=scaled(_LONG_ROUNDS)
        )
    benchmark.extra_info.update(suite="broker", figures=figures.all)


@pytest.mark.timeout(_TIMEOUT)
def test_many_partitions(
    benchmark: BenchmarkFixture, with_kafka: bool, scaled: Callable[[int], int], tmp_path: Path
) -> None:
    figures = Figures()
    topic, partitions = "many", scaled(_PARTITIONS)
    with ExitStack() as stack:
        brokers = durable_brokers(tmp_path, with_kafka, stack)
        for broker in brokers.values():
            broker.create_topic(topic, partitions)
            broker.stop()

        def run(side: str) -> None:
            if side in brokers:
                start_again(side, brokers[side], topic, f"start with {partitions:,} partitions", figures)
                brokers[side].stop()

        benchmark.pedantic(  # type: ignore[no-untyped-call]
            lambda: run(OURS), setup=lambda: run("kafka"), rounds=scaled(_LONG_ROUNDS)
        )
    benchmark.extra_info.update(suite="broker", figures=figures.all)

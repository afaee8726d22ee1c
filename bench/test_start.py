"""Measures new processes: the start of the channel, and the first push beside later ones.

Command: ``python -m bench start``, or by itself ``python -m pytest bench/test_start.py
--benchmark-json=build/bench/start.json`` (``--no-kafka``, ``--quick``, ``-k 10000-300``).

Every round is a new process with the cluster in its memory and no channel. *start*: from making the channel
until every broker has acknowledged an update without partitions, so with processes or threads and
connections. *first*: the full push after that. *warm*: the median of the pushes after the first.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Final

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench.alternate import OURS, Side, side_by_side
from bench.peers.controllers import Controller, kafka, ours
from bench.peers.native import Sink
from ctrlchan.channel.config import PER_BROKER

WORKLOADS: Final = [(100_000, 30), (10_000, 300)]
ROUNDS: Final = 10
#: Kafka's JVM takes seconds to start.
KAFKA_EVERY: Final = 5
LATER_PUSHES: Final = 9
LATER_KAFKA_PUSHES: Final = 3


@pytest.mark.parametrize(("partitions", "brokers"), WORKLOADS)
def test_start(
    benchmark: BenchmarkFixture,
    sink: Sink,
    with_kafka: bool,
    scaled: Callable[[int], int],
    partitions: int,
    brokers: int,
) -> None:
    first_ms: dict[str, list[float]] = {}
    warm_ms: dict[str, list[float]] = {}

    def fresh(name: str, make: Callable[[], Controller], later: int) -> Side:
        first, warm = first_ms.setdefault(name, []), warm_ms.setdefault(name, [])

        def call() -> float:
            with make() as controller:
                start = controller.start()
                first.append(controller.push().total)
                warm.append(median(controller.push().total for _ in range(later)))
            return start

        return Side(call=call, warmups=0, every=1 if name != "kafka" else KAFKA_EVERY)

    shape = sink.port, brokers, partitions
    sides = {
        OURS: fresh(OURS, lambda: ours(*shape), LATER_PUSHES),
        PER_BROKER: fresh(PER_BROKER, lambda: ours(*shape, {"senders": PER_BROKER}), LATER_PUSHES),
    }
    if with_kafka:
        sides["kafka"] = fresh("kafka", lambda: kafka(*shape), LATER_KAFKA_PUSHES)
    side_by_side(
        benchmark,
        sides,
        scaled(ROUNDS),
        suite="start",
        partitions=partitions,
        brokers=brokers,
        first_ms=first_ms,
        warm_ms=warm_ms,
    )

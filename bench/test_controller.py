"""Measures controllers of a whole cluster: ours beside Kafka's, on the same ZooKeeper and the same brokers.

Command: ``python -m bench controller``, or by itself ``python -m pytest bench/test_controller.py
--benchmark-json=build/bench/controller.json`` (``--no-kafka``, ``--quick``, ``-k 100000-30``).

Each round is a turn of Kafka's controller, which is the same warm process all the time, and a turn of ours,
which is a new process. A turn handles all events of ``bench/cluster/run.py``; the nodes are the same before
each. The time of an event ends with the last request that a broker has answered.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench.alternate import OURS
from bench.cluster.candidates import Candidate
from bench.cluster.layout import Layout
from bench.cluster.run import Turn, running
from tests.kafka.requirement import require_kafka

#: Seconds for all rounds of one cluster; Kafka's controller takes most of them.
_TIMEOUT: Final = 3600


@dataclass(frozen=True, kw_only=True)
class Workload:
    """One measured cluster. ``warmups``: failovers of Kafka's controller before its first turn."""

    partitions: int
    brokers: int
    rounds: int
    warmups: int

    def __str__(self) -> str:
        return f"{self.partitions}-{self.brokers}"


WORKLOADS: Final = [
    Workload(partitions=1_000, brokers=30, rounds=3, warmups=20),
    Workload(partitions=10_000, brokers=30, rounds=3, warmups=10),
    Workload(partitions=100_000, brokers=30, rounds=2, warmups=3),
    Workload(partitions=1_000, brokers=300, rounds=1, warmups=5),
    Workload(partitions=10_000, brokers=300, rounds=1, warmups=3),
    Workload(partitions=100_000, brokers=300, rounds=1, warmups=1),
]


class Sides:
    """What the turns of all sides took: event -> side -> one figure for each repetition."""

    def __init__(self) -> None:
        self.ms: dict[str, dict[str, list[float]]] = {}
        self.cpu_seconds: dict[str, dict[str, list[float]]] = {}
        self.pss_mib: dict[str, float] = {}

    def add(self, side: str, turn: Turn) -> None:
        self.pss_mib[side] = max(turn.pss_mib, self.pss_mib.get(side, 0.0))
        for event, repetitions in turn.events.items():
            for one in repetitions:
                self.ms.setdefault(event, {}).setdefault(side, []).append(one.ms)
                cpu = one.controller_cpu + one.zookeeper_cpu
                self.cpu_seconds.setdefault(event, {}).setdefault(side, []).append(cpu)


@pytest.mark.timeout(_TIMEOUT)
@pytest.mark.parametrize("workload", WORKLOADS, ids=str)
def test_controller(
    benchmark: BenchmarkFixture,
    with_kafka: bool,
    scaled: Callable[[int], int],
    tmp_path: Path,
    workload: Workload,
) -> None:
    require_kafka()  # its jars include ZooKeeper
    sides = Sides()
    with ExitStack() as stack:
        run = stack.enter_context(running(Layout(workload.partitions, workload.brokers), tmp_path))
        candidates: dict[str, Candidate] = {OURS: stack.enter_context(run.ours())}
        if with_kafka:
            candidates["kafka"] = stack.enter_context(run.kafka())
            run.turn(candidates["kafka"], events=(), failovers=scaled(workload.warmups))

        def turn(side: str) -> None:
            if side in candidates:
                sides.add(side, run.turn(candidates[side]))

        benchmark.pedantic(  # type: ignore[no-untyped-call]
            lambda: turn(OURS), setup=lambda: turn("kafka"), rounds=scaled(workload.rounds)
        )
    benchmark.extra_info.update(
        suite="controller",
        partitions=workload.partitions,
        brokers=workload.brokers,
        ms=sides.ms,
        cpu_seconds=sides.cpu_seconds,
        pss_mib=sides.pss_mib,
    )

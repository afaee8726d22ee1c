"""Measures full pushes of every partition to every broker: ours and Kafka's beside blast, the limit.

Command: ``python -m bench push``, or by itself ``python -m pytest bench/test_push.py
--benchmark-json=build/bench/push.json`` (``--no-kafka``, ``--quick``, ``-k 100000-30``).

A push is a new batch, UpdateMetadata of every partition for every broker, and waiting for all outcomes. Both
controllers encode again each time; blast sends a finished buffer of the same size to as many connections. All
connect to one sink process, which discards bodies in the kernel.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench.alternate import OURS, Side, side_by_side
from bench.controller import body_bytes, cluster_of
from bench.memory import peak_pss_mib
from bench.peers.controllers import Controller, kafka, ours
from bench.peers.native import Blast, Sink
from bench.workload import PARTITIONS_PER_TOPIC
from ctrlchan.channel.config import PER_BROKER

#: Untimed pushes after the timed ones, in which memory is measured.
WATCHED_PUSHES: Final = 20
WATCHED_KAFKA_PUSHES: Final = 3
#: A JVM's first pushes are interpreted.
KAFKA_WARMUPS: Final = 6


@dataclass(frozen=True, kw_only=True)
class Workload:
    """One measured cluster. Kafka runs in each ``kafka_every``-th round (0: never, it takes too long)."""

    partitions: int
    brokers: int
    rounds: int
    kafka_every: int = 0
    per_broker: bool = False

    def __str__(self) -> str:
        return f"{self.partitions}-{self.brokers}"


WORKLOADS: Final = [
    Workload(partitions=100_000, brokers=30, rounds=40, kafka_every=4, per_broker=True),
    Workload(partitions=10_000, brokers=30, rounds=40),
    Workload(partitions=100_000, brokers=100, rounds=24, kafka_every=4),
    Workload(partitions=10_000, brokers=300, rounds=40, kafka_every=4, per_broker=True),
    Workload(partitions=1_000, brokers=1_000, rounds=40, kafka_every=4),
    Workload(partitions=1_000_000, brokers=100, rounds=8),
]


@pytest.mark.parametrize("workload", WORKLOADS, ids=str)
def test_push(
    benchmark: BenchmarkFixture,
    sink: Sink,
    with_kafka: bool,
    scaled: Callable[[int], int],
    workload: Workload,
) -> None:
    shape = sink.port, workload.brokers, workload.partitions
    with ExitStack() as stack:
        controllers: dict[str, Controller] = {OURS: stack.enter_context(ours(*shape))}
        if workload.per_broker:
            controllers[PER_BROKER] = stack.enter_context(ours(*shape, {"senders": PER_BROKER}))
        if with_kafka and workload.kafka_every:
            controllers["kafka"] = stack.enter_context(kafka(*shape))
        size = body_bytes(cluster_of(0, workload.brokers, workload.partitions // PARTITIONS_PER_TOPIC))
        blast = Blast(sink.port, workload.brokers, size, threads=os.cpu_count() or 1)
        limit = stack.enter_context(blast)

        start_ms = {name: controller.start() for name, controller in controllers.items()}
        first_ms = {name: controller.push().total for name, controller in controllers.items()}
        sides = {name: Side(call=_total_of(controller)) for name, controller in controllers.items()}
        if "kafka" in controllers:
            sides["kafka"] = Side(
                call=_total_of(controllers["kafka"]),
                warmups=scaled(KAFKA_WARMUPS),
                every=workload.kafka_every,
                after=controllers["kafka"].settle,
            )
        side_by_side(
            benchmark,
            {**sides, "blast": Side(call=lambda: limit.awaited(1))},
            scaled(workload.rounds),
            suite="push",
            partitions=workload.partitions,
            brokers=workload.brokers,
            bytes=size,
            start_ms=start_ms,
            first_ms=first_ms,
        )
        benchmark.extra_info["pss_mib"] = {
            name: peak_pss_mib(controller.pid, _pushes(controller, name))
            for name, controller in controllers.items()
        }


def _total_of(controller: Controller) -> Callable[[], float]:
    return lambda: controller.push().total


def _pushes(controller: Controller, name: str) -> Callable[[], None]:
    def pushes() -> None:
        for _ in range(WATCHED_KAFKA_PUSHES if name == "kafka" else WATCHED_PUSHES):
            controller.push()

    return pushes

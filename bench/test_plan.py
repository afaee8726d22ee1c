"""Compares what ``ctrlchan plan`` says with what happens: bytes, and times of sizes that were not calibrated.

Command: ``python -m bench plan``, or by itself ``python -m pytest bench/test_plan.py
--benchmark-json=build/bench/plan.json`` (``--quick``, ``-k push``).

The machine is calibrated as by ``ctrlchan bench calibrate --zookeeper``, with the ZooKeeper of the measured
cluster. Then pushes go to the sink of the suite ``push``, and a controller of the suite ``controller`` fails
over and sees a broker die. Goals: bytes are equal, times are within 25 %.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench.alternate import OURS
from bench.cluster.candidates import OUR_ID
from bench.cluster.layout import PARTITIONS_PER_TOPIC, Layout, rack_of, replicas_of
from bench.cluster.run import FAILOVER, running
from bench.cluster.watch import Measured
from bench.controller import cluster_of
from bench.peers.controllers import ours
from bench.peers.native import Sink
from bench.workload import topics_of
from ctrlchan._codec import ListColumn, Partitions
from ctrlchan.calibration.measure import measure_costs
from ctrlchan.channel import ChannelConfig
from ctrlchan.planning.costs import Costs
from ctrlchan.planning.events import PlannedCluster
from ctrlchan.planning.times import event_time, failover_time, push_time
from ctrlchan.protocol import SecurityProtocol
from ctrlchan.state import Broker, ClusterState, Endpoint
from tests.kafka.requirement import require_kafka

#: (partitions, brokers); none of them is a size of the calibration.
PUSHES: Final = ((100_000, 30), (20_000, 200), (300_000, 50))
CLUSTER: Final = Layout(100_000, 30)
DEATH: Final = "death of a broker"
_ROUNDS: Final = 20
_FAILOVERS: Final = 5
_DEATHS: Final = 5
_TIMEOUT: Final = 1_200
_TIME_GOAL: Final = "ours ≤ 25"
_BYTES_GOAL: Final = "ours = 0"


class Comparison:
    """Figures of predicted and measured times and bytes."""

    def __init__(self) -> None:
        self.figures: dict[str, Any] = {}
        self.goals: dict[str, str] = {}

    def add(
        self, what: str, measured_ms: list[float], predicted: float, received: list[int], planned: int
    ) -> None:
        """Add an event. ``predicted``: seconds; ``received``, ``planned``: bytes."""
        predicted_ms = predicted * 1e3
        error = abs(predicted_ms / median(measured_ms) - 1) * 100
        self.figures[what] = ["ms", {OURS: measured_ms, "predicted": [predicted_ms]}]
        self._put(f"error of the predicted time, {what}", "%", [error], _TIME_GOAL)
        differences = [abs(planned - one) for one in received]
        self._put(f"error of the predicted bytes, {what}", "bytes", differences, _BYTES_GOAL)
        times = f"predicted {predicted_ms:,.1f} ms, measured {median(measured_ms):,.1f} ms"
        print(f"\n{what}: {times}; bytes differ by {differences}", end="")

    def _put(self, what: str, unit: str, samples: list[Any], goal: str) -> None:
        self.figures[what] = [unit, {OURS: samples}]
        self.goals[what] = goal


@pytest.mark.timeout(_TIMEOUT)
def test_plan(benchmark: BenchmarkFixture, sink: Sink, scaled: Callable[[int], int], tmp_path: Path) -> None:
    require_kafka()  # its jars include ZooKeeper
    found = Comparison()
    with running(CLUSTER, tmp_path) as run:
        costs = measure_costs(run.zookeeper.address)
        with run.ours() as controller:
            turn = benchmark.pedantic(  # type: ignore[no-untyped-call]
                lambda: run.turn(controller, (DEATH,) * scaled(_DEATHS), scaled(_FAILOVERS))
            )
    _compare_events(found, costs, turn.events)
    for partitions, brokers in PUSHES:
        _compare_push(found, costs, sink, partitions, brokers, scaled(_ROUNDS))
    benchmark.extra_info.update(
        suite="plan",
        figures=found.figures,
        goals=found.goals,
        costs={name: getattr(costs, name) for name in Costs.__dataclass_fields__},
    )


def _compare_events(found: Comparison, costs: Costs, events: dict[str, list[Measured]]) -> None:
    planned = PlannedCluster(
        _state_of(CLUSTER),
        ChannelConfig(controller_id=OUR_ID),
        controller=(Endpoint("PLAINTEXT", SecurityProtocol.PLAINTEXT, "127.0.0.1", 9090),),
        rack=rack_of(0),
    )
    shape = f"{CLUSTER.partitions:,} → {CLUSTER.brokers:,}"
    failover = planned.failover()
    takes = failover_time(costs, failover, CLUSTER.partitions, CLUSTER.brokers, None)
    died, _ = planned.death(1)
    for name, counted, seconds in (
        (FAILOVER, failover, takes.seconds),
        (DEATH, died, event_time(costs, died, None).seconds),
    ):
        found.add(
            f"{name}, {shape}",
            [one.ms for one in events[name]],
            seconds,
            [one.received for one in events[name]],
            counted.traffic.total.bytes,
        )


def _compare_push(
    found: Comparison, costs: Costs, sink: Sink, partitions: int, brokers: int, rounds: int
) -> None:
    state = cluster_of(sink.port, brokers, partitions // PARTITIONS_PER_TOPIC)
    planned = PlannedCluster(state, ChannelConfig(controller_id=0)).full_push().traffic
    times, received = [], []
    with ours(sink.port, brokers, partitions) as controller:
        controller.start()
        for turn in range(2 + rounds):
            before = sink.report().received
            took = controller.push().total
            if turn >= 2:
                times.append(took)
                received.append(sink.report().received - before)
    found.add(
        f"full push, {partitions:,} → {brokers:,}",
        times,
        push_time(costs, planned, None).seconds,
        received,
        planned.total.bytes,
    )


def _state_of(layout: Layout) -> ClusterState:
    """Return the cluster that ``bench/cluster/cluster.py`` makes in ZooKeeper."""
    rows = layout.partitions
    replicas = replicas_of(rows, layout.brokers)
    width = replicas.shape[1]

    def lists() -> ListColumn:
        starts = np.arange(0, rows * width, width, dtype=np.int32)
        return ListColumn(starts, np.full(rows, width, np.int32), replicas.reshape(-1).copy())

    def zeros() -> np.ndarray[Any, np.dtype[np.int32]]:
        return np.zeros(rows, np.int32)

    row = np.arange(rows, dtype=np.int32)
    return ClusterState(
        topics_of(layout.topics),
        Partitions(
            topic_row=row // PARTITIONS_PER_TOPIC,
            partition=row % PARTITIONS_PER_TOPIC,
            controller_epoch=zeros(),
            leader=replicas[:, 0].copy(),
            leader_epoch=zeros(),
            partition_epoch=zeros(),
            recovery_state=zeros(),
            isr=lists(),
            replicas=lists(),
        ),
        [
            Broker(
                one,
                one,
                (Endpoint("PLAINTEXT", SecurityProtocol.PLAINTEXT, "127.0.0.1", 9092),),
                rack_of(one),
            )
            for one in layout.broker_ids
        ],
    )

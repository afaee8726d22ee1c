"""Measures the cost of features: the channel with a feature beside the channel without it, in one run.

Command: ``python -m bench features``, or by itself ``python -m pytest bench/test_features.py
--benchmark-json=build/bench/features.json`` (``--quick``, ``-k INFO``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench.alternate import OURS, Side, side_by_side
from bench.peers.controllers import UNMERGED, Controller, ours
from bench.peers.native import Sink

PARTITIONS: Final = 100_000
BROKERS: Final = 30
ROUNDS: Final = 40


@dataclass(frozen=True, kw_only=True)
class Feature:
    """A feature, with the options of ``bench/controller.py`` that switch it on."""

    name: str
    options: tuple[str, ...]

    def __str__(self) -> str:
        return self.name.replace(" ", "-")


#: Every feature that may be on in production and has to cost little.
FEATURES: Final = [
    Feature(name="journal", options=("--journal",)),
    Feature(name="metrics", options=("--metrics",)),
    Feature(name="journal and metrics", options=("--journal", "--metrics")),
    Feature(name="state-change log at INFO", options=("--state-change-log", "INFO")),
    Feature(name="state-change log at TRACE", options=("--state-change-log", "TRACE")),
]

#: Name of the timed work -> one call of it.
WORK: Final[dict[str, Callable[[Controller], float]]] = {
    "push": lambda controller: controller.push().total,
    "awaited": lambda controller: controller.awaited(100),
    "queued": lambda controller: controller.queued(100),
}


@pytest.mark.parametrize("work", WORK)
@pytest.mark.parametrize("feature", FEATURES, ids=str)
def test_feature(
    benchmark: BenchmarkFixture, sink: Sink, scaled: Callable[[int], int], feature: Feature, work: str
) -> None:
    shape = sink.port, BROKERS, PARTITIONS
    with ours(*shape, UNMERGED, feature.options) as on, ours(*shape, UNMERGED) as off:
        on.start()
        off.start()
        side_by_side(
            benchmark,
            {OURS: Side(call=lambda: WORK[work](on)), "without": Side(call=lambda: WORK[work](off))},
            scaled(ROUNDS),
            suite="features",
            feature=feature.name,
            work=work,
            partitions=PARTITIONS,
            brokers=BROKERS,
        )

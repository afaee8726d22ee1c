"""Measures what quotas cost that nobody reaches: a broker with them beside one without, in turns.

Command: ``python -m bench.quotas``. It prints processor time of the brokers for each request, and the median
of the ratios of turns. The clients are in this process.
"""

from __future__ import annotations

import statistics
from contextlib import ExitStack, closing
from functools import partial
from typing import Final

import psutil

from bench.figures import processor_seconds_of, rotated
from bench.peers.brokers import wait_for_leaders
from bench.peers.record_load import Connection, batch_of
from ctrlchan import EmbeddedCluster
from tests.unit.broker.quota.test_clusters import alter

_TURNS: Final = 30
_WITHOUT, _WITH = "without quotas", "with quotas"
#: Name, topic, batch, requests of a turn.
_LOADS: Final = (
    ("Produce of one record of 100 B", "small", batch_of(1, 100), 6_000),
    ("Produce of 16 KiB", "large", batch_of(160, 100), 1_500),
)
_QUOTAS: Final = {"producer_byte_rate": 1e12, "consumer_byte_rate": 1e12, "request_percentage": 1e9}


def main() -> None:
    """Measure and print."""
    with ExitStack() as stack:
        sides = {}
        for side in (_WITHOUT, _WITH):
            cluster = stack.enter_context(EmbeddedCluster(1))
            if side == _WITH and alter(cluster, {"client-id": None}, **_QUOTAS):
                raise RuntimeError("the quotas were refused")
            port = cluster.brokers[0].endpoints[0].port
            for _, topic, _, _ in _LOADS:
                cluster.create_topic(topic, 1)
                wait_for_leaders(port, topic)
            client = stack.enter_context(closing(Connection(port)))
            sides[side] = psutil.Process(cluster.pids[0]), client
        for name, topic, batch, requests in _LOADS:
            times: dict[str, list[float]] = {side: [] for side in sides}
            for turn in range(-1, _TURNS):
                for side in rotated([*sides], turn):
                    process, client = sides[side]
                    produce = partial(client.produce, topic, batch, requests)
                    spent, _ = processor_seconds_of(process, produce)
                    if turn >= 0:
                        times[side].append(spent / requests * 1e6)
            ratio = statistics.median(map(float.__truediv__, times[_WITHOUT], times[_WITH]))
            figures = ", ".join(
                f"{side} {statistics.median(some):.2f} ({min(some):.2f}) µs" for side, some in times.items()
            )
            print(f"{name}: {figures}, ratio {ratio:.2f}")


if __name__ == "__main__":
    main()

"""Metrics of what waits: requests for records or replicas, members for a heartbeat or a rebalance.

Source: ``DelayedOperationPurgatory`` (Kafka 3.9).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from prometheus_client.core import GaugeMetricFamily, Metric

if TYPE_CHECKING:
    from ctrlchan.broker.server import BrokerServer

__all__ = ["collect"]

_SERVER: Final = "kafka_server_"


def collect(server: BrokerServer) -> Iterator[Metric]:
    """Yield the metrics as of now."""
    figures = server.core.groups.coordinator.figures()
    waiting = {
        "Produce": server.produce.waiting,
        "Fetch": server.fetch.counters()["waiting"],
        "Heartbeat": figures.sessions,
        "Rebalance": figures.rebalances,
    }
    for name in ("purgatorysize", "numdelayedoperations"):
        family = GaugeMetricFamily(
            f"{_SERVER}delayedoperationpurgatory_{name}",
            "Requests, sessions and rebalances that wait",
            labels=("delayedoperation",),
        )
        for operation, count in waiting.items():
            family.add_metric((operation,), count)
        yield family

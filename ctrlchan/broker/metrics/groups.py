"""Metrics of the group coordinator.

Source: ``GroupMetadataManager`` (Kafka 3.9).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import Metric

from ctrlchan.broker.metrics.families import gauge

if TYPE_CHECKING:
    from ctrlchan.broker.server import BrokerServer

__all__ = ["collect"]


def collect(server: BrokerServer) -> Iterator[Metric]:
    """Yield the metrics as of now."""
    figures = server.core.groups.coordinator.figures()
    prefix = "kafka_coordinator_group_groupmetadatamanager_num"
    yield gauge(f"{prefix}groups", "Groups", sum(figures.groups.values()))
    yield gauge(f"{prefix}offsets", "Committed offsets", figures.offsets)
    for state, count in figures.groups.items():
        yield gauge(f"{prefix}groups{state.lower()}", f"Groups that are {state}", count)

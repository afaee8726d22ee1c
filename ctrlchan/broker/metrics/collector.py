"""BrokerMetrics: the metrics of all areas of a broker that stores records, and its state.

Source of the state: ``KafkaServer`` (Kafka 3.9).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from ctrlchan.broker.metrics import (
    application,
    connections,
    control_plane,
    groups,
    logs,
    purgatories,
    quotas,
    replicas,
    replication,
    requests,
    selectors,
    threads,
    topics,
    transactions,
    zookeeper,
)
from ctrlchan.broker.metrics.families import gauge

if TYPE_CHECKING:
    from ctrlchan.broker.server import BrokerServer

__all__ = ["BrokerMetrics"]

_AREAS: Final = (
    topics,
    requests,
    threads,
    control_plane,
    selectors,
    connections,
    replicas,
    replication,
    logs,
    groups,
    transactions,
    purgatories,
    quotas,
    zookeeper,
    application,
)


class BrokerMetrics(Collector):
    """A collector for ``prometheus_client``: register it in a registry. ``server``: the broker, started."""

    def __init__(self, server: BrokerServer) -> None:
        self._server = server

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics as of now."""
        yield gauge("kafka_server_kafkaserver_brokerstate", "BrokerState", self._server.state)
        for area in _AREAS:
            yield from area.collect(self._server)

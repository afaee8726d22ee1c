"""Metrics of what this broker copies from leaders, and of the ISRs that it asks the controller for.

Source: ``ReplicaFetcherManager``, ``FetcherLagStats``, ``FetcherStats``, ``BrokerTopicStats``,
``ReplicaManager`` (Kafka 3.9).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from prometheus_client.core import GaugeMetricFamily, Metric

from ctrlchan.broker.metrics.families import PARTITION, counter, gauge

if TYPE_CHECKING:
    from ctrlchan.broker.server import BrokerServer

__all__ = ["collect"]

_SERVER: Final = "kafka_server_"


def collect(server: BrokerServer) -> Iterator[Metric]:
    """Yield the metrics as of now."""
    figures = server.core.replica_manager.fetcher_figures()
    yield gauge(
        f"{_SERVER}replicafetchermanager_maxlag",
        "The most records that a replica has to copy yet",
        max(figures.lags.values(), default=0),
    )
    lags = GaugeMetricFamily(
        f"{_SERVER}fetcherlagmetrics_consumerlag",
        "Records that a replica has to copy yet",
        labels=("clientid", *PARTITION),
    )
    for (topic, partition, leader, number), lag in sorted(figures.lags.items()):
        lags.add_metric((f"ReplicaFetcherThread-{number}-{leader}", topic, str(partition)), lag)
    yield lags
    yield counter(f"{_SERVER}fetcherstats_bytes", "Bytes of copied records", figures.bytes)
    yield counter(f"{_SERVER}brokertopicmetrics_replicationbytesin", "Bytes of copied records", figures.bytes)
    yield counter(f"{_SERVER}fetcherstats_requests", "Fetch requests to leaders", figures.requests)
    isrs = server.isr_updates
    if isrs is not None:
        for name, text, value in (
            ("isrshrinks", "ISRs with fewer replicas", isrs.shrinks),
            ("isrexpands", "ISRs with more replicas", isrs.expands),
            ("failedisrupdates", "ISRs that the controller has not accepted", isrs.failures),
        ):
            yield counter(f"{_SERVER}replicamanager_{name}", text, value)

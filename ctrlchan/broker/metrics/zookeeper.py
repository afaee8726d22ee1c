"""Metrics of the broker's ZooKeeper session; none for a broker without ZooKeeper.

Source: ``ZooKeeperClient``, types ``SessionExpireListener`` and ``ZooKeeperClientMetrics`` (Kafka 3.9).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kazoo.protocol.states import KazooState
from prometheus_client.core import Metric, SummaryMetricFamily

from ctrlchan.broker.metrics.families import counter, gauge

if TYPE_CHECKING:
    from ctrlchan.broker.server import BrokerServer

__all__ = ["collect"]

_PREFIX: Final = "kafka_server_sessionexpirelistener_"
_CHANGES: Final = (
    ("zookeepersyncconnects", "Connections that were made", KazooState.CONNECTED),
    ("zookeeperdisconnects", "Connections that were lost", KazooState.SUSPENDED),
    ("zookeeperexpires", "Sessions that have ended", KazooState.LOST),
)


def collect(server: BrokerServer) -> Iterator[Metric]:
    """Yield the metrics as of now."""
    session = server.session
    if session is None:
        return
    yield gauge(f"{_PREFIX}sessionstate", "1: there is a connection", session.is_connected)
    for name, text, state in _CHANGES:
        yield counter(f"{_PREFIX}{name}", text, session.changes[state])
    times = session.request_times
    yield SummaryMetricFamily(
        "kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms",
        "Milliseconds from a request to ZooKeeper to its answer",
        count_value=times.count,
        sum_value=times.total_ns / 1e6,
    )

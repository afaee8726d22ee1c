"""The version of the package, and when the broker was started.

Source: ``AppInfoParser`` (Kafka 3.9), type ``app-info``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from prometheus_client.core import GaugeMetricFamily, Metric

from ctrlchan.own_version import own_version

if TYPE_CHECKING:
    from ctrlchan.broker.server import BrokerServer

__all__ = ["collect"]

_PREFIX: Final = "kafka_server_app_info"


def collect(server: BrokerServer) -> Iterator[Metric]:
    """Yield the metrics as of now."""
    labels = ("id", "version")
    broker = str(server.node.id)
    about = GaugeMetricFamily(_PREFIX, "1: the version that runs", labels=labels)
    about.add_metric((broker, own_version()), 1)
    started = GaugeMetricFamily(
        f"{_PREFIX}_start_time_ms", "When the broker was started, in ms since 1970", labels=labels[:1]
    )
    started.add_metric((broker,), server.started_ms)
    yield from (about, started)

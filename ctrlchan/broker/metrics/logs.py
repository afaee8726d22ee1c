"""Metrics of logs and log directories.

Source: ``UnifiedLog``, ``LogManager`` (Kafka 3.9).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from prometheus_client.core import GaugeMetricFamily, Metric

from ctrlchan.broker.metrics.families import PARTITION, gauge

if TYPE_CHECKING:
    from ctrlchan.broker.server import BrokerServer

__all__ = ["collect"]

_LOG: Final = "kafka_log_log_"


def collect(server: BrokerServer) -> Iterator[Metric]:
    """Yield the metrics as of now."""
    manager = server.core.logs
    logs = sorted(manager.logs().items())
    readers: tuple[tuple[str, str, Callable[[Any], int]], ...] = (
        ("size", "Bytes of the log", lambda log: log.size),
        ("numlogsegments", "Segments", lambda log: len(log.segment_offsets())),
        ("logstartoffset", "First offset", lambda log: log.start_offset),
        ("logendoffset", "Next offset", lambda log: log.end_offset),
    )
    for name, text, read in readers:
        family = GaugeMetricFamily(f"{_LOG}{name}", text, labels=PARTITION)
        for (topic, partition), log in logs:
            family.add_metric((topic, str(partition)), read(log))
        yield family
    offline = manager.offline_dirs
    yield gauge("kafka_log_logmanager_offlinelogdirectorycount", "Log directories that failed", len(offline))
    family = GaugeMetricFamily(
        "kafka_log_logmanager_logdirectoryoffline",
        "1: the log directory failed",
        labels=("logdirectory",),
    )
    for path in sorted({*manager.online_dirs, *offline}):
        family.add_metric((str(path),), path in offline)
    yield family

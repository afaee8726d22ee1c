"""Metrics of logs and log directories.

Source: ``UnifiedLog``, ``LogManager``, ``LogCleaner``, ``LogCleanerManager``, ``LogFlushStats`` (Kafka 3.9).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from prometheus_client.core import GaugeMetricFamily, Metric, SummaryMetricFamily

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
    flushes = [log.flush_times for _, log in logs]
    yield SummaryMetricFamily(
        "kafka_log_logflushstats_logflushrateandtimems",
        "Milliseconds of the flushes of the logs that are here now",
        count_value=sum(count for count, _ in flushes),
        sum_value=sum(time_ns for _, time_ns in flushes) / 1e6,
    )
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
    yield from _cleaner(server)


def _cleaner(server: BrokerServer) -> Iterator[Metric]:
    """Yield what the cleaner has done. An operator looks at logs that are not cleaned any more."""
    manager = server.core.logs
    status = manager.cleaner_status()
    damaged = Counter(str(log.folder.parent) for key, log in manager.logs().items() if key in status.damaged)
    family = GaugeMetricFamily(
        "kafka_log_logcleanermanager_uncleanable_partitions_count",
        "Logs that are not cleaned any more",
        labels=("logdirectory",),
    )
    for path in map(str, sorted(manager.online_dirs)):
        family.add_metric((path,), damaged[path])
    yield family
    for name, text, value in (
        ("logcleanermanager_max_dirty_percent", "Dirty part of the dirtiest log", 100 * status.dirtiest),
        ("logcleanermanager_time_since_last_run_ms", "Since the last run of the cleaner", status.idle_ms),
        ("logcleaner_cleaner_recopy_percent", "What the last cleaning has kept", 100 * status.recopied),
        ("logcleaner_max_clean_time_secs", "How long the last cleaning took", status.seconds),
    ):
        yield gauge(f"kafka_log_{name}", text, value)

"""Writes figures and alerts as a file for the textfile collector of Prometheus' node_exporter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, write_to_textfile
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from ctrlchan.channel.observability.counters import EDGES
from ctrlchan.pipeline.jobs.monitor.figures import Figures
from ctrlchan.pipeline.jobs.monitor.rules import Alert

__all__ = ["write_textfile"]

_PREFIX: Final = "ctrlchan_monitor_"


def write_textfile(path: Path, figures: Figures, alerts: Sequence[Alert]) -> None:
    """Write the file and rename it into place; make its folder if there is none. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    registry = CollectorRegistry()
    registry.register(_Once(figures, alerts))
    write_to_textfile(str(path), registry)


class _Once(Collector):
    def __init__(self, figures: Figures, alerts: Sequence[Alert]) -> None:
        self._figures = figures
        self._alerts = alerts

    def collect(self) -> Iterator[Metric]:
        yield from self._requests()
        yield from self._brokers()
        alerts = GaugeMetricFamily(
            _PREFIX + "alert", "1 while the alert is active", labels=["rule", "broker"]
        )
        for alert in self._alerts:
            alerts.add_metric([alert.rule, str(alert.broker)], 1)
        yield alerts
        read = CounterMetricFamily(_PREFIX + "rows", "Rows that were read from the journal")
        read.add_metric([], self._figures.rows)
        yield read
        time = GaugeMetricFamily(_PREFIX + "time_seconds", "The time of these figures")
        time.add_metric([], self._figures.now)
        yield time

    def _requests(self) -> Iterator[Metric]:
        labels = ["broker", "api"]
        ended = CounterMetricFamily(
            _PREFIX + "requests", "Requests that have ended", labels=[*labels, "outcome"]
        )
        errors = CounterMetricFamily(
            _PREFIX + "errors", "Requests by the error of their response", labels=[*labels, "error"]
        )
        sent = CounterMetricFamily(_PREFIX + "bytes", "Bytes of the requests that have ended", labels=labels)
        attempts = CounterMetricFamily(_PREFIX + "attempts", "Attempts to send these requests", labels=labels)
        seconds = HistogramMetricFamily(
            _PREFIX + "request_seconds", "Time from queueing a request to its end", labels=labels
        )
        for one in self._figures.requests:
            key = [str(one.broker), one.api]
            for outcome, count in one.outcomes.items():
                ended.add_metric([*key, outcome], count)
            for error, count in one.errors.items():
                errors.add_metric([*key, error], count)
            sent.add_metric(key, one.bytes)
            attempts.add_metric(key, one.attempts)
            below, buckets = 0, []
            for edge, count in zip([*map(str, EDGES), "+Inf"], one.buckets, strict=True):
                below += count
                buckets.append((edge, below))
            seconds.add_metric(key, buckets, one.seconds)
        yield from (ended, errors, sent, attempts, seconds)

    def _brokers(self) -> Iterator[Metric]:
        waiting = GaugeMetricFamily(_PREFIX + "unfinished", "Requests without an answer", labels=["broker"])
        oldest = GaugeMetricFamily(
            _PREFIX + "oldest_unfinished_seconds", "Age of the oldest unfinished request", labels=["broker"]
        )
        for wait in self._figures.waits:
            waiting.add_metric([str(wait.broker)], wait.unfinished)
            oldest.add_metric([str(wait.broker)], self._figures.age(wait) or 0.0)
        yield from (waiting, oldest)
        if self._figures.diverged is not None:
            stale = GaugeMetricFamily(
                _PREFIX + "stale_partitions",
                "Partitions of which the broker holds stale metadata",
                labels=["broker"],
            )
            for one in self._figures.diverged:
                stale.add_metric([str(one.broker)], one.partitions)
            yield stale

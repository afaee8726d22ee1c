"""Metrics of requests by API: how many, how long, how large, with which errors.

Source: ``RequestMetrics`` (Kafka 3.9).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from prometheus_client.core import (
    CounterMetricFamily,
    HistogramMetricFamily,
    Metric,
    SummaryMetricFamily,
)

from ctrlchan.server.api_names import api_name
from ctrlchan.server.request_times import BOUNDS_MS, no_times

if TYPE_CHECKING:
    from ctrlchan.broker.server import BrokerServer

__all__ = ["collect"]

_PREFIX: Final = "kafka_network_requestmetrics_"
#: Keys of the APIs whose records may be converted.
_CONVERTING: Final = (0, 1)


def collect(server: BrokerServer) -> Iterator[Metric]:
    """Yield the metrics as of now."""
    labels = ("request",)
    requests = CounterMetricFamily(f"{_PREFIX}requests", "Requests", labels=labels)
    times = HistogramMetricFamily(f"{_PREFIX}totaltimems", "From request to answer, in ms", labels=labels)
    bytes_in = CounterMetricFamily(f"{_PREFIX}requestbytes", "Bytes of requests", labels=labels)
    errors = CounterMetricFamily(f"{_PREFIX}errors", "Whole answers by error", labels=(*labels, "error"))
    throttled = SummaryMetricFamily(
        f"{_PREFIX}throttletimems", "Throttle times of requests, in ms", labels=labels
    )
    # Requests by their time, milliseconds, bytes, throttle times: of processors, and of handler threads.
    totals = {api_name(key): own for key, own in server.hot.totals().items()}
    for name, counters in server.describe()["apis"].items():
        numbers, milliseconds, size, waits = totals.get(name, (no_times(), 0.0, 0, 0))
        totals[name] = (
            [one + own for one, own in zip(numbers, counters["times"], strict=True)],
            milliseconds + counters["seconds"] * 1000,
            size + counters["bytes_in"],
            waits + counters["throttled_ms"],
        )
        for error, count in sorted(counters["errors"].items()):
            errors.add_metric((name, error), count)
    counts = {name: sum(numbers) for name, (numbers, *_) in totals.items()}
    for name, (numbers, milliseconds, size, waits) in sorted(totals.items()):
        number = counts[name]
        requests.add_metric((name,), number)
        times.add_metric((name,), _buckets(numbers), milliseconds)
        bytes_in.add_metric((name,), size)
        throttled.add_metric((name,), number, waits)
    yield from (requests, times, bytes_in, throttled, errors)
    yield from _conversions(server, counts)


def _buckets(numbers: Sequence[int]) -> list[tuple[str, float]]:
    """Return what Prometheus wants: how many requests took at most so long, for each bound."""
    bounds = (*map(str, BOUNDS_MS), "+Inf")
    return list(zip(bounds, accumulate(numbers), strict=True))


def _conversions(server: BrokerServer, requests: Mapping[str, int]) -> Iterator[Metric]:
    """Yield what conversions have cost. ``requests``: how many there were, by API."""
    times = SummaryMetricFamily(
        f"{_PREFIX}messageconversionstimems", "Time of conversions, in ms", labels=("request",)
    )
    sizes = SummaryMetricFamily(
        f"{_PREFIX}temporarymemorybytes", "Memory that conversions needed", labels=("request",)
    )
    for key in _CONVERTING:
        name, time_ns, size = api_name(key), 0, 0
        for partition in server.core.partitions.partitions():
            _, own_ns, own_size = partition.converted(key)
            time_ns, size = time_ns + own_ns, size + own_size
        number = requests.get(name, 0)
        times.add_metric((name,), number, time_ns / 1e6)
        sizes.add_metric((name,), number, size)
    yield from (times, sizes)

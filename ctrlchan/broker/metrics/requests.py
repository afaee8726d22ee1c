"""Metrics of requests by API: how many, how long, how large, with which errors.

Source: ``RequestMetrics`` (Kafka 3.9).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from prometheus_client.core import (
    CounterMetricFamily,
    HistogramMetricFamily,
    Metric,
    SummaryMetricFamily,
)

from ctrlchan.server.api_names import api_name
from ctrlchan.server.request_times import BOUNDS_MS, TIME_PARTS, PartTimes

if TYPE_CHECKING:
    from ctrlchan.broker.server import BrokerServer

__all__ = ["collect"]

_PREFIX: Final = "kafka_network_requestmetrics_"
#: Keys of the APIs whose records may be converted.
_CONVERTING: Final = (0, 1)
_BOUNDS: Final = (*map(str, BOUNDS_MS), "+Inf")
_NO_TIMES: Final = PartTimes([0] * len(_BOUNDS), 0)
_TEXTS: Final = {
    "RequestQueueTimeMs": "How long requests wait until they are handled",
    "LocalTimeMs": "How long requests are handled",
    "RemoteTimeMs": "How long requests wait for others, or for records",
    "ResponseQueueTimeMs": "How long answers wait until they are sent",
    "ResponseSendTimeMs": "From the first to the last byte of answers",
    "TotalTimeMs": "From requests to the last byte of answers",
}


def collect(server: BrokerServer) -> Iterator[Metric]:
    """Yield the metrics as of now."""
    labels = ("request",)
    requests = CounterMetricFamily(f"{_PREFIX}requests", "Requests", labels=labels)
    bytes_in = CounterMetricFamily(f"{_PREFIX}requestbytes", "Bytes of requests", labels=labels)
    errors = CounterMetricFamily(f"{_PREFIX}errors", "Whole answers by error", labels=(*labels, "error"))
    throttled = SummaryMetricFamily(
        f"{_PREFIX}throttletimems", "Throttle times of requests, in ms", labels=labels
    )
    # Number, bytes, throttle times: of processors, and of handler threads.
    totals = {api_name(key): own for key, own in server.hot.totals().items()}
    for name, counters in server.describe()["apis"].items():
        number, size, waits = totals.get(name, (0, 0, 0))
        totals[name] = (
            number + counters["requests"],
            size + counters["bytes_in"],
            waits + counters["throttled_ms"],
        )
        for error, count in sorted(counters["errors"].items()):
            errors.add_metric((name, error), count)
    for name, (number, size, waits) in sorted(totals.items()):
        requests.add_metric((name,), number)
        bytes_in.add_metric((name,), size)
        throttled.add_metric((name,), number, waits)
    yield from (requests, bytes_in, throttled, errors)
    yield from _times(server, totals)
    yield from _conversions(server, {name: number for name, (number, *_) in totals.items()})


def _times(server: BrokerServer, names: Iterable[str]) -> Iterator[Metric]:
    """Yield the times of requests whose answers are sent, by part. ``names``: of the APIs.

    Parts have half the buckets of the whole: each sample costs whoever reads the metrics some microseconds.
    """
    found = {api_name(key): times for key, times in server.server.request_times().items()}
    for number, part in enumerate(TIME_PARTS):
        family = HistogramMetricFamily(
            f"{_PREFIX}{part.lower()}", f"{_TEXTS[part]}, in ms", labels=("request",)
        )
        for name in sorted(found.keys() | names):
            times = found[name].parts[number] if name in found else _NO_TIMES
            buckets = _buckets(times)
            if part != TIME_PARTS[-1]:
                buckets = [*buckets[1:-1:2], buckets[-1]]
            family.add_metric((name,), buckets, times.total_ns / 1e6)
        yield family


def _buckets(times: PartTimes) -> list[tuple[str, float]]:
    """Return what Prometheus wants: how many requests took at most so long, for each bound."""
    return list(zip(_BOUNDS, accumulate(times.numbers), strict=True))


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

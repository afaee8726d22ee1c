"""Metrics of Produce and Fetch: what topics get and give, and fetch sessions.

Source: ``BrokerTopicStats``, ``DelayedProduceMetrics``, ``DelayedFetchMetrics``, ``FetchSessionCache``
(Kafka 3.9).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, Metric

from ctrlchan.broker.metrics.families import counter, gauge

if TYPE_CHECKING:
    from ctrlchan.broker.server import BrokerServer

__all__ = ["collect"]

_SERVER: Final = "kafka_server_"


#: The counters of partitions: name and text of the metric.
_OF_TOPICS: Final = (
    ("messagesin", "Records appended"),
    ("bytesin", "Bytes appended"),
    ("failedproducerequests", "Appends that failed for another reason than their batch or their leader"),
    ("bytesrejected", "Bytes of appends with a batch that is too large"),
    ("bytesout", "Bytes sent to consumers"),
)
#: APIs whose records may be converted: key, and part of the metric's name.
_CONVERTING: Final = ((0, "produce"), (1, "fetch"))


def collect(server: BrokerServer) -> Iterator[Metric]:
    """Yield the metrics as of now."""
    topics: dict[str, list[int]] = {}
    for partition in server.core.partitions.partitions():
        sums = topics.setdefault(partition.topic, [0] * len(_OF_TOPICS))
        for place, value in enumerate(partition.counters):
            sums[place] += value
    for place, (name, text) in enumerate(_OF_TOPICS):
        family = CounterMetricFamily(f"{_SERVER}brokertopicmetrics_{name}", text, labels=("topic",))
        for topic, sums in sorted(topics.items()):
            family.add_metric((topic,), sums[place])
        yield family
    yield from _conversions(server)
    fetched = server.fetch.counters()
    produced, _, expired = server.produce.counters
    # Requests that processors leave to handler threads.
    produced += server.requests_of("Produce")
    for name, text, value in (
        ("brokertopicmetrics_replicationbytesout", "Bytes sent to followers", fetched["bytes_replicated"]),
        ("brokertopicmetrics_totalfetchrequests", "Fetch requests", fetched["requests"]),
        ("brokertopicmetrics_totalproducerequests", "Produce requests", produced),
        ("delayedfetchmetrics_expires", "Fetch requests that waited for too long", fetched["expired"]),
        ("delayedproducemetrics_expires", "Produce requests that waited for too long", expired),
    ):
        yield counter(f"{_SERVER}{name}", text, value)
    for name, text, value in (
        ("numincrementalfetchsessions", "Incremental fetch sessions", fetched["sessions"]),
        ("numincrementalfetchpartitionscached", "Partitions in sessions", fetched["session_partitions"]),
    ):
        yield gauge(f"{_SERVER}fetchsessioncache_{name}", text, value)
    yield counter(
        f"{_SERVER}fetchsessioncache_incrementalfetchsessionevictions",
        "Sessions that gave way to others",
        fetched["session_evictions"],
    )


def _conversions(server: BrokerServer) -> Iterator[Metric]:
    """Yield the records that were written anew, by topic."""
    for key, name in _CONVERTING:
        topics: Counter[str] = Counter()
        for partition in server.core.partitions.partitions():
            topics[partition.topic] += partition.converted(key)[0]
        family = CounterMetricFamily(
            f"{_SERVER}brokertopicmetrics_{name}messageconversions",
            f"Records of {name} requests that were converted or compressed again",
            labels=("topic",),
        )
        for topic, records in sorted(topics.items()):
            family.add_metric((topic,), records)
        yield family

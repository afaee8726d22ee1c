"""The metrics of a channel for Prometheus.

Kafka's metrics (``kafka.controller:type=ControllerChannelManager``) have the names that the JMX exporter
usually gives them. Metrics that Kafka does not have begin with ``ctrlchan_channel_``; the most useful one is
the age of the oldest unfinished request, since a stuck request changes no timer of Kafka.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector

from ctrlchan.channel.observability.counters import EDGES, TIMES, Key, OutcomeCounters, quantile
from ctrlchan.closing import Closing
from ctrlchan.journal.rows import Chunk
from ctrlchan.protocol import API_NAMES

if TYPE_CHECKING:
    from ctrlchan.channel.observability.recorder import QueueTimesSnapshot, Recorder

__all__ = ["ChannelMetrics", "MetricsServer"]

_KAFKA: Final = "kafka_controller_controllerchannelmanager_"
_OURS: Final = "ctrlchan_channel_"
#: The quantiles of Kafka's timers.
_QUANTILES: Final = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
#: Seconds, of ``QueueTimes.histogram``.
_QUEUE_TIME_EDGES: Final = tuple(2**power / 1e9 for power in range(63))

_TIME_TEXTS: Final = {
    "encode": "Time to encode the requests of the broker; one encoding serves all brokers",
    "queue": "Time from send_request to the first byte of the last attempt",
    "send": "Time from the first to the last byte of the last attempt",
    "remote": "Time from the last byte written to the whole response",
}

#: Gauges of a broker: name, text, key in its description.
_BROKER_GAUGES: Final = (
    ("queued_bytes", "Bytes of the unfinished requests", "queued_bytes"),
    ("in_flight_requests", "Unfinished requests that a sender process has", "in_flight"),
    ("oldest_request_age_seconds", "Age of the oldest unfinished request, queued or in flight", "oldest_age"),
    ("head_attempts", "Failed attempts at the first unfinished request", "attempts"),
    ("needs_resync", "1: after an error the broker needs a full resync", "needs_resync"),
)

_Describe: TypeAlias = Callable[[], dict[str, Any]]


class ChannelMetrics(Collector):
    """A Prometheus collector for one channel: ``ControllerChannelManager(..., metrics=metrics)``.

    Register it with the metrics of the process (``prometheus_client.REGISTRY.register(metrics)``), or serve
    it alone with ``serve``. Times are in seconds, those of Kafka's timer in milliseconds, sizes in bytes. A
    scrape reads the channel once; the series of a removed broker end with the next one. Source of the Kafka
    metrics: ``kafka.controller.ControllerChannelManager`` and ``RequestSendThread`` (3.9).
    """

    def __init__(self) -> None:
        # Guards the counters. No other lock of the channel is taken while it is held.
        self._lock = threading.Lock()
        self._outcome_counters = OutcomeCounters()
        self._recorder: Recorder | None = None
        self._describe: weakref.WeakMethod[_Describe] | None = None

    # -- for the channel

    def attach(self, recorder: Recorder, describe: weakref.WeakMethod[_Describe]) -> None:
        self._recorder = recorder
        self._describe = describe

    def take(self, chunk: Chunk) -> None:
        with self._lock:
            self._outcome_counters.add(chunk)

    def counters(self) -> dict[int, dict[str, dict[str, Any]]]:
        """Return broker id -> API name -> ended requests, their bytes, attempts, and kinds of outcomes."""
        if self._recorder is not None:
            self._recorder.flush()
        counters: dict[int, dict[str, dict[str, Any]]] = {}
        with self._lock:
            outcome_counters = self._outcome_counters
            for key, row in outcome_counters.rows.items():
                counters.setdefault(key.broker_id, {})[_api(key)] = {
                    "requests": int(outcome_counters.requests[row]),
                    "bytes": int(outcome_counters.bytes[row]),
                    "attempts": int(outcome_counters.attempts[row]),
                    "outcomes": {},
                }
            for (key, kind), count in outcome_counters.outcomes.items():
                counters[key.broker_id][_api(key)]["outcomes"][kind] = count
        return counters

    # -- for Prometheus

    def collect(self) -> Iterator[Metric]:
        describe = None if self._describe is None else self._describe()
        if self._recorder is None or describe is None:
            return
        described = describe()
        # Flushed after the description: before it, rows of a broker removed in between could come back.
        self._recorder.flush()
        brokers = described["brokers"]
        queue_times = self._recorder.queue_times()
        yield from _described(described, brokers)
        with self._lock:
            self._outcome_counters.keep(brokers)
            outcome_counters = self._outcome_counters.copy()
        # Without the lock: text for a thousand brokers takes a second, and the dispatcher has to count.
        yield from _counters(outcome_counters)
        yield from _histograms(outcome_counters)
        yield _kafka_timer({one: queue_times[one] for one in brokers if one in queue_times})

    def serve(self, port: int = 0, host: str = "127.0.0.1") -> MetricsServer:
        """Serve these metrics alone at ``http://host:port/metrics``; port 0: a free one. Raises OSError."""
        registry = CollectorRegistry(support_collectors_without_names=True)
        registry.register(self)
        return MetricsServer(registry, port, host)


class MetricsServer(Closing):
    """An HTTP server on a thread of its own, until ``close``. ``port``: the one it listens on."""

    def __init__(self, registry: CollectorRegistry, port: int, host: str) -> None:
        self._server, self._thread = start_http_server(port, host, registry)
        self.port = int(self._server.server_port)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _described(described: dict[str, Any], brokers: dict[int, dict[str, Any]]) -> Iterator[Metric]:
    queued = {broker_id: _kafka_queue_size(broker) for broker_id, broker in brokers.items()}
    yield GaugeMetricFamily(
        f"{_KAFKA}totalqueuesize",
        "Requests in the queues of all brokers; one in flight is in no queue",
        sum(queued.values()),
    )
    sizes = GaugeMetricFamily(
        f"{_KAFKA}queuesize",
        "Requests in the queue of the broker; the one in flight is not in it",
        labels=["broker_id"],
    )
    for broker_id, size in queued.items():
        sizes.add_metric([str(broker_id)], size)
    yield sizes
    yield GaugeMetricFamily(f"{_OURS}senders", "Sender processes", described["senders"])
    yield GaugeMetricFamily(
        f"{_OURS}shared_memory_bytes", "Encoded requests in shared memory", described["shared_memory_bytes"]
    )
    state = GaugeMetricFamily(f"{_OURS}state", "1: the channel is in this state", labels=["state"])
    state.add_metric([described["state"]], 1)
    yield state
    for name, text, key in _BROKER_GAUGES:
        gauge = GaugeMetricFamily(f"{_OURS}{name}", text, labels=["broker_id"])
        for broker_id, broker in brokers.items():
            gauge.add_metric([str(broker_id)], broker[key])
        yield gauge
    states = GaugeMetricFamily(
        f"{_OURS}broker_state", "1: the broker's connection is in this state", labels=["broker_id", "state"]
    )
    last = InfoMetricFamily(f"{_OURS}last_error", "Error of the last failed attempt", labels=["broker_id"])
    for broker_id, broker in brokers.items():
        states.add_metric([str(broker_id), broker["state"]], 1)
        if broker["last_error"]:
            last.add_metric([str(broker_id)], {"error": broker["last_error"]})
    yield states
    yield last
    coalesced = CounterMetricFamily(
        f"{_OURS}coalesced_requests",
        "Requests that were not sent because they were merged with others",
        labels=["broker_id"],
    )
    for broker_id, broker in brokers.items():
        coalesced.add_metric([str(broker_id)], broker["merged"])
    yield coalesced
    yield CounterMetricFamily(
        f"{_OURS}merged_requests", "Requests made by merging several", described["merged_requests"]
    )
    collapsed = CounterMetricFamily(
        f"{_OURS}collapsed_requests",
        "Requests that a full state replaced because the backlog was too long",
        labels=["broker_id"],
    )
    for broker_id, broker in brokers.items():
        collapsed.add_metric([str(broker_id)], broker["collapsed"])
    yield collapsed
    yield CounterMetricFamily(
        f"{_OURS}full_states", "Full states that replaced backlogs", described["full_states"]
    )


def _kafka_queue_size(broker: dict[str, Any]) -> int:
    """Unfinished requests but the one in flight, which Kafka's sender thread has taken from its queue."""
    size: int = broker["queue_size"]
    return size - 1 if broker["in_flight"] else size


def _counters(outcome_counters: OutcomeCounters) -> Iterable[Metric]:
    labels = ["broker_id", "api"]
    requests = CounterMetricFamily(f"{_OURS}requests", "Requests by outcome", labels=[*labels, "outcome"])
    for (key, kind), count in outcome_counters.outcomes.items():
        requests.add_metric([*_labels(key), kind], count)
    errors = CounterMetricFamily(f"{_OURS}errors", "Error codes of responses", labels=[*labels, "error"])
    for (key, error), count in outcome_counters.errors.items():
        errors.add_metric([*_labels(key), error], count)
    sent = CounterMetricFamily(
        f"{_OURS}bytes",
        "Bytes of requests that were sent and have ended; merged requests and further attempts count once",
        labels=labels,
    )
    attempts = CounterMetricFamily(f"{_OURS}attempts", "Attempts at requests that have ended", labels=labels)
    for key, row in outcome_counters.rows.items():
        sent.add_metric(_labels(key), int(outcome_counters.bytes[row]))
        attempts.add_metric(_labels(key), int(outcome_counters.attempts[row]))
    outcomes = CounterMetricFamily(
        f"{_OURS}outcomes",
        "Requests of all brokers by outcome, removed brokers included",
        labels=["outcome"],
    )
    for kind, count in outcome_counters.kinds.items():
        outcomes.add_metric([kind], count)
    return requests, errors, sent, attempts, outcomes


def _histograms(outcome_counters: OutcomeCounters) -> Iterator[Metric]:
    edges = [*(str(edge) for edge in EDGES), "+Inf"]
    for number, name in enumerate(TIMES):
        family = HistogramMetricFamily(
            f"{_OURS}{name}_seconds", _TIME_TEXTS[name], labels=["broker_id", "api"]
        )
        cumulative = np.cumsum(outcome_counters.buckets[number], axis=1)
        for key, row in outcome_counters.rows.items():
            counts = cumulative[row].tolist()
            family.add_metric(
                _labels(key), list(zip(edges, counts, strict=True)), float(outcome_counters.sums[number][row])
            )
        yield family


def _kafka_timer(times: Mapping[int, QueueTimesSnapshot]) -> Metric:
    """RequestRateAndQueueTimeMs: as in Kafka, a request counts when it leaves the queue. Quantiles are of all
    requests since the generation of the broker began; Kafka's favour the last five minutes."""
    name = f"{_KAFKA}requestrateandqueuetimems"
    timer = SummaryMetricFamily(
        name,
        "Requests that have left the queue, and the milliseconds they waited in it",
        labels=["broker_id"],
    )
    for broker_id, waited in times.items():
        buckets = np.array(waited.histogram, dtype=np.int64)
        for share in _QUANTILES:
            labels = {"broker_id": str(broker_id), "quantile": str(share)}
            timer.add_sample(name, labels, quantile(buckets, share, _QUEUE_TIME_EDGES) * 1e3)
        timer.add_metric([str(broker_id)], waited.requests, waited.total_ns / 1e6)
    return timer


def _labels(key: Key) -> list[str]:
    return [str(key.broker_id), _api(key)]


def _api(key: Key) -> str:
    return API_NAMES.get(key.api_key, str(key.api_key))

"""The metrics of a controller for Prometheus, under Kafka's names as the JMX exporter usually gives them.

Source: ``kafka.controller.KafkaController``, ``ControllerStats`` and ``ControllerEventManager`` (Kafka 3.9).
Metrics that Kafka does not have begin with ``ctrlchan_controller_``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, Final

import numpy as np
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

from ctrlchan.channel.observability.counters import quantile
from ctrlchan.channel.observability.metrics import ChannelMetrics
from ctrlchan.controller.core import ControllerCore
from ctrlchan.controller.events.event import ControllerState
from ctrlchan.controller.events.event_loop import EventLoop
from ctrlchan.controller.machines.context import ControllerContext
from ctrlchan.controller.status.figures import NO_FIGURES, ClusterFigures, figures_of
from ctrlchan.errors import NotControllerError

__all__ = ["ControllerMetrics"]

_KAFKA: Final = "kafka_controller_"
_CONTROLLER: Final = f"{_KAFKA}kafkacontroller_"
_STATS: Final = f"{_KAFKA}controllerstats_"
_EVENTS: Final = f"{_KAFKA}controllereventmanager_"
_OURS: Final = "ctrlchan_controller_"
#: Kafka's ``ZkMigrationState.ZK``: no migration to KRaft.
_MIGRATION_STATE: Final = 4
#: Seconds that a scrape waits for the event loop; then it shows the figures of the scrape before.
_WAIT_SECONDS: Final = 2.0
#: The quantiles of Kafka's timers and histograms.
_QUANTILES: Final = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
#: Upper ends of the buckets of times, in milliseconds: powers of two from a microsecond to three days.
_EDGES: Final = tuple(2.0**power / 1_000 for power in range(38))

#: Gauges: Kafka's name, text, attribute of the figures.
_GAUGES: Final = (
    ("OfflinePartitionsCount", "Partitions without a live leader", "offline_partitions"),
    (
        "PreferredReplicaImbalanceCount",
        "Partitions whose leader is not their preferred replica",
        "preferred_replica_imbalance",
    ),
    ("GlobalTopicCount", "Topics", "topics"),
    ("GlobalPartitionCount", "Partitions that have had a leader", "partitions"),
    ("TopicsToDeleteCount", "Topics that are to be deleted", "topics_to_delete"),
    ("ReplicasToDeleteCount", "Replicas that are to be deleted", "replicas_to_delete"),
    (
        "TopicsIneligibleToDeleteCount",
        "Topics that are to be deleted and cannot be now",
        "topics_ineligible_to_delete",
    ),
    (
        "ReplicasIneligibleToDeleteCount",
        "Replicas that are to be deleted and cannot be now",
        "replicas_ineligible_to_delete",
    ),
    ("ActiveBrokerCount", "Live brokers", "active_brokers"),
)


class _Times:
    """The number of some times, their sum and a histogram of them, in milliseconds."""

    __slots__ = ("_buckets", "count", "total")

    def __init__(self) -> None:
        self._buckets = np.zeros(len(_EDGES) + 1, np.int64)
        self.count = 0
        self.total = 0.0

    def add(self, milliseconds: float) -> None:
        self._buckets[np.searchsorted(_EDGES, milliseconds)] += 1
        self.count += 1
        self.total += milliseconds

    def family(self, name: str, text: str) -> Metric:
        family = SummaryMetricFamily(name, text)
        for share in _QUANTILES:
            family.add_sample(name, {"quantile": str(share)}, quantile(self._buckets, share, _EDGES))
        family.add_metric([], self.count, self.total)
        return family


class ControllerMetrics(Collector):
    """A Prometheus collector for one controller and its channel: ``KafkaController(..., metrics=metrics)``.

    Register it with a registry; `ctrlchan.page` serves it. ``channel`` collects the metrics of the
    controller's channel. Gauges are counted on the thread of the event loop when they are asked for; while
    that thread is busy for longer than two seconds, they keep the values of the scrape before. Gauges of a
    process that is not the controller are 0. Quantiles are of all events since the start; Kafka's favour the
    last five minutes.
    """

    def __init__(self) -> None:
        self.channel = ChannelMetrics()
        # Guards the times and the counter of elections.
        self._lock = threading.Lock()
        self._queue_times = _Times()
        self._event_times = {
            state: _Times() for state in ControllerState if state.rate_and_time_metric is not None
        }
        self._unclean_elections = 0
        self._loop: EventLoop[ControllerCore] | None = None
        self._current: Callable[[], ControllerCore | None] = _no_core
        # What the event that is processed now began with.
        self._context: ControllerContext | None = None
        self._unclean_before = 0
        # What the last scrape found.
        self._figures: ClusterFigures | None = None
        self._epoch = -1

    # -- for the controller

    def attach(self, loop: EventLoop[ControllerCore], current: Callable[[], ControllerCore | None]) -> None:
        """Read from this controller from now on. ``current`` returns its core, or None without a term."""
        self._loop = loop
        self._current = current

    def detach(self) -> None:
        """Forget the controller; counters keep their values."""
        self._loop = None
        self._current = _no_core
        self._figures = None

    def event_started(self, state: ControllerState, queue_time_ms: float) -> None:
        """Record that an event begins after this time in the queue."""
        self._context = _context_of(self._current())
        self._unclean_before = 0 if self._context is None else self._context.unclean_elections
        with self._lock:
            self._queue_times.add(queue_time_ms)

    def event_ended(self, state: ControllerState, time_ms: float) -> None:
        """Record how long an event took."""
        before, now = self._context, _context_of(self._current())
        self._context = None
        added = 0 if before is None else before.unclean_elections - self._unclean_before
        if now is not None and now is not before:
            added += now.unclean_elections
        with self._lock:
            self._unclean_elections += added
            times = self._event_times.get(state)
            if times is not None:
                times.add(time_ms)

    # -- for Prometheus

    def collect(self) -> Iterator[Metric]:
        figures, epoch = self._read()
        yield _gauge("ActiveControllerCount", "1: this process is the controller", int(figures is not None))
        yield GaugeMetricFamily(f"{_OURS}epoch", "The controller epoch; -1: not the controller", epoch)
        counted = NO_FIGURES if figures is None else figures
        for name, text, attribute in _GAUGES:
            yield _gauge(name, text, getattr(counted, attribute))
        yield GaugeMetricFamily(
            f"{_OURS}reassigning_partitions",
            "Partitions that are being reassigned",
            counted.reassigning_partitions,
        )
        loop = self._loop
        state = ControllerState.IDLE if loop is None else loop.state
        yield _gauge("ControllerState", "Kind of the event that is processed; 0: none", state.value)
        yield _gauge("FencedBrokerCount", "0: ZooKeeper mode has no fenced brokers", 0)
        yield _gauge("ZkMigrationState", "4: ZooKeeper mode, no migration", _MIGRATION_STATE)
        yield GaugeMetricFamily(
            f"{_EVENTS}eventqueuesize", "Events that wait", 0 if loop is None else loop.queue_size
        )
        with self._lock:
            families = [
                self._queue_times.family(f"{_EVENTS}eventqueuetimems", "Milliseconds of events in the queue"),
                CounterMetricFamily(
                    f"{_STATS}uncleanleaderelectionspersec",
                    "Partitions that got a leader from outside the ISR",
                    self._unclean_elections,
                ),
            ]
            for kind, times in self._event_times.items():
                name = str(kind.rate_and_time_metric)
                families.append(
                    times.family(f"{_STATS}{name.lower()}", f"{name}: events and their milliseconds")
                )
        yield from families
        yield from self.channel.collect()

    def _read(self) -> tuple[ClusterFigures | None, int]:
        """Return (figures, controller epoch); (None, -1): this process is not the controller."""
        loop = self._loop
        if loop is None:
            self._figures, self._epoch = None, -1
        else:
            answer = loop.call(ControllerState.IDLE, _read, "Metrics")
            try:
                self._figures, self._epoch = answer.result(_WAIT_SECONDS)
            except NotControllerError:
                self._figures, self._epoch = None, -1
            except FutureTimeoutError:
                answer.cancel()
        return self._figures, self._epoch


def _read(core: ControllerCore) -> tuple[ClusterFigures, int]:
    return figures_of(core.context), core.epoch


def _context_of(core: ControllerCore | None) -> ControllerContext | None:
    # A core has no context before the failover has read the cluster.
    context: ControllerContext | None = getattr(core, "context", None)
    return context


def _no_core() -> None:
    return None


def _gauge(name: str, text: str, value: float) -> Any:
    return GaugeMetricFamily(f"{_CONTROLLER}{name.lower()}", f"{name}: {text}", value)

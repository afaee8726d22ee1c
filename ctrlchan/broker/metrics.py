"""The metrics of a broker that stores records, under Kafka's names as the JMX exporter usually gives them.

Source: ``BrokerTopicStats``, ``RequestMetrics``, ``SocketServer``, ``KafkaRequestHandlerPool``,
``ReplicaManager``, ``UnifiedLog``, ``LogManager``, ``DelayedOperationPurgatory``, ``GroupMetadataManager``
(Kafka 3.9). Values are read when they are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

from ctrlchan.server.api_names import api_name

if TYPE_CHECKING:
    from ctrlchan.broker.server import BrokerServer

__all__ = ["BrokerMetrics"]

_SERVER: Final = "kafka_server_"
_NETWORK: Final = "kafka_network_"
_LOG: Final = "kafka_log_log_"
_PARTITION: Final = ("topic", "partition")


class BrokerMetrics(Collector):
    """A collector for ``prometheus_client``: register it in a registry. ``service``: the broker."""

    def __init__(self, service: BrokerServer) -> None:
        self._service = service

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics as of now."""
        service = self._service
        yield _gauge(f"{_SERVER}kafkaserver_brokerstate", "BrokerState", service.state)
        if service.core.partitions is None:
            return
        yield from self._topics()
        yield from self._requests()
        yield from self._network()
        yield from self._replicas()
        yield from self._logs()
        yield from self._groups()

    def _topics(self) -> Iterator[Metric]:
        topics: dict[str, list[int]] = {}
        for partition in self._service.core.partitions.partitions():
            sums = topics.setdefault(partition.topic, [0, 0, 0])
            for place, value in enumerate(partition.counters):
                sums[place] += value
        names = ("messagesin", "bytesin", "failedproducerequests")
        texts = ("Records appended", "Bytes appended", "Appends that failed")
        for place, (name, text) in enumerate(zip(names, texts, strict=True)):
            family = CounterMetricFamily(f"{_SERVER}brokertopicmetrics_{name}", text, labels=("topic",))
            for topic, sums in sorted(topics.items()):
                family.add_metric((topic,), sums[place])
            yield family
        fetched = self._service.fetch.counters()
        produced, _, expired = self._service.produce.counters
        # Requests that processors leave to handler threads.
        produced += self._service.requests_of("Produce")
        for name, text, value in (
            ("brokertopicmetrics_bytesout", "Bytes sent to consumers and followers", fetched["bytes_out"]),
            ("brokertopicmetrics_totalfetchrequests", "Fetch requests", fetched["requests"]),
            ("brokertopicmetrics_totalproducerequests", "Produce requests", produced),
            ("delayedfetchmetrics_expires", "Fetch requests that waited for too long", fetched["expired"]),
            ("delayedproducemetrics_expires", "Produce requests that waited for too long", expired),
        ):
            yield _counter(f"{_SERVER}{name}", text, value)
        for name, text, value in (
            ("numincrementalfetchsessions", "Incremental fetch sessions", fetched["sessions"]),
            ("numincrementalfetchpartitionscached", "Partitions in sessions", fetched["session_partitions"]),
        ):
            yield _gauge(f"{_SERVER}fetchsessioncache_{name}", text, value)
        yield _counter(
            f"{_SERVER}fetchsessioncache_incrementalfetchsessionevictions",
            "Sessions that gave way to others",
            fetched["session_evictions"],
        )

    def _requests(self) -> Iterator[Metric]:
        labels = ("request",)
        prefix = f"{_NETWORK}requestmetrics_"
        requests = CounterMetricFamily(f"{prefix}requests", "Requests", labels=labels)
        times = SummaryMetricFamily(f"{prefix}totaltimems", "From request to answer, in ms", labels=labels)
        bytes_in = CounterMetricFamily(f"{prefix}requestbytes", "Bytes of requests", labels=labels)
        errors = CounterMetricFamily(f"{prefix}errors", "Whole answers by error", labels=(*labels, "error"))
        # Requests, milliseconds, bytes: of processors, and of handler threads.
        totals = {api_name(key): own for key, own in self._service.hot.totals().items()}
        for name, counters in self._service.describe()["apis"].items():
            number, milliseconds, size = totals.get(name, (0, 0.0, 0))
            totals[name] = (
                number + counters["requests"],
                milliseconds + counters["seconds"] * 1000,
                size + counters["bytes_in"],
            )
            for error, count in sorted(counters["errors"].items()):
                errors.add_metric((name, error), count)
        for name, (number, milliseconds, size) in sorted(totals.items()):
            requests.add_metric((name,), number)
            times.add_metric((name,), number, milliseconds)
            bytes_in.add_metric((name,), size)
        yield from (requests, times, bytes_in, errors)

    def _network(self) -> Iterator[Metric]:
        server = self._service.server
        processors, acceptors = server.counters()
        idle = GaugeMetricFamily(
            f"{_NETWORK}processor_idlepercent", "Share of time without work", labels=("networkprocessor",)
        )
        shares = [one.idle_ns / one.running_ns if one.running_ns else 1.0 for one in processors]
        for number, share in enumerate(shares):
            idle.add_metric((str(number),), min(1.0, share))
        yield idle
        for name, text, value in (
            (
                "socketserver_networkprocessoravgidlepercent",
                "Mean of the processors",
                sum(shares) / len(shares),
            ),
            ("requestchannel_requestqueuesize", "Requests for handler threads", server.requests.size),
            ("acceptor_connections", "Open connections", sum(one.connections for one in processors)),
        ):
            yield _gauge(f"{_NETWORK}{name}", text, value)
        yield _gauge(
            f"{_SERVER}kafkarequesthandlerpool_requesthandleravgidlepercent",
            "Share of time in which handler threads have no request",
            self._service.pool.idle_share,
        )
        for name, text, value in (
            (
                "rejectedconnections",
                "Connections of addresses that had too many",
                sum(one.rejected for one in acceptors),
            ),
            (
                "expiredconnectionskilledcount",
                "Connections that were idle for too long",
                sum(one.idle_closed for one in processors),
            ),
        ):
            yield _counter(f"{_NETWORK}socketserver_{name}", text, value)

    def _replicas(self) -> Iterator[Metric]:
        partitions = self._service.core.partitions.partitions()
        led = [one for one in partitions if one.is_leader]
        for name, text, value in (
            ("partitioncount", "Hosted partitions", len(partitions)),
            ("leadercount", "Led partitions", len(led)),
            ("offlinereplicacount", "Partitions in failed log directories", _count(partitions, _is_offline)),
            (
                "underreplicatedpartitions",
                "Led, with replicas out of sync",
                _count(led, _is_under_replicated),
            ),
            ("underminisrpartitioncount", "Led, with too small an ISR", _count(led, _is_under_min_isr)),
            ("atminisrpartitioncount", "Led, with the smallest ISR", _count(led, _is_at_min_isr)),
        ):
            yield _gauge(f"{_SERVER}replicamanager_{name}", text, value)
        readers: tuple[tuple[str, str, Callable[[Any], int]], ...] = (
            ("replicascount", "Replicas of a led partition", lambda one: len(one.replicas)),
            ("insyncreplicascount", "Replicas in sync", lambda one: len(one.isr)),
            ("underreplicated", "1: with replicas out of sync", _is_under_replicated),
            ("underminisr", "1: with too small an ISR", _is_under_min_isr),
        )
        for name, text, read in readers:
            family = GaugeMetricFamily(f"kafka_cluster_partition_{name}", text, labels=_PARTITION)
            for one in led:
                family.add_metric((one.topic, str(one.partition)), read(one))
            yield family

    def _logs(self) -> Iterator[Metric]:
        manager = self._service.core.logs
        logs = sorted(manager.logs().items())
        readers: tuple[tuple[str, str, Callable[[Any], int]], ...] = (
            ("size", "Bytes of the log", lambda log: log.size),
            ("numlogsegments", "Segments", lambda log: len(log.segment_offsets())),
            ("logstartoffset", "First offset", lambda log: log.start_offset),
            ("logendoffset", "Next offset", lambda log: log.end_offset),
        )
        for name, text, read in readers:
            family = GaugeMetricFamily(f"{_LOG}{name}", text, labels=_PARTITION)
            for (topic, partition), log in logs:
                family.add_metric((topic, str(partition)), read(log))
            yield family
        offline = manager.offline_dirs
        yield _gauge(
            "kafka_log_logmanager_offlinelogdirectorycount", "Log directories that failed", len(offline)
        )
        family = GaugeMetricFamily(
            "kafka_log_logmanager_logdirectoryoffline",
            "1: the log directory failed",
            labels=("logdirectory",),
        )
        for path in sorted({*manager.online_dirs, *offline}):
            family.add_metric((str(path),), path in offline)
        yield family

    def _groups(self) -> Iterator[Metric]:
        figures = self._service.core.groups.coordinator.figures()
        prefix = "kafka_coordinator_group_groupmetadatamanager_num"
        yield _gauge(f"{prefix}groups", "Groups", sum(figures.groups.values()))
        yield _gauge(f"{prefix}offsets", "Committed offsets", figures.offsets)
        for state, count in figures.groups.items():
            yield _gauge(f"{prefix}groups{state.lower()}", f"Groups that are {state}", count)
        waiting = {
            "Produce": self._service.produce.waiting,
            "Fetch": self._service.fetch.counters()["waiting"],
            "Heartbeat": figures.sessions,
            "Rebalance": figures.rebalances,
        }
        for name in ("purgatorysize", "numdelayedoperations"):
            family = GaugeMetricFamily(
                f"{_SERVER}delayedoperationpurgatory_{name}",
                "Requests, sessions and rebalances that wait",
                labels=("delayedoperation",),
            )
            for operation, count in waiting.items():
                family.add_metric((operation,), count)
            yield family


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(name, text, value=value)


def _count(partitions: Iterable[Any], wanted: Callable[[Any], bool]) -> int:
    return sum(map(wanted, partitions))


def _is_offline(partition: Any) -> bool:
    return bool(partition.is_offline)


def _is_under_replicated(partition: Any) -> bool:
    return len(partition.isr) < len(partition.replicas)


def _is_under_min_isr(partition: Any) -> bool:
    return partition.log is not None and len(partition.isr) < partition.log.config.min_insync_replicas


def _is_at_min_isr(partition: Any) -> bool:
    return partition.log is not None and len(partition.isr) == partition.log.config.min_insync_replicas

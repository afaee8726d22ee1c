"""Metrics of connections and of the threads that serve them: acceptors, processors, handler threads.

Source: ``SocketServer``, ``RequestChannel``, ``KafkaRequestHandlerPool`` (Kafka 3.9).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from prometheus_client.core import GaugeMetricFamily, Metric

from ctrlchan.broker.metrics.families import counter, gauge

if TYPE_CHECKING:
    from ctrlchan.broker.server import BrokerServer
    from ctrlchan.server.socket_server import MemoryPool, ProcessorCounters

__all__ = ["collect", "idle_share"]

_NETWORK: Final = "kafka_network_"
_NO_LIMIT: Final = 2**63 - 1


def collect(server: BrokerServer) -> Iterator[Metric]:
    """Yield the metrics as of now."""
    sockets = server.server
    processors, acceptors = sockets.counters()
    idle = GaugeMetricFamily(
        f"{_NETWORK}processor_idlepercent", "Share of time without work", labels=("networkprocessor",)
    )
    control = server.config.control_plane_listener
    shares = []
    for number, one in enumerate(processors):
        share = idle_share(one)
        idle.add_metric((str(number),), share)
        if one.listener != control:
            shares.append(share)
    yield idle
    for name, text, value in (
        (
            "socketserver_networkprocessoravgidlepercent",
            "Mean of the processors, but for that of the controller's own listener",
            sum(shares) / len(shares),
        ),
        ("requestchannel_requestqueuesize", "Requests for handler threads", sockets.requests.size),
        ("acceptor_connections", "Open connections", sum(one.connections for one in processors)),
    ):
        yield gauge(f"{_NETWORK}{name}", text, value)
    yield gauge(
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent",
        "Share of time in which handler threads have no request",
        server.pool.idle_share,
    )
    for name, text, value in (
        (
            "rejectedconnections",
            "Connections of addresses that had too many",
            sum(one.rejected for one in acceptors),
        ),
        (
            "expiredconnectionskilledcount",
            "Connections whose SASL session had ended",
            sum(one.sessions_expired for one in processors if one.listener != control),
        ),
    ):
        yield counter(f"{_NETWORK}socketserver_{name}", text, value)
    yield from _memory(sockets.memory())


def idle_share(processor: ProcessorCounters) -> float:
    """Return the share of time in which a processor had nothing to do."""
    return min(1.0, processor.idle_ns / processor.running_ns) if processor.running_ns else 1.0


def _memory(pool: MemoryPool) -> Iterator[Metric]:
    """Yield the metrics of queued.max.request.bytes. Without a limit all is left, as in Kafka."""
    left = pool.available if pool.size else _NO_LIMIT
    yield gauge(f"{_NETWORK}socketserver_memorypoolavailable", "Bytes that are left for requests", left)
    yield gauge(
        f"{_NETWORK}socketserver_memorypoolused",
        "Bytes of requests that were received and are not handled",
        pool.size - pool.available,
    )
    yield counter(
        "kafka_server_socket_server_metrics_memorypoolavgdepletedpercent",
        "Nanoseconds in which requests waited for memory",
        pool.empty_ns,
    )

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
    from ctrlchan.server.socket_server import MemoryPool

__all__ = ["collect"]

_NETWORK: Final = "kafka_network_"
_NO_LIMIT: Final = 2**63 - 1


def collect(server: BrokerServer) -> Iterator[Metric]:
    """Yield the metrics as of now."""
    sockets = server.server
    processors, acceptors = sockets.counters()
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
            sum(one.sessions_expired for one in processors),
        ),
    ):
        yield counter(f"{_NETWORK}socketserver_{name}", text, value)
    yield from _memory(sockets.memory())


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

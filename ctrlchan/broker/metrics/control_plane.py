"""Metrics of the listener that only the controller connects to, and of its threads (KIP-291).

Source: ``SocketServer``, ``RequestChannel``, ``KafkaRequestHandlerPool`` (Kafka 3.9), with the prefix
ControlPlane.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from prometheus_client.core import Metric

from ctrlchan.broker.metrics.families import counter, gauge
from ctrlchan.broker.metrics.threads import idle_share

if TYPE_CHECKING:
    from ctrlchan.broker.server import BrokerServer

__all__ = ["collect"]

_SOCKET_SERVER: Final = "kafka_network_socketserver_controlplane"


def collect(server: BrokerServer) -> Iterator[Metric]:
    """Yield the metrics as of now; none of a broker without such a listener."""
    requests, pool = server.server.control_requests, server.control_pool
    if requests is None or pool is None:
        return
    control = server.config.control_plane_listener
    processor = next(one for one in server.server.counters()[0] if one.listener == control)
    yield gauge(
        f"{_SOCKET_SERVER}networkprocessoravgidlepercent", "Share of time without work", idle_share(processor)
    )
    yield counter(
        f"{_SOCKET_SERVER}expiredconnectionskilledcount",
        "Connections whose SASL session had ended",
        processor.sessions_expired,
    )
    yield gauge(
        "kafka_network_requestchannel_controlplanerequestqueuesize",
        "Requests for the handler thread",
        requests.size,
    )
    yield gauge(
        "kafka_server_kafkarequesthandlerpool_controlplanerequesthandleravgidlepercent",
        "Share of time in which the handler thread has no request",
        pool.idle_share,
    )

"""Metrics of the limits of connections: how many come in a second, and for how long they wait.

Source: ``ConnectionQuotas`` and ``Acceptor`` in ``SocketServer`` (Kafka 3.9): ``socket-server-metrics``.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv6Address
from math import isnan
from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from ctrlchan.broker.metrics.families import gauge
from ctrlchan.server.access import java_host

if TYPE_CHECKING:
    from ctrlchan.broker.server import BrokerServer

__all__ = ["collect"]

_PREFIX: Final = "kafka_server_socket_server_metrics_"
_LISTENER: Final = ("listener",)


def collect(server: BrokerServer) -> Iterator[Metric]:
    """Yield the metrics as of now. An address has a rate only while a quota holds for it."""
    sockets = server.server
    quotas = sockets.quotas
    blocked = CounterMetricFamily(
        "kafka_network_acceptor_acceptorblockedpercent",
        "Nanoseconds in which a connection has waited for the limits",
        labels=_LISTENER,
    )
    for one in sockets.counters()[1]:
        blocked.add_metric((one.listener,), one.blocked_ns)
    yield blocked
    of_server, of_listeners = quotas.rates_now()
    yield gauge(f"{_PREFIX}broker_connection_accept_rate", "New connections in a second", of_server)
    rate = GaugeMetricFamily(
        f"{_PREFIX}connection_accept_rate", "New connections in a second", labels=(*_LISTENER, "ip")
    )
    waits = GaugeMetricFamily(
        f"{_PREFIX}connection_accept_throttle_time",
        "Average throttle time of connections that wait, in milliseconds",
        labels=_LISTENER,
    )
    closes = GaugeMetricFamily(
        f"{_PREFIX}ip_connection_accept_throttle_time",
        "Average throttle time of connections that are closed for their address, in milliseconds",
        labels=_LISTENER,
    )
    for listener, (value, wait_ms, close_ms) in zip(sockets.ports, of_listeners, strict=True):
        rate.add_metric((listener, ""), value)
        for family, average in ((waits, wait_ms), (closes, close_ms)):
            if not isnan(average):
                family.add_metric((listener,), average)
    for packed, value in quotas.ip_rates_now():
        address = IPv6Address(packed)
        rate.add_metric(("", java_host(str(address.ipv4_mapped or address))), value)
    yield from (rate, waits, closes)

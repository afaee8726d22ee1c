"""Metrics of connections and their peers, by listener and processor; how many tokens peers may have.

Source: ``Selector.SelectorMetrics`` (Kafka 3.9), group ``socket-server-metrics``. It does not count tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from ctrlchan.broker.metrics.families import gauge
from ctrlchan.protocol import SecurityProtocol
from ctrlchan.server.socket_server import ProcessorCounters

if TYPE_CHECKING:
    from ctrlchan.broker.server import BrokerServer

__all__ = ["collect"]

_PREFIX: Final = "kafka_server_socket_server_metrics_"
_LABELS: Final = ("listener", "networkprocessor")
#: Name, what it counts, and its field of ProcessorCounters.
_COUNTERS: Final = (
    ("connection_creation", "Connections that were opened", "opened"),
    ("connection_close", "Connections that were closed", "closed"),
    ("incoming_byte", "Bytes that were received", "bytes_in"),
    ("outgoing_byte", "Bytes that were sent", "bytes_out"),
    # What the selector of a client receives are responses, and Kafka's servers have the same one.
    ("response", "Requests that were received", "requests"),
    ("io_wait_time_ns", "Nanoseconds without work", "idle_ns"),
    ("successful_authentication", "Peers that proved who they are", "authenticated"),
    ("failed_authentication", "Peers that did not", "authentications_failed"),
    ("successful_reauthentication", "Sessions that were renewed", "renewed"),
    ("failed_reauthentication", "Sessions that were not", "renewals_failed"),
    (
        "successful_authentication_no_reauth",
        "Peers whose client cannot renew its session",
        "cannot_renew",
    ),
    ("expired_connections_killed_count", "Connections whose session had ended", "sessions_expired"),
)


def collect(server: BrokerServer) -> Iterator[Metric]:
    """Yield the metrics as of now."""
    protocols = {one.listener: one.security_protocol for one in server.node.broker.endpoints}
    processors, _ = server.server.counters()
    open_now = GaugeMetricFamily(f"{_PREFIX}connection_count", "Open connections", labels=_LABELS)
    for number, counters in enumerate(processors):
        open_now.add_metric((counters.listener, str(number)), counters.connections)
    yield open_now
    for name, text, field in _COUNTERS:
        family = CounterMetricFamily(f"{_PREFIX}{name}", text, labels=_LABELS)
        for number, counters in enumerate(processors):
            value = _value(counters, field, protocols[counters.listener])
            family.add_metric((counters.listener, str(number)), value)
        yield family
    tokens = server.core.tokens
    if tokens is not None:
        yield gauge("ctrlchan_broker_delegation_tokens", "Delegation tokens that are known", tokens.count)


def _value(counters: ProcessorCounters, field: str, protocol: SecurityProtocol) -> int:
    """Return a counter; as in Kafka a handshake of TLS counts, where it fails and where no SASL follows."""
    if field == "closed":
        return counters.opened - counters.connections
    value: int = getattr(counters, field)
    if field == "authentications_failed":
        return value + counters.failed_handshakes
    if field == "authenticated" and protocol is SecurityProtocol.SSL:
        return value + counters.handshakes
    return value

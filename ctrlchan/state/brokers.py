"""Brokers as objects (``Broker``, ``Endpoint``) and as the codec's columns (``Brokers``).

A cluster has thousands of brokers at most, so they may be Python objects; partitions may not.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ctrlchan._codec import Brokers, StringColumn
from ctrlchan.errors import InvalidStateError
from ctrlchan.protocol import SecurityProtocol
from ctrlchan.text import MAX_STRING, quoted, why_unsendable

__all__ = [
    "MAX_PORT",
    "Broker",
    "Endpoint",
    "SecurityProtocol",
    "broker_at",
    "brokers_from",
    "brokers_list",
    "check_host",
    "format_host_port",
    "parse_host_port",
]

#: The highest TCP port.
MAX_PORT = 65_535
_MAX_ID = 2**31 - 1
_MAX_EPOCH = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of one listener of a broker. ``port``: 0 .. 65535."""

    listener: str
    security_protocol: SecurityProtocol
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.listener}://{format_host_port(self.host, self.port)}"


@dataclass(frozen=True, slots=True)
class Broker:
    """A live or shutting-down broker.

    ``id``: int32 from 0. ``epoch``: int64, the czxid of the registration in ZooKeeper, -1 when unknown.
    """

    id: int
    epoch: int = -1
    endpoints: tuple[Endpoint, ...] = ()
    rack: str | None = None


def brokers_from(brokers: Iterable[Broker] | Brokers) -> Brokers:
    """Return columns of these brokers, in this order; columns are returned as they are.

    Raises InvalidStateError for an id twice or outside 0 .. 2147483647, an epoch that int64 does not hold, a
    port outside 0 .. 65535, and a rack, host or listener that no request can carry (``why_unsendable``).
    """
    if isinstance(brokers, Brokers):
        _check_ids(brokers.ids.tolist())
        _check_columns(brokers)
        return brokers
    listed = list(brokers)
    _check_ids([broker.id for broker in listed])
    endpoints = [endpoint for broker in listed for endpoint in broker.endpoints]
    for broker in listed:
        _check_broker(broker)
    counts = np.array([len(broker.endpoints) for broker in listed], dtype=np.int32)
    return Brokers(
        ids=np.array([broker.id for broker in listed], dtype=np.int32),
        epochs=np.array([broker.epoch for broker in listed], dtype=np.int64),
        racks=StringColumn.from_strings(broker.rack for broker in listed),
        endpoint_starts=np.cumsum(counts, dtype=np.int32) - counts,
        endpoint_lengths=counts,
        ports=np.array([endpoint.port for endpoint in endpoints], dtype=np.int32),
        hosts=StringColumn.from_strings(endpoint.host for endpoint in endpoints),
        listeners=StringColumn.from_strings(endpoint.listener for endpoint in endpoints),
        security_protocols=np.array([endpoint.security_protocol for endpoint in endpoints], dtype=np.int32),
    )


def broker_at(brokers: Brokers, row: int) -> Broker:
    """Return the broker of this row as an object.

    Raises IndexError for no such row, ValueError for a security protocol that Kafka does not have (a decoded
    message may hold any).
    """
    rack = brokers.racks[row]
    first = int(brokers.endpoint_starts[row])
    return Broker(
        id=int(brokers.ids[row]),
        epoch=int(brokers.epochs[row]),
        endpoints=tuple(
            Endpoint(
                listener=(brokers.listeners[i] or b"").decode(),
                security_protocol=SecurityProtocol(int(brokers.security_protocols[i])),
                host=(brokers.hosts[i] or b"").decode(),
                port=int(brokers.ports[i]),
            )
            for i in range(first, first + int(brokers.endpoint_lengths[row]))
        ),
        rack=None if rack is None else rack.decode(),
    )


def brokers_list(brokers: Brokers) -> list[Broker]:
    """Return every row as an object, in row order."""
    return [broker_at(brokers, row) for row in range(len(brokers))]


def check_host(host: str) -> str:
    """Return the host. Raises InvalidStateError when it is empty or has blanks or control characters."""
    if not host or " " in host or not host.isprintable():
        raise InvalidStateError(f"{quoted(host)} is not a host name")
    return host


def parse_host_port(text: str) -> tuple[str, int]:
    """Return (host without brackets, port) of ``host:9092`` or ``[::1]:9092``.

    Raises InvalidStateError for another text.
    """
    host, colon, port = text.strip().rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise InvalidStateError(f"{text!r}: an IPv6 address needs brackets, as in [::1]:9092")
    if not colon or not host or not (port.isascii() and port.isdigit()) or int(port) > MAX_PORT:
        raise InvalidStateError(f"{text!r} is not HOST:PORT with a port in 0 .. {MAX_PORT}")
    return check_host(host), int(port)


def format_host_port(host: str, port: int) -> str:
    """Return ``host:port``, the host in brackets when it is an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _check_broker(broker: Broker) -> None:
    if not -_MAX_EPOCH - 1 <= broker.epoch <= _MAX_EPOCH:
        raise InvalidStateError(f"broker {broker.id}: epoch {broker.epoch} is not an int64")
    texts = [("rack", broker.rack or "")]
    for endpoint in broker.endpoints:
        if not 0 <= endpoint.port <= MAX_PORT:
            raise InvalidStateError(f"broker {broker.id}: port {endpoint.port} is not in 0 .. {MAX_PORT}")
        texts += [("host", endpoint.host), ("listener", endpoint.listener)]
    for name, text in texts:
        if (why := why_unsendable(text)) is not None:
            raise InvalidStateError(f"broker {broker.id}: {name} {quoted(text)} {why}")


def _check_columns(brokers: Brokers) -> None:
    columns = {"rack": brokers.racks, "host": brokers.hosts, "listener": brokers.listeners}
    for name, column in columns.items():
        long = np.flatnonzero(column.lengths > MAX_STRING)
        if len(long):
            row = int(long[0])
            if name != "rack":
                first = brokers.endpoint_starts
                row = int(np.flatnonzero((first <= row) & (row < first + brokers.endpoint_lengths))[0])
            raise InvalidStateError(
                f"broker {brokers.ids[row]}: {name} has {column.lengths[long[0]]} bytes, more than the "
                f"{MAX_STRING} of a string in a request"
            )


def _check_ids(ids: list[int]) -> None:
    if len(set(ids)) != len(ids):
        twice = next(broker_id for broker_id in ids if ids.count(broker_id) > 1)
        raise InvalidStateError(f"broker {twice} is listed twice")
    for broker_id in ids:
        if not 0 <= broker_id <= _MAX_ID:
            raise InvalidStateError(f"broker id {broker_id} is not in 0 .. {_MAX_ID}")

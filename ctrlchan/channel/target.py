"""Where a broker is reached: one endpoint of those it has, for one generation of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from ctrlchan._codec import Brokers
from ctrlchan.channel.config import ChannelConfig
from ctrlchan.channel.wire.security import SECURITY_PROTOCOLS
from ctrlchan.errors import ChannelError

__all__ = ["BrokerLike", "EndpointLike", "Target", "targets_of"]


class EndpointLike(Protocol):
    """``ctrlchan.Endpoint``, or anything like it. ``security_protocol``: an enum member of that name."""

    @property
    def listener(self) -> str: ...
    @property
    def security_protocol(self) -> int: ...
    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...


class BrokerLike(Protocol):
    """``ctrlchan.Broker``, or anything like it."""

    @property
    def id(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    @property
    def endpoints(self) -> Sequence[EndpointLike]: ...


_MAX_PORT = 65_535


class Target(NamedTuple):
    """A broker's generation: a broker that comes back with another of these is another one."""

    broker_id: int
    #: -1: unknown.
    epoch: int
    host: str
    port: int

    def to_json(self) -> bytes:
        return json.dumps(self._asdict()).encode()

    def __str__(self) -> str:
        return f"{self.host}:{self.port} (id: {self.broker_id} rack: null)"


class _Endpoint(NamedTuple):
    listener: str
    security_protocol: int
    host: str
    port: int


def targets_of(brokers: Brokers | Iterable[BrokerLike], config: ChannelConfig) -> list[Target]:
    """One target for each broker. Raises ChannelError for a broker without a fitting endpoint."""
    if isinstance(brokers, Brokers):
        return [
            _choose(int(brokers.ids[row]), int(brokers.epochs[row]), list(_endpoints(brokers, row)), config)
            for row in range(len(brokers))
        ]
    return [_choose(broker.id, broker.epoch, broker.endpoints, config) for broker in brokers]


def _endpoints(brokers: Brokers, row: int) -> Iterator[_Endpoint]:
    first = int(brokers.endpoint_starts[row])
    for at in range(first, first + int(brokers.endpoint_lengths[row])):
        listener, host = brokers.listeners[at] or b"", brokers.hosts[at] or b""
        yield _Endpoint(
            listener.decode(), int(brokers.security_protocols[at]), host.decode(), int(brokers.ports[at])
        )


def _choose(broker_id: int, epoch: int, endpoints: Sequence[EndpointLike], config: ChannelConfig) -> Target:
    for endpoint in _fitting(endpoints, config):
        if not 0 < endpoint.port <= _MAX_PORT:
            raise ChannelError(f"broker {broker_id} has no port {endpoint.port}")
        return Target(broker_id, epoch, endpoint.host, endpoint.port)
    known = ", ".join(endpoint.listener for endpoint in endpoints) or "none"
    wanted = config.listener_name or config.broker_listener
    raise ChannelError(f"broker {broker_id} has no endpoint for listener {wanted} (it has: {known})")


def _fitting(endpoints: Sequence[EndpointLike], config: ChannelConfig) -> Iterator[EndpointLike]:
    """The endpoints that may be used, best first."""
    protocol = SECURITY_PROTOCOLS[config.security_protocol]
    wanted = config.listener_name or config.broker_listener
    for endpoint in endpoints:
        if endpoint.listener == wanted and endpoint.security_protocol == protocol:
            yield endpoint
    if config.listener_name is None and config.inter_broker_listener is None:
        # Only the protocol was named; a listener may have any name.
        for endpoint in endpoints:
            if endpoint.security_protocol == protocol:
                yield endpoint

"""Which endpoint of a broker the channel connects to."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from ctrlchan._codec import Brokers
from ctrlchan.channel.config import ChannelConfig
from ctrlchan.errors import ChannelError

__all__ = ["BrokerLike", "EndpointLike", "Target", "targets_of"]


class EndpointLike(Protocol):
    """What the channel reads of an endpoint (``ctrlchan.Endpoint``).

    ``security_protocol`` is the code of Kafka's SecurityProtocol, or an enum member that equals it.
    """

    @property
    def listener(self) -> str: ...
    @property
    def security_protocol(self) -> int: ...
    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...


class BrokerLike(Protocol):
    """What the channel reads of a broker (``ctrlchan.Broker``); a ``rack`` is shown where there is one."""

    @property
    def id(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    @property
    def endpoints(self) -> Sequence[EndpointLike]: ...


_MAX_PORT: Final = 65_535
_MAX_EPOCH: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Target:
    """One generation of a broker: the endpoint that the channel connects to, and the broker's epoch.

    A broker that is registered again with another epoch or endpoint is a new generation. The rack is only
    shown: `str` gives the name that Kafka's ``Node`` has in logs.
    """

    broker_id: int
    #: -1: unknown.
    epoch: int
    host: str
    port: int
    rack: str | None = field(default=None, compare=False)

    def to_json(self) -> bytes:
        """Return what a sender process is given of it."""
        return json.dumps({"host": self.host, "port": self.port, "epoch": self.epoch}).encode()

    def __str__(self) -> str:
        rack = "null" if self.rack is None else self.rack
        return f"{self.host}:{self.port} (id: {self.broker_id} rack: {rack})"


class _Endpoint(NamedTuple):
    listener: str
    security_protocol: int
    host: str
    port: int


def targets_of(
    brokers: Brokers | Iterable[BrokerLike], config: ChannelConfig
) -> tuple[list[Target], dict[int, str]]:
    """Return one target for each broker, and the reasons why there is none, by broker id.

    There is none for a broker without an endpoint for the configured listener, or with a host, port or epoch
    that no connection can be made with.
    """
    targets: list[Target] = []
    left_out: dict[int, str] = {}
    for broker_id, epoch, endpoints, rack in _registrations(brokers):
        try:
            targets.append(_choose(broker_id, epoch, endpoints, rack, config))
        except ChannelError as problem:
            left_out[broker_id] = str(problem)
    return targets, left_out


def _registrations(
    brokers: Brokers | Iterable[BrokerLike],
) -> Iterator[tuple[int, int, Sequence[EndpointLike], str | None]]:
    """Yield id, epoch, endpoints and rack of each broker."""
    if not isinstance(brokers, Brokers):
        for broker in brokers:
            yield broker.id, broker.epoch, broker.endpoints, getattr(broker, "rack", None)
        return
    for row in range(len(brokers)):
        rack = brokers.racks[row]
        yield (
            int(brokers.ids[row]),
            int(brokers.epochs[row]),
            list(_endpoints(brokers, row)),
            None if rack is None else _text(rack),
        )


def _endpoints(brokers: Brokers, row: int) -> Iterator[_Endpoint]:
    first = int(brokers.endpoint_starts[row])
    for at in range(first, first + int(brokers.endpoint_lengths[row])):
        listener, host = _text(brokers.listeners[at] or b""), _text(brokers.hosts[at] or b"")
        yield _Endpoint(listener, int(brokers.security_protocols[at]), host, int(brokers.ports[at]))


def _text(data: bytes) -> str:
    """Return UTF-8 as text; bytes that are not UTF-8 become surrogates, which no host may have."""
    return data.decode(errors="surrogateescape")


def _choose(
    broker_id: int, epoch: int, endpoints: Sequence[EndpointLike], rack: str | None, config: ChannelConfig
) -> Target:
    rule = config.connection_rule
    chosen = rule.choose((endpoint.listener, endpoint.security_protocol) for endpoint in endpoints)
    if chosen is None:
        known = ", ".join(endpoint.listener for endpoint in endpoints) or "none"
        raise ChannelError(f"broker {broker_id} has no endpoint for listener {rule.name} (it has: {known})")
    endpoint = endpoints[chosen]
    _check_host(broker_id, endpoint.host)
    if not 0 < endpoint.port <= _MAX_PORT:
        raise ChannelError(f"broker {broker_id} has no port {endpoint.port}")
    if not -_MAX_EPOCH - 1 <= epoch <= _MAX_EPOCH:
        raise ChannelError(f"broker {broker_id}: epoch: {epoch} is not an int64")
    return Target(broker_id, epoch, endpoint.host, endpoint.port, rack)


def _check_host(broker_id: int, host: str) -> None:
    """Raise ChannelError for text that cannot be the name or the address of a host."""
    if not host:
        raise ChannelError(f"broker {broker_id}: host: it is empty")
    # Surrogates, control characters and spaces are not printable, or separate words.
    if not host.isprintable() or " " in host:
        raise ChannelError(f"broker {broker_id}: host: {host!r} has a character that no host name has")

"""The plan of a cluster: bytes, times and memory of its events, and where one machine ends."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from ctrlchan.channel import ChannelConfig
from ctrlchan.errors import ConfigError
from ctrlchan.planning.costs import Costs
from ctrlchan.planning.events import Counted, PlannedCluster
from ctrlchan.planning.times import Time, event_time, failover_time, push_time
from ctrlchan.planning.traffic import ApiTraffic, Traffic
from ctrlchan.state import ClusterState, Endpoint

__all__ = ["Event", "Limit", "Plan", "make_plan"]

#: Restarts that are counted for a rolling restart; with more brokers the rest is as their average.
_COUNTED_RESTARTS: Final = 10
_MOST: Final = 2**31 - 1
_UPDATE_METADATA: Final = "UpdateMetadata"


@dataclass(frozen=True, slots=True)
class Event:
    """One row of the plan. ``exact``: whether ``bytes`` are; else they are of some brokers, times all."""

    name: str
    requests: int
    bytes: int
    most_broker_bytes: int
    apis: dict[str, ApiTraffic]
    state_nodes_read: int
    state_nodes_written: int
    seconds: float
    bound: str
    exact: bool = True


@dataclass(frozen=True, slots=True)
class Limit:
    """Whether one machine brings every broker its whole state (a failover) in ``within_seconds``.

    ``bound``: what decides: ``network``, ``processor`` (of the senders) or ``controller`` (its own work).
    ``most_partitions``: with these brokers; ``most_brokers``: with these partitions. ``machines``: over which
    a dispatch spreads the bytes, so that sending alone takes no longer.
    """

    within_seconds: float
    is_enough: bool
    bound: str
    most_partitions: int
    most_brokers: int
    machines: int


@dataclass(frozen=True, slots=True)
class Plan:
    """All of it. Times are estimates; bytes are those of the encoder."""

    partitions: int
    topics: int
    brokers: int
    replicas: int
    inter_broker_protocol: str
    events: tuple[Event, ...]
    memory_bytes: int
    sender_processes: int
    limit: Limit

    def event(self, name: str) -> Event:
        """Return the event of this name. Raises KeyError."""
        for one in self.events:
            if one.name == name:
                return one
        raise KeyError(name)


def make_plan(
    state: ClusterState,
    config: ChannelConfig,
    costs: Costs,
    *,
    network: float | None,
    within_seconds: float,
    controller: tuple[Endpoint, ...] = (),
    rack: str | None = None,
) -> Plan:
    """Return the plan of this cluster, whose state is adopted and changed.

    ``network``: bytes a second, None for brokers on this machine. Raises ConfigError for a state without
    brokers or partitions, EncodeError for one that the protocol's version cannot carry.
    """
    partitions, brokers, topics = len(state.partitions), len(state.broker_ids), len(state.topics)
    if not partitions or not brokers:
        raise ConfigError("a cluster to plan has brokers and partitions")
    cluster = PlannedCluster(state, config, controller=controller, rack=rack)
    replicas = int(state.partitions.replicas.lengths.sum())
    push = cluster.full_push()
    topic = cluster.topic_difference(_largest_topic(state))
    failover = cluster.failover()
    failover_takes = failover_time(costs, failover, partitions, brokers, network)
    events = [
        _event("full push", push, push_time(costs, push.traffic, network)),
        _event("difference push: one topic", topic, push_time(costs, topic.traffic, network)),
        _event("failover", failover, failover_takes),
    ]
    if brokers > 1:
        events[1:1], more = _with_other_brokers(cluster, costs, network)
        events += more
    senders = config.senders if isinstance(config.senders, int) else min(costs.processors, 4)
    return Plan(
        partitions=partitions,
        topics=topics,
        brokers=brokers,
        replicas=replicas,
        inter_broker_protocol=config.inter_broker_protocol,
        events=tuple(events),
        memory_bytes=round(_memory(costs, partitions, failover.traffic)),
        sender_processes=senders,
        limit=_limit(costs, failover, failover_takes, partitions, brokers, network, within_seconds),
    )


def _with_other_brokers(
    cluster: PlannedCluster, costs: Costs, network: float | None
) -> tuple[list[Event], list[Event]]:
    """Return the difference push when a broker dies, and the controller's events."""
    ids = cluster.state.broker_ids.tolist()
    counted = ids[:: math.ceil(len(ids) / _COUNTED_RESTARTS)]
    restarts = cluster.restart(counted[0])
    for broker_id in counted[1:]:
        restarts += cluster.restart(broker_id)
    rolling = restarts.times(len(ids) / len(counted))
    busiest = cluster.state.broker(_busiest_broker(cluster.state))
    died, difference = cluster.death(busiest.id)
    registered = cluster.registration(busiest)
    return (
        [
            _event(
                "difference push: one broker dies", difference, push_time(costs, difference.traffic, network)
            )
        ],
        [
            _event("death of a broker", died, event_time(costs, died, network)),
            _event("registration of a broker", registered, event_time(costs, registered, network)),
            replace(
                _event("rolling restart", rolling, event_time(costs, rolling, network)),
                exact=len(counted) == len(ids),
            ),
        ],
    )


def _event(name: str, counted: Counted, takes: Time) -> Event:
    total = counted.traffic.total
    return Event(
        name,
        total.requests,
        total.bytes,
        counted.traffic.most_broker_bytes,
        counted.traffic.apis,
        counted.reads,
        counted.writes,
        takes.seconds,
        takes.bound,
    )


def _memory(costs: Costs, partitions: int, failover: Traffic) -> float:
    """Return the bytes of controller and senders; bodies are in memory that all of them share."""
    encoded = sum(one.encoded_bytes for one in failover.apis.values())
    return costs.controller_bytes + partitions * costs.controller_partition_bytes + encoded


def _limit(
    costs: Costs,
    failover: Counted,
    takes: Time,
    partitions: int,
    brokers: int,
    network: float | None,
    within: float,
) -> Limit:
    def seconds(partitions_factor: float, brokers_factor: float) -> float:
        """Return the time of a failover of a cluster that is so many times as large."""
        apis = {
            # Every broker is sent every partition, but its own replicas alone.
            name: one.times(partitions_factor * (brokers_factor if name == _UPDATE_METADATA else 1.0))
            for name, one in failover.traffic.apis.items()
        }
        return failover_time(
            costs,
            replace(failover, traffic=Traffic(apis)),
            round(partitions * partitions_factor),
            round(brokers * brokers_factor),
            network,
        ).seconds

    return Limit(
        within_seconds=within,
        is_enough=takes.seconds <= within,
        bound=takes.bound,
        most_partitions=_most(lambda factor: seconds(factor, 1.0), within, partitions),
        most_brokers=_most(lambda factor: seconds(1.0, factor), within, brokers),
        machines=max(1, math.ceil(takes.sending_seconds / within)),
    )


def _most(seconds: Callable[[float], float], within: float, now: int) -> int:
    """Return the largest number whose time is within the limit; times grow linearly with it."""
    slope = seconds(2.0) - seconds(1.0)
    fixed = seconds(1.0) - slope
    if slope <= 0:
        # Rounding: so cheap that no number of an int32 id is too many.
        return _MOST
    return max(0, min(_MOST, math.floor(now * (within - fixed) / slope)))


def _largest_topic(state: ClusterState) -> int:
    return int(np.bincount(state.partitions.topic_row).argmax())


def _busiest_broker(state: ClusterState) -> int:
    """Return the id of the broker that leads the most partitions."""
    led = np.array([np.count_nonzero(state.partitions.leader == one) for one in state.broker_ids.tolist()])
    return int(state.broker_ids[led.argmax()])

"""The time of an event from what was counted, the costs of a machine, and the network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ctrlchan.planning.costs import Costs
from ctrlchan.planning.events import Counted
from ctrlchan.planning.traffic import Traffic

__all__ = [
    "CACHED_BYTES",
    "CONTROLLER",
    "NETWORK",
    "PROCESSOR",
    "Time",
    "event_time",
    "failover_time",
    "is_cached",
    "network_rate",
    "push_time",
]

#: What decides a time.
NETWORK: Final = "network"
PROCESSOR: Final = "processor"
CONTROLLER: Final = "controller"
#: Bodies of so many bytes together, and no more, stay in a cache of the processor while all brokers get them.
CACHED_BYTES: Final = 2 << 20


@dataclass(frozen=True, slots=True)
class Time:
    """``seconds``: until the last broker has answered. ``bound``: the largest part of them."""

    seconds: float
    sending_seconds: float
    bound: str


def network_rate(gbit: float) -> float:
    """Return the bytes a second of a network card of so many Gbit/s."""
    return gbit * 1e9 / 8


def is_cached(traffic: Traffic) -> bool:
    """Return whether the bodies fit into a cache of the processor."""
    return traffic.total.encoded_bytes <= CACHED_BYTES


def push_time(costs: Costs, traffic: Traffic, network: float | None) -> Time:
    """Return the time of requests that are only encoded and sent.

    ``network``: bytes a second of the controller's network card; None: brokers on this machine.
    """
    total = traffic.total
    byte_seconds = costs.cached_byte_seconds if is_cached(traffic) else costs.byte_seconds
    processor = total.bytes * byte_seconds + total.requests * costs.request_seconds
    # Sender processes write while the network takes what was written: the slower one decides.
    wire = 0.0 if network is None else total.bytes / network
    sending = max(processor, wire)
    encoding = total.encoded_partitions * costs.encode_seconds
    bound = NETWORK if wire > processor else PROCESSOR
    return Time(costs.push_seconds + encoding + sending, sending, bound)


def failover_time(
    costs: Costs, counted: Counted, partitions: int, brokers: int, network: float | None
) -> Time:
    """Return the time from the lost leadership of the former controller to the last answer."""
    sent = push_time(costs, counted.traffic, network)
    work = (
        costs.failover_seconds
        + partitions * (costs.read_seconds + costs.failover_partition_seconds)
        + brokers * costs.failover_broker_seconds
        + counted.writes * costs.write_seconds
    )
    return _with_work(work, sent)


def event_time(costs: Costs, counted: Counted, network: float | None) -> Time:
    """Return the time of an event that an active controller handles."""
    sent = push_time(costs, counted.traffic, network)
    work = (
        counted.steps * costs.event_seconds
        + counted.reads * costs.read_seconds
        + counted.writes * costs.write_seconds
    )
    return _with_work(work, sent)


def _with_work(work: float, sent: Time) -> Time:
    bound = CONTROLLER if work > sent.sending_seconds else sent.bound
    return Time(work + sent.seconds, sent.sending_seconds, bound)

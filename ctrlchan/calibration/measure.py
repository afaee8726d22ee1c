"""Measures all costs of this machine, in about a minute."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Final

from ctrlchan.calibration.failovers import FAILOVERS, TimedCluster, measure_cluster
from ctrlchan.calibration.memory_nodes import MemoryNodes
from ctrlchan.calibration.pushes import PUSHES, TimedPush, measure_encoding, measure_push
from ctrlchan.calibration.sinks import Sinks
from ctrlchan.planning.costs import Costs
from ctrlchan.planning.fit import fit
from ctrlchan.planning.times import is_cached, push_time
from ctrlchan.planning.traffic import Traffic

__all__ = ["costs_from", "measure_costs"]

#: A part that is not above 0 after the others were taken off counts as this many seconds.
_LEAST_SECONDS: Final = 1e-6
#: No memory is faster than a terabyte a second.
_LEAST_BYTE_SECONDS: Final = 1e-12


def measure_costs(zookeeper: str | None, progress: Callable[[str], None] = lambda _: None) -> Costs:
    """Return the costs of this machine.

    ``zookeeper``: a server (``HOST:PORT[,...][/chroot]``) in which nodes are made below one new node, and
    deleted; None: nodes in memory. ``progress`` is called with what is measured next. Raises ZooKeeperError,
    CtrlchanError.
    """
    progress("encoding")
    encode_seconds = measure_encoding()
    pushes = []
    with Sinks(1) as sinks:
        for partitions, brokers in PUSHES:
            progress(f"pushes of {partitions:,} partitions to {brokers} brokers")
            pushes.append(measure_push(sinks, partitions, brokers))
    clusters = []
    with ExitStack() as stack:
        server = zookeeper or stack.enter_context(MemoryNodes()).address
        for partitions, brokers in FAILOVERS:
            progress(f"failovers with {partitions:,} partitions on {brokers} brokers")
            clusters.append(measure_cluster(server, partitions, brokers))
    return costs_from(encode_seconds, pushes, clusters)


def costs_from(encode_seconds: float, pushes: Sequence[TimedPush], clusters: Sequence[TimedCluster]) -> Costs:
    """Return the costs that explain these times best."""
    byte_seconds, cached_byte_seconds, request_seconds, push_seconds = fit(
        [(*_bytes_of(one.traffic), one.traffic.total.requests, 1) for one in pushes],
        [_rest(one.seconds, one.traffic.total.encoded_partitions * encode_seconds) for one in pushes],
    )
    # ``read_seconds`` and those below are found next; sending does not depend on them.
    sending = Costs(
        encode_seconds=encode_seconds,
        byte_seconds=max(byte_seconds, cached_byte_seconds, _LEAST_BYTE_SECONDS),
        cached_byte_seconds=max(cached_byte_seconds, _LEAST_BYTE_SECONDS),
        request_seconds=request_seconds,
        push_seconds=push_seconds,
        read_seconds=min(one.read_seconds for one in clusters),
        failover_seconds=0.0,
        failover_partition_seconds=0.0,
        failover_broker_seconds=0.0,
        write_seconds=0.0,
        event_seconds=0.0,
        controller_bytes=0.0,
        controller_partition_bytes=0.0,
        processors=os.cpu_count() or 1,
    )
    failover_seconds, per_partition, per_broker = fit(
        [(1, one.partitions, one.brokers) for one in clusters],
        [
            _rest(
                one.failover.seconds,
                push_time(sending, one.failover.counted.traffic, None).seconds
                + one.partitions * sending.read_seconds,
            )
            for one in clusters
        ],
    )
    deaths = [death for one in clusters for death in one.deaths]
    write_seconds, event_seconds = fit(
        [(death.counted.writes, 1) for death in deaths],
        [
            _rest(
                death.seconds,
                push_time(sending, death.counted.traffic, None).seconds
                + death.counted.reads * sending.read_seconds,
            )
            for death in deaths
        ],
    )
    controller_bytes, partition_bytes = fit(
        [(1, one.partitions) for one in clusters],
        [_rest(one.memory_bytes, one.failover.counted.traffic.total.encoded_bytes) for one in clusters],
    )
    return replace(
        sending,
        failover_seconds=failover_seconds,
        failover_partition_seconds=per_partition,
        failover_broker_seconds=per_broker,
        write_seconds=write_seconds,
        event_seconds=event_seconds,
        controller_bytes=controller_bytes,
        controller_partition_bytes=partition_bytes,
    )


def _bytes_of(traffic: Traffic) -> tuple[int, int]:
    """Return the bytes of bodies that do not stay in a cache of the processor, and of those that do."""
    size = traffic.total.bytes
    return (0, size) if is_cached(traffic) else (size, 0)


def _rest(whole: float, part: float) -> float:
    return max(_LEAST_SECONDS, whole - part)

"""Times failovers of a controller and deaths of brokers, with nodes in ZooKeeper and sinks as brokers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from time import monotonic, monotonic_ns, sleep
from typing import Final

from ctrlchan.calibration.cluster_nodes import measured_nodes
from ctrlchan.calibration.controller import CONTROLLER_ID, MeasuredController
from ctrlchan.calibration.pushes import sunk
from ctrlchan.calibration.sinks import Sinks
from ctrlchan.channel import ChannelConfig
from ctrlchan.errors import CtrlchanError
from ctrlchan.memory import MIB, pss_mib
from ctrlchan.planning.events import Counted, PlannedCluster
from ctrlchan.planning.shape import Shape
from ctrlchan.protocol import SecurityProtocol
from ctrlchan.state import Endpoint

__all__ = ["FAILOVERS", "TimedCluster", "TimedEvent", "measure_cluster"]

#: (partitions, brokers) of the measured clusters.
FAILOVERS: Final = ((1_000, 6), (50_000, 6), (10_000, 90))
#: Besides the first one, in which memory is measured.
_FAILOVERS: Final = 11
#: Brokers that die, one after the other.
_DEATHS: Final = 2
#: An event is over when no broker has been sent anything for so long after its last request,
_QUIET_NS: Final = 300_000_000
#: or, where requests are missing, for so long.
_SILENT_NS: Final = 5_000_000_000
_POLL_SECONDS: Final = 0.01
_TIMEOUT: Final = 60.0
_MEMORY_SECONDS: Final = 0.02


@dataclass(frozen=True, slots=True)
class TimedEvent:
    """What was planned, and the seconds that it took until the last answer."""

    counted: Counted
    seconds: float
    received_bytes: int


@dataclass(frozen=True, slots=True)
class TimedCluster:
    """``failover.seconds``: the median of several. ``memory_bytes``: the most of the controller's tree."""

    partitions: int
    brokers: int
    failover: TimedEvent
    deaths: tuple[TimedEvent, ...]
    read_seconds: float
    memory_bytes: int


def measure_cluster(zookeeper: str, partitions: int, brokers: int) -> TimedCluster:
    """Time the events of a cluster of this size, with nodes of its own in this ZooKeeper.

    Raises ZooKeeperError; CtrlchanError when the controller ends or does nothing for a minute.
    """
    shape = Shape(partitions=partitions, brokers=brokers)
    with Sinks(1) as sinks:
        state = sunk(shape.state(), sinks.ports)
        with (
            measured_nodes(zookeeper, state) as nodes,
            MeasuredController(nodes.address) as controller,
        ):
            nodes.wait_until_created()
            _settle(sinks, 0, 1)
            endpoint = Endpoint("PLAINTEXT", SecurityProtocol.PLAINTEXT, "127.0.0.1", controller.port)
            planned = PlannedCluster(
                state, ChannelConfig(controller_id=CONTROLLER_ID), controller=(endpoint,)
            )
            counted = planned.failover()
            with _peak_memory(controller.pid) as memory:
                _time(sinks, counted, nodes.depose)
            timed = [_time(sinks, counted, nodes.depose) for _ in range(_FAILOVERS)]
            reads = median(nodes.read_seconds() for _ in range(_FAILOVERS))
            failover = TimedEvent(counted, median(one.seconds for one in timed), timed[-1].received_bytes)
            deaths = []
            for broker_id in state.broker_ids.tolist()[:_DEATHS]:
                counted, _ = planned.death(broker_id)
                deaths.append(_time(sinks, counted, lambda one=broker_id: nodes.unregister(one)))  # type: ignore[misc]
    return TimedCluster(partitions, brokers, failover, tuple(deaths), reads, max(memory))


@contextmanager
def _peak_memory(pid: int) -> Iterator[list[int]]:
    """Yield a list to which the memory of a process and its descendants is added again and again."""
    seen: list[int] = []
    done = threading.Event()

    def watch() -> None:
        while not done.wait(_MEMORY_SECONDS):
            seen.append(round(pss_mib(pid) * MIB))

    watcher = threading.Thread(target=watch, name="calibrate-memory")
    watcher.start()
    try:
        yield seen
    finally:
        done.set()
        watcher.join()
        seen.append(round(pss_mib(pid) * MIB))


def _time(sinks: Sinks, counted: Counted, cause: Callable[[], object]) -> TimedEvent:
    """Cause an event and wait until the brokers have answered all of its requests."""
    before = sinks.report()
    begin = monotonic_ns()
    cause()
    _settle(sinks, before.requests, counted.traffic.total.requests)
    after = sinks.report()
    return TimedEvent(counted, (after.last_answer_ns - begin) / 1e9, after.bytes - before.bytes)


def _settle(sinks: Sinks, before: int, expected: int) -> None:
    """Wait until brokers have answered so many requests more than ``before``.

    Fewer are enough after a long silence: what waits for one broker may be merged. Raises CtrlchanError.
    """
    deadline = monotonic() + _TIMEOUT
    while monotonic() < deadline:
        report = sinks.report()
        silent_ns = monotonic_ns() - report.last_answer_ns
        answered = report.requests - before
        if answered and silent_ns > (_QUIET_NS if answered >= expected else _SILENT_NS):
            return
        sleep(_POLL_SECONDS)
    raise CtrlchanError(f"the measured controller has sent nothing for {_TIMEOUT:g} s")

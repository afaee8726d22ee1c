"""Runs a cluster, and lets one controller after another handle the measured events."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.cluster.candidates import Candidate, Kafka, Ours
from bench.cluster.cluster import Cluster
from bench.cluster.events import Events
from bench.cluster.layout import Layout
from bench.cluster.watch import EVENT_SECONDS, Measured, Watch
from bench.cluster.zookeeper import ZooKeeperClient, ZooKeeperServer
from bench.memory import peak_pss_mib
from bench.peers.native import Sink
from bench.peers.place import LOCAL, LOOPBACK, Place
from tests.kafka.processes import Reaper
from tests.kafka.waiting import wait_until

__all__ = ["EVENTS", "FAILOVER", "ClusterRun", "Turn", "running"]

FAILOVER: Final = "failover"
#: In this order: the last two change nodes that only ``Cluster.restore`` restores.
EVENTS: Final[dict[str, Callable[[Events], Measured]]] = {
    "death of a broker": Events.death,
    "death of ten brokers": Events.deaths,
    "rolling bounce of ten brokers": Events.bounce,
    "1,000 AlterPartition of a partition": Events.alter_one_by_one,
    "30 AlterPartition of 1,000 partitions": Events.alter_many,
    "reassignment of 1,000 partitions": Events.reassign,
    "creation of 1,000 topics": Events.create_topics,
}
#: Not restored before: what a reassignment leaves makes no difference.
_UNRESTORED: Final = ("creation of 1,000 topics",)
_START_SECONDS: Final = 120.0


@dataclass(frozen=True)
class Turn:
    """What each repetition of each event took. ``pss_mib``: the controller's peak during a failover."""

    events: dict[str, list[Measured]]
    pss_mib: float


@dataclass(frozen=True)
class ClusterRun:
    """A populated ZooKeeper with registered sinks; no controller is active between two turns."""

    folder: Path
    zookeeper: ZooKeeperServer
    cluster: Cluster
    watch: Watch
    reaper: Reaper

    @contextmanager
    def kafka(
        self, place: Place = LOCAL, name: str = "kafka", configs: Mapping[str, str] | None = None
    ) -> Iterator[Kafka]:
        """Start Kafka's broker, take its registration away, and pause it. ``name``: of its folder."""
        controller = Kafka(self.folder / name, self.zookeeper.address, self.reaper, place, configs)
        try:
            self._await_elected(controller)
            controller.address = self.cluster.forget(controller.controller_id)
            self.watch.settle(controller.pid)
            self._pause(controller)
            yield controller
        finally:
            controller.close()

    @contextmanager
    def ours(self, place: Place = LOCAL) -> Iterator[Ours]:
        controller = Ours(self.folder / "ours", self.zookeeper.address, self.reaper, place)
        try:
            yield controller
        finally:
            controller.close()

    def turn(
        self,
        candidate: Candidate,
        events: Collection[str] = tuple(EVENTS),
        failovers: int = 1,
        timed: AbstractContextManager[object] | None = None,
    ) -> Turn:
        """Let one controller handle ``failovers`` failovers, then the events (names in ``EVENTS``).

        Before each event the nodes are restored and the controller fails over once more. Memory is measured
        in the first failover, which is not timed. ``timed``: is entered for all that is timed.
        """
        measured: dict[str, list[Measured]] = {FAILOVER: []}
        candidate.resume()
        self._await_elected(candidate)
        self.watch.settle(candidate.pid)
        handled = Events(self.cluster, self.watch, candidate)
        peak = peak_pss_mib(candidate.pid, handled.failover)
        with timed or nullcontext():
            for _ in range(failovers):
                measured[FAILOVER].append(handled.failover())
            for name in events:
                if name not in _UNRESTORED:
                    handled.restore()
                    measured[FAILOVER].append(handled.failover())
                measured.setdefault(name, []).append(EVENTS[name](handled))
        self._pause(candidate)
        self.cluster.restore()
        return Turn(measured, peak)

    def _await_elected(self, candidate: Candidate) -> None:
        def elected() -> bool:
            candidate.check_alive()
            return self.cluster.controller_id() == candidate.controller_id

        wait_until(elected, timeout=_START_SECONDS, what=f"controller {candidate.controller_id} is elected")

    def _pause(self, candidate: Candidate) -> None:
        candidate.pause()
        if self.cluster.controller_id() is not None:
            self.cluster.depose()


@contextmanager
def running(
    layout: Layout, folder: Path, host: str = LOOPBACK, limit: float = EVENT_SECONDS
) -> Iterator[ClusterRun]:
    """Start ZooKeeper and the sinks, and populate the cluster. Raises KafkaUnavailableError.

    ``host``: an address of this host, at which they listen. ``limit``: seconds that an event may take.
    """
    with ExitStack() as stack:
        reaper = Reaper()
        stack.callback(reaper.close)
        zookeeper = ZooKeeperServer(folder / "zookeeper", reaper, host)
        stack.callback(zookeeper.close)
        sink = stack.enter_context(Sink(layout.brokers, host))
        client = stack.enter_context(ZooKeeperClient(zookeeper.address))
        cluster = Cluster(client, layout, sink.ports, host)
        cluster.populate()
        yield ClusterRun(folder, zookeeper, cluster, Watch(sink, zookeeper.pid, limit), reaper)

"""Brokers die, stand still and restart, one after the other, while a program makes progress.

A cluster has a real ZooKeeper, whose sessions expire when a process stands still.
"""

from __future__ import annotations

import random
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from confluent_kafka.admin import AdminClient

from tests.acceptance.controller.cluster import ControlledCluster
from tests.acceptance.either_cluster import CONFIGS, EitherCluster
from tests.kafka.requirement import require_kafka
from tests.kafka.rig import KafkaRig
from tests.kafka.waiting import wait_until

__all__ = ["KINDS", "Storm", "StormyCluster", "stormy_cluster"]

#: The brokers that are the package's, which then has the controller, too.
KINDS: Final = {"ours": (1, 2, 3), "mixed": (2, 3), "Kafka": ()}

#: Seconds in which a program must get over a fault: sessions expire, transactions are over time.
_PATIENCE: Final = 180.0
_PROPERTIES: Final = CONFIGS | {
    "controlled.shutdown.enable": "true",
    "replica.lag.time.max.ms": "5000",
    "zookeeper.session.timeout.ms": "6000",
}


@dataclass(frozen=True)
class StormyCluster(EitherCluster):
    """Brokers 1, 2 and 3 of a rig."""

    rig: KafkaRig


@contextmanager
def stormy_cluster(kind: str, folder: Path) -> Iterator[StormyCluster]:
    """Start a cluster of a kind of ``KINDS``; skip the test where Kafka cannot run."""
    require_kafka()
    ours = KINDS[kind]
    controlled: list[ControlledCluster] = []

    def start_controller(rig: KafkaRig) -> None:
        if ours:
            controlled.append(ControlledCluster(rig))
            controlled[0].hand_to_us()

    with KafkaRig(
        folder, brokers=3, properties=_PROPERTIES, ours=ours, before_brokers=start_controller
    ) as rig:
        try:
            yield StormyCluster(kind, rig.bootstrap, rig.kill_broker, rig.restart_broker, rig)
        finally:
            for one in controlled:
                one.close()


class Storm:
    """Does something to brokers each time that a program has done ``step`` more.

    ``progress``: how much the program has done of ``goal``; called often, so that it can also look after the
    program. ``topics``: their partitions' leaders are the victims; each has three replicas. ``more``: faults
    of the program. ``done`` counts.
    """

    def __init__(
        self,
        cluster: StormyCluster,
        topics: Mapping[str, int],
        progress: Callable[[], int],
        *,
        goal: int,
        step: int,
        more: Mapping[str, Callable[[], object]],
        seed: int,
    ) -> None:
        self.done: Counter[str] = Counter()
        self._cluster = cluster
        self._topics = topics
        self._progress = progress
        self._goal = goal
        self._step = step
        self._chance = random.Random(seed)
        brokers = {"kill": self._killed, "freeze": self._frozen, "restart": self._restarted}
        self._faults: list[tuple[str, Callable[[], object]]] = [
            *((f"{name} a broker", partial(self._broker, way)) for name, way in brokers.items()),
            *more.items(),
        ]

    @property
    def kinds(self) -> set[str]:
        """The names of all faults."""
        return {name for name, _ in self._faults}

    def run(self) -> None:
        """Return when the program has reached its goal, and everything runs."""
        while self._progress() < self._goal:
            # Each fault once in each turn.
            for name, fault in self._chance.sample(self._faults, len(self._faults)):
                self.advance(self._step)
                if self._progress() >= self._goal:
                    break
                fault()
                self.done[name] += 1

    def advance(self, count: int) -> None:
        """Wait until the program has done so much more, or all."""
        wanted = min(self._goal, self._progress() + count)
        wait_until(
            lambda: self._progress() >= wanted, timeout=_PATIENCE, what=f"{wanted} of {self._goal} are done"
        )

    def _broker(self, way: Callable[[int], Iterator[None]]) -> None:
        topic, partitions = self._chance.choice(list(self._topics.items()))
        victim = self._cluster.leader(topic, self._chance.randrange(partitions))
        with contextmanager(way)(victim):
            self.advance(self._step // 2)
        self._wait_until_whole()

    def _killed(self, broker_id: int) -> Iterator[None]:
        self._cluster.kill_broker(broker_id)
        yield
        self._cluster.start_broker(broker_id)

    def _frozen(self, broker_id: int) -> Iterator[None]:
        """Others take its partitions over, and it learns of that when it goes on."""
        self._cluster.rig.signal_broker(broker_id, signal.SIGSTOP)
        try:
            self._wait_until_replaced(broker_id)
            yield
        finally:
            self._cluster.rig.signal_broker(broker_id, signal.SIGCONT)

    def _restarted(self, broker_id: int) -> Iterator[None]:
        self._cluster.rig.stop_broker(broker_id)
        self._cluster.start_broker(broker_id)
        yield

    def _wait_until_replaced(self, broker_id: int) -> None:
        others = AdminClient({"bootstrap.servers": self._cluster.bootstrap, "log_level": 2})

        def leads_nothing() -> bool:
            seen = others.list_topics(timeout=_PATIENCE).topics
            leaders = {one.leader for topic in self._topics for one in seen[topic].partitions.values()}
            return broker_id not in leaders

        wait_until(leads_nothing, timeout=_PATIENCE, what=f"others lead for broker {broker_id}")

    def _wait_until_whole(self) -> None:
        for topic, partitions in self._topics.items():
            self._cluster.wait_until_whole(topic, partitions)

"""The measured events of a cluster, each for whichever controller is active."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from time import monotonic, sleep
from typing import Final

from bench.cluster.alter_partition import exchange
from bench.cluster.candidates import Candidate
from bench.cluster.cluster import Cluster
from bench.cluster.layout import RACKS
from bench.cluster.watch import Measured, Watch

__all__ = ["Events"]

_BOUNCED: Final = 10
#: How long one step of a rolling bounce may take.
_STEP_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.002
#: Brokers that die at once: of one rack, so that every partition keeps a replica.
_DEAD_AT_ONCE: Final = 10


class Events:
    """Each method causes one event, waits until it is over and returns what it took."""

    def __init__(self, cluster: Cluster, watch: Watch, controller: Candidate) -> None:
        self._cluster = cluster
        self._watch = watch
        self._controller = controller

    def failover(self) -> Measured:
        """The deletion of /controller: the controller resigns and is elected again."""
        epoch = self._cluster.controller_epoch()

        def problem() -> str | None:
            if self._cluster.controller_id() != self._controller.controller_id:
                return f"the controller is {self._cluster.controller_id()}"
            if self._cluster.controller_epoch() <= epoch:
                return f"the controller epoch is {epoch} still"
            return self._cluster.not_unchanged()

        return self._measure(self._cluster.depose, problem)

    def death(self) -> Measured:
        """The end of a broker that leads its share of the partitions."""
        return self._deaths([1])

    def deaths(self) -> Measured:
        """The end of ten brokers of a rack at once."""
        return self._deaths(range(RACKS, RACKS * _DEAD_AT_ONCE + 1, RACKS))

    def bounce(self) -> Measured:
        """Ten brokers in turn: each is registered anew, and the leaders add it to their ISRs.

        The registration is made again when another broker leads a partition of this one. The leaders send
        AlterPartition when the broker has answered a LeaderAndIsr request; the next broker follows when all
        are answered. The leaders' own work is not part of the time; the controller may work meanwhile.
        """
        leaders_ms = 0.0

        def cause() -> None:
            nonlocal leaders_ms
            for broker_id in self._cluster.layout.broker_ids[:_BOUNCED]:
                leaders_ms += self._bounce(broker_id)

        measured = self._measure(cause, self._cluster.not_elected)
        return replace(measured, ms=measured.ms - leaders_ms)

    def alter_one_by_one(self) -> Measured:
        """1,000 AlterPartition requests of a partition, from all leaders at once."""
        return self._alter(1_000, 1)

    def alter_many(self) -> Measured:
        """An AlterPartition request of 1,000 partitions from each of 30 leaders at once."""
        return self._alter(30, 1_000)

    def reassign(self) -> Measured:
        """A reassignment of 1,000 partitions through /admin/reassign_partitions to replicas in sync."""
        return self._measure(self._cluster.reassign, self._cluster.not_reassigned)

    def create_topics(self) -> Measured:
        """The creation of 1,000 topics with 10 partitions each. Their configurations are created before."""
        self._cluster.create_configurations()
        return self._measure(self._cluster.create_topics, self._cluster.not_created)

    def restore(self) -> None:
        """Register all brokers and restore all partition states, with the controller active and idle."""
        self._cluster.register(self._cluster.layout.broker_ids)
        self._watch.settle(self._controller.pid)
        self._cluster.restore_states()

    def _deaths(self, dead: Sequence[int]) -> Measured:
        return self._measure(
            lambda: self._cluster.unregister(dead), lambda: self._cluster.not_elected(dead), dead
        )

    def _alter(self, requests: int, partitions: int) -> Measured:
        """Let leaders shrink ISRs; all requests are made before."""
        queues = self._cluster.shrink_requests(requests, partitions)
        return self._measure(
            lambda: exchange(self._controller.address, queues),
            lambda: self._cluster.not_shrunk(requests, partitions),
        )

    def _measure(
        self, cause: Callable[[], None], problem: Callable[[], str | None], dead: Collection[int] = ()
    ) -> Measured:
        alive = frozenset(one - 1 for one in self._cluster.layout.broker_ids if one not in dead)
        return self._watch.measure(self._controller.pid, cause, problem, alive)

    def _bounce(self, broker_id: int) -> float:
        """Bounce one broker; returns the milliseconds of the leaders' own work."""
        led = self._cluster.leads(broker_id)
        assert led is not None, f"broker {broker_id} leads nothing"
        self._cluster.unregister([broker_id])
        self._until(lambda: self._cluster.leader(led) != broker_id, f"broker {broker_id} leads {led}")
        before = self._leader_and_isr(broker_id)
        self._cluster.register([broker_id])
        self._until(
            lambda: self._leader_and_isr(broker_id) > before, f"broker {broker_id} was sent no LeaderAndIsr"
        )
        begin = monotonic()
        requests = self._cluster.rejoin_requests(broker_id)
        took = (monotonic() - begin) * 1e3
        exchange(self._controller.address, [[request] for request in requests])
        return took

    def _leader_and_isr(self, broker_id: int) -> int:
        return self._watch.answered().ports[broker_id - 1].leader_and_isr

    @staticmethod
    def _until(condition: Callable[[], bool], otherwise: str) -> None:
        deadline = monotonic() + _STEP_SECONDS
        while not condition():
            if monotonic() > deadline:
                raise TimeoutError(f"{otherwise} after {_STEP_SECONDS:g} s")
            sleep(_POLL_SECONDS)

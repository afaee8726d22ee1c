"""``groups``: members that join consumer groups, commit offsets, leave, and join again."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from ctrlchan.loads.load import Load
from ctrlchan.loads.worker import Worker

__all__ = ["GroupsLoad"]

#: Seconds of one look for an assignment.
_JOIN_SECONDS: Final = 0.05
_SETTINGS: Final = {
    "log_level": 0,
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    "session.timeout.ms": 10_000,
    # How soon members learn of a rebalance; Kafka's default of 3 s would be all that ``join`` shows.
    "heartbeat.interval.ms": 300,
}


@dataclass(frozen=True, kw_only=True)
class GroupsLoad(Load):
    """``members`` of each client, divided among ``group_count`` groups of all clients.

    A member joins, commits ``commits`` times, and leaves. The rate counts commits; each commits one offset
    more for each partition that the member has.
    """

    kind: ClassVar[str] = "groups"

    members: int
    group_count: int
    commits: int

    @property
    def groups(self) -> list[str]:
        return [f"{self.run}-group-{number}" for number in range(self.group_count)]

    def check(self) -> None:
        members = self.members * self.clients
        self._require(self.group_count <= members, "each group has a member")
        largest = -(-members // self.group_count)
        self._require(self.partitions >= largest, f"{largest} members of a group need as many partitions")

    def work(self, worker: Worker) -> None:
        problems: list[BaseException] = []
        for name in ("join", "commit", "leave"):
            worker.operation(name)

        def member(place: int) -> None:
            try:
                self._be_member(worker, place)
            except BaseException as problem:  # noqa: BLE001 - raised again below
                problems.append(problem)

        threads = [
            threading.Thread(target=member, args=(place,), name=f"member-{place}")
            for place in range(self.members)
        ]
        worker.start()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if problems:
            raise problems[0]

    def _be_member(self, worker: Worker, place: int) -> None:
        from confluent_kafka import Consumer

        number = worker.number * self.members + place
        settings = {**_SETTINGS, **worker.settings, "group.id": self.groups[number % self.group_count]}
        current: list[Any] = []
        dues = worker.due(lambda seconds: current[0].poll(seconds), share=1 / self.members)
        committed = 0
        while not worker.is_over():
            consumer = Consumer(settings)
            current[:] = [consumer]
            try:
                if self._join(worker, consumer):
                    for _ in range(self.commits):
                        due = next(dues, None)
                        if due is None:
                            break
                        committed += self._commit(worker, consumer, due, committed + 1)
            finally:
                begun = time.monotonic()
                consumer.close()
            worker.ended(worker.operation("leave"), begun)

    def _join(self, worker: Worker, consumer: Any) -> bool:
        """Join the group; return False if the load is over before the member has partitions."""
        assigned = threading.Event()
        begun = time.monotonic()
        consumer.subscribe([self.topic], on_assign=lambda *_: assigned.set())
        while not assigned.is_set():
            if worker.is_over():
                return False
            consumer.poll(_JOIN_SECONDS)
        worker.ended(worker.operation("join"), begun)
        return True

    def _commit(self, worker: Worker, consumer: Any, due: float, offset: int) -> bool:
        """Commit an offset for all partitions of the member; return whether it succeeded."""
        from confluent_kafka import KafkaException, TopicPartition

        # Or the member would take part in no rebalance.
        consumer.poll(0)
        offsets = [TopicPartition(self.topic, one.partition, offset) for one in consumer.assignment()]
        operation = worker.operation("commit")
        if not offsets:
            worker.failed(operation, "REBALANCING")
            return False
        try:
            consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as problem:
            worker.failed(operation, problem.args[0].name())
            return False
        worker.ended(operation, due, items=len(offsets))
        return True

"""Random events of a cluster, and the requests that a controller's batch sends for them."""

from __future__ import annotations

import random
from collections.abc import Iterable

from ctrlchan import ControllerBrokerRequestBatch
from ctrlchan.state import NO_LEADERSHIP, ClusterState
from tests.spark.cores import Cores
from tests.unit.batch.manual_channel import broker

EPOCH = 5


def some_state(topics: int = 12, brokers: int = 5) -> ClusterState:
    state = ClusterState.empty(cluster_id="c", controller_id=1, controller_epoch=EPOCH)
    state.set_brokers([broker(one, 100) for one in range(1, brokers + 1)])
    for topic in range(topics):
        assignment = {p: [(topic + p + r) % brokers + 1 for r in range(3)] for p in range(topic % 4 + 1)}
        rows = state.add_topic(
            f"topic{topic:02}", assignment, topic_id=bytes([topic + 1]) * 16 if topic % 5 else None
        )
        for row in range(rows.start, rows.stop):
            replicas = state.partitions.replicas[row].tolist()
            state.update(row, leader=replicas[0], leader_epoch=0, isr=replicas)
    return state


class Controller:
    """Changes ``state`` at random and sends every change to ``cores`` as Kafka's controller does."""

    def __init__(self, state: ClusterState, rng: random.Random) -> None:
        self.state = state
        self.cores = Cores(state)
        self.batch = ControllerBrokerRequestBatch(self.cores, state)
        self._rng = rng
        self._names = 0
        self.tell_all(self._ids())

    def _ids(self) -> list[int]:
        return [int(one) for one in self.state.broker_ids.tolist()]

    def tell_all(self, ids: Iterable[int]) -> None:
        """Send everything, as to brokers that have started: metadata first, then their replicas."""
        state, columns = self.state, self.state.partitions
        ids = list(ids)
        self.batch.new_batch()
        self.batch.add_update_metadata(ids, "changed")
        self.batch.send_requests_to_brokers(EPOCH)
        self.batch.new_batch()
        for row in range(len(columns)):
            name = state.topic_name(int(columns.topic_row[row]))
            if columns.leader_epoch[row] != NO_LEADERSHIP and name not in state.deletion_in_progress:
                self.batch.add_leader_and_isr(set(ids) & set(columns.replicas[row].tolist()), row)
        self.batch.send_requests_to_brokers(EPOCH)

    def send(self, rows: Iterable[int] = (), new: Iterable[tuple[int, int]] = ()) -> None:
        """Send LeaderAndIsr of ``rows`` to their replicas; (broker, row) of ``new`` are new replicas."""
        self.batch.new_batch()
        for row in rows:
            self.batch.add_leader_and_isr(self.state.partitions.replicas[row].tolist(), row)
        for broker_id, row in new:
            self.batch.add_leader_and_isr([broker_id], row, is_new=True)
        self.batch.add_update_metadata(self._ids(), "changed")
        self.batch.send_requests_to_brokers(EPOCH)

    def stop(self, stops: Iterable[tuple[int, int]]) -> None:
        self.batch.new_batch()
        for broker_id, row in stops:
            self.batch.add_stop_replica([broker_id], row, delete=True)
        self.batch.send_requests_to_brokers(EPOCH)

    # -- events

    def step(self) -> str:
        """Run one event and return its name."""
        events = [
            self.elect, self.elect, self.elect, self.shrink, self.shrink, self.reassign, self.reassign,
            self.add_topic, self.add_partitions, self.queue_deletion, self.begin_deletion, self.remove_topic,
            self.make_again, self.restart, self.die, self.join, self.shut_down, self.learn_id, self.undecided,
        ]  # fmt: skip
        event = self._rng.choice(events)
        event()
        return event.__name__

    def elect(self) -> None:
        row = self._row()
        if row is not None:
            self._lead(row)
            self.send([row])

    def shrink(self) -> None:
        """A leader's AlterPartition: the leader has the change, other brokers may not get it."""
        row = self._row()
        if row is None:
            return
        columns = self.state.partitions
        replicas, leader = columns.replicas[row].tolist(), int(columns.leader[row])
        isr = [one for one in replicas if one == leader or self._rng.random() < 0.5]
        if isr:
            self.state.update(row, isr=isr, partition_epoch=int(columns.partition_epoch[row]) + 1)
            self.send()

    def reassign(self) -> None:
        row = self._row()
        if row is None:
            return
        before = self.state.partitions.replicas[row].tolist()
        after = self._rng.sample(range(1, 8), self._rng.randint(1, 4))
        gone, new = set(before) - set(after), set(after) - set(before)
        self.state.update(row, replicas=after, adding=[], removing=[])
        self._lead(row)
        self.send([row], [(one, row) for one in new])
        self.stop((one, row) for one in gone)

    def add_topic(self, name: str = "", topic_id: bytes = b"") -> None:
        self._names += 1
        chosen = self._rng.sample(range(1, 8), 3)
        count = self._rng.randint(1, 3)
        topic = name or f"new{self._names:03}"
        rows = self.state.add_topic(
            topic,
            {p: chosen[p % 3 :] for p in range(count)},
            topic_id=topic_id or bytes([200, self._names]) * 8,
            leader_epoch=NO_LEADERSHIP,
        )
        self._found(range(rows.start, rows.stop))

    def add_partitions(self) -> None:
        row = self._row()
        if row is None:
            return
        topic = self.state.topic_name(int(self.state.partitions.topic_row[row]))
        rows = self.state.rows_of_topic(topic)
        self.state.add_partitions(topic, {rows.stop - rows.start: [1, 2]}, leader_epoch=NO_LEADERSHIP)
        self._found([self.state.rows_of_topic(topic).stop - 1])

    def queue_deletion(self) -> None:
        topic = self._topic()
        if topic is not None:
            self.state.mark_topics_deleting([topic])
            self.send()

    def begin_deletion(self) -> None:
        topic = self._topic()
        if topic is not None:
            self.state.mark_topics_deleting([topic])
            self.send()
            self.state.set_deletion_in_progress({*self.state.deletion_in_progress, topic})
            self._stop_topic(topic)

    def remove_topic(self) -> None:
        topic = self._topic(any_state=True)
        if topic is not None:
            self._remove(topic)

    def make_again(self) -> None:
        topic = self._topic(any_state=True)
        if topic is not None:
            self._remove(topic)
            self.add_topic(topic, bytes([self._rng.randrange(1, 256), 77]) * 8)

    def restart(self) -> None:
        self._register([self._rng.choice(self._ids())])

    def join(self) -> None:
        away = sorted(set(range(1, 8)) - set(self._ids()))
        if away:
            self._register([self._rng.choice(away)])

    def die(self) -> None:
        ids = self._ids()
        if len(ids) < 3:
            return
        dead = self._rng.choice(ids)
        self.state.remove_brokers([dead])
        self.cores.follow(self.state)
        columns = self.state.partitions
        led = [row for row in range(len(columns)) if columns.leader[row] == dead and self._alive(row)]
        for row in led:
            self._lead(row)
        # The others learn of the death before.
        self.send()
        self.send(led)

    def shut_down(self) -> None:
        self.state.set_shutting_down([self._rng.choice(self._ids())])
        self.send()

    def learn_id(self) -> None:
        """A topic made before Kafka 2.8 gets its id."""
        topics = self.state.topics
        for row in range(len(topics)):
            name = self.state.topic_name(row)
            if not topics.ids[row].any() and name not in self.state.deletion_in_progress:
                topics.ids[row] = bytes_of(row + 100)
                rows = self.state.rows_of_topic(name)
                led = [one for one in range(rows.start, rows.stop) if self._alive(one)]
                self.state.update(led, recovery_state=0)
                self.send(led)
                return

    def undecided(self) -> None:
        """Add a topic without leaders."""
        self._names += 1
        self.state.add_topic(f"undecided{self._names:03}", {0: [1, 2]}, leader_epoch=NO_LEADERSHIP)
        self.send()

    # -- parts

    def _alive(self, row: int) -> bool:
        columns = self.state.partitions
        name = self.state.topic_name(int(columns.topic_row[row]))
        return columns.leader_epoch[row] != NO_LEADERSHIP and name not in self.state.deletion_in_progress

    def _row(self) -> int | None:
        rows = [
            row
            for row in range(len(self.state.partitions))
            if self._alive(row) and not self._deleting(int(self.state.partitions.topic_row[row]))
        ]
        return self._rng.choice(rows) if rows else None

    def _deleting(self, topic_row: int) -> bool:
        deleting = self.state.topics.deleting
        return deleting is not None and bool(deleting[topic_row])

    def _topic(self, *, any_state: bool = False) -> str | None:
        names = [
            self.state.topic_name(row)
            for row in range(len(self.state.topics))
            if any_state or not self._deleting(row)
        ]
        return self._rng.choice(names) if names else None

    def _lead(self, row: int) -> None:
        columns = self.state.partitions
        live = [one for one in columns.replicas[row].tolist() if one in self._ids()]
        leader = self._rng.choice(live) if live else -1
        self.state.update(
            row,
            leader=leader,
            leader_epoch=int(columns.leader_epoch[row]) + 1,
            partition_epoch=int(columns.partition_epoch[row]) + 1,
            controller_epoch=EPOCH,
            isr=[leader] if live else columns.replicas[row].tolist()[:1],
        )

    def _found(self, rows: Iterable[int]) -> None:
        """New partitions get leaders where a replica is live."""
        columns = self.state.partitions
        led = [row for row in rows if set(columns.replicas[row].tolist()) & set(self._ids())]
        for row in led:
            self._lead(row)
        self.send(new=[(one, row) for row in led for one in self.state.partitions.replicas[row].tolist()])

    def _stop_topic(self, topic: str) -> None:
        rows = self.state.rows_of_topic(topic)
        self.stop(
            (one, row)
            for row in range(rows.start, rows.stop)
            for one in self.state.partitions.replicas[row].tolist()
        )

    def _remove(self, topic: str) -> None:
        self.state.mark_topics_deleting([topic])
        self._stop_topic(topic)
        self.state.remove_topics([topic])
        self.send()

    def _register(self, ids: Iterable[int]) -> None:
        epochs = {one: self.state.broker(one).epoch for one in self._ids()}
        self.state.add_brokers(
            broker(one, epochs.get(one, 100) + 1 + self._rng.randrange(1000)) for one in ids
        )
        fresh = self.cores.follow(self.state)
        # All learn of it before anybody is to follow it.
        self.send()
        self.tell_all(fresh)


def bytes_of(number: int) -> list[int]:
    return [number % 256] * 16

"""Markers with any order of ends, answers, moves and deletions: each transaction ends once, none is lost."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ctrlchan.broker.coordinator.common.partitions import TopicPartition
from ctrlchan.broker.coordinator.transaction.pending_markers import (
    UNKNOWN_BROKER,
    Changes,
    PendingMarker,
    PendingMarkers,
)
from ctrlchan.broker.coordinator.transaction.requests import EndedTransaction, ProducerIdentity
from ctrlchan.errors import ErrorCode

IDS = range(4)
PARTITIONS = tuple(TopicPartition("t", number) for number in range(4))
BROKERS = (1, 2, 3)
DONE = (
    ErrorCode.NONE,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED,
)
NOT_DONE = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNKNOWN_SERVER_ERROR,
    None,  # the answer does not have the partition
)


class Markers(RuleBasedStateMachine):
    """``left``: of each transaction that is waited for, the partitions without a marker, by its number."""

    def __init__(self) -> None:
        super().__init__()
        self.leaders: dict[TopicPartition, int | None] = dict.fromkeys(PARTITIONS, 1)
        self.left: dict[int, set[TopicPartition]] = {}
        #: Number of the transaction of an id, and of all that were ended so far.
        self.current: dict[int, int] = {}
        self.count = 0
        self.completed: list[int] = []
        self.sent: list[tuple[int, list[PendingMarker]]] = []
        self.pauses: list[PendingMarker] = []
        self.markers = PendingMarkers(1, lambda partition, _: self.leaders[partition], lambda: 0)

    # -- steps

    def apply(self, changes: Changes) -> None:
        """Do what follows, with the partitions that the change found deleted."""
        self.pauses += [marker for _, marker in changes.pauses]
        for then in changes.then:
            then()

    def number_of(self, marker: PendingMarker) -> int:
        return marker.ended.coordinator_epoch

    def done(self, number: int, partition: TopicPartition) -> None:
        if number in self.left:
            self.left[number].discard(partition)

    @rule(name=st.sampled_from(IDS), partitions=st.sets(st.sampled_from(PARTITIONS)))
    def end(self, name: int, partitions: set[TopicPartition]) -> None:
        self.count += 1
        number = self.count
        self.left.pop(self.current.get(name, 0), None)
        self.current[name] = number
        self.left[number] = {one for one in partitions if self.leaders[one] is not None}
        ended = EndedTransaction(
            f"id{name}", name % 2, number, ProducerIdentity(name, 0), True, frozenset(partitions)
        )
        self.apply(self.markers.add(ended, self._completion(number)))

    def _completion(self, number: int) -> Callable[[], None]:
        def complete() -> None:
            assert self.left.pop(number) == set()
            self.completed.append(number)

        return complete

    @rule(state_partition=st.integers(0, 1))
    def move(self, state_partition: int) -> None:
        self.markers.forget(state_partition)
        for name in IDS:
            if name % 2 == state_partition:
                self.left.pop(self.current.pop(name, 0), None)

    @rule(broker=st.sampled_from(BROKERS), most=st.integers(1, 5))
    def send(self, broker: int, most: int) -> None:
        taken = self.markers.take(broker, most)
        if taken:
            # A producer has one entry in an answer.
            names = [marker.ended.producer.producer_id for marker in taken]
            assert len(set(names)) == len(names)
            assert all(marker.partitions for marker in taken)
            self.sent.append((broker, taken))

    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        if not self.sent:
            return
        broker, sent = self.sent.pop(data.draw(st.integers(0, len(self.sent) - 1)))
        errors: dict[int, dict[TopicPartition, int]] = {}
        for marker in sent:
            for partition in marker.partitions:
                error = data.draw(st.sampled_from(DONE + NOT_DONE))
                if error is not None:
                    errors.setdefault(marker.ended.producer.producer_id, {})[partition] = error
                if error in DONE:
                    self.done(self.number_of(marker), partition)
        self.apply(self.markers.answered(broker, sent, errors))

    @rule(data=st.data())
    def disconnect(self, data: st.DataObject) -> None:
        if self.sent:
            _, sent = self.sent.pop(data.draw(st.integers(0, len(self.sent) - 1)))
            self.apply(self.markers.failed(sent))

    @rule(data=st.data())
    def end_pause(self, data: st.DataObject) -> None:
        if self.pauses:
            marker = self.pauses.pop(data.draw(st.integers(0, len(self.pauses) - 1)))
            self.look(lambda: self.markers.retry(marker))

    @rule(partition=st.sampled_from(PARTITIONS), leader=st.sampled_from([*BROKERS, UNKNOWN_BROKER, None]))
    def change_leader(self, partition: TopicPartition, leader: int | None) -> None:
        self.leaders[partition] = leader
        self.look(self.markers.metadata_changed)

    def look(self, call: Callable[[], Changes]) -> None:
        """Let markers find their leaders, and that a partition is deleted."""
        for left in self.left.values():
            left.difference_update(one for one in PARTITIONS if self.leaders[one] is None)
        self.apply(call())

    # -- what holds

    @invariant()
    def as_many_are_waited_for(self) -> None:
        assert len(self.markers) == len(self.left)
        assert len(set(self.completed)) == len(self.completed)

    def teardown(self) -> None:
        """With live brokers that take all markers every transaction ends."""
        for partition in PARTITIONS:
            if self.leaders[partition] in (UNKNOWN_BROKER, None):
                self.leaders[partition] = 1
        for _ in range(3):
            for broker, sent in self.sent:
                self.take_all(broker, sent)
            self.sent = []
            pauses, self.pauses = self.pauses, []
            for marker in pauses:
                self.apply(self.markers.retry(marker))
            for broker in BROKERS:
                self.take_all(broker, self.markers.take(broker, 1_000))
        assert self.left == {}
        assert len(self.markers) == 0
        assert not self.markers

    def take_all(self, broker: int, sent: list[PendingMarker]) -> None:
        for marker in sent:
            for partition in marker.partitions:
                self.done(self.number_of(marker), partition)
        errors = {marker.ended.producer.producer_id: dict.fromkeys(marker.partitions, 0) for marker in sent}
        self.apply(self.markers.answered(broker, sent, errors))


TestMarkers = Markers.TestCase
TestMarkers.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)

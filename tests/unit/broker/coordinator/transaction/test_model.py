"""Random producers begin, add, commit, abort and come again; after each step the coordinator is consistent.

Processors end transactions, too, and the coordinator hears of it later. Appends end at once, late, or with an
error though the record is in the log; markers are written late; the leadership comes and goes; time passes.
Always: a producer id with its epoch is given once. Who has an older
one changes nothing any more. A transaction that is said to be committed gets no markers that abort it, and
the other way round. Markers go to all partitions that were added. In the end nothing is open, and every
request has been answered once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ctrlchan.broker.coordinator.common.partitions import TopicPartition
from ctrlchan.broker.coordinator.transaction.requests import (
    EndedTransaction,
    InitResult,
    ProducerIdentity,
)
from ctrlchan.broker.coordinator.transaction.states import (
    EXPIRABLE,
    PREPARED,
    VALID_PREVIOUS,
    TransactionState,
)
from ctrlchan.errors import ErrorCode
from tests.unit.broker.coordinator.support import START_MS
from tests.unit.broker.coordinator.transaction.support import CONFIG, MemoryMarkers, Rig

_Result = TypeVar("_Result")

IDS = ("first", "second")
CLIENTS = 4  # two of each id
TIMEOUT = 1_000
DAY = 86_400_000

#: The record is in the log after the last two of them.
_ERRORS = (
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
)
#: Nothing was appended.
_REFUSED = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)
_COMMITTED = (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)
_ABORTED = (TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT)

_INDEX = st.integers(0, CLIENTS - 1)
_PARTITIONS = st.frozensets(st.builds(TopicPartition, st.just("t"), st.integers(0, 3)), max_size=3)


@dataclass
class _Id:
    """What is known of a transactional id from its answers.

    ``current``: whom the last InitProducerId has made the producer. ``added``: to the open transaction.
    ``decided``: how the last transaction ends, as an EndTxn was answered.
    """

    given: set[ProducerIdentity] = field(default_factory=set)
    current: ProducerIdentity | None = None
    added: frozenset[TopicPartition] = frozenset()
    decided: tuple[ProducerIdentity, bool] | None = None


class _Markers(MemoryMarkers):
    """Markers that are checked when they are sent."""

    check: Callable[[EndedTransaction], None]

    def send(self, ended: EndedTransaction, then: Callable[[], None], is_current: Callable[[], bool]) -> None:
        self.check(ended)
        super().send(ended, then, is_current)

    def forget(self, partition: int) -> None:
        super().forget(partition)
        self.sent.clear()


@dataclass
class _Client:
    """A producer of an id. ``producer`` and ``earlier``: the last answers of InitProducerId."""

    name: str
    producer: ProducerIdentity | None = None
    earlier: ProducerIdentity | None = None


class Transactions(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.rig = Rig(replace(CONFIG, topic_partitions=1, id_expiration=10 * DAY))
        markers = _Markers()
        markers.check = self._checked(self._check_markers)
        self.rig.markers = markers
        self.rig.coordinator._markers = self.rig.coordinator._ending._markers = markers
        self.epoch = 5
        self.leads = True
        self.ids = {name: _Id() for name in IDS}
        self.clients = [_Client(IDS[number % 2]) for number in range(CLIENTS)]
        #: How often each request was answered.
        self.answers: list[int] = []
        #: Of checks in callbacks, whose exceptions the coordinator logs.
        self.failures: list[AssertionError] = []

    def _checked(self, check: Callable[[_Result], None]) -> Callable[[_Result], None]:
        def call(result: _Result) -> None:
            try:
                check(result)
            except AssertionError as error:
                self.failures.append(error)

        return call

    def _answer(self, check: Callable[[_Result], None]) -> Callable[[_Result], None]:
        """Return the callback of a request, which calls `check` with the result."""
        number = len(self.answers)
        self.answers.append(0)
        checked = self._checked(check)

        def answer(result: _Result) -> None:
            self.answers[number] += 1
            checked(result)

        return answer

    def _check_markers(self, ended: EndedTransaction) -> None:
        known = self.ids[ended.transactional_id]
        assert known.added <= ended.partitions
        if known.decided is not None and known.decided[0] == ended.producer:
            assert known.decided[1] is ended.commit
        assert ended.coordinator_epoch == self.epoch
        known.added = frozenset()

    @rule(number=_INDEX, expects=st.sampled_from(["nothing", "producer", "earlier"]))
    def init(self, number: int, expects: str) -> None:
        client = self.clients[number]
        expected = None if expects == "nothing" else getattr(client, expects)

        def initialized(result: InitResult) -> None:
            if result.error:
                return
            known = self.ids[client.name]
            producer = ProducerIdentity(result.producer_id, result.epoch)
            # A request that is repeated gets the same answer if nobody else has become the producer.
            assert producer not in known.given or (expected is not None and producer == known.current)
            known.given.add(producer)
            known.current = producer
            known.added, known.decided = frozenset(), None
            client.producer, client.earlier = producer, client.producer

        self.rig.coordinator.init_producer_id(client.name, TIMEOUT, expected, self._answer(initialized))

    @rule(number=_INDEX, partitions=_PARTITIONS)
    def add(self, number: int, partitions: frozenset[TopicPartition]) -> None:
        client = self.clients[number]
        producer, known = client.producer, self.ids[client.name]
        if producer is None:
            return
        if self.rig.topic.held is not None:
            known.decided = None

        def added(error: ErrorCode) -> None:
            if not error:
                assert producer == known.current
                known.added |= partitions
            if error not in _REFUSED:  # else the record may be in the log
                known.decided = None

        self.rig.coordinator.add_partitions(client.name, producer, partitions, self._answer(added))

    @rule(number=_INDEX, commit=st.booleans())
    def end(self, number: int, commit: bool) -> None:
        client = self.clients[number]
        producer, known = client.producer, self.ids[client.name]
        if producer is None:
            return

        def ended(error: ErrorCode) -> None:
            if error:
                return
            assert producer == known.current
            assert known.decided in (None, (producer, commit))
            known.decided = producer, commit
            states = _COMMITTED if commit else _ABORTED
            assert self.rig.transaction(client.name).state in states

        self.rig.coordinator.end(client.name, producer, commit, self._answer(ended))

    @rule(number=_INDEX, commit=st.booleans(), is_settled=st.booleans())
    def end_on_a_processor(self, number: int, commit: bool, is_settled: bool) -> None:
        """End a transaction where its producer's request was read, if the right to do so is lent."""
        client = self.clients[number]
        producer, known = client.producer, self.ids[client.name]
        gate = self.rig.gates.opened[0]
        if producer is None or not gate.end(client.name, producer, commit, START_MS + self.rig.now):
            return
        assert producer == known.current
        assert known.decided is None
        known.decided = producer, commit
        if is_settled:
            gate.settle()

    @rule()
    def settle(self) -> None:
        self.rig.gates.opened[0].settle()

    @precondition(lambda self: self.rig.topic.held is None)
    @rule()
    def hold_appends(self) -> None:
        self.rig.topic.error = 0
        self.rig.topic.held = []

    @precondition(lambda self: self.rig.topic.held is not None)
    @rule(error=st.sampled_from([0, 0, 0, *_ERRORS[2:]]))
    def release_appends(self, error: int) -> None:
        self.rig.topic.release(error or None)

    @precondition(lambda self: self.rig.topic.held is None)
    @rule(error=st.sampled_from([0, *_ERRORS[:2]]))
    def refuse_appends(self, error: int) -> None:
        self.rig.topic.error = error

    @precondition(lambda self: self.rig.markers.sent)
    @rule(place=st.integers(0, 5))
    def write_markers(self, place: int) -> None:
        self.rig.markers.write(place % len(self.rig.markers.sent))

    @rule(
        number=_INDEX,
        partitions=_PARTITIONS,
        commit=st.booleans(),
        stops_before=st.sampled_from(["markers", "end", "add", "nothing"]),
    )
    def behave(
        self, number: int, partitions: frozenset[TopicPartition], commit: bool, stops_before: str
    ) -> None:
        """Let a client do what producers do."""
        client = self.clients[number]
        if client.producer is None or client.producer != self.ids[client.name].current:
            self.init(number, "nothing")
        if stops_before != "add":
            self.add(number, partitions)
            if stops_before != "end":
                self.end(number, commit)
                if stops_before != "markers" and self.rig.markers.sent:
                    self.rig.markers.write()

    @rule(milliseconds=st.sampled_from([1, 25, 25, 600, 1_500, 11_000, 3 * DAY]))
    def wait(self, milliseconds: int) -> None:
        self.rig.advance(milliseconds)

    @precondition(lambda self: self.leads)
    @rule(returns=st.sampled_from([True, True, False]))
    def resign(self, returns: bool) -> None:
        self.epoch += 1
        self.rig.coordinator.resigned(0, self.epoch)
        self.leads = False
        if returns:
            self.lead()

    @rule()
    def lead(self) -> None:
        """Become the leader, or lead in a later epoch."""
        self.epoch += 1
        self.rig.coordinator.elected(0, self.epoch)
        self.leads = True

    @invariant()
    def answers_are_right_and_given_once(self) -> None:
        assert self.failures == []
        assert all(count <= 1 for count in self.answers)

    @invariant()
    def every_id_is_consistent(self) -> None:
        for partition in self.rig.coordinator._registry.served():
            for transaction in partition.transactions.in_states(set(TransactionState)):
                if transaction.pending is not None:
                    assert transaction.state in VALID_PREVIOUS[transaction.pending]
                if transaction.state in PREPARED:
                    assert transaction.pending is not None
                if transaction.state is TransactionState.ONGOING:
                    assert transaction.timer is not None
                if transaction.state is not TransactionState.ONGOING or transaction.pending is not None:
                    assert transaction.end_right is None
                assert (transaction.transactional_id in partition.idle) == (transaction.state in EXPIRABLE)
                assert not transaction.partitions or transaction.state not in EXPIRABLE

    def teardown(self) -> None:
        topic = self.rig.topic
        if topic.held is not None:
            topic.release()
        topic.error = 0
        self._settle()
        # Records of appends that have failed count now.
        self.lead()
        self._settle()
        assert self.failures == []
        assert all(count == 1 for count in self.answers)
        # The log says the same to the next coordinator.
        before = {name: self.rig.coordinator.describe(name) for name in IDS}
        self.lead()
        assert self.rig.markers.sent == []
        for name, described in before.items():
            after = self.rig.coordinator.describe(name)
            assert (after.error, after.state, after.partitions) == (
                described.error,
                described.state,
                frozenset(),
            )
            assert (after.producer_id, after.epoch) == (described.producer_id, described.epoch)
        self.rig.advance(11 * DAY)
        assert self.rig.coordinator.list((), (), -1) == (ErrorCode.NONE, [], [])

    def _settle(self) -> None:
        """Let all be written that is to be written, and the time of all transactions be over."""
        if not self.leads:
            self.lead()
        self.settle()
        for _ in range(4):
            self.rig.advance(15_000)
            while self.rig.markers.sent:
                self.rig.markers.write()
        for partition in self.rig.coordinator._registry.served():
            for transaction in partition.transactions.in_states(set(TransactionState)):
                assert transaction.state in EXPIRABLE
                assert transaction.pending is None


TestTransactions = Transactions.TestCase
TestTransactions.settings = settings(
    max_examples=150,
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)

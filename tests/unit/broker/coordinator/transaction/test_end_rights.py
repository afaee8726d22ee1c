"""The right to end a transaction: when it is lent, when it is taken back, and what follows from its use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from ctrlchan.broker.coordinator.transaction.requests import ProducerIdentity
from ctrlchan.broker.coordinator.transaction.states import TransactionState
from ctrlchan.errors import ErrorCode
from tests.unit.broker.coordinator.support import START_MS, Answer
from tests.unit.broker.coordinator.transaction.support import (
    ALONE,
    CONFIG,
    FIRST,
    ID,
    NONE,
    SECOND,
    TIMEOUT,
    MemoryGate,
    MemoryRight,
    Rig,
)

PRODUCER = ProducerIdentity(10, 0)
AT_MS = START_MS + 7


def begun(rig: Rig) -> MemoryGate:
    """Begin a transaction; return the gate of its partition."""
    rig.init()
    assert rig.add(FIRST) == NONE
    return rig.gates.opened[rig.number]


def right_of(gate: MemoryGate) -> MemoryRight | None:
    return gate.rights.get(ID)


def test_the_right_is_lent_with_the_first_partition() -> None:
    rig = Rig()
    rig.init()
    gate = rig.gates.opened[rig.number]
    assert right_of(gate) is None
    rig.add(FIRST)
    right = right_of(gate)
    assert right is not None
    assert right is rig.transaction().end_right
    assert (gate.number, gate.epoch) == (rig.number, rig.epoch)


@pytest.mark.parametrize("commit", [True, False])
def test_a_decision_is_taken_over(commit: bool) -> None:
    rig = Rig()
    gate = begun(rig)
    assert gate.end(ID, PRODUCER, commit, AT_MS)
    assert rig.markers.sent == []
    gate.settle()
    state = "PrepareCommit" if commit else "PrepareAbort"
    assert rig.state == state
    assert rig.transaction().update_ms == AT_MS
    ended = rig.markers.write()
    assert (ended.producer, ended.commit, ended.partitions) == (PRODUCER, commit, ALONE)
    assert ended.coordinator_epoch == rig.epoch
    complete = "CompleteCommit" if commit else "CompleteAbort"
    assert rig.topic.states() == ["Empty", "Ongoing", state, complete]
    # The producer goes on.
    assert rig.add(SECOND) == NONE
    assert right_of(gate) is not None


@pytest.mark.parametrize(
    "look",
    [
        lambda rig: rig.coordinator.describe(ID).state,
        lambda rig: rig.coordinator.list((), (), -1)[2][0].state,
        lambda rig: next(s for s, count in rig.coordinator.figures().transactional_ids.items() if count),
    ],
    ids=["describe", "list", "figures"],
)
def test_who_looks_sees_the_decision(look: Callable[[Rig], str]) -> None:
    rig = Rig()
    assert begun(rig).end(ID, PRODUCER, True, AT_MS)
    assert look(rig) == "PrepareCommit"
    assert len(rig.markers.sent) == 1


def test_the_next_request_waits_for_the_markers() -> None:
    rig = Rig()
    assert begun(rig).end(ID, PRODUCER, True, AT_MS)
    added = rig.send_add(SECOND)
    assert not added.results
    rig.markers.write()
    assert added.result == NONE


def test_a_repeated_request_hears_of_the_decision() -> None:
    rig = Rig()
    gate = begun(rig)
    assert gate.end(ID, PRODUCER, True, AT_MS)
    assert not gate.end(ID, PRODUCER, True, AT_MS)
    repeated = rig.send_end()
    rig.markers.write()
    assert repeated.result == NONE
    assert rig.end(commit=False) == ErrorCode.INVALID_TXN_STATE


def test_more_partitions_renew_the_right() -> None:
    rig = Rig()
    gate = begun(rig)
    first = right_of(gate)
    assert rig.add(SECOND) == NONE
    assert right_of(gate) not in (None, first)
    assert gate.end(ID, PRODUCER, True, AT_MS)
    gate.settle()
    assert rig.markers.write().partitions == {FIRST, SECOND}


def test_the_same_partitions_leave_the_right() -> None:
    rig = Rig()
    gate = begun(rig)
    first = right_of(gate)
    assert rig.add(FIRST) == NONE
    assert right_of(gate) is first


def test_no_right_while_a_change_is_appended() -> None:
    rig = Rig()
    gate = begun(rig)
    rig.topic.held = []
    rig.send_add(SECOND)
    assert right_of(gate) is None
    rig.topic.release(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    # Nobody knows what the log has: the coordinator decides.
    assert right_of(gate) is None
    assert rig.end() == NONE


def test_no_right_where_others_have_the_partition() -> None:
    rig = Rig()
    rig.init()
    rig.topic.held = []
    added = rig.send_add(FIRST)
    rig.topic.release()
    rig.topic.held = []
    assert added.result == NONE
    assert right_of(rig.gates.opened[rig.number]) is not None
    rig.send_add(SECOND)
    assert right_of(rig.gates.opened[rig.number]) is None


def test_an_append_that_fails_leaves_the_right() -> None:
    rig = Rig()
    gate = begun(rig)
    rig.topic.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not gate.end(ID, PRODUCER, True, AT_MS)
    rig.topic.error = 0
    assert gate.end(ID, PRODUCER, True, AT_MS)
    gate.settle()
    assert rig.state == "PrepareCommit"


@pytest.mark.parametrize("stops", ["end", "init", "time", "resign"])
def test_what_takes_the_right_back(stops: str) -> None:
    rig = Rig()
    gate = begun(rig)
    if stops == "end":
        assert rig.end() == NONE
    elif stops == "init":
        rig.send_init()
    elif stops == "time":
        rig.advance(TIMEOUT + 100)
    else:
        rig.coordinator.resigned(rig.number, rig.epoch + 1)
        assert gate.is_closed
    assert right_of(gate) is None
    assert not gate.end(ID, PRODUCER, True, AT_MS)
    assert rig.topic.states().count("PrepareCommit") == (stops == "end")


def test_a_decision_comes_before_what_fences_its_producer() -> None:
    rig = Rig()
    gate = begun(rig)
    assert gate.end(ID, PRODUCER, True, AT_MS)
    result = rig.send_init()
    rig.markers.write()
    assert result.result.epoch == PRODUCER.epoch + 1
    assert rig.topic.states() == ["Empty", "Ongoing", "PrepareCommit", "CompleteCommit", "Empty"]


def test_a_decision_before_the_partition_is_given_up() -> None:
    """Its markers are written by the next coordinator alone."""
    rig = Rig()
    assert begun(rig).end(ID, PRODUCER, True, AT_MS)
    rig.coordinator.resigned(rig.number, rig.epoch + 1)
    rig.markers.sent.clear()  # the sender asks whether it is current, and sends nothing
    rig.epoch += 2
    rig.coordinator.elected(rig.number, rig.epoch)
    assert rig.state == "PrepareCommit"
    ended = rig.markers.write()
    assert (ended.commit, ended.coordinator_epoch) == (True, rig.epoch)
    assert rig.state == "CompleteCommit"


@pytest.mark.parametrize(("is_strict", "first"), [(True, 8), (False, 0)])
def test_which_connections_may_use_it(is_strict: bool, first: int) -> None:
    rig = Rig(replace(CONFIG, refuses_late_ends=is_strict))
    rig.init()
    answer: Answer[ErrorCode] = Answer()
    rig.coordinator.add_partitions(ID, PRODUCER, (FIRST,), answer, 8)
    assert answer.result == NONE
    right = right_of(rig.gates.opened[rig.number])
    assert right is not None
    assert right.first_connection == first


def test_a_loaded_transaction_has_no_right() -> None:
    rig = Rig()
    begun(rig)
    rig.coordinator.elected(rig.number, rig.epoch + 1)
    gate = rig.gates.opened[rig.number]
    assert gate.epoch == rig.epoch + 1
    assert rig.transaction().state is TransactionState.ONGOING
    assert right_of(gate) is None


def test_a_decision_that_does_not_fit_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The lock of the partition can be had, and the other transactions go on."""
    rig = Rig()
    gate = begun(rig)
    assert gate.end(ID, PRODUCER, True, AT_MS)
    rig.transaction().state = TransactionState.EMPTY
    assert rig.coordinator.describe(ID).state == "Empty"
    assert "a decision is not taken over" in caplog.text

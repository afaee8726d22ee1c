"""The usual ways of a transaction."""

from __future__ import annotations

from ctrlchan.broker.coordinator.transaction.requests import InitResult, ProducerIdentity
from ctrlchan.errors import ErrorCode
from tests.unit.broker.coordinator.transaction.support import (
    BOTH,
    FIRST,
    ID,
    NONE,
    SECOND,
    TIMEOUT,
    WAIT_MS,
    Rig,
)


def test_a_transaction_commits() -> None:
    rig = Rig()
    assert rig.init() == InitResult(NONE, 10, 0)
    assert rig.add(FIRST) is NONE
    assert rig.add(FIRST, SECOND) is NONE
    assert rig.add(SECOND) is NONE  # nothing new: nothing is appended
    assert rig.end() is NONE
    assert rig.state == "PrepareCommit"
    repeated = rig.send_end()
    assert not repeated.given
    ended = rig.markers.write()
    assert repeated.result is NONE
    assert ended.producer == ProducerIdentity(10, 0)
    assert ended.commit
    assert ended.partitions == BOTH
    assert (ended.transactional_id, ended.state_partition, ended.coordinator_epoch) == (ID, rig.number, 5)
    assert rig.topic.states() == ["Empty", "Ongoing", "Ongoing", "PrepareCommit", "CompleteCommit"]
    assert rig.end() is NONE
    assert rig.end(commit=False) is ErrorCode.INVALID_TXN_STATE


def test_without_other_brokers_the_end_is_complete_at_once() -> None:
    rig = Rig(at_once=True)
    rig.init()
    for _ in range(3):
        assert rig.add(FIRST) is NONE
        answer = rig.send_end()
        assert rig.state == "CompleteCommit"
        assert answer.result is NONE


def test_a_second_producer_fences_the_first() -> None:
    rig = Rig()
    rig.init()
    rig.add(FIRST)
    assert rig.init() == InitResult(ErrorCode.CONCURRENT_TRANSACTIONS)
    assert rig.end() is ErrorCode.PRODUCER_FENCED
    successor = rig.send_init()
    assert not successor.given
    ended = rig.markers.write()
    assert (ended.producer, ended.commit) == (ProducerIdentity(10, 1), False)
    assert successor.result == InitResult(NONE, 10, 2)


def test_a_transaction_whose_time_is_over_is_aborted() -> None:
    rig = Rig(at_once=True)
    rig.init()
    rig.add(FIRST)
    rig.advance(1_000)
    assert rig.state == "Ongoing"
    rig.advance(2)
    assert rig.state == "CompleteAbort"
    assert rig.end() is ErrorCode.PRODUCER_FENCED


def test_requests_while_markers_are_written_wait() -> None:
    rig = Rig()
    rig.init()
    rig.add(FIRST)
    rig.end()
    waiting = rig.send_add(SECOND)
    assert not waiting.given
    rig.markers.write()
    assert waiting.result is NONE
    assert rig.transaction().partitions == {SECOND}
    rig.end()
    waiting = rig.send_add(SECOND)
    rig.advance(WAIT_MS - 1)
    assert not waiting.given
    assert rig.transaction().waiting
    rig.advance(2)
    assert waiting.result is ErrorCode.CONCURRENT_TRANSACTIONS
    assert not rig.transaction().waiting
    rig.markers.write()
    assert waiting.result is ErrorCode.CONCURRENT_TRANSACTIONS
    assert rig.state == "CompleteCommit"


def test_a_transaction_is_resumed_by_the_next_coordinator() -> None:
    rig = Rig()
    rig.init()
    rig.add(FIRST)
    rig.end()
    rig.coordinator.resigned(rig.number, 6)
    assert rig.end() is ErrorCode.NOT_COORDINATOR
    rig.markers.write()  # too late
    assert rig.topic.states()[-1] == "PrepareCommit"
    rig.coordinator.elected(rig.number, 7)
    assert rig.markers.write().coordinator_epoch == 7
    assert rig.state == "CompleteCommit"


def test_a_request_that_waits_when_the_leadership_ends_is_answered() -> None:
    rig = Rig()
    rig.init()
    rig.add(FIRST)
    rig.end()
    waiting = rig.send_add(SECOND), rig.send_end()
    rig.coordinator.resigned(rig.number, 6)
    rig.advance(WAIT_MS + 1)
    assert [each.result for each in waiting] == [ErrorCode.NOT_COORDINATOR] * 2
    assert rig.send_init().result.error is ErrorCode.NOT_COORDINATOR


def test_a_producer_that_follows_at_once_waits_for_the_markers_of_its_predecessor() -> None:
    rig = Rig()
    rig.init()
    rig.add(FIRST)
    assert rig.end() is NONE
    repeated, successor = rig.send_end(), rig.send_init()
    assert (repeated.given, successor.given) == (False, False)
    rig.markers.write()
    assert repeated.result is NONE
    assert successor.result == InitResult(NONE, 10, 1)


def test_the_answer_comes_before_the_markers() -> None:
    rig = Rig(at_once=True)
    rig.init()
    rig.add(FIRST)
    states: list[str] = []
    rig.coordinator.end(ID, ProducerIdentity(10, 0), True, lambda _: states.append(rig.state))
    assert (states, rig.state) == (["PrepareCommit"], "CompleteCommit")
    rig.add(FIRST)
    rig.coordinator.init_producer_id(ID, TIMEOUT, None, lambda _: states.append(rig.state))
    assert (states[1:], rig.state) == (["PrepareAbort"], "CompleteAbort")

"""The usual ways of a transaction."""

from __future__ import annotations

from ctrlchan.broker.coordinator.transaction.requests import InitResult, ProducerIdentity
from ctrlchan.errors import ErrorCode
from tests.unit.broker.coordinator.transaction.support import BOTH, FIRST, ID, NONE, SECOND, Rig


def test_a_transaction_commits() -> None:
    rig = Rig()
    assert rig.init() == InitResult(NONE, 10, 0)
    assert rig.add(FIRST) is NONE
    assert rig.add(FIRST, SECOND) is NONE
    assert rig.add(SECOND) is NONE  # nothing new: nothing is appended
    assert rig.end() is NONE
    assert rig.state == "PrepareCommit"
    assert rig.end() is ErrorCode.CONCURRENT_TRANSACTIONS
    ended = rig.markers.write()
    assert ended.producer == ProducerIdentity(10, 0)
    assert ended.commit
    assert ended.partitions == BOTH
    assert (ended.transactional_id, ended.state_partition, ended.coordinator_epoch) == (ID, rig.number, 5)
    assert rig.topic.states() == ["Empty", "Ongoing", "Ongoing", "PrepareCommit", "CompleteCommit"]
    assert rig.end() is NONE
    assert rig.end(commit=False) is ErrorCode.INVALID_TXN_STATE


def test_without_other_brokers_the_end_is_complete_when_it_is_answered() -> None:
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
    assert rig.init() == InitResult(ErrorCode.CONCURRENT_TRANSACTIONS)
    ended = rig.markers.write()
    assert (ended.producer, ended.commit) == (ProducerIdentity(10, 1), False)
    assert rig.init() == InitResult(NONE, 10, 2)


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
    rig.advance(19)
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
    waiting = rig.send_add(SECOND)
    rig.coordinator.resigned(rig.number, 6)
    rig.advance(21)
    assert waiting.result is ErrorCode.NOT_COORDINATOR

"""An EndTxn that was delayed on its way does not end the next transaction (KAFKA-17754)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ctrlchan.broker.coordinator.common.partitions import TopicPartition
from ctrlchan.broker.coordinator.transaction.requests import NO_CONNECTION, ProducerIdentity
from ctrlchan.errors import ErrorCode
from tests.unit.broker.coordinator.support import Answer
from tests.unit.broker.coordinator.transaction.support import CONFIG, FIRST, ID, NONE, SECOND, Rig

LATE = ErrorCode.INVALID_TXN_STATE
PRODUCER = ProducerIdentity(10, 0)


def add(rig: Rig, connection: int, *partitions: TopicPartition) -> ErrorCode:
    answer: Answer[ErrorCode] = Answer()
    rig.coordinator.add_partitions(ID, PRODUCER, partitions or (FIRST,), answer, connection)
    return answer.result


def end(rig: Rig, connection: int, commit: bool = True) -> ErrorCode:
    answer: Answer[ErrorCode] = Answer()
    rig.coordinator.end(ID, PRODUCER, commit, answer, connection)
    return answer.result


def begun(rig: Rig, connection: int) -> None:
    """Begin the second transaction of a producer; the first was ended by the connection before."""
    assert rig.init().epoch == 0
    assert add(rig, connection - 1) == NONE
    assert end(rig, connection - 1) == NONE
    assert add(rig, connection) == NONE


@pytest.mark.parametrize("commit", [True, False])
def test_a_late_end_does_not_end_the_next_transaction(commit: bool, caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig(at_once=True)
    begun(rig, 8)
    assert end(rig, 7, commit) == LATE
    assert rig.state == "Ongoing"
    assert rig.coordinator.figures().late_ends == 1
    assert f"[TransactionCoordinator id=1] transactional id {ID!r}: an EndTxn is refused" in caplog.text
    # Its own connection, and one after it, may end it.
    assert end(rig, 9, commit) == NONE
    assert rig.coordinator.figures().late_ends == 1


def test_later_partitions_do_not_change_who_may_end_it() -> None:
    rig = Rig(at_once=True)
    begun(rig, 8)
    assert add(rig, 12, FIRST, SECOND) == NONE
    assert end(rig, 8) == NONE
    # The end of an ended transaction is no late one: the client asks for it again.
    assert end(rig, 3) == NONE
    assert rig.coordinator.figures().late_ends == 0


def test_after_a_move_of_the_coordinator_nobody_is_refused() -> None:
    rig = Rig(at_once=True)
    begun(rig, 8)
    rig.coordinator.resigned(rig.number, rig.epoch + 1)
    rig.coordinator.elected(rig.number, rig.epoch + 2)
    assert rig.state == "Ongoing"
    assert end(rig, 7) == NONE


def test_a_connection_without_a_number_and_the_switch() -> None:
    rig = Rig(at_once=True)
    begun(rig, 8)
    assert end(rig, NO_CONNECTION) == NONE
    lenient = Rig(replace(CONFIG, refuses_late_ends=False), at_once=True)
    begun(lenient, 8)
    assert end(lenient, 7) == NONE
    assert lenient.coordinator.figures().late_ends == 0

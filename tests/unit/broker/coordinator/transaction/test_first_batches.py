"""First batches of transactions whose coordinator is in the same broker: no handler thread sees them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ctrlchan.broker.coordinator.common.partitions import TopicPartition
from ctrlchan.broker.coordinator.transaction.requests import ProducerIdentity
from ctrlchan.broker.replica._partitions import Partition
from ctrlchan.errors import ErrorCode
from ctrlchan.internal_topics import OFFSETS_TOPIC
from tests.unit.broker.coordinator.transaction.support import ID, NONE, TIMEOUT, Rig
from tests.unit.broker.log.made_batches import transactional_batch
from tests.unit.broker.replica.serving import (
    OTHER,
    OURS,
    QUEUED,
    ProduceServer,
    outcomes,
    produce_frame,
    producing,
)

HERE, THERE = TopicPartition("t", 0), TopicPartition("t", 1)
NO_GUARD = 0


class Broker:
    """A coordinator, and processors that append to partition HERE. Neither knows THERE."""

    def __init__(self, server: ProduceServer) -> None:
        self.server = server
        self.partition = server.lead()
        self.rig = Rig()
        self.rig.hosted[HERE] = self.partition
        producer = self.rig.init()
        self.producer = (producer.producer_id, producer.epoch)

    def add(self, *partitions: TopicPartition) -> ErrorCode:
        return self.rig.add(*partitions or (HERE,), producer=self.producer)

    def end(self, commit: bool = True) -> ErrorCode:
        return self.rig.end(commit, self.producer)

    def write_marker(self, partition: Partition | None = None) -> None:
        """Write the marker of the transaction that was ended last."""
        _, then = self.rig.markers.sent.pop()
        append_marker(partition or self.partition, self.producer)
        then()

    def send(
        self,
        sequence: int = 0,
        *,
        transactional_id: str | None = ID,
        producer: tuple[int, int] | None = None,
        version: int = 9,
    ) -> int | bytes:
        """Send a batch to HERE; return its error, or QUEUED."""
        producer_id, epoch = producer or self.producer
        data = transactional_batch(producer_id, epoch, sequence)
        topics = [(HERE.topic, [(HERE.partition, data)])]
        with self.server.client() as client:
            client.frames(produce_frame(version, topics, transactional_id=transactional_id))
            answer = client.answer()
        if answer == QUEUED:
            return QUEUED
        ((*_, error, _offset),) = outcomes(version, answer)
        return error

    @property
    def is_open(self) -> bool:
        """Whether a transaction of the producer is open in HERE."""
        log = self.partition.log
        assert log is not None
        return any(each.txn_first_offset >= 0 for each in log.producer_states())


def append_marker(partition: Partition, producer: tuple[int, int], coordinator_epoch: int = 5) -> None:
    appended = partition.append_marker(*producer, False, coordinator_epoch, timeout_ms=0)
    assert appended.result().error_code == NONE


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with producing(tmp_path) as server:
        server.table.verifies_transactions = True
        yield Broker(server)


@pytest.mark.parametrize("version", [3, 9, 11])
def test_a_first_batch_stays_on_the_processor(broker: Broker, version: int) -> None:
    for number in range(3):
        assert broker.add(HERE, THERE) is NONE
        assert broker.send(2 * number, version=version) == NONE
        assert broker.is_open
        assert broker.send(2 * number + 1, version=version) == NONE
        assert broker.end() is NONE
        broker.write_marker()
        assert not broker.is_open
    # No handler thread has seen a request.
    assert broker.server.queued == []
    assert broker.server.api.counters[0] == 6


def test_a_partition_that_was_not_added_asks(broker: Broker) -> None:
    assert broker.send() == QUEUED
    assert broker.add(THERE) is NONE
    assert broker.send() == QUEUED
    assert broker.add(HERE) is NONE
    assert broker.send() == NONE


def test_what_does_not_fit_asks(broker: Broker) -> None:
    assert broker.add() is NONE
    producer_id, epoch = broker.producer
    for other in [(producer_id + 1, epoch), (producer_id, epoch + 1), (producer_id, epoch - 1)]:
        assert broker.send(producer=other) == QUEUED
    for name in (None, "", "other", ID[:-1], ID + "x"):
        assert broker.send(transactional_id=name) == QUEUED
    assert not broker.is_open
    assert broker.send() == NONE


def test_nothing_is_confirmed_before_the_record_is_replicated(broker: Broker) -> None:
    broker.rig.topic.held = []
    answer = broker.rig.send_add(HERE, producer=broker.producer)
    assert broker.send() == QUEUED
    broker.rig.topic.release()
    assert answer.result is NONE
    assert broker.send() == NONE


def test_a_record_that_cannot_be_appended_confirms_nothing(broker: Broker) -> None:
    broker.rig.topic.error = ErrorCode.NOT_ENOUGH_REPLICAS
    assert broker.add() is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert broker.send() == QUEUED
    broker.rig.topic.error = 0
    assert broker.add() is NONE
    assert broker.send() == NONE


def test_an_end_comes_before_the_confirmation(broker: Broker) -> None:
    """Another broker coordinates, and has ended the transaction, before this one's thread goes on."""
    broker.rig.topic.held = []
    answer = broker.rig.send_add(HERE, producer=broker.producer)
    append_marker(broker.partition, broker.producer, 6)
    broker.rig.topic.release()
    assert answer.result is NONE
    assert broker.send() == QUEUED
    assert not broker.is_open


def test_the_guard_of_a_confirmed_batch_ends_with_a_marker(broker: Broker) -> None:
    """The marker comes between the look-up of a processor and its append."""
    assert broker.add() is NONE
    guard = broker.partition.begin_verification(*broker.producer, 0)
    append_marker(broker.partition, broker.producer)
    data = transactional_batch(broker.producer[0], broker.producer[1], 0)
    assert broker.partition.append(data, verification_guard=guard).result()[0] == ErrorCode.INVALID_TXN_STATE
    assert broker.send() == QUEUED
    assert not broker.is_open


@pytest.mark.parametrize("commit", [True, False])
def test_the_end_is_decided_after_the_confirmation_is_withdrawn(broker: Broker, commit: bool) -> None:
    assert broker.add() is NONE
    broker.rig.topic.held = []
    answer = broker.rig.send_end(commit, broker.producer)
    assert broker.send() == QUEUED
    broker.rig.topic.release()
    assert answer.result is NONE
    assert broker.send() == QUEUED
    broker.write_marker()
    assert broker.send() == QUEUED


def test_a_fenced_producer_asks(broker: Broker) -> None:
    assert broker.add() is NONE
    assert broker.rig.init().error is ErrorCode.CONCURRENT_TRANSACTIONS
    assert broker.send() == QUEUED


def test_a_transaction_whose_time_is_over_asks(broker: Broker) -> None:
    assert broker.add() is NONE
    broker.rig.advance(TIMEOUT + 1)
    assert broker.rig.state == "PrepareAbort"
    assert broker.send() == QUEUED


@pytest.mark.parametrize("epoch", [6, None])
def test_a_broker_that_resigns_confirms_nothing(broker: Broker, epoch: int | None) -> None:
    assert broker.add() is NONE
    broker.rig.coordinator.resigned(broker.rig.number, epoch)
    assert broker.send() == QUEUED


def test_a_confirmation_is_of_one_leader_epoch(broker: Broker) -> None:
    assert broker.add() is NONE
    log = broker.partition.log
    assert log is not None
    broker.partition.make_follower(log, OTHER, 4, 1, (OURS, OTHER))
    broker.partition.make_leader(log, 5, 2, (OURS,), (OURS,))
    assert broker.send() == QUEUED


def test_a_partition_that_another_broker_leads_is_left_alone(broker: Broker) -> None:
    log = broker.partition.log
    assert log is not None
    broker.partition.make_follower(log, OTHER, 4, 1, (OURS, OTHER))
    assert broker.add() is NONE
    broker.partition.make_leader(log, 5, 2, (OURS,), (OURS,))
    assert broker.send() == QUEUED
    broker.partition.set_offline()
    assert broker.end() is NONE


def test_a_failed_disk_does_not_refuse_the_partition(broker: Broker) -> None:
    log = broker.partition.log
    assert log is not None
    log.close()
    assert broker.add() is NONE
    assert broker.end() is NONE


def test_offsets_are_left_to_handler_threads(tmp_path: Path) -> None:
    with producing(tmp_path) as server:
        server.table.verifies_transactions = True
        rig = Rig()
        offsets = TopicPartition(OFFSETS_TOPIC, 0)
        rig.hosted[offsets] = partition = server.lead(*offsets)
        producer = ProducerIdentity(rig.init().producer_id, 0)
        assert rig.add(offsets, producer=producer) is NONE
        log = partition.log
        assert log is not None
        # Its coordinator asks with a sequence number of its own.
        assert partition.begin_verification(*producer, -1) > NO_GUARD


def test_the_lowest_sequence_number_has_to_come_first(broker: Broker) -> None:
    assert broker.add() is NONE
    # It was not appended, say for missing replicas. Those behind it are refused, as where somebody is asked.
    guard = broker.partition.begin_verification(*broker.producer, 3)
    assert guard > NO_GUARD
    assert broker.send(4) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert broker.send(3) == NONE


def test_a_higher_epoch_has_no_confirmation(broker: Broker) -> None:
    assert broker.add() is NONE
    producer_id, epoch = broker.producer
    broker.partition.begin_verification(producer_id, epoch + 1, 0)
    assert broker.send(producer=(producer_id, epoch + 1)) == QUEUED
    assert broker.send() == QUEUED


def test_wrong_confirmations_change_nothing(broker: Broker) -> None:
    partition, (producer_id, epoch) = broker.partition, broker.producer
    name = ID.encode()
    guard = partition.begin_verification(producer_id, epoch, 0)
    partition.confirm_verification(producer_id, epoch, guard + 1, name)
    partition.confirm_verification(producer_id, epoch + 1, guard, name)
    partition.confirm_verification(producer_id + 1, epoch, guard, name)
    partition.withdraw_verification(producer_id + 1)
    assert broker.send() == QUEUED
    with pytest.raises(TypeError):
        partition.confirm_verification(producer_id, epoch, guard, None)  # type: ignore[arg-type]
    # The last one counts, and may be as long as an id can be.
    partition.confirm_verification(producer_id, epoch, guard, b"")
    partition.confirm_verification(producer_id, epoch, guard, b"i" * 32_767)
    partition.confirm_verification(producer_id, epoch, guard, name)
    assert broker.send() == NONE
    # The verification has ended.
    partition.confirm_verification(producer_id, epoch, guard, name)
    append_marker(partition, broker.producer)
    assert broker.send(1) == QUEUED

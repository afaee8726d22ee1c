"""Transactional batches in a Produce: which the processors append, and how the others are verified."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from ctrlchan.broker.coordinator.common.partitions import TopicPartition
from ctrlchan.broker.coordinator.transaction.requests import ProducerIdentity
from ctrlchan.broker.handlers.produce_verification import Verified, verify
from ctrlchan.broker.replica._partitions import Partition, ProduceResult
from ctrlchan.errors import ErrorCode, KafkaError
from tests.unit.broker.log.batches import TRANSACTIONAL, PlainBatch
from tests.unit.broker.log.made_batches import batch
from tests.unit.broker.replica.serving import (
    OTHER,
    OURS,
    QUEUED,
    ProduceServer,
    outcomes,
    produce_frame,
    producing,
)

PLAIN = batch([b"x"])


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ProduceServer]:
    with producing(tmp_path) as server:
        server.table.verifies_transactions = True
        yield server


def part(sequence: int, *, producer_id: int = 7, epoch: int = 0, attributes: int = TRANSACTIONAL) -> bytes:
    return batch(
        [b"a"],
        timestamp=int(1000 * time.time()),
        producer_id=producer_id,
        producer_epoch=epoch,
        sequence=sequence,
        attributes=attributes,
    )


def begin(partition: Partition, producer_id: int = 7, epoch: int = 0) -> None:
    """Append the first batch of a transaction, which is verified."""
    guard = partition.begin_verification(producer_id, epoch, 0)
    data = part(0, producer_id=producer_id, epoch=epoch)
    assert partition.append(data, verification_guard=guard).result()[0] == 0


def end(partition: Partition) -> None:
    assert partition.append_marker(7, 0, True, 0, timeout_ms=0).result().error_code == 0


# -- on a processor


@pytest.mark.parametrize("version", [3, 8, 11])
def test_batches_of_an_open_transaction_stay_on_the_processor(server: ProduceServer, version: int) -> None:
    first, second = server.lead(), server.lead(index=1)
    first_only = produce_frame(version, [("t", [(0, part(1))])], transactional_id="tx")
    both = produce_frame(version, [("t", [(0, part(2)), (1, part(1))])], transactional_id="tx")
    with server.client() as client:
        client.frames(first_only)
        assert client.answer() == QUEUED
        begin(first)
        client.frames(first_only)
        assert outcomes(version, client.answer()) == [("t", 0, 0, 1)]
        # It comes again.
        client.frames(first_only)
        assert outcomes(version, client.answer()) == [("t", 0, 0, 1)]
        client.frames(both)
        assert client.answer() == QUEUED
        begin(second)
        client.frames(both)
        assert outcomes(version, client.answer()) == [("t", 0, 0, 2), ("t", 1, 0, 1)]
        end(first)
        client.frames(both)
        assert client.answer() == QUEUED
    assert server.queued == [first_only, both, both]
    assert server.api.counters[0] == 3


def test_errors_of_an_open_transaction_are_answered_on_the_processor(server: ProduceServer) -> None:
    begin(server.lead(), epoch=3)
    with server.client() as client:
        for data, error in [
            (part(1, epoch=2), ErrorCode.INVALID_PRODUCER_EPOCH),
            (part(2, epoch=3), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
            (part(1, epoch=3, attributes=0), ErrorCode.INVALID_TXN_STATE),
        ]:
            client.frames(produce_frame(9, [("t", [(0, data)])], transactional_id="tx"))
            assert outcomes(9, client.answer()) == [("t", 0, error, -1)]
    assert server.queued == []


def test_plain_batches_may_come_with_a_transactional_id(server: ProduceServer) -> None:
    server.lead()
    with server.client() as client:
        client.frames(produce_frame(9, [("t", [(0, PLAIN)])], transactional_id=""))
        assert outcomes(9, client.answer()) == [("t", 0, 0, 0)]
    assert server.queued == []


@pytest.mark.parametrize(
    ("records", "transactional_id"),
    [
        ([part(1)], None),
        ([part(1), part(1, producer_id=8)], "tx"),
        ([part(1), part(1, epoch=1)], "tx"),
        ([PlainBatch(PLAIN[61:], 1, attributes=TRANSACTIONAL).encoded()], "tx"),
    ],
    ids=["no transactional id", "two producers", "two epochs", "no producer"],
)
def test_what_is_wrong_is_left_to_the_request_queue(
    server: ProduceServer, records: Sequence[bytes], transactional_id: str | None
) -> None:
    begin(server.lead())
    begin(server.lead(index=1), 8)
    frame = produce_frame(9, [("t", list(enumerate(records)))], transactional_id=transactional_id)
    with server.client() as client:
        client.frames(frame)
        assert client.answer() == QUEUED
    assert server.queued == [frame]
    for partition in server.table.partitions():
        assert partition.high_watermark == 1


def test_without_verification_all_batches_stay_on_the_processor(server: ProduceServer) -> None:
    server.table.verifies_transactions = False
    server.lead()
    with server.client() as client:
        client.frames(produce_frame(9, [("t", [(0, part(0))])], transactional_id="tx"))
        assert outcomes(9, client.answer()) == [("t", 0, 0, 0)]
    assert server.queued == []


# -- verification


class Coordinator:
    """Answers when ``answer`` is called."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, ProducerIdentity, list[TopicPartition]]] = []
        self.then: list[Callable[[Mapping[TopicPartition, ErrorCode]], None]] = []

    def verify(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Collection[TopicPartition],
        then: Callable[[Mapping[TopicPartition, ErrorCode]], None],
    ) -> None:
        self.asked.append((transactional_id, producer, list(partitions)))
        self.then.append(then)

    def answer(self, **errors: int) -> None:
        """Answer with the error of each topic's partition 0."""
        self.then.pop(0)({TopicPartition(topic, 0): ErrorCode(error) for topic, error in errors.items()})


def test_the_coordinator_is_asked_for_what_begins(server: ProduceServer) -> None:
    begun, new = server.lead("begun"), server.lead("new")
    begin(begun)
    coordinator = Coordinator()
    entries = {("begun", 0): part(1), ("new", 0): part(0), ("plain", 0): PLAIN}
    verified = verify(server.table, coordinator, "tx", 9, entries)
    assert not verified.done()
    assert coordinator.asked == [("tx", ProducerIdentity(7, 0), [TopicPartition("new", 0)])]
    coordinator.answer(new=0)
    refused, guards = verified.result()
    assert refused == {}
    assert guards["begun", 0] == 0
    result = new.append_records(part(0), verification_guard=guards["new", 0]).result()
    assert result.error_code == 0
    assert verify(server.table, coordinator, "tx", 9, entries).result().refused == {}
    assert len(coordinator.asked) == 1


@pytest.mark.parametrize(
    ("error", "version", "answered", "message"),
    [
        (ErrorCode.TRANSACTION_ABORTABLE, 11, ErrorCode.TRANSACTION_ABORTABLE, None),
        (
            ErrorCode.TRANSACTION_ABORTABLE,
            10,
            ErrorCode.INVALID_TXN_STATE,
            "Partition was not added to the transaction",
        ),
        (ErrorCode.PRODUCER_FENCED, 11, ErrorCode.INVALID_PRODUCER_EPOCH, None),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, 11, ErrorCode.INVALID_PRODUCER_ID_MAPPING, None),
        *(
            (
                error,
                11,
                ErrorCode.NOT_ENOUGH_REPLICAS,
                "Unable to verify the partition has been added to the transaction. "
                f"Underlying error: {ErrorCode.name_of(error)}",
            )
            for error in (
                ErrorCode.CONCURRENT_TRANSACTIONS,
                ErrorCode.NETWORK_EXCEPTION,
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                ErrorCode.NOT_COORDINATOR,
            )
        ),
    ],
)
def test_a_refusal_is_one_that_clients_know(
    server: ProduceServer, error: int, version: int, answered: int, message: str | None
) -> None:
    server.lead("a")
    server.lead("b")
    coordinator = Coordinator()
    verified = verify(
        server.table, coordinator, "tx", version, {("a", 0): part(0), ("b", 0): part(0), ("c", 0): PLAIN}
    )
    coordinator.answer(a=error, b=0)
    assert verified.result().refused == {("a", 0): ProduceResult(answered, error_message=message)}


def test_only_the_leader_asks(server: ProduceServer) -> None:
    follower = server.lead("followed")
    assert follower.log is not None
    follower.make_follower(follower.log, OTHER, 4, 1, (OURS, OTHER))
    server.lead("offline").set_offline()
    coordinator = Coordinator()
    entries = {("followed", 0): part(0), ("offline", 0): part(0), ("elsewhere", 0): part(0)}
    refused = verify(server.table, coordinator, "tx", 9, entries).result().refused
    assert refused == {
        ("followed", 0): ProduceResult(ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ("offline", 0): ProduceResult(ErrorCode.KAFKA_STORAGE_ERROR),
        ("elsewhere", 0): ProduceResult(ErrorCode.NOT_LEADER_OR_FOLLOWER),
    }
    assert coordinator.asked == []


def test_several_producers_fail_the_whole_request(server: ProduceServer) -> None:
    server.lead("a")
    for entries in (
        {("a", 0): part(0), ("b", 0): part(0, producer_id=8)},
        {("a", 0): part(0), ("b", 0): part(0, epoch=1)},
    ):
        with pytest.raises(KafkaError) as raised:
            verify(server.table, Coordinator(), "tx", 9, entries)
        assert raised.value.code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert raised.value.message == "Transactional records contained more than one producer ID"


def test_nobody_is_asked_where_nothing_is_verified(server: ProduceServer) -> None:
    server.lead("a")
    entries = {("a", 0): part(0)}
    nothing = Verified({}, {})
    coordinator = Coordinator()
    server.table.verifies_transactions = False
    assert verify(server.table, coordinator, "tx", 9, entries).result() == nothing
    server.table.verifies_transactions = True
    without_producer = {("a", 0): PlainBatch(PLAIN[61:], 1, attributes=TRANSACTIONAL).encoded()}
    assert verify(server.table, coordinator, "tx", 9, without_producer).result() == nothing
    assert coordinator.asked == []

"""Transactions that begin in a partition of this broker with the guard of a verification."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ctrlchan.broker.config.log_config import LogConfig
from ctrlchan.broker.log._batches import Origin
from ctrlchan.broker.log._log import Log
from ctrlchan.broker.replica._partitions import Partition, PartitionTable
from ctrlchan.errors import ErrorCode, KafkaError
from tests.unit.broker.descriptors import no_descriptors
from tests.unit.broker.log.made_batches import transactional_batch

OURS, OTHER = 1, 2
NO_GUARD = 0


@pytest.fixture
def table() -> Iterator[PartitionTable]:
    table = PartitionTable(OURS)
    yield table
    table.close()


@pytest.fixture
def partition(table: PartitionTable, tmp_path: Path) -> Partition:
    partition = table.open("t", 0)
    partition.make_leader(Log(tmp_path / "t-0", LogConfig()), 5, 7, (OURS,), (OURS,))
    return partition


def send(partition: Partition, sequence: int, guard: int, **fields: int) -> int:
    data = transactional_batch(7, 0, sequence)
    error: int = partition.append(data, verification_guard=guard, **fields).result()[0]
    return error


def test_transactions_are_verified_where_the_broker_can_ask(
    table: PartitionTable, partition: Partition
) -> None:
    assert not table.verifies_transactions
    assert partition.begin_verification(7, 0, 0) == NO_GUARD
    assert send(partition, 0, NO_GUARD) == 0
    assert partition.append_marker(7, 0, True, 0, timeout_ms=0).result().error_code == 0
    table.verifies_transactions = True
    assert send(partition, 1, NO_GUARD) == ErrorCode.INVALID_TXN_STATE
    assert send(partition, 1, NO_GUARD, origin=Origin.COORDINATOR) == ErrorCode.INVALID_TXN_STATE
    guard = partition.begin_verification(7, 0, 1)
    assert guard > 0
    assert send(partition, 2, guard) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(partition, 1, guard) == 0
    assert partition.begin_verification(7, 0, 2) == NO_GUARD
    assert send(partition, 2, NO_GUARD) == 0
    assert partition.append_marker(7, 0, False, 0, timeout_ms=0).result().error_code == 0
    assert send(partition, 3, guard) == ErrorCode.INVALID_TXN_STATE
    # It was switched off while a batch was on its way.
    guard = partition.begin_verification(7, 0, 3)
    table.verifies_transactions = False
    assert send(partition, 3, NO_GUARD) == 0


def test_only_a_leader_verifies(table: PartitionTable, partition: Partition) -> None:
    table.verifies_transactions = True
    log = partition.log
    assert log is not None
    partition.make_follower(log, OTHER, 6, 8, (OURS, OTHER))
    with pytest.raises(KafkaError) as raised:
        partition.begin_verification(7, 0, 0)
    assert raised.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    partition.set_offline()
    with pytest.raises(KafkaError) as raised:
        partition.begin_verification(7, 0, 0)
    assert raised.value.code == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_closed_log_verifies_nothing(table: PartitionTable, partition: Partition) -> None:
    table.verifies_transactions = True
    log = partition.log
    assert log is not None
    log.close()
    with pytest.raises(KafkaError) as raised:
        partition.begin_verification(7, 0, 0)
    assert raised.value.code == ErrorCode.KAFKA_STORAGE_ERROR


def test_an_abort_that_gets_no_descriptor_is_refused_and_can_be_repeated(partition: Partition) -> None:
    log = partition.log
    assert log is not None
    assert send(partition, 0, NO_GUARD) == 0
    with no_descriptors():
        refused = partition.append_marker(7, 0, False, 0, timeout_ms=0).result()
        assert refused.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        # The transaction goes on, and other records are appended.
        assert send(partition, 1, NO_GUARD) == 0
    assert not log.offline
    assert log.end_offset == 2
    assert partition.append_marker(7, 0, False, 0, timeout_ms=0).result().error_code == 0
    assert [(one.producer_id, one.first_offset, one.last_offset) for one in log.aborted_entries(0, 9)] == [
        (7, 0, 2)
    ]

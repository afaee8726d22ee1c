"""Asks the coordinator of a Produce's transaction whether its partitions are part of it (KIP-890).

That is before the first batch of a transaction in a partition, so that none is open that nobody ends. Source:
``ReplicaManager.handleProduceAppend``.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Final, NamedTuple

from ctrlchan.broker.coordinator.common.partitions import TopicPartition
from ctrlchan.broker.coordinator.transaction.requests import ProducerIdentity
from ctrlchan.broker.coordinator.transaction.verifications import Verifier
from ctrlchan.broker.handlers.produce_records import BatchProducer, transactional_producer
from ctrlchan.broker.handlers.produce_response import Key
from ctrlchan.broker.replica._partitions import PartitionTable, ProduceResult
from ctrlchan.errors import ErrorCode, KafkaError

__all__ = ["Verified", "verify"]

#: From this version on clients know TRANSACTION_ABORTABLE.
_ABORTABLE_FROM: Final = 11
#: Errors of the coordinator that old clients would not retry.
_RETRIABLE: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


class Verified(NamedTuple):
    """What to do with the partitions of a Produce. ``guards``: those with which batches are appended."""

    refused: Mapping[Key, ProduceResult]
    guards: Mapping[Key, int]


def verify(
    table: PartitionTable,
    verifier: Verifier,
    transactional_id: str,
    version: int,
    entries: Mapping[Key, bytes],
) -> Future[Verified]:
    """Return the Verified of records that are whole batches.

    Raises KafkaError for transactional batches of several producers.
    """
    producers: dict[Key, BatchProducer] = {}
    for key, records in entries.items():
        producer = transactional_producer(records)
        if producer is not None:
            producers[key] = producer
    if len({(one.id, one.epoch) for one in producers.values()}) > 1:
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING, "Transactional records contained more than one producer ID"
        )
    guards: dict[Key, int] = {}
    errors: dict[Key, int] = {}
    if table.verifies_transactions:
        for key, producer in producers.items():
            try:
                guards[key] = _begin(table, key, producer)
            except KafkaError as error:
                errors[key] = error.code
    asked = [TopicPartition(*key) for key, guard in guards.items() if guard]
    done: Future[Verified] = Future()
    done.set_running_or_notify_cancel()

    def answer(found: Mapping[TopicPartition, int]) -> None:
        refused = errors | {key: error for key, error in found.items() if error}
        done.set_result(Verified({key: _refusal(error, version) for key, error in refused.items()}, guards))

    if asked:
        one = producers[asked[0]]
        verifier.verify(transactional_id, ProducerIdentity(one.id, one.epoch), asked, answer)
    else:
        answer({})
    return done


def _begin(table: PartitionTable, key: Key, producer: BatchProducer) -> int:
    """Return the guard of a partition's verification. Raises KafkaError."""
    partition = table.get(*key)
    if partition is None:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return partition.begin_verification(producer.id, producer.epoch, producer.base_sequence)


def _refusal(error: int, version: int) -> ProduceResult:
    """Return the result of a partition that is not verified, as clients of the version know it."""
    if error == ErrorCode.PRODUCER_FENCED:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    if error == ErrorCode.TRANSACTION_ABORTABLE and version < _ABORTABLE_FROM:
        error = ErrorCode.INVALID_TXN_STATE
    if error == ErrorCode.INVALID_TXN_STATE:
        return ProduceResult(error, error_message="Partition was not added to the transaction")
    if error in _RETRIABLE:
        message = (
            "Unable to verify the partition has been added to the transaction. "
            f"Underlying error: {ErrorCode.name_of(error)}"
        )
        return ProduceResult(ErrorCode.NOT_ENOUGH_REPLICAS, error_message=message)
    return ProduceResult(error)

"""Verifications: what other brokers, which coordinate transactions, are asked about them.

Nothing here sends, waits or reads a clock.
Source: ``AddPartitionsToTxnManager`` of Kafka 3.9 (KIP-890, part 1).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple, Protocol

from ctrlchan.broker.coordinator.common.partitions import TopicPartition
from ctrlchan.broker.coordinator.transaction.requests import ProducerIdentity
from ctrlchan.errors import ErrorCode

__all__ = ["Result", "Verification", "Verifications", "Verifier", "error_for_producers", "results_of"]

#: Error of each partition.
Result = Mapping[TopicPartition, ErrorCode]


class Verifier(Protocol):
    """What asks the coordinators: a ``TransactionVerifier``."""

    def verify(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Collection[TopicPartition],
        then: Callable[[Result], None],
    ) -> None:
        """Call ``then`` once, on any thread and without a lock, with the error of each partition."""


class Verification(NamedTuple):
    """A question: are these partitions part of the producer's transaction? ``asked_at``: seconds."""

    transactional_id: str
    producer: ProducerIdentity
    partitions: tuple[TopicPartition, ...]
    then: Callable[[Result], None]
    asked_at: float

    def with_error(self, error: ErrorCode) -> Result:
        """Return the result that has one error for all partitions."""
        return dict.fromkeys(self.partitions, error)


class Verifications:
    """What waits for the next request to each broker. The owner calls one method at a time."""

    def __init__(self) -> None:
        self._queues: dict[int, dict[str, Verification]] = {}

    def add(self, broker: int, asked: Verification) -> tuple[Verification, ErrorCode] | None:
        """Put a question into the next request to a broker.

        A transactional id is in a request once. Return the question that is answered at once with which
        error: the one that was there, or this one if its epoch is older.
        """
        queue = self._queues.setdefault(broker, {})
        earlier = queue.get(asked.transactional_id)
        refused = None
        if earlier is not None:
            if earlier.producer.epoch > asked.producer.epoch:
                return asked, ErrorCode.INVALID_PRODUCER_EPOCH
            is_fenced = earlier.producer.epoch < asked.producer.epoch
            # With the same epoch the producer has sent its request again, and shall hear of the newer one.
            refused = (
                earlier,
                ErrorCode.INVALID_PRODUCER_EPOCH if is_fenced else ErrorCode.NETWORK_EXCEPTION,
            )
            del queue[asked.transactional_id]
        queue[asked.transactional_id] = asked
        return refused

    def take(self, broker: int, most: int) -> list[Verification]:
        """Return the questions of the next request to a broker."""
        queue = self._queues.get(broker)
        if not queue:
            return []
        taken = [queue.pop(key) for key in list(queue)[:most]]
        if not queue:
            del self._queues[broker]
        return taken

    def take_all(self) -> list[Verification]:
        """Return all questions that were not sent."""
        queues, self._queues = self._queues, {}
        return [asked for queue in queues.values() for asked in queue.values()]


def error_for_producers(error: ErrorCode) -> ErrorCode:
    """Return the error that a producer expects in place of a coordinator's."""
    return ErrorCode.INVALID_PRODUCER_EPOCH if error == ErrorCode.PRODUCER_FENCED else error


def results_of(
    asked: Collection[Verification], error: ErrorCode, errors: Mapping[str, Result]
) -> list[tuple[Verification, Result]]:
    """Return the result of each question from a broker's answer.

    ``error``: of the whole answer; ``errors``: by transactional id. What the answer does not have was not
    verified: the producer may try again.
    """
    if error:
        # Clients shall not read that this broker may not ask: the verification did not take place.
        is_refused = error == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        code = ErrorCode.INVALID_TXN_STATE if is_refused else error
        return [(one, one.with_error(code)) for one in asked]
    found: list[tuple[Verification, Result]] = []
    for one in asked:
        own = errors.get(one.transactional_id, {})
        found.append(
            (
                one,
                {
                    partition: error_for_producers(own.get(partition, ErrorCode.NETWORK_EXCEPTION))
                    for partition in one.partitions
                },
            )
        )
    return found

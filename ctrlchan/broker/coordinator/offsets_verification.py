"""OffsetsVerification: verifies the transactions of TxnOffsetCommits (KIP-890).

Source: ``ReplicaManager.maybeStartTransactionVerificationForPartition``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from ctrlchan.broker.coordinator.common.partitions import TopicPartition
from ctrlchan.broker.coordinator.group.requests import TransactionalCommitRequest
from ctrlchan.broker.coordinator.group.verification import Verified
from ctrlchan.broker.coordinator.transaction.requests import ProducerIdentity
from ctrlchan.broker.coordinator.transaction.verifications import Verifier
from ctrlchan.errors import ErrorCode, KafkaError
from ctrlchan.internal_topics import OFFSETS_TOPIC

__all__ = ["OffsetsVerification", "VerifiablePartition"]

_NO_SEQUENCE: Final = -1


class VerifiablePartition(Protocol):
    """What is used of a ``Partition``."""

    def begin_verification(self, producer_id: int, producer_epoch: int, base_sequence: int) -> int: ...


class OffsetsVerification:
    """Asks `verifier` for a commit whose partition of ``__consumer_offsets`` has not got its transaction yet.

    `find` returns this broker's replica of a topic's partition, or None. `verifier`: None lets every commit
    pass, for a broker without a transaction coordinator.
    """

    def __init__(self, find: Callable[[str, int], VerifiablePartition | None]) -> None:
        self._find = find
        self.verifier: Verifier | None = None

    def verify(self, number: int, request: TransactionalCommitRequest, then: Verified) -> None:
        """Verify that a partition belongs to the transaction of a commit (a ``Verify``)."""
        found = self._find(OFFSETS_TOPIC, number)
        if found is None:
            then(ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)
            return
        try:
            guard = found.begin_verification(request.producer_id, request.producer_epoch, _NO_SEQUENCE)
        except KafkaError as error:
            then(error.code, 0)
            return
        if not guard or self.verifier is None:
            then(ErrorCode.NONE, guard)
            return
        partition = TopicPartition(OFFSETS_TOPIC, number)
        producer = ProducerIdentity(request.producer_id, request.producer_epoch)

        def verified(errors: Mapping[TopicPartition, ErrorCode]) -> None:
            # An answer without the partition confirms nothing.
            then(errors.get(partition, ErrorCode.NETWORK_EXCEPTION), guard)

        self.verifier.verify(request.transactional_id, producer, [partition], verified)

"""FirstBatches: lets partitions of this broker append the first batch of a transaction without a question.

A partition asks the coordinator before a transaction begins in it (KIP-890). Where the coordinator is in the
same broker, it confirms the verification when it adds the partition to the transaction, so that the batch
stays on the thread of its processor. ``log/_verifications.pyx`` says why no transaction is left open then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, Protocol

from ctrlchan.broker.coordinator.common.partitions import TopicPartition
from ctrlchan.broker.coordinator.transaction.requests import ProducerIdentity
from ctrlchan.errors import KafkaError
from ctrlchan.internal_topics import INTERNAL_TOPICS

__all__ = ["Begun", "ConfirmedPartition", "FirstBatches"]

#: No batch has asked yet, so none is too late: the highest sequence number.
_ANY_SEQUENCE: Final = 2**31 - 1


class ConfirmedPartition(Protocol):
    """What is used of a ``Partition``."""

    @property
    def is_leader(self) -> bool: ...

    def begin_verification(self, producer_id: int, producer_epoch: int, base_sequence: int) -> int: ...

    def confirm_verification(
        self, producer_id: int, producer_epoch: int, guard: int, transactional_id: bytes
    ) -> None: ...

    def withdraw_verification(self, producer_id: int) -> None: ...


class Begun(NamedTuple):
    """A verification that waits for the record which adds its partition."""

    partition: ConfirmedPartition
    guard: int


class FirstBatches:
    """Confirms and withdraws. `find` returns this broker's replica of a topic's partition, or None."""

    def __init__(self, find: Callable[[str, int], ConfirmedPartition | None]) -> None:
        self._find = find

    def begin(self, producer: ProducerIdentity, partitions: Iterable[TopicPartition]) -> Sequence[Begun]:
        """Begin verifications in the partitions that this broker leads, before their record is appended."""
        begun = []
        for topic, number in partitions:
            # Offsets are committed by a handler thread, which asks the coordinator without a request.
            partition = None if topic in INTERNAL_TOPICS else self._find(topic, number)
            if partition is None or not partition.is_leader:
                continue
            try:
                guard = partition.begin_verification(*producer, _ANY_SEQUENCE)
            except KafkaError:  # another leader, or a failed disk: the batch gets that error
                continue
            if guard:
                begun.append(Begun(partition, guard))
        return begun

    def confirm(self, transactional_id: str, producer: ProducerIdentity, begun: Sequence[Begun]) -> None:
        """Confirm the verifications: the record is replicated."""
        name = transactional_id.encode("utf-8", "replace")
        for partition, guard in begun:
            partition.confirm_verification(*producer, guard, name)

    def withdraw(self, producer_id: int, partitions: Iterable[TopicPartition]) -> None:
        """Have the next first batches ask: the transaction is going to end, or has another coordinator."""
        for topic, number in partitions:
            partition = None if topic in INTERNAL_TOPICS else self._find(topic, number)
            if partition is not None:
                partition.withdraw_verification(producer_id)

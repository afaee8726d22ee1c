"""PartitionLeaders: which broker leads a partition, as the transaction coordinator needs it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from ctrlchan.broker.coordinator.common.partitions import TopicPartition
from ctrlchan.broker.coordinator.transaction.pending_markers import UNKNOWN_BROKER
from ctrlchan.broker.metadata._snapshot import MetadataSnapshot
from ctrlchan.internal_topics import TRANSACTIONS_TOPIC

__all__ = ["PartitionLeaders"]

_NO_LEADER: Final = -1


class Replica(Protocol):
    """What is read of a ``Partition``."""

    @property
    def is_leader(self) -> bool: ...


class Metadata(Protocol):
    """What is read of a ``PublishedMetadata``."""

    @property
    def snapshot(self) -> MetadataSnapshot: ...


class PartitionLeaders:
    """Finds leaders without a lock. ``find`` returns this broker's replica of a partition, or None.

    ``listener``: that other brokers connect to.
    """

    def __init__(
        self,
        broker_id: int,
        find: Callable[[str, int], Replica | None],
        metadata: Metadata,
        listener: str,
    ) -> None:
        self._broker_id = broker_id
        self._find = find
        self._metadata = metadata
        self._listener = listener

    def for_marker(self, partition: TopicPartition, state_partition: int) -> int | None:
        """Return the live leader of a partition, UNKNOWN_BROKER, or None: the partition is deleted.

        A partition that is not in the metadata is deleted, if they are complete. They are not before the
        first UpdateMetadata with partitions, which has the partition of ``__transaction_state`` that this
        broker leads.
        """
        found = self._leader(partition)
        if found is not None:
            return found
        is_complete = self._metadata.snapshot.has_partition(TRANSACTIONS_TOPIC, state_partition)
        return None if is_complete else UNKNOWN_BROKER

    def coordinator(self, state_partition: int) -> int | None:
        """Return the live leader of a partition of ``__transaction_state``, or None."""
        found = self._leader(TopicPartition(TRANSACTIONS_TOPIC, state_partition))
        return None if found == UNKNOWN_BROKER else found

    def _leader(self, partition: TopicPartition) -> int | None:
        """Return the live leader of a partition, UNKNOWN_BROKER, or None: it is not in the metadata.

        A role that this broker has counts more than its metadata, which a controller sends later.
        """
        replica = self._find(*partition)
        if replica is not None and replica.is_leader:
            return self._broker_id
        snapshot = self._metadata.snapshot
        found = snapshot.leader(*partition)
        if found is None:
            return None
        leader, _ = found
        if leader <= _NO_LEADER or leader == self._broker_id:
            return UNKNOWN_BROKER
        return leader if snapshot.endpoints(self._listener, (leader,)) else UNKNOWN_BROKER

"""The leaders that answers name to a client that asked another broker (KIP-951).

``KafkaApis.getCurrentLeader`` of Kafka 3.9: a partition that has a log here knows its leader, and of the
others the metadata do. The client needs no Metadata request before it goes on.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from ctrlchan.broker.storing_core import StoringCore

__all__ = ["UNKNOWN", "CurrentLeader", "CurrentLeaders"]


class CurrentLeader(NamedTuple):
    """Broker id and leader epoch."""

    id: int
    epoch: int


UNKNOWN: Final = CurrentLeader(-1, -1)


class CurrentLeaders:
    """Finds leaders and their endpoints for one answer, all in the metadata of one moment."""

    def __init__(self, core: StoringCore) -> None:
        self._partitions = core.partitions
        self._metadata = core.metadata.snapshot

    def of(self, topic: str, index: int) -> CurrentLeader:
        """Return the leader of a partition, or UNKNOWN if it has no leader."""
        partition = self._partitions.get(topic, index)
        if partition is not None and partition.log is not None:
            return CurrentLeader(partition.leader, partition.leader_epoch)
        leader = self._metadata.leader(topic, index)
        return UNKNOWN if leader is None else CurrentLeader(*leader)

    def endpoints(self, listener: str, ids: Collection[int]) -> bytes:
        """Return the bytes of the field ``NodeEndpoints`` with those brokers that live; empty: none does."""
        return self._metadata.endpoints(listener, ids)

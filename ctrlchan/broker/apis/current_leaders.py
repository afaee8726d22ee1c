"""The leaders that answers name to a client that asked another broker (KIP-951).

``KafkaApis.getCurrentLeader`` of Kafka 3.9: a partition that the broker hosts knows its leader, and for the
others the metadata do. The client needs no Metadata request before it goes on.
"""

from __future__ import annotations

import struct
from collections.abc import Collection
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from ctrlchan.varints import encode_uvarint

if TYPE_CHECKING:
    from ctrlchan.broker.storing_core import StoringCore

__all__ = ["UNKNOWN", "CurrentLeader", "CurrentLeaders"]


class CurrentLeader(NamedTuple):
    """Broker id and leader epoch."""

    id: int
    epoch: int


UNKNOWN: Final = CurrentLeader(-1, -1)


class CurrentLeaders:
    """Finds leaders for one broker. Takes ``core.lock``."""

    def __init__(self, core: StoringCore) -> None:
        self._core = core

    def of(self, topic: str | None, topic_id: bytes, index: int) -> CurrentLeader:
        """Return the leader of a partition, UNKNOWN: there is none. ``topic`` None: the id names it."""
        if topic is None:
            with self._core.lock:
                topic = self._core.metadata.topic_name(topic_id)
        if topic is None:
            return UNKNOWN
        partition = self._core.partitions.get(topic, index)
        if partition is not None:
            return CurrentLeader(partition.leader, partition.leader_epoch)
        return self.in_metadata(topic, index) or UNKNOWN

    def in_metadata(self, topic: str, index: int) -> CurrentLeader | None:
        """Return the leader of a partition in the metadata, None: they do not have the partition."""
        with self._core.lock:
            state = self._core.metadata.state
            try:
                rows = state.rows_of_topic(topic)
            except KeyError:
                return None
            row = rows.start + int(np.searchsorted(state.partitions.partition[rows], index))
            if row == rows.stop or state.partitions.partition[row] != index:
                return None
            return CurrentLeader(int(state.partitions.leader[row]), int(state.partitions.leader_epoch[row]))

    def endpoints(self, listener: str, ids: Collection[int]) -> bytes:
        """Return the bytes of the field ``NodeEndpoints`` with those brokers that live; empty: none does."""
        with self._core.lock:
            nodes = [node for node in self._core.metadata.nodes(listener) if node.id in ids]
        if not nodes:
            return b""
        parts = [encode_uvarint(len(nodes) + 1)]
        for node in nodes:
            parts += (
                struct.pack(">i", node.id),
                _text(node.host),
                struct.pack(">i", node.port),
                _text(node.rack),
                # No tagged fields
                b"\0",
            )
        return b"".join(parts)


def _text(text: str | None) -> bytes:
    if text is None:
        return b"\0"
    data = text.encode()
    return encode_uvarint(len(data) + 1) + data

"""Finds in a ClusterState what Metadata and DescribeCluster show of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ctrlchan._codec import ListColumn, StringColumn
from ctrlchan.state import ClusterState
from ctrlchan.state.lists import packed_values, take
from ctrlchan.state.topic_table import name_list
from ctrlchan.topic_names import ZERO_ID

if TYPE_CHECKING:
    from ctrlchan._codec import Brokers, Int32

__all__ = ["NO_CONTROLLER", "MetadataLookups", "MetadataView", "Node"]

#: ``controller_id`` where none is known.
NO_CONTROLLER = -1
_NOT_ASCII = 0x80


class Node(NamedTuple):
    """A live broker, with its endpoint of one listener."""

    id: int
    host: str
    port: int
    rack: str | None


class MetadataView(NamedTuple):
    """A copy of some topics, which another thread may read while the cache changes.

    Partitions of topic i are ``starts[i]:starts[i + 1]`` of the columns.
    """

    starts: Int32
    partition: Int32
    leader: Int32
    leader_epoch: Int32
    replicas: ListColumn
    isr: ListColumn
    offline: ListColumn
    live_ids: Int32
    reachable_ids: Int32  # live brokers that have the client's listener


class MetadataLookups:
    """Look-ups in ``state``, which may hold topics without partitions: they are shown to no client."""

    def __init__(self, state: ClusterState) -> None:
        self.state = state
        # The nodes of each listener that was asked for, as long as the state has the same live brokers.
        self._nodes: tuple[Brokers | None, dict[str, Sequence[Node]]] = None, {}
        # The names of all topics as texts, as long as the state has the same topics.
        self._texts: tuple[StringColumn | None, list[str]] = None, []

    @property
    def live_ids(self) -> Int32:
        """Ids of the live brokers."""
        return self.state.live_brokers.ids

    def controller(self, listener: str) -> int:
        """Return the controller id for clients of a listener, or -1."""
        return self.state.controller_id

    def nodes(self, listener: str) -> Sequence[Node]:
        """Return the live brokers that have this listener, in the order of ids."""
        brokers = self.state.live_brokers
        if self._nodes[0] is not brokers:
            self._nodes = brokers, {}
        known = self._nodes[1]
        if listener not in known:
            known[listener] = self._find_nodes(brokers, listener)
        return known[listener]

    def _find_nodes(self, brokers: Brokers, listener: str) -> Sequence[Node]:
        wanted, found = listener.encode(), []
        for row in range(len(brokers)):
            first = int(brokers.endpoint_starts[row])
            for endpoint in range(first, first + int(brokers.endpoint_lengths[row])):
                if brokers.listeners[endpoint] == wanted:
                    rack = brokers.racks[row]
                    found.append(
                        Node(
                            id=int(brokers.ids[row]),
                            host=(brokers.hosts[endpoint] or b"").decode(),
                            port=int(brokers.ports[endpoint]),
                            rack=None if rack is None else rack.decode(),
                        )
                    )
        return sorted(found)

    def topic_rows(self) -> Int32:
        """Return the rows of the topics that have partitions."""
        topic_row = self.state.partitions.topic_row
        return topic_row[np.flatnonzero(np.diff(topic_row, prepend=-1))]

    def topic_row(self, name: str) -> int | None:
        """Return the row of a topic that has partitions, else None."""
        row = self.row_of(name)
        if row is None:
            return None
        partitions = self.state.rows_of_topic(name)
        return row if partitions.stop > partitions.start else None

    def has_partition(self, topic: str, partition: int) -> bool:
        """Return whether the cluster has this partition."""
        if self.row_of(topic) is None:
            return False
        rows = self.state.rows_of_topic(topic)
        return partition in self.state.partitions.partition[rows]

    def topic_id(self, name: str) -> bytes:
        """Return the topic's id, ZERO_ID when it is unknown."""
        row = self.row_of(name)
        return ZERO_ID if row is None else bytes(self.state.topics.ids[row])

    def topic_name(self, topic_id: bytes) -> str | None:
        """Return the name of the topic with this id, or None if it is unknown."""
        found = np.flatnonzero((self.state.topics.ids == np.frombuffer(topic_id, np.uint8)).all(axis=1))
        return self.state.topic_name(int(found[0])) if len(found) else None

    def row_of(self, name: str | bytes) -> int | None:
        """Return the row of a topic, which may have no partitions, or None if it is unknown."""
        try:
            return self.state.topic_row(name)
        except KeyError:
            return None

    def names_of(self, topic_rows: Int32) -> list[str]:
        """Return the names of topics as texts."""
        names = self.state.topics.names
        if self._texts[0] is not names:
            self._texts = names, _texts(name_list(names))
        texts = self._texts[1]
        return [texts[row] for row in topic_rows.tolist()]

    def encoded_names_of(self, topic_rows: Int32) -> StringColumn:
        """Return the names of topics in UTF-8; nobody changes their bytes."""
        names = self.state.topics.names
        if (names.data >= _NOT_ASCII).any():
            # What is not UTF-8 is replaced.
            return StringColumn.from_strings(self.names_of(topic_rows))
        return StringColumn(names.starts[topic_rows], names.lengths[topic_rows], names.data)

    def view(self, topic_rows: Int32, listener: str) -> MetadataView:
        """Return a copy of what Metadata needs of these topics, for a client of `listener`."""
        state = self.state
        columns = state.partitions
        first = np.searchsorted(columns.topic_row, topic_rows, "left")
        counts = np.searchsorted(columns.topic_row, topic_rows, "right") - first
        ends = np.cumsum(counts)
        rows = np.repeat(first - (ends - counts), counts) + np.arange(int(counts.sum()))
        assert columns.offline is not None
        return MetadataView(
            starts=np.concatenate(((0,), ends)).astype(np.int32),
            partition=columns.partition[rows],
            leader=columns.leader[rows],
            leader_epoch=columns.leader_epoch[rows],
            replicas=_copied(take(columns.replicas, rows)),
            isr=_copied(take(columns.isr, rows)),
            offline=_copied(take(columns.offline, rows)),
            live_ids=self.live_ids.copy(),
            reachable_ids=np.array([node.id for node in self.nodes(listener)], dtype=np.int32),
        )


def _texts(encoded: list[bytes]) -> list[str]:
    # Decoded together: 10,000 names one by one take as long as the rest of a Metadata response.
    names = b"\n".join(encoded).decode(errors="replace").split("\n")
    if len(names) == len(encoded):
        return names
    return [name.decode(errors="replace") for name in encoded]


def _copied(lists: ListColumn) -> ListColumn:
    """Return a copy of the lists, with their values one after another."""
    ends = np.cumsum(lists.lengths, dtype=np.int64)
    return ListColumn((ends - lists.lengths).astype(np.int32), lists.lengths, packed_values(lists).copy())

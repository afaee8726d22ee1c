"""What the controllers have told this broker of the cluster: ``ZkMetadataCache`` over a ClusterState."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ctrlchan._codec import Brokers, ListColumn, Partitions, StringColumn, Topics, UpdateMetadataRequest
from ctrlchan.errors import DecodeError
from ctrlchan.state import ClusterState, SecurityProtocol
from ctrlchan.state.lists import packed_values, take
from ctrlchan.topic_names import ZERO_ID

if TYPE_CHECKING:
    from ctrlchan._codec import Int32, Int64

__all__ = ["MetadataCache", "MetadataView", "Node", "RepeatedListenerError"]

_LEADER_DURING_DELETE = -2  # LeaderAndIsr.LEADER_DURING_DELETE: the partition is going away
_TOPIC_STATES_SINCE = 5  # first UpdateMetadata version that says something of topics (ids: from 7)
_LISTENER_NAMES_SINCE = 3
_RACKS_SINCE = 2
_NO_CONTROLLER = -1


class RepeatedListenerError(Exception):
    """A live broker has two endpoints for one listener: Kafka's ``Broker`` refuses to be made."""


class Node(NamedTuple):
    """A live broker as clients of one listener see it."""

    id: int
    host: str
    port: int
    rack: str | None


@dataclass(frozen=True, slots=True)
class MetadataView:
    """Some topics at one moment, in memory of their own: a thread may read it while the cache moves on.

    Partitions of topic i are ``starts[i]:starts[i + 1]`` of the columns.
    """

    names: list[str]
    topic_ids: list[bytes]
    starts: list[int]
    partition: Int32
    leader: Int32
    leader_epoch: Int32
    replicas: ListColumn
    isr: ListColumn
    offline: ListColumn
    live_ids: Int32
    reachable_ids: Int32  # live brokers that have the listener asked for


class MetadataCache:
    """``state`` holds topics, partitions and live brokers of the UpdateMetadata requests so far.

    Topics without partitions may be among its topics: Kafka remembers their ids as well, and shows them to
    nobody.
    """

    def __init__(self, cluster_id: str = "") -> None:
        self.state = ClusterState.empty(cluster_id=cluster_id)
        self._kraft_controller = False
        self._row_by_id: dict[bytes, int] | None = None

    # -- changes

    def update(self, message: UpdateMetadataRequest) -> None:
        """Applies a request: its live brokers replace ours, its partitions replace or join ours, or go.

        Raises RepeatedListenerError, DecodeError (an old version's endpoint of no known protocol), before
        anything is changed.
        """
        brokers = _live_brokers(message)
        state = self.state
        self._row_by_id = None
        settled = self._ids_after_deletions(message)
        if message.version >= _TOPIC_STATES_SINCE:
            # A topic that is told without an id has none from here on.
            untold = np.flatnonzero(~message.topics.ids.any(axis=1))
            state.topics.ids[self._known_topics(message.topics, untold)] = 0
        rows = state.upsert(message.topics, message.topic_starts, message.partitions)
        if (message.partitions.leader == _LEADER_DURING_DELETE).any():
            rows = np.unique(rows)
            state.remove_rows(rows[state.partitions.leader[rows] == _LEADER_DURING_DELETE])
            self._settle_ids(settled)
        state.set_brokers(brokers, recompute_offline=False)
        state.controller_id = max(message.controller_id, _NO_CONTROLLER)
        state.controller_epoch = message.controller_epoch
        self._kraft_controller = message.is_kraft_controller

    def _known_topics(self, topics: Topics, wanted: Int64) -> list[int]:
        """Our rows of those of ``topics`` that are wanted and that we have."""
        rows = []
        for i in wanted.tolist():
            row = self._row_of(topics.names[i] or b"")
            if row is not None:
                rows.append(row)
        return rows

    def _partitions_of(self, name: bytes) -> set[int]:
        return set(self.state.partitions.partition[self.state.rows_of_topic(name)].tolist())

    def _row_of(self, name: str | bytes) -> int | None:
        try:
            return self.state.topic_row(name)
        except KeyError:
            return None

    def _ids_after_deletions(self, message: UpdateMetadataRequest) -> dict[bytes, bytes]:
        """The ids that topics with deleted partitions have afterwards.

        Kafka goes row by row and drops a topic's id in the moment its last partition goes, also when a later
        row of the request brings the topic back; the id of a topic that it had no partitions of stays.
        """
        leaders = message.partitions.leader
        deleting = np.flatnonzero(leaders == _LEADER_DURING_DELETE)
        if not len(deleting):
            return {}
        topic_of_row = np.repeat(np.arange(len(message.topics)), np.diff(message.topic_starts))
        names = [message.topics.names[i] or b"" for i in range(len(message.topics))]
        affected = {names[i] for i in np.unique(topic_of_row[deleting]).tolist()}
        ids: dict[bytes, bytes] = {}
        present: dict[bytes, set[int]] = {}
        for name in affected:
            row = self._row_of(name)
            ids[name] = ZERO_ID if row is None else self.state.topics.ids[row].tobytes()
            present[name] = set() if row is None else self._partitions_of(name)
        if message.version >= _TOPIC_STATES_SINCE:
            told: defaultdict[bytes, list[bytes]] = defaultdict(list)
            for i, name in enumerate(names):
                told[name].append(message.topics.ids[i].tobytes())
            for name in affected:
                ids[name] = next(filter(ZERO_ID.__ne__, reversed(told[name])), ZERO_ID)
        for i, name in enumerate(names):
            if name not in affected:
                continue
            rows = slice(int(message.topic_starts[i]), int(message.topic_starts[i + 1]))
            for partition, leader in zip(
                message.partitions.partition[rows].tolist(), leaders[rows].tolist(), strict=True
            ):
                if leader != _LEADER_DURING_DELETE:
                    present[name].add(partition)
                elif present[name]:
                    present[name].discard(partition)
                    if not present[name]:
                        ids[name] = ZERO_ID
        return ids

    def _settle_ids(self, ids: dict[bytes, bytes]) -> None:
        for name, topic_id in ids.items():
            row = self._row_of(name)
            if row is not None:
                self.state.topics.ids[row] = np.frombuffer(topic_id, dtype=np.uint8)
            elif topic_id != ZERO_ID:
                remembered = Topics(
                    StringColumn.from_strings([name]), np.frombuffer(topic_id, dtype=np.uint8).reshape(1, 16)
                )
                self.state.upsert(remembered, np.zeros(2, dtype=np.int64), _NO_PARTITIONS)

    # -- look-ups

    @property
    def live_ids(self) -> Int32:
        """Ids of the live brokers."""
        return self.state.broker_ids

    def controller(self) -> int:
        """The controller clients are told of, -1: none. A KRaft controller is hidden behind any broker."""
        if self.state.controller_id >= 0 and self._kraft_controller:
            ids = self.live_ids.tolist()
            return random.choice(ids) if ids else _NO_CONTROLLER
        return self.state.controller_id

    def nodes(self, listener: str) -> list[Node]:
        """The live brokers that have this listener, by id."""
        brokers, wanted, found = self.state.brokers, listener.encode(), []
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

    def topic_rows(self) -> list[int]:
        """Rows of the topics that have partitions."""
        topic_row = self.state.partitions.topic_row
        firsts: list[int] = topic_row[np.flatnonzero(np.diff(topic_row, prepend=-1))].tolist()
        return firsts

    def topic_row(self, name: str) -> int | None:
        """The row of a topic that has partitions, else None."""
        row = self._row_of(name)
        if row is None:
            return None
        partitions = self.state.rows_of_topic(name)
        return row if partitions.stop > partitions.start else None

    def topic_id(self, name: str) -> bytes:
        """The topic's id; zero when unknown."""
        row = self._row_of(name)
        return ZERO_ID if row is None else bytes(self.state.topics.ids[row])

    def topic_name(self, topic_id: bytes) -> str | None:
        """The topic of this id."""
        if self._row_by_id is None:
            ids = self.state.topics.ids
            self._row_by_id = {ids[row].tobytes(): row for row in np.flatnonzero(ids.any(axis=1)).tolist()}
        row = self._row_by_id.get(topic_id)
        return None if row is None else self.state.topic_name(row)

    def view(self, topic_rows: list[int], listener: str) -> MetadataView:
        """A copy of what Metadata tells about these topics to a client of ``listener``."""
        state = self.state
        columns = state.partitions
        wanted = np.array(topic_rows, dtype=np.int32)
        first = np.searchsorted(columns.topic_row, wanted, "left")
        counts = np.searchsorted(columns.topic_row, wanted, "right") - first
        ends = np.cumsum(counts)
        rows = np.repeat(first - (ends - counts), counts) + np.arange(int(counts.sum()))
        assert columns.offline is not None
        return MetadataView(
            names=[state.topic_name(row) for row in topic_rows],
            topic_ids=[state.topics.ids[row].tobytes() for row in topic_rows],
            starts=[0, *ends.tolist()],
            partition=columns.partition[rows],
            leader=columns.leader[rows],
            leader_epoch=columns.leader_epoch[rows],
            replicas=_copied(take(columns.replicas, rows)),
            isr=_copied(take(columns.isr, rows)),
            offline=_copied(take(columns.offline, rows)),
            live_ids=self.live_ids.copy(),
            reachable_ids=np.array([node.id for node in self.nodes(listener)], dtype=np.int32),
        )


def _copied(lists: ListColumn) -> ListColumn:
    """The same lists, one behind another, in memory of their own."""
    ends = np.cumsum(lists.lengths, dtype=np.int64)
    return ListColumn((ends - lists.lengths).astype(np.int32), lists.lengths, packed_values(lists).copy())


def _live_brokers(message: UpdateMetadataRequest) -> Brokers:
    """The request's live brokers, with a listener name for each endpoint; of one id twice the last counts."""
    brokers = message.live_brokers
    listeners = brokers.listeners
    if message.version < _LISTENER_NAMES_SINCE:
        # UpdateMetadataRequest.normalize: an endpoint's listener is named after its protocol.
        try:
            names = [SecurityProtocol(protocol).name for protocol in brokers.security_protocols.tolist()]
        except ValueError as error:
            raise DecodeError(
                str(error), api="UpdateMetadataRequest", version=message.version, field="securityProtocol"
            ) from error
        listeners = StringColumn.from_strings(names)
    for row in range(len(brokers)):
        first = int(brokers.endpoint_starts[row])
        count = int(brokers.endpoint_lengths[row])
        if len({listeners[i] for i in range(first, first + count)}) < count:
            raise RepeatedListenerError(f"broker {brokers.ids[row]}: more than one endpoint of one listener")
    last = {broker: row for row, broker in enumerate(brokers.ids.tolist()) if broker >= 0}
    rows = np.array(list(last.values()), dtype=np.int64)
    racks = brokers.racks
    if message.version < _RACKS_SINCE:
        # What the schema gives a broker whose rack cannot be told: an empty one, and clients see it.
        racks = StringColumn.from_strings([b""] * len(brokers))
    return Brokers(
        ids=brokers.ids[rows],
        epochs=brokers.epochs[rows],
        racks=StringColumn(racks.starts[rows], racks.lengths[rows], racks.data),
        endpoint_starts=brokers.endpoint_starts[rows],
        endpoint_lengths=brokers.endpoint_lengths[rows],
        ports=brokers.ports,
        hosts=brokers.hosts,
        listeners=listeners,
        security_protocols=brokers.security_protocols,
    )


def _no_partitions() -> Partitions:
    none = np.empty(0, dtype=np.int32)
    lists = ListColumn(none, none, none)
    return Partitions(none, none, none, none, none, none, none, lists, lists)


_NO_PARTITIONS = _no_partitions()

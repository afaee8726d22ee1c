"""The cluster as the controllers have sent it to this broker: ``ZkMetadataCache`` over a ClusterState."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING

import numpy as np

from ctrlchan._codec import Brokers, ListColumn, Partitions, StringColumn, Topics, UpdateMetadataRequest
from ctrlchan.errors import DecodeError
from ctrlchan.protocol import LEADER_DURING_DELETE, LISTENER_NAMES_SINCE, UPDATE_METADATA_TOPICS_SINCE
from ctrlchan.server.apis.lookups import NO_CONTROLLER, MetadataLookups
from ctrlchan.state import ClusterState, SecurityProtocol
from ctrlchan.topic_names import ZERO_ID

if TYPE_CHECKING:
    from ctrlchan._codec import Int64
    from ctrlchan.server.apis.api_versions import FinalizedFeatures

__all__ = ["MetadataCache", "RepeatedListenerError"]

_RACKS_SINCE = 2


class RepeatedListenerError(Exception):
    """A live broker has two endpoints of one listener: the constructor of Kafka's ``Broker`` throws."""


class MetadataCache(MetadataLookups):
    """Applies UpdateMetadata requests to ``state``: its topics, partitions and live brokers.

    ``state`` may hold topics without partitions: Kafka keeps their ids too, and shows them to no client.
    """

    def __init__(self, cluster_id: str = "", *, forwarding_id: int | None = None) -> None:
        super().__init__(ClusterState.empty(cluster_id=cluster_id))
        self._kraft_controller = False
        self._row_by_id: dict[bytes, int] | None = None
        #: The id of this broker if it forwards requests to the controller, else None.
        self.forwarding_id = forwarding_id
        #: Monotonic seconds of the first update; infinity before it.
        self.first_updated = math.inf
        #: The finalized features of the cluster; None where they are not known. Replaced as a whole.
        self.features: FinalizedFeatures | None = None
        #: The topics of which the last update has deleted partitions, also such as were unknown.
        self.just_deleted: frozenset[str] = frozenset()
        #: Called after each update, under ``state.lock``, until they return True.
        self.after_update: list[Callable[[], bool]] = []
        #: Called after each update, under ``state.lock``, before those. Whoever adds one discards it.
        self.watchers: set[Callable[[], None]] = set()

    def address_of(self, listener: str, broker_id: int | None = None) -> tuple[str, int] | None:
        """Return the host and port of a live broker's listener, or None while they are not known.

        ``broker_id`` is None for the controller. Takes ``state.lock``.
        """
        with self.state.lock:
            wanted = self.state.controller_id if broker_id is None else broker_id
            nodes = self.nodes(listener)
        return next(((one.host, one.port) for one in nodes if one.id == wanted), None)

    # -- changes

    def update(self, message: UpdateMetadataRequest) -> None:
        """Replace the live brokers by those of a request, and insert, replace or remove its partitions.

        Raises RepeatedListenerError, or DecodeError for an old version's endpoint with an unknown security
        protocol, before anything is changed.
        """
        brokers = _live_brokers(message)
        with self.state.lock:
            self._apply(message, brokers)
            self.first_updated = min(self.first_updated, monotonic())
            self.publish()
            for look in tuple(self.watchers):
                look()
            if self.after_update:
                self.after_update = [look for look in self.after_update if not look()]

    def publish(self) -> None:
        """Show other threads the state as it is now. Here all threads read the state itself."""

    def _apply(self, message: UpdateMetadataRequest, brokers: Brokers) -> None:
        state = self.state
        self._row_by_id = None
        ids = self._ids_after_deletions(message)
        self.just_deleted = frozenset(name.decode(errors="replace") for name in ids)
        if message.version >= UPDATE_METADATA_TOPICS_SINCE:
            # A topic that is sent without an id loses the id that it had.
            without_id = np.flatnonzero(~message.topics.ids.any(axis=1))
            state.topics.ids[self._existing_rows(message.topics, without_id)] = 0
        rows = state.upsert(message.topics, message.topic_starts, message.partitions)
        if (message.partitions.leader == LEADER_DURING_DELETE).any():
            rows = np.unique(rows)
            state.remove_rows(rows[state.partitions.leader[rows] == LEADER_DURING_DELETE])
            self._set_ids(ids)
        state.set_brokers(brokers, recompute_offline=False)
        state.controller_id = max(message.controller_id, NO_CONTROLLER)
        state.controller_epoch = message.controller_epoch
        self._kraft_controller = message.is_kraft_controller

    def _existing_rows(self, topics: Topics, wanted: Int64) -> list[int]:
        """Return the rows in ``state`` of the topics that `wanted` selects; unknown topics have no row."""
        rows = []
        for i in wanted.tolist():
            row = self.row_of(topics.names[i] or b"")
            if row is not None:
                rows.append(row)
        return rows

    def _partitions_of(self, name: bytes) -> set[int]:
        return set(self.state.partitions.partition[self.state.rows_of_topic(name)].tolist())

    def _ids_after_deletions(self, message: UpdateMetadataRequest) -> dict[bytes, bytes]:
        """Return the ids that topics with deleted partitions have after the request, by topic name.

        Kafka handles the rows in order and drops a topic's id when it removes the last partition, also when a
        later row of the request adds the topic again. The id of a topic that had no partitions stays.
        """
        leaders = message.partitions.leader
        deleting = np.flatnonzero(leaders == LEADER_DURING_DELETE)
        if not len(deleting):
            return {}
        topic_of_row = np.repeat(np.arange(len(message.topics)), np.diff(message.topic_starts))
        names = [message.topics.names[i] or b"" for i in range(len(message.topics))]
        affected = {names[i] for i in np.unique(topic_of_row[deleting]).tolist()}
        ids: dict[bytes, bytes] = {}
        present: dict[bytes, set[int]] = {}
        for name in affected:
            row = self.row_of(name)
            ids[name] = ZERO_ID if row is None else self.state.topics.ids[row].tobytes()
            present[name] = set() if row is None else self._partitions_of(name)
        if message.version >= UPDATE_METADATA_TOPICS_SINCE:
            sent: defaultdict[bytes, list[bytes]] = defaultdict(list)
            for i, name in enumerate(names):
                sent[name].append(message.topics.ids[i].tobytes())
            for name in affected:
                ids[name] = next(filter(ZERO_ID.__ne__, reversed(sent[name])), ZERO_ID)
        for i, name in enumerate(names):
            if name not in affected:
                continue
            rows = slice(int(message.topic_starts[i]), int(message.topic_starts[i + 1]))
            for partition, leader in zip(
                message.partitions.partition[rows].tolist(), leaders[rows].tolist(), strict=True
            ):
                if leader != LEADER_DURING_DELETE:
                    present[name].add(partition)
                elif present[name]:
                    present[name].discard(partition)
                    if not present[name]:
                        ids[name] = ZERO_ID
        return ids

    def _set_ids(self, ids: dict[bytes, bytes]) -> None:
        for name, topic_id in ids.items():
            row = self.row_of(name)
            if row is not None:
                self.state.topics.ids[row] = np.frombuffer(topic_id, dtype=np.uint8)
            elif topic_id != ZERO_ID:
                topic = Topics(
                    StringColumn.from_strings([name]), np.frombuffer(topic_id, dtype=np.uint8).reshape(1, 16)
                )
                self.state.upsert(topic, np.zeros(2, dtype=np.int64), _NO_PARTITIONS)

    # -- look-ups

    @property
    def has_kraft_controller(self) -> bool:
        """Whether ``controller`` returns any of the live brokers."""
        return self._kraft_controller

    def controller(self, listener: str) -> int:
        """Return the controller id for clients of a listener, or -1.

        Any live broker stands for a KRaft controller. This broker, if it forwards requests, stands for a
        controller without the listener: clients wait for a controller that is not among the brokers.
        """
        controller = self.state.controller_id
        if controller >= 0 and self._kraft_controller:
            ids = self.live_ids.tolist()
            return random.choice(ids) if ids else NO_CONTROLLER
        if self.forwarding_id is None:
            return controller
        ids = [node.id for node in self.nodes(listener)]
        return next((one for one in (controller, self.forwarding_id) if one in ids), NO_CONTROLLER)

    def topic_name(self, topic_id: bytes) -> str | None:
        """Return the name of the topic with this id, or None if it is unknown. An index of ids is kept."""
        if self._row_by_id is None:
            ids = self.state.topics.ids
            self._row_by_id = {ids[row].tobytes(): row for row in np.flatnonzero(ids.any(axis=1)).tolist()}
        row = self._row_by_id.get(topic_id)
        return None if row is None else self.state.topic_name(row)


def _live_brokers(message: UpdateMetadataRequest) -> Brokers:
    """Return the request's live brokers, each endpoint with a listener name. The last of equal ids counts."""
    brokers = message.live_brokers
    listeners = brokers.listeners
    if message.version < LISTENER_NAMES_SINCE:
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
        # The default of the field in Kafka's schema is an empty rack, and clients see it.
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

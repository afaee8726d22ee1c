"""Everything the controller keeps about the cluster, for the length of its term.

Source: ``kafka.controller.ControllerContext`` (Kafka 3.9).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from ctrlchan._codec import ListColumn, Partitions, StringColumn, Topics
from ctrlchan.controller.machines.replica_table import ReplicaTable, replica_keys
from ctrlchan.controller.machines.states import PartitionState, ReplicaState
from ctrlchan.protocol import NO_LEADER
from ctrlchan.state import NO_LEADERSHIP, ClusterState
from ctrlchan.state.lists import contains, empty_lists, entry_rows, packed_values, take
from ctrlchan.state.liveness import offline_lists
from ctrlchan.state.rows import distinct
from ctrlchan.topic_names import ZERO_ID

__all__ = ["ControllerContext"]

Bool = npt.NDArray[np.bool_]
Int8 = npt.NDArray[np.int8]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
UInt8 = npt.NDArray[np.uint8]

#: ``rows_of_ids``: the row of a partition that no longer exists.
NO_ROW: Final = -1


class ControllerContext:
    """The cluster's columns with the states of partitions and replicas, and the topics to delete.

    ``rows`` are int64 row numbers of ``state``; they change when partitions are added or removed, so keep
    partition ids over such a change. Only the thread of the event loop changes a context. A new term has a
    new context with a new state.
    """

    def __init__(self, state: ClusterState, epoch: int, epoch_zk_version: int) -> None:
        """Adopt the state. ``epoch``: controller epoch; ``epoch_zk_version``: zkVersion of its node."""
        self.state = state
        self.epoch = epoch
        self.epoch_zk_version = epoch_zk_version
        state.controller_epoch = epoch
        self.replicas = ReplicaTable()
        #: Unclean leader elections of this term (Kafka: ``UncleanLeaderElectionsPerSec``).
        self.unclean_elections = 0
        #: Names of topics that are queued for deletion and cannot be deleted now.
        self.topics_ineligible: set[str] = set()
        self._topics_to_delete: set[str] = set()
        self._next_id = 0
        self._ids = state.attach_column(self._new_ids)
        self._states = state.attach_column(PartitionState.NON_EXISTENT)
        self._rows_of_ids: Int64 = np.empty(0, np.int64)
        self._rows_of_ids_layout = -1
        # The topic row of each id, and the columns that it was made from.
        self._topic_rows_of_ids: dict[bytes, int] = {}
        self._indexed_topics: Topics | None = None
        # Ids of partitions whose leadership was set. None until somebody asks for them.
        self._leadership_set: list[Int32] | None = None

    # -- partitions

    @property
    def partition_states(self) -> Int32:
        """The ``PartitionState`` of each row, writeable; valid until rows are added or removed."""
        return self._states.array

    @property
    def partition_ids(self) -> Int32:
        """The id of each row: from 0, the same for the whole term, never used for another partition."""
        return self._ids.array

    @property
    def all_rows(self) -> Int64:
        return np.arange(len(self.state.partitions))

    def rows_of_ids(self, partition_ids: Int32) -> Int64:
        """Return the row of each partition id; -1 for a partition that was removed."""
        if self._rows_of_ids_layout != self._ids.layout:
            self._rows_of_ids = np.full(self._next_id, NO_ROW, np.int64)
            self._rows_of_ids[self.partition_ids] = self.all_rows
            self._rows_of_ids_layout = self._ids.layout
        return self._rows_of_ids[partition_ids]

    def topic_rows_of_ids(self, topic_ids: Iterable[bytes]) -> Int64:
        """Return the topic row (int64) of each topic id of 16 bytes; -1 where there is no such topic."""
        topics = self.state.topics
        if topics is not self._indexed_topics:
            self._topic_rows_of_ids = {one.tobytes(): row for row, one in enumerate(topics.ids)}
            self._topic_rows_of_ids.pop(ZERO_ID, None)
            self._indexed_topics = topics
        find = self._topic_rows_of_ids.get
        return np.array([find(one, -1) for one in topic_ids], dtype=np.int64)

    def take_rows_with_leadership_set(self) -> Int64:
        """Return the rows whose leadership was set since the last call, ascending; at first all rows."""
        ids, self._leadership_set = self._leadership_set, []
        if ids is None:
            return self.all_rows
        if not ids:
            return np.empty(0, np.int64)
        rows = self.rows_of_ids(np.concatenate(ids))
        return distinct(rows[rows != NO_ROW])

    def rows_in(self, *states: PartitionState) -> Int64:
        """Return the rows in one of these states, ascending."""
        return np.flatnonzero(np.isin(self.partition_states, states))

    def rows_of_topics(self, names: Iterable[str | bytes]) -> Int64:
        """Return the rows of these topics, topic by topic; unknown topics have none."""
        topic_rows = []
        for name in names:
            try:
                topic_rows.append(self.state.topic_row(name))
            except KeyError:
                continue
        column = self.state.partitions.topic_row
        wanted = np.array(topic_rows, dtype=column.dtype)
        starts = np.searchsorted(column, wanted, "left")
        lengths = np.searchsorted(column, wanted, "right") - starts
        ends = np.cumsum(lengths)
        return np.repeat(starts - (ends - lengths), lengths) + np.arange(ends[-1] if len(ends) else 0)

    def rows_with_replica_on(self, broker_ids: Iterable[int]) -> Int64:
        """Return the rows that have a replica on one of these brokers, ascending."""
        rows, _ = self.replicas_on(broker_ids)
        return distinct(rows)

    def rows_led_by(self, broker_id: int) -> Int64:
        """Return the rows with more than one replica that this broker leads, without topics to delete."""
        partitions = self.state.partitions
        led = (partitions.leader == broker_id) & (partitions.replicas.lengths > 1)
        return self._not_to_delete(np.flatnonzero(led & (partitions.leader_epoch != NO_LEADERSHIP)))

    def rows_with_offline_leader(self) -> Int64:
        """Return the rows whose known leader is not online, without topics to delete."""
        partitions = self.state.partitions
        rows = self._not_to_delete(np.flatnonzero(partitions.leader_epoch != NO_LEADERSHIP))
        return rows[~self.is_online(rows, partitions.leader[rows])]

    def reassigning_rows(self) -> Int64:
        """Return the rows that are being reassigned: those with adding or removing replicas."""
        partitions = self.state.partitions
        assert partitions.adding is not None
        assert partitions.removing is not None
        return np.flatnonzero((partitions.adding.lengths > 0) | (partitions.removing.lengths > 0))

    def has_leadership(self, rows: Int64) -> Bool:
        """Return a flag for each row: whether its leader, ISR and epochs are known."""
        known: Bool = self.state.partitions.leader_epoch[rows] != NO_LEADERSHIP
        return known

    def is_to_delete(self, rows: Int64) -> Bool:
        """Return a flag for each row: whether its topic is queued for deletion."""
        deleting = self.state.topics.deleting
        assert deleting is not None
        queued: Bool = deleting[self.state.partitions.topic_row[rows]] != 0
        return queued

    def partition_name(self, row: int) -> str:
        """Return ``topic-partition``."""
        partitions = self.state.partitions
        return f"{self.state.topic_name(int(partitions.topic_row[row]))}-{partitions.partition[row]}"

    def names_of(self, rows: Int64) -> tuple[list[bytes], Int32]:
        """Return (the names of the rows' topics, each once; for each row the place of its topic in them)."""
        chosen, place = np.unique(self.state.partitions.topic_row[rows], return_inverse=True)
        names = self.state.topics.names
        return [names[row] or b"" for row in chosen.tolist()], place.astype(np.int32)

    # -- replicas

    def replica_pairs(self, rows: Int64) -> tuple[Int64, Int32]:
        """Return (row, broker) of each assigned replica of these rows, in the order of the assignments."""
        replicas = take(self.state.partitions.replicas, rows)
        return np.repeat(rows, replicas.lengths), packed_values(replicas)

    def replicas_on(self, broker_ids: Iterable[int]) -> tuple[Int64, Int32]:
        """Return (row, broker) of each assigned replica on these brokers, ascending by row."""
        replicas = self.state.partitions.replicas
        brokers = packed_values(replicas)
        chosen = np.flatnonzero(np.isin(brokers, np.array(sorted(broker_ids), dtype=np.int32)))
        return entry_rows(replicas)[chosen], brokers[chosen]

    def is_online(self, rows: Int64, brokers: Int32, *, or_shutting_down: bool = False) -> Bool:
        """Return a flag for each (row, broker): whether the broker is live and the replica's directory works.

        A broker that is shutting down counts only with ``or_shutting_down``; failed directories are not known
        of it. Failed directories are known for assigned replicas.
        """
        state = self.state
        flags: Bool = np.isin(brokers, state.online_broker_ids)
        offline = state.partitions.offline
        assert offline is not None
        at = np.flatnonzero(flags & (offline.lengths[rows] > 0))
        if len(at):
            flags[at[contains(take(offline, rows[at]), brokers[at])]] = False
        if or_shutting_down and state.shutting_down:
            flags |= np.isin(brokers, np.array(sorted(state.shutting_down), dtype=np.int32))
        return flags

    def replica_states(self, rows: Int64, brokers: Int32) -> Int8:
        """Return the ``ReplicaState`` of each replica."""
        return self.replicas.get(replica_keys(self.partition_ids[rows], brokers))

    def put_replica_states(self, rows: Int64, brokers: Int32, state: ReplicaState) -> None:
        """Set the state of these replicas; NON_EXISTENT forgets them."""
        keys = replica_keys(self.partition_ids[rows], brokers)
        if state is ReplicaState.NON_EXISTENT:
            self.replicas.remove(keys)
        else:
            self.replicas.put(keys, state)

    def replicas_in(self, *states: ReplicaState) -> tuple[Int64, Int32]:
        """Return (row, broker) of each replica in one of these states, ascending by partition id."""
        chosen = np.flatnonzero(np.isin(self.replicas.states, states))
        return self.rows_of_ids(self.replicas.partition_ids[chosen]), self.replicas.brokers[chosen]

    # -- changes

    def add_partitions(
        self,
        names: Sequence[bytes],
        ids: UInt8,
        topic_row: Int32,
        partition: Int32,
        replicas: ListColumn,
        adding: ListColumn | None = None,
        removing: ListColumn | None = None,
    ) -> Int64:
        """Add topics and partitions without leadership; return the row of each of the given partitions.

        ``names``, ``ids``: topics, uint8[n, 16] ids, zeros for none; unknown topics are added, also those
        without partitions, and ids that are not zero replace the state's. ``topic_row`` (a place in
        ``names``), ``partition`` and the lists: one for each partition, in any order. Partitions that exist
        keep their assignment. Names must be valid.
        """
        order = np.lexsort((partition, topic_row))
        count, online = len(order), self.state.online_broker_ids
        replicas = take(replicas, order)
        zeros = np.zeros(count, np.int32)
        rows = Partitions(
            topic_row=topic_row[order],
            partition=partition[order],
            controller_epoch=zeros,
            leader=np.full(count, NO_LEADER, np.int32),
            leader_epoch=np.full(count, NO_LEADERSHIP, np.int32),
            partition_epoch=zeros,
            recovery_state=zeros,
            isr=empty_lists(count),
            replicas=replicas,
            adding=None if adding is None else take(adding, order),
            removing=None if removing is None else take(removing, order),
            offline=offline_lists(replicas, empty_lists(count), online, online),
        )
        starts = np.searchsorted(topic_row[order], np.arange(len(names) + 1))
        found = np.empty(count, np.int64)
        topics = Topics(StringColumn.from_strings(names), ids)
        found[order] = self.state.upsert(topics, starts, rows, columns=())
        # Ids of topics that were there change in place.
        self._indexed_topics = None
        queued = [name for name in map(_text, names) if name in self._topics_to_delete]
        if queued:
            self.state.mark_topics_deleting(queued)
        return found

    def put_leadership(
        self,
        rows: Int64,
        *,
        leader: Int32,
        leader_epoch: Int32,
        partition_epoch: Int32,
        controller_epoch: Int32 | int,
        recovery_state: Int32,
        isr: ListColumn,
    ) -> None:
        """Set the leadership of these rows, as it stands in their state nodes."""
        if self._leadership_set is not None and len(rows):
            self._leadership_set.append(self.partition_ids[rows])
        self.state.update(
            rows,
            leader=leader,
            leader_epoch=leader_epoch,
            partition_epoch=partition_epoch,
            controller_epoch=controller_epoch,
            recovery_state=recovery_state,
            isr=isr,
        )

    def remove_topics(self, names: Collection[str]) -> None:
        """Forget topics with their partitions and replicas; unknown topics are ignored."""
        known = [name for name in names if self.has_topic(name)]
        rows = self.rows_of_topics(known)
        if len(rows):
            self.replicas.remove_partitions(self.partition_ids[rows])
        self.state.remove_topics(known)
        self._topics_to_delete.difference_update(names)
        self.topics_ineligible.difference_update(names)

    def has_topic(self, name: str) -> bool:
        """Return whether the topic exists, with or without partitions."""
        try:
            self.state.topic_row(name)
        except KeyError:
            return False
        return True

    # -- topics to delete

    @property
    def topics_to_delete(self) -> frozenset[str]:
        """Names of the topics that are queued for deletion; some may not exist."""
        return frozenset(self._topics_to_delete)

    @property
    def topics_with_deletion_started(self) -> frozenset[str]:
        """Names of the topics whose deletion has begun."""
        return self.state.deletion_in_progress

    def queue_topic_deletion(self, names: Iterable[str]) -> None:
        """Queue topics for deletion: from now on UpdateMetadata has leader -2 for them."""
        added = set(names) - self._topics_to_delete
        self._topics_to_delete |= added
        self.state.mark_topics_deleting([name for name in added if self.has_topic(name)])

    def begin_topic_deletion(self, names: Iterable[str]) -> None:
        """Note that the deletion of these topics has begun. Raises KeyError for an unknown topic."""
        self.state.set_deletion_in_progress(self.state.deletion_in_progress.union(names))

    # -- for metrics and the automatic rebalance

    def offline_partition_count(self) -> int:
        """Return the number of offline partitions, without topics whose deletion has begun."""
        return len(self.rows_in(PartitionState.OFFLINE)) - self._count_begun(PartitionState.OFFLINE)

    def preferred_replica_imbalance(self) -> int:
        """Return the number of partitions not led by their preferred replica, without topics to delete."""
        rows = self._not_to_delete(np.flatnonzero(self.has_leadership(self.all_rows)))
        return int(np.count_nonzero(~self.has_preferred_leader(rows)))

    def has_preferred_leader(self, rows: Int64) -> Bool:
        """Return a flag for each row: whether the first replica leads, or is being added and not in sync."""
        partitions = self.state.partitions
        adding = partitions.adding
        assert adding is not None
        first = self.preferred_replicas(rows)
        flags: Bool = (partitions.leader[rows] == first) | (first == NO_LEADER)
        at = np.flatnonzero(contains(take(adding, rows), first))
        flags[at] = ~contains(take(partitions.isr, rows[at]), first[at])
        return flags

    def preferred_replicas(self, rows: Int64) -> Int32:
        """Return the first replica of each row, int32; -1 where there is none."""
        replicas = take(self.state.partitions.replicas, rows)
        first = np.full(len(rows), NO_LEADER, np.int32)
        filled = replicas.lengths > 0
        first[filled] = replicas.values[replicas.starts[filled]]
        return first

    # -- helpers

    def _new_ids(self, count: int) -> Int32:
        first, self._next_id = self._next_id, self._next_id + count
        return np.arange(first, self._next_id, dtype=np.int32)

    def _not_to_delete(self, rows: Int64) -> Int64:
        return rows[~self.is_to_delete(rows)]

    def _count_begun(self, state: PartitionState) -> int:
        rows = self.rows_of_topics(self.state.deletion_in_progress)
        return int(np.count_nonzero(self.partition_states[rows] == state))


def _text(name: bytes) -> str:
    return name.decode(errors="surrogateescape")

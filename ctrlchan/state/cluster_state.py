"""The cluster as columns: topics, partitions, brokers."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar, Unpack

import numpy as np
import numpy.typing as npt

from ctrlchan._codec import Brokers, ListColumn, Partitions, StringColumn, Topics
from ctrlchan.errors import InvalidStateError, SnapshotError
from ctrlchan.state.brokers import Broker, broker_at, brokers_from, brokers_list
from ctrlchan.state.changes import Changes
from ctrlchan.state.difference import StateDifference, difference
from ctrlchan.state.invariants import Violation, check_invariants
from ctrlchan.state.lists import differing, empty_lists, take
from ctrlchan.state.liveness import offline_lists, online_ids, with_failed_dirs
from ctrlchan.state.new_rows import NewRowValues, new_rows
from ctrlchan.state.parts import StateParts
from ctrlchan.state.rows import first_unsorted, locate, sort_keys
from ctrlchan.state.side_columns import Fill, SideColumn
from ctrlchan.state.summary import summarise
from ctrlchan.state.table import PartitionTable
from ctrlchan.state.topic_table import TopicTable
from ctrlchan.state.upsert import VALUE_COLUMNS, upsert
from ctrlchan.state.values import IntValues, Lists, Rows, as_columns, as_rows, count_rows
from ctrlchan.topic_names import ZERO_ID, check_name

if TYPE_CHECKING:
    import pyarrow as pa
    from kazoo.client import KazooClient

    from ctrlchan.storage import PathLike

__all__ = ["ClusterState"]

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]

_MAX_INT32: Final = 2**31 - 1

P = ParamSpec("P")
R = TypeVar("R")


def _change(
    method: Callable[Concatenate[ClusterState, P], R],
) -> Callable[Concatenate[ClusterState, P], R]:
    """Run the method with the state's lock held."""

    @functools.wraps(method)
    def locked(state: ClusterState, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with state.lock:
            return method(state, *args, **kwargs)

    return locked


class ClusterState:
    """The metadata of a cluster, as a controller or a broker has it: one row for each partition.

    ``topics``, ``partitions`` and ``brokers`` are the codec's columns, for others to read. Rows are sorted
    by (topic row, partition). Topics keep their row until one before them is removed. Columns change in
    place, but an array that has to grow or was read-only (Arrow's memory) moves: take ``partitions`` and
    ``topics`` again after a change, and encode a ``SharedBody`` before a change. A change that is refused
    (InvalidStateError, KeyError) leaves the state as it was. Source: ``kafka.controller.ControllerContext``.

    One thread changes the state and reads it at any time. Another thread may read it while it holds ``lock``,
    which every changing method holds. Hold the lock around several changes that belong together.
    """

    def __init__(
        self,
        topics: Topics,
        partitions: Partitions,
        brokers: Brokers | Iterable[Broker],
        *,
        cluster_id: str = "",
        controller_id: int = -1,
        controller_epoch: int = 0,
    ) -> None:
        """Adopt the columns: only the state may change them from now on, read-only ones in a copy.

        Raises InvalidStateError when rows are not strictly ascending or name a topic that does not exist.
        """
        unsorted = first_unsorted(sort_keys(partitions.topic_row, partitions.partition))
        if unsorted is not None:
            raise InvalidStateError(f"row {unsorted}: not above the row before it in (topic, partition)")
        rows = partitions.topic_row
        if len(rows) and not 0 <= rows[0] <= rows[-1] < len(topics):
            raise InvalidStateError(f"topic rows {rows[0]} .. {rows[-1]} of {len(topics)} topics")
        #: Held while the state changes; reentrant.
        self.lock = threading.RLock()
        self._topics = TopicTable(topics)
        self._table = PartitionTable(partitions)
        self._brokers = brokers_from(brokers)
        self._broker_rows: dict[int, int] | None = None
        self._announced: tuple[Broker, ...] = ()
        # None until ``live_brokers`` makes it of the brokers and those that are announced.
        self._live_brokers: Brokers | None = None
        self._shutting_down: frozenset[int] = frozenset()
        self._deletion_in_progress: frozenset[str] = frozenset()
        self.cluster_id = cluster_id
        self.controller_id = controller_id
        self.controller_epoch = controller_epoch

    # -- construction

    @classmethod
    def empty(cls, cluster_id: str = "", controller_id: int = -1, controller_epoch: int = 0) -> ClusterState:
        """Return a state without topics, partitions and brokers."""
        none = np.empty(0, np.int32)
        return cls(
            Topics(StringColumn.from_strings([])),
            Partitions(none, none, none, none, none, none, none, empty_lists(0), empty_lists(0)),
            [],
            cluster_id=cluster_id,
            controller_id=controller_id,
            controller_epoch=controller_epoch,
        )

    @classmethod
    def from_parts(cls, parts: StateParts) -> ClusterState:
        """Return the state with these contents, which it adopts. Raises KeyError for a name or id that is in
        none of the columns, and as the constructor."""
        state = cls(
            parts.topics,
            parts.partitions,
            parts.brokers,
            cluster_id=parts.cluster_id,
            controller_id=parts.controller_id,
            controller_epoch=parts.controller_epoch,
        )
        # Before counting begins: these flags are part of what was counted.
        if parts.shutting_down:
            state.set_shutting_down(parts.shutting_down)
        state.mark_topics_deleting(parts.deleting)
        state.set_deletion_in_progress(parts.deletion_in_progress)
        if parts.changes is not None:
            state.go_on_counting(parts.changes)
        return state

    @classmethod
    def read(cls, path: PathLike) -> ClusterState:
        """Read a snapshot folder or URL (``ctrlchan.state.storage.snapshot``). Raises SnapshotError."""
        from ctrlchan.state.storage.snapshot import CLUSTER_FILE, read_snapshot
        from ctrlchan.storage import path_of

        folder = path_of(path)
        try:
            return cls.from_parts(read_snapshot(folder))
        except KeyError as error:
            raise SnapshotError(
                f"{folder / CLUSTER_FILE}: {error.args[0]!r} is not in the snapshot"
            ) from error

    def write(self, path: PathLike, *, overwrite: bool = False) -> None:
        """Write a snapshot folder atomically: either the whole folder appears or nothing.

        An existing folder is replaced only with ``overwrite``, and only when it is a snapshot or empty.
        Topics without partitions are not written. Begins to count ``changes``. Raises SnapshotError.
        """
        from ctrlchan.state.storage.snapshot import write_snapshot
        from ctrlchan.storage import path_of

        write_snapshot(self, path_of(path), overwrite=overwrite)

    @classmethod
    def from_zookeeper(
        cls,
        connect: str | KazooClient,
        *,
        timeout: float = 10.0,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> ClusterState:
        """Return the state of the cluster in a ZooKeeper. Partitions may change while they are read.

        ``connect``: Kafka's ``zookeeper.connect``, ``HOST:PORT[,HOST:PORT...][/chroot]``, or a connected
        kazoo client, which stays open. ``timeout``: seconds to connect. ``progress`` is called with (what is
        being read, nodes read, of how many).

        A broker's epoch is its node's czxid, a partition's epoch the version of its state node. Partitions
        without a state node are of unknown leadership (``leader_epoch`` -1).

        Raises ConfigError for a ``connect`` of another form; SnapshotError when ZooKeeper does not answer,
        when there is no cluster, and for a node that cannot be parsed, naming its path.
        Source: ``kafka.zk.KafkaZkClient`` and ``kafka.zk.ZkData`` (Kafka 3.9).
        """
        from ctrlchan.state.importing.zookeeper import read_zookeeper

        return cls.from_parts(read_zookeeper(connect, progress, timeout))

    @classmethod
    def from_arrow(
        cls,
        partitions: pa.Table | pa.RecordBatch,
        brokers: pa.Table | pa.RecordBatch,
        *,
        cluster_id: str = "",
        controller_id: int = -1,
        controller_epoch: int = 0,
    ) -> ClusterState:
        """Return a state whose columns use Arrow's memory. Tables: see ``ctrlchan.state.storage.arrow``.

        int32 columns and the values of int32 lists are not copied when each is one chunk and the rows are
        sorted by (topic name bytes, partition); unsorted rows are sorted. Raises InvalidStateError, naming
        rows and reasons.
        """
        from ctrlchan.state.storage.arrow import partitions_from_arrow
        from ctrlchan.state.storage.arrow_brokers import brokers_from_arrow
        from ctrlchan.state.storage.problems import Source

        topics, rows = partitions_from_arrow(partitions, Source("partitions"))
        return cls(
            topics,
            rows,
            brokers_from_arrow(brokers, Source("brokers")),
            cluster_id=cluster_id,
            controller_id=controller_id,
            controller_epoch=controller_epoch,
        )

    def to_arrow(self) -> tuple[pa.Table, pa.Table]:
        """Return (partitions, brokers) for ``from_arrow``; int32 columns share the state's memory."""
        from ctrlchan.state.storage.arrow import partitions_to_arrow
        from ctrlchan.state.storage.arrow_brokers import brokers_to_arrow

        return partitions_to_arrow(self.topics, self.partitions), brokers_to_arrow(self.brokers)

    # -- contents

    @property
    def topics(self) -> Topics:
        """Names, ids and flags (set: queued for deletion) of all topics."""
        return self._topics.columns

    @property
    def partitions(self) -> Partitions:
        """All rows. No list column is None; ``leader_epoch`` -1 means that the leadership is not known."""
        return self._table.columns

    @property
    def brokers(self) -> Brokers:
        """Live or shutting-down brokers, in the order they were given."""
        return self._brokers

    @property
    def announced(self) -> tuple[Broker, ...]:
        """Brokers that are live brokers in UpdateMetadata and nothing else, see ``set_announced``."""
        return self._announced

    @property
    def live_brokers(self) -> Brokers:
        """The live brokers of UpdateMetadata: ``brokers``, and behind them those that are announced.

        The same object until one of them changes. Without announced brokers, ``brokers`` itself.
        """
        live = self._live_brokers
        if live is None:
            known = set(self._brokers.ids.tolist())
            added = [broker for broker in self._announced if broker.id not in known]
            live = brokers_from([*brokers_list(self._brokers), *added]) if added else self._brokers
            self._live_brokers = live
        return live

    @property
    def shutting_down(self) -> frozenset[int]:
        """Ids of live brokers that are shutting down."""
        return self._shutting_down

    @property
    def deletion_in_progress(self) -> frozenset[str]:
        """Names of topics whose deletion has begun (``ControllerContext.topicsWithDeletionStarted``)."""
        return self._deletion_in_progress

    @property
    def changes(self) -> Changes:
        """The version at which each row changed last.

        Counting begins with the first use of this property, or goes on from the snapshot that the state was
        read from. Every change by a method of this class counts; writing into the columns directly does not.
        """
        if self._table.changes is None:
            with self.lock:
                self._table.changes = self._table.changes or Changes(len(self._table))
        return self._table.changes

    def go_on_counting(self, changes: Changes) -> None:
        """Continue with earlier ``changes`` of these rows, which the state adopts.

        Raises InvalidStateError when the state counts already, or for another number of rows.
        """
        if self._table.changes is not None or len(changes.rows) != len(self._table):
            raise InvalidStateError("the state counts its changes already, or has other rows")
        self._table.changes = changes

    def describe(self) -> dict[str, Any]:
        """Return counts, ready for JSON; see ``ctrlchan.state.summary``."""
        return summarise(self)

    def diff(self, new: ClusterState) -> StateDifference:
        """Compare this state with a newer one: partitions by column, topics, brokers, the cluster's facts.

        Costs array operations over all partitions, and a Python object for each topic and broker. Hold the
        ``lock`` of a state that another thread may change.
        """
        return difference(self, new)

    def check(self) -> list[Violation]:
        """Return every violated invariant with its rows; see ``ctrlchan.state.invariants``."""
        return check_invariants(self)

    def __repr__(self) -> str:
        return (
            f"ClusterState(cluster_id={self.cluster_id!r}, topics={len(self._topics)}, "
            f"partitions={len(self._table)}, brokers={len(self._brokers)})"
        )

    # -- look-ups

    def topic_row(self, name: str | bytes) -> int:
        """Return the row of a topic. Raises KeyError."""
        return self._topics.row(name)

    def topic_name(self, row: int) -> str:
        """Return the name of a topic row. Raises IndexError."""
        return (self.topics.names[row] or b"").decode(errors="replace")

    def row(self, topic: str | bytes, partition: int) -> int:
        """Return the row of a partition. Raises KeyError of (topic, partition)."""
        rows = self.rows_of_topic(topic)
        # Partitions are dense except in broken clusters: try the partition's own number first.
        if (
            0 <= partition < rows.stop - rows.start
            and self.partitions.partition[rows.start + partition] == partition
        ):
            return int(rows.start + partition)
        numbers = self.partitions.partition[rows]
        if 0 <= partition <= _MAX_INT32:
            at = int(np.searchsorted(numbers, np.int32(partition)))
            if at < len(numbers) and numbers[at] == partition:
                return int(rows.start) + at
        raise KeyError((topic, partition))

    def rows_of_topic(self, topic: str | bytes) -> slice:
        """Return the rows of a topic's partitions, ascending by partition. Raises KeyError."""
        topic_row, rows = np.int32(self.topic_row(topic)), self.partitions.topic_row
        return slice(int(rows.searchsorted(topic_row)), int(rows.searchsorted(topic_row, "right")))

    def find_rows(self, topic_rows: Int32, partitions: Int32) -> Int64:
        """Return the row (int64) of each (topic row, partition), both int32; -1 where there is none."""
        at, found = locate(
            self.partitions, np.asarray(topic_rows, dtype=np.int32), np.asarray(partitions, dtype=np.int32)
        )
        return np.where(found, at, -1)

    def broker_row(self, broker_id: int) -> int:
        """Return the row of a broker in ``brokers``. Raises KeyError."""
        if self._broker_rows is None:
            self._broker_rows = {broker: row for row, broker in enumerate(self._brokers.ids.tolist())}
        return self._broker_rows[broker_id]

    def broker(self, broker_id: int) -> Broker:
        """Return a broker as an object. Raises KeyError."""
        return broker_at(self._brokers, self.broker_row(broker_id))

    @property
    def broker_ids(self) -> Int32:
        """Ids of live or shutting-down brokers, in the order of ``brokers``."""
        return self._brokers.ids

    @property
    def online_broker_ids(self) -> Int32:
        """Ids of live brokers that are not shutting down."""
        return online_ids(self._brokers, self._shutting_down)

    # -- partitions

    @_change
    def update(
        self,
        rows: Rows,
        *,
        leader: IntValues | None = None,
        leader_epoch: IntValues | None = None,
        partition_epoch: IntValues | None = None,
        controller_epoch: IntValues | None = None,
        recovery_state: IntValues | None = None,
        isr: Lists | None = None,
        replicas: Lists | None = None,
        adding: Lists | None = None,
        removing: Lists | None = None,
        offline: Lists | None = None,
    ) -> None:
        """Change the columns that are given, in all the rows or in none.

        ``rows``: a row, an int64 array, a slice, bool flags for all rows, or ``"all"``. Columns (int32): one
        value for all rows or an array of one for each. Lists: one list for all rows, a list of lists, a 2-d
        array or a ListColumn. Where a row is named twice the later value counts. New ``replicas`` without
        ``offline`` bring the offline replicas of these rows up to date. Raises InvalidStateError for a row
        that does not exist and for a value outside its column's range.
        """
        selected = as_rows(rows, len(self._table))
        count = count_rows(selected)
        given = {
            "leader": leader,
            "leader_epoch": leader_epoch,
            "partition_epoch": partition_epoch,
            "controller_epoch": controller_epoch,
            "recovery_state": recovery_state,
            "isr": isr,
            "replicas": replicas,
            "adding": adding,
            "removing": removing,
            "offline": offline,
        }
        fixed, lists = as_columns({name: value for name, value in given.items() if value is not None}, count)
        self._table.assign(selected, fixed, lists)
        if replicas is not None and offline is None:
            online = self.online_broker_ids
            columns = self.partitions
            assert columns.offline is not None
            before = take(columns.offline, selected)
            fresh = offline_lists(take(columns.replicas, selected), before, online, online)
            self._table.assign(selected, {}, {"offline": fresh})

    @_change
    def upsert(
        self,
        topics: Topics,
        topic_starts: Int64,
        partitions: Partitions,
        *,
        columns: Iterable[str] = VALUE_COLUMNS,
    ) -> Int64:
        """Replace or add the rows of a decoded request; return the state's row (int64) of each of them.

        ``topic_starts``: int64, as in the request (``partitions.topic_row`` is not used). Of existing rows
        only ``columns`` change; added rows take all columns. Unknown topics are added after the others, topic
        ids that are not zero replace the state's, and of two rows with the same partition the later counts.
        Values are not checked as in ``update``, because a broker does not either; everything is copied.
        """
        return upsert(self._topics, self._table, topics, topic_starts, partitions, columns)

    @_change
    def add_topic(
        self,
        name: str | bytes,
        assignment: Mapping[int, Sequence[int]],
        topic_id: bytes | None = None,
        **values: Unpack[NewRowValues],
    ) -> slice:
        """Add a topic after the others and return its rows.

        - ``assignment``: partition -> broker ids, preferred leader first.
        - ``topic_id``: 16 bytes.
        - ``values``: columns as for ``update``, for the new rows in ascending partition order; without them
          leader -1, empty ISR, epochs 0.

        Raises InvalidStateError for a topic that exists, a name that Kafka refuses, or an assignment without
        partitions, without replicas, or with a replica twice.
        """
        raw = check_name(name)
        if raw in self._topics.index:
            raise InvalidStateError(f"topic {raw.decode()} exists")
        if topic_id is not None and len(topic_id) != len(ZERO_ID):
            raise InvalidStateError(f"topic {raw.decode()}: a topic id has 16 bytes, not {len(topic_id)}")
        rows = new_rows(len(self._topics), assignment, values, self.online_broker_ids)
        ids = np.frombuffer(topic_id or ZERO_ID, np.uint8).reshape(1, 16)
        self._topics.append([raw], ids)
        return self._insert(rows)

    @_change
    def add_partitions(
        self, name: str | bytes, assignment: Mapping[int, Sequence[int]], **values: Unpack[NewRowValues]
    ) -> None:
        """Add partitions to a topic, as ``add_topic``; rows after them get higher numbers.

        Raises KeyError for a topic that does not exist, InvalidStateError for a partition that does.
        """
        topic_row = self.topic_row(name)
        rows = new_rows(topic_row, assignment, values, self.online_broker_ids)
        there = np.isin(rows.partition, self.partitions.partition[self.rows_of_topic(name)])
        if there.any():
            raise InvalidStateError(
                f"partition {self.topic_name(topic_row)}-{rows.partition[there][0]} exists"
            )
        self._insert(rows)

    @_change
    def remove_topics(self, names: Iterable[str | bytes]) -> None:
        """Remove topics with their partitions; later topics and rows get lower numbers. Raises KeyError."""
        gone = np.zeros(len(self._topics), dtype=bool)
        gone[self._topics.rows(names)] = True
        self._drop(~gone[self.partitions.topic_row], ~gone)

    @_change
    def remove_rows(self, rows: Rows) -> None:
        """Remove partitions, and topics without other partitions; later ones get lower numbers."""
        kept = np.ones(len(self._table), dtype=bool)
        kept[as_rows(rows, len(self._table))] = False
        topic_row = self.partitions.topic_row
        stays = np.ones(len(self._topics), dtype=bool)
        stays[topic_row[~kept]] = False
        stays[topic_row[kept]] = True
        self._drop(kept, stays)

    @_change
    def mark_topics_deleting(self, names: Iterable[str | bytes]) -> None:
        """Set the flag "queued for deletion": UpdateMetadata has leader -2 then. Raises KeyError."""
        rows = self._topics.rows(names)
        self._topics.deleting[rows] = 1
        self._touch_topics(rows)

    @_change
    def unmark_topics_deleting(self, names: Iterable[str | bytes]) -> None:
        """Clear the flag "queued for deletion", and "deletion in progress" with it. Raises KeyError."""
        rows = self._topics.rows(names)
        self._topics.deleting[rows] = 0
        self._touch_topics(rows)
        self._deletion_in_progress -= {self.topic_name(row) for row in rows.tolist()}

    @_change
    def set_deletion_in_progress(self, names: Iterable[str]) -> None:
        """Set which topics are being deleted: these and no others. Raises KeyError."""
        chosen = frozenset(names)
        self._topics.rows(chosen)
        self._deletion_in_progress = chosen

    @_change
    def attach_column(self, fill: Fill) -> SideColumn:
        """Return a new int32 column whose values move with the partition rows.

        ``fill``: the value of all rows, also of those that are added later, or a function that returns an
        int32 value for each of so many added rows, in row order.
        """
        return self._table.attach(fill)

    # -- brokers

    @_change
    def set_brokers(self, brokers: Iterable[Broker] | Brokers, *, recompute_offline: bool = True) -> None:
        """Replace the live and shutting-down brokers, and bring the offline replicas up to date.

        ``recompute_offline=False`` leaves the offline replicas as they are, for a broker that receives them.
        """
        self._set_liveness(brokers_from(brokers), self._shutting_down, recompute_offline)

    @_change
    def add_brokers(self, brokers: Iterable[Broker] | Brokers) -> None:
        """Add live brokers; a known broker is replaced by its new registration."""
        added = brokers_list(brokers) if isinstance(brokers, Brokers) else list(brokers)
        # Checked before they are merged by id: one id twice among them is a mistake.
        brokers_from(added)
        merged = {broker.id: broker for broker in brokers_list(self._brokers)}
        merged.update((broker.id, broker) for broker in added)
        self.set_brokers(merged.values())

    @_change
    def remove_brokers(self, ids: Iterable[int]) -> None:
        """Remove brokers. Raises KeyError."""
        gone = {self.broker_row(broker_id) for broker_id in ids}
        self.set_brokers(
            broker_at(self._brokers, row) for row in range(len(self._brokers)) if row not in gone
        )

    @_change
    def set_announced(self, brokers: Iterable[Broker]) -> None:
        """Replace the brokers that are announced: brokers and clients find them in UpdateMetadata.

        They are not among ``brokers``: no request is sent to them, and no replica on them is online. The
        controller announces itself when it is no broker. A registered broker of the same id takes the place
        of the announced one. Counts as a change of the live brokers; snapshots do not have it. Raises
        InvalidStateError as ``set_brokers``.
        """
        announced = tuple(brokers)
        brokers_from(announced)
        if announced == self._announced:
            return
        self._announced = announced
        self._live_brokers = None
        if self._table.changes is not None:
            self._table.changes.touch_brokers()

    @_change
    def set_shutting_down(self, ids: Iterable[int]) -> None:
        """Set which live brokers are shutting down; their replicas are offline. Raises KeyError."""
        chosen = frozenset(ids)
        for broker_id in chosen:
            self.broker_row(broker_id)
        self._set_liveness(self._brokers, chosen, recompute_offline=True)

    @_change
    def set_offline_dirs(self, broker_id: int, rows: Rows) -> None:
        """Set the rows whose replica on this broker is in a failed log directory. Raises KeyError."""
        self.broker_row(broker_id)
        failed = np.zeros(len(self._table), dtype=bool)
        failed[as_rows(rows, len(self._table))] = True
        columns = self.partitions
        assert columns.offline is not None
        fresh = with_failed_dirs(columns.replicas, columns.offline, self.online_broker_ids, broker_id, failed)
        self._set_offline(columns.offline, fresh)

    # -- helpers

    def _touch_topics(self, topic_rows: Int64) -> None:
        """Count a change of all partitions of these topics."""
        changes = self._table.changes
        if changes is not None:
            flags = np.zeros(len(self._topics), dtype=bool)
            flags[topic_rows] = True
            changes.touch(np.flatnonzero(flags[self.partitions.topic_row]))

    def _set_offline(self, before: ListColumn, fresh: ListColumn) -> None:
        changed = None if self._table.changes is None else np.flatnonzero(differing(before, fresh))
        self._table.assign(slice(0, len(self._table)), {}, {"offline": fresh}, changed=changed)

    def _remember(self, gone: npt.NDArray[np.bool_]) -> None:
        """Remember partitions that are about to be removed: brokers that have them get a deletion."""
        changes = self._table.changes
        if changes is None or not gone.any():
            return
        columns = self.partitions
        rows = np.flatnonzero(gone)
        topic_row = columns.topic_row[rows]
        # A partition of a topic that is queued for deletion was removed when the flag was set.
        since = np.where(
            self._topics.deleting[topic_row] == 1, changes.rows[rows], np.int64(changes.version + 1)
        )
        starts = np.flatnonzero(np.diff(topic_row, prepend=np.int32(-1)))
        for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), len(rows)], strict=True):
            name = self._topics.columns.names[int(topic_row[start])] or b""
            changes.note_removed(name, columns.partition[rows[start:stop]], since[start:stop])

    def _set_liveness(self, brokers: Brokers, shutting_down: frozenset[int], recompute_offline: bool) -> None:
        epochs = dict(zip(self._brokers.ids.tolist(), self._brokers.epochs.tolist(), strict=True))
        online_before = self.online_broker_ids
        changes = self._table.changes
        if (
            changes is not None
            and brokers is not self._brokers
            and brokers_list(brokers) != brokers_list(self._brokers)
        ):
            changes.touch_brokers()
        if brokers is not self._brokers:
            self._live_brokers = None
        self._brokers = brokers
        self._broker_rows = None
        self._shutting_down = shutting_down & frozenset(brokers.ids.tolist())
        if not recompute_offline:
            return
        online = self.online_broker_ids
        # A restarted broker (another epoch) reports its failed directories again.
        same = [
            broker_id
            for broker_id, epoch in zip(brokers.ids.tolist(), brokers.epochs.tolist(), strict=True)
            if epochs.get(broker_id) == epoch
        ]
        kept_online = np.intersect1d(online_before, np.array(same, dtype=np.int32))
        if np.array_equal(np.sort(online), np.sort(online_before)) and len(kept_online) == len(online):
            return
        columns = self.partitions
        assert columns.offline is not None
        fresh = offline_lists(columns.replicas, columns.offline, kept_online, online)
        self._set_offline(columns.offline, fresh)

    def _insert(self, rows: Partitions) -> slice:
        at, _ = locate(self.partitions, rows.topic_row, rows.partition)
        at += np.arange(len(at))
        self._table.insert(at, rows)
        return slice(int(at[0]), int(at[-1]) + 1)

    def _drop(self, kept: npt.NDArray[np.bool_], topics_kept: npt.NDArray[np.bool_]) -> None:
        self._remember(~kept)
        self._table.keep(kept)
        if topics_kept.all():
            return
        gone = {self.topic_name(row) for row in np.flatnonzero(~topics_kept).tolist()}
        self._deletion_in_progress -= gone
        self._topics.keep(topics_kept)
        self._table.renumber_topics(np.cumsum(topics_kept, dtype=np.int32) - np.int32(1))

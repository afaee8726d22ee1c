"""The metadata of a state that a broker has, and the metadata that it is missing.

``KnownMetadata`` is the one account of this: the batch computes differences from it, a full state in place
of a backlog begins from it, and the journal's columns ``state_version`` and ``from_version`` are its numbers.
It is a few version numbers, and the rows that were sent on top of them. Brokers that have the same share one
object; no row is copied for any of them.

UpdateMetadata has no field for a removed partition, but a broker forgets one that it receives with leader -2
(LeaderDuringDelete). Removed partitions are sent that way, as rows of their own without topic id, as long as
the state remembers them (``ctrlchan.state.changes.MOST_REMOVED``). A broker that has missed more keeps the
oldest of them until it restarts, as with Kafka's controller, whose full UpdateMetadata removes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from ctrlchan._codec import ListColumn, Partitions, StringColumn, Topics
from ctrlchan.batch.selection import Int32, Int64
from ctrlchan.protocol import LEADER_DURING_DELETE
from ctrlchan.state import NO_LEADERSHIP, ClusterState
from ctrlchan.state.changes import Changes, RemovedPartitions
from ctrlchan.state.lists import take
from ctrlchan.state.table import FIXED_COLUMNS, LIST_COLUMNS, make_partitions

__all__ = [
    "EVERYTHING",
    "KnownMetadata",
    "MissingMetadata",
    "known_after_all",
    "known_after_rows",
    "missing_metadata",
]

#: ``from_version`` of a request that carries all metadata: every version is after this one.
EVERYTHING: Final = -1
#: Pushes of named rows that are remembered on top of a version; the rows of older ones are sent again.
_MOST_NAMED: Final = 8

#: (the version at which rows were sent, int64 row numbers of that version).
_NamedRows: TypeAlias = tuple[int, Int64]


@dataclass(frozen=True, slots=True, eq=False)
class KnownMetadata:
    """The metadata that a broker has. Compared by identity: equal metadata is one object."""

    #: The counters that the versions belong to; versions of another state are not comparable.
    changes: Changes
    #: The broker has all rows, the live brokers and the removals as of these versions ...
    version: int
    brokers: int
    removals: int
    #: ... and these rows as of later versions.
    named: tuple[_NamedRows, ...] = ()


@dataclass(frozen=True, slots=True)
class MissingMetadata:
    """The columns and rows of one UpdateMetadata that completes the metadata of a broker."""

    topics: Topics
    partitions: Partitions
    #: Ascending int64 rows with leadership, or None for all rows of ``partitions``.
    rows: Int64 | None
    #: It contains everything that changed after this version; with EVERYTHING all there is. It is None if
    #: rows are left out that other requests carry.
    from_version: int | None

    @property
    def full(self) -> bool:
        return self.from_version == EVERYTHING


def known_after_all(state: ClusterState, before: KnownMetadata | None = None) -> KnownMetadata:
    """Return the metadata of a broker that had ``before``, after an UpdateMetadata of all rows."""
    changes = state.changes
    removals = EVERYTHING if before is None or before.changes is not changes else before.removals
    return KnownMetadata(changes, changes.version, changes.version, removals)


def known_after_rows(state: ClusterState, before: KnownMetadata | None, rows: Int64) -> KnownMetadata | None:
    """Return the metadata of a broker that had ``before``, after these rows and the live brokers."""
    changes = state.changes
    if before is None or before.changes is not changes:
        return None
    named = before.named
    if len(rows):
        named = (*named, (changes.version, rows))[-_MOST_NAMED:]
    return KnownMetadata(changes, before.version, changes.version, before.removals, named)


def missing_metadata(
    state: ClusterState, known: KnownMetadata | None, also_removed: Sequence[RemovedPartitions] = ()
) -> tuple[MissingMetadata | None, KnownMetadata]:
    """Return what a broker with ``known`` is missing, or None, and the metadata it has afterwards.

    If ``known`` is None, nothing is certain and everything is missing. ``also_removed``: removals that the
    broker has not received either. Costs one comparison of the rows' versions.
    """
    changes = state.changes
    if known is not None and known.changes is not changes:
        known = None
    after = KnownMetadata(changes, changes.version, changes.version, changes.version)
    if known is None:
        removed = [*changes.removed_after(EVERYTHING), *also_removed]
        rows = _with_leadership(state, None)
        return MissingMetadata(*_with_removed(state, rows, removed), EVERYTHING), after
    if not also_removed and min(known.version, known.brokers, known.removals) == changes.version:
        return None, known
    rows = _with_leadership(state, _changed_rows(changes, known))
    removed = [*changes.removed_after(known.removals), *also_removed]
    if not len(rows) and not removed and changes.brokers <= known.brokers:
        return None, known
    from_version = None if known.named else known.version
    return MissingMetadata(*_with_removed(state, rows, removed), from_version), after


def _changed_rows(changes: Changes, known: KnownMetadata) -> Int64:
    changed = changes.rows > known.version
    for version, rows in known.named:
        # Row numbers of a version before the last change of the layout are those of other rows now.
        if version >= changes.layout:
            changed[rows[changes.rows[rows] <= version]] = False
    return np.flatnonzero(changed)


def _with_leadership(state: ClusterState, rows: Int64 | None) -> Int64:
    leader_epoch = state.partitions.leader_epoch
    if rows is None:
        return np.flatnonzero(leader_epoch != NO_LEADERSHIP)
    with_leader: Int64 = rows[leader_epoch[rows] != NO_LEADERSHIP]
    return with_leader


def _with_removed(
    state: ClusterState, rows: Int64, removed: list[RemovedPartitions]
) -> tuple[Topics, Partitions, Int64 | None]:
    """Return the state's own columns, or columns made of these rows and the removed partitions, if any."""
    topics, partitions = state.topics, state.partitions
    topic_row, number, names = _still_removed(state, removed)
    if not len(number):
        return topics, partitions, None if len(rows) == len(partitions) else rows
    if names:
        zeros = np.zeros(len(names), np.uint8)
        old, new = topics.names, StringColumn.from_strings(names)
        assert topics.deleting is not None
        topics = Topics(
            StringColumn(
                np.concatenate((old.starts, new.starts + np.int32(len(old.data)))),
                np.concatenate((old.lengths, new.lengths)),
                np.concatenate((old.data, new.data)),
            ),
            np.concatenate((topics.ids, np.zeros((len(names), 16), np.uint8))),
            np.concatenate((topics.deleting, zeros)),
        )
    # A topic's live partitions go before removed ones: a broker drops the topic with its last partition.
    order = np.argsort(np.concatenate((partitions.topic_row[rows], topic_row)), kind="stable")
    count = len(number)
    deleted = {
        **dict.fromkeys(FIXED_COLUMNS, np.zeros(count, np.int32)),
        "topic_row": topic_row,
        "partition": number,
        "controller_epoch": np.full(count, max(state.controller_epoch, 0), np.int32),
        "leader": np.full(count, LEADER_DURING_DELETE, np.int32),
    }
    fixed = {
        name: np.concatenate((getattr(partitions, name)[rows], deleted[name]))[order]
        for name in FIXED_COLUMNS
    }
    none = np.zeros(count, np.int32)
    lists: dict[str, ListColumn | None] = {}
    for name in LIST_COLUMNS:
        column: ListColumn = take(getattr(partitions, name), rows)
        lists[name] = ListColumn(
            np.concatenate((column.starts, none))[order],
            np.concatenate((column.lengths, none))[order],
            column.values,
        )
    return topics, make_partitions(fixed, lists), None


def _still_removed(state: ClusterState, removed: list[RemovedPartitions]) -> tuple[Int32, Int32, list[bytes]]:
    """Return those of the removed partitions that have not been created again, each once, ascending.

    Topic rows, partition numbers, and the names of topics that get rows behind the state's own.
    """
    names: dict[bytes, int] = {}
    wanted: dict[int, set[int]] = {}
    total = len(state.topics)
    for one in removed:
        try:
            row = state.topic_row(one.topic)
        except KeyError:
            row = names.setdefault(one.topic, total + len(names))
            numbers = one.partition.tolist()
        else:
            rows = state.rows_of_topic(one.topic)
            present = state.partitions.leader_epoch[rows] != NO_LEADERSHIP
            numbers = np.setdiff1d(one.partition, state.partitions.partition[rows][present]).tolist()
        if numbers:
            wanted.setdefault(row, set()).update(numbers)
    pairs = [(row, number) for row in sorted(wanted) for number in sorted(wanted[row])]
    columns = np.array(pairs, dtype=np.int32).reshape(-1, 2)
    return columns[:, 0].copy(), columns[:, 1].copy(), list(names)

"""Comparing two states, for all partitions at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ctrlchan.state.brokers import Broker, brokers_list
from ctrlchan.state.lists import differing, take
from ctrlchan.state.rows import locate
from ctrlchan.state.table import FIXED_COLUMNS, LIST_COLUMNS
from ctrlchan.state.topic_table import name_list
from ctrlchan.state.view import StateView

__all__ = ["StateDifference", "difference"]

Bool = npt.NDArray[np.bool_]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]

_FACTS: Final = ("cluster_id", "controller_id", "controller_epoch", "shutting_down", "deletion_in_progress")


@dataclass(frozen=True, slots=True, eq=False)
class StateDifference:
    """The differences between an old and a new state. False when there are none.

    Partitions are identified by topic name and number, topics by name, brokers by id. Rows are those of the
    states when they were compared; all row arrays are int64.
    """

    #: Rows of the new state: partitions that only it has, ascending.
    added: Int64
    #: Rows of the old state: partitions that only it has, ascending.
    removed: Int64
    #: Rows of the old state, ascending: partitions of both states of which a column differs.
    changed_old: Int64
    #: The same partitions: their rows of the new state.
    changed_new: Int64
    #: Column of ``Partitions`` -> flags (bool), one for each row of ``changed_old``: whether it differs.
    columns: Mapping[str, Bool]
    #: Names of topics that only one state has, and of those whose id or deletion flag differs; sorted.
    added_topics: tuple[str, ...]
    removed_topics: tuple[str, ...]
    changed_topics: tuple[str, ...]
    #: Ids of brokers, ascending. Changed: another epoch, rack or endpoint.
    added_brokers: tuple[int, ...]
    removed_brokers: tuple[int, ...]
    changed_brokers: tuple[int, ...]
    #: Attribute of ``ClusterState`` (cluster_id, controller_id, controller_epoch, shutting_down,
    #: deletion_in_progress) -> (old, new), where they differ.
    cluster: Mapping[str, tuple[Any, Any]]

    def rows(self, column: str) -> Int64:
        """Return the rows of the new state whose ``column`` differs. KeyError for no column."""
        return self.changed_new[self.columns[column]]

    def describe(self) -> dict[str, Any]:
        """Return counts, ready for JSON: partitions, changed partitions by column, topics, brokers."""
        counts = {
            "partitions": (self.added, self.removed, self.changed_new),
            "topics": (self.added_topics, self.removed_topics, self.changed_topics),
            "brokers": (self.added_brokers, self.removed_brokers, self.changed_brokers),
        }
        return {
            **{
                name: dict(zip(("added", "removed", "changed"), map(len, found), strict=True))
                for name, found in counts.items()
            },
            "columns": {name: int(np.count_nonzero(flags)) for name, flags in self.columns.items()},
            "cluster": sorted(self.cluster),
        }

    def __bool__(self) -> bool:
        return bool(
            len(self.added)
            or len(self.removed)
            or len(self.changed_new)
            or self.added_topics
            or self.removed_topics
            or self.changed_topics
            or self.added_brokers
            or self.removed_brokers
            or self.changed_brokers
            or self.cluster
        )


def difference(old: StateView, new: StateView) -> StateDifference:
    """See ``ClusterState.diff``."""
    topic_rows, added_topics, removed_topics, changed_topics = _topics(old, new)
    mine, theirs = old.partitions, new.partitions
    at, found = locate(theirs, topic_rows[mine.topic_row], mine.partition)
    old_rows, new_rows = np.flatnonzero(found), at[found]
    added = np.ones(len(theirs), dtype=bool)
    added[new_rows] = False
    columns: dict[str, Bool] = {
        name: getattr(mine, name)[old_rows] != getattr(theirs, name)[new_rows] for name in FIXED_COLUMNS[2:]
    }
    for name in LIST_COLUMNS:
        columns[name] = differing(take(getattr(mine, name), old_rows), take(getattr(theirs, name), new_rows))
    changed = np.zeros(len(old_rows), dtype=bool)
    for flags in columns.values():
        changed |= flags
    before, after = _brokers(old), _brokers(new)
    return StateDifference(
        added=np.flatnonzero(added),
        removed=np.flatnonzero(~found),
        changed_old=old_rows[changed],
        changed_new=new_rows[changed],
        columns={name: flags[changed] for name, flags in columns.items()},
        added_topics=added_topics,
        removed_topics=removed_topics,
        changed_topics=changed_topics,
        added_brokers=tuple(sorted(after.keys() - before.keys())),
        removed_brokers=tuple(sorted(before.keys() - after.keys())),
        changed_brokers=tuple(
            broker_id
            for broker_id in sorted(before.keys() & after.keys())
            if before[broker_id] != after[broker_id]
        ),
        cluster={
            name: (getattr(old, name), getattr(new, name))
            for name in _FACTS
            if getattr(old, name) != getattr(new, name)
        },
    )


def _topics(
    old: StateView, new: StateView
) -> tuple[Int32, tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Return (for each topic row of ``old`` that of ``new`` or -1; names added, removed, changed)."""
    index = {name: row for row, name in enumerate(name_list(new.topics.names))}
    names = name_list(old.topics.names)
    rows = np.array([index.get(name, -1) for name in names], dtype=np.int32)
    there = np.flatnonzero(rows >= 0)
    deleting, their_deleting = old.topics.deleting, new.topics.deleting
    assert deleting is not None
    assert their_deleting is not None
    changed = (old.topics.ids[there] != new.topics.ids[rows[there]]).any(axis=1)
    changed |= deleting[there] != their_deleting[rows[there]]
    added = index.keys() - set(names)
    removed = [names[row] for row in np.flatnonzero(rows < 0).tolist()]
    return rows, _sorted(added), _sorted(removed), _sorted(names[row] for row in there[changed].tolist())


def _sorted(names: Any) -> tuple[str, ...]:
    return tuple(name.decode(errors="replace") for name in sorted(names))


def _brokers(state: StateView) -> dict[int, Broker]:
    return {broker.id: broker for broker in brokers_list(state.brokers)}

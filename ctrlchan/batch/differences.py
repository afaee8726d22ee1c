"""What a broker that was told of an older state lacks: rows, live brokers, partitions that are gone.

What a broker knows is a few numbers, and brokers that know the same share them: the version of the state they
were told, and the rows they were told since then. No row is copied or kept for any of them.

UpdateMetadata cannot say that a partition is no more, but for the leader -2 (LeaderDuringDelete) that makes
a broker forget it. So partitions that were removed from the state are told as rows of their own, without an
id of their topic, as long as the state remembers them (``ctrlchan.state.changes.MOST_GONE`` partitions). A
broker that has missed more than that keeps the oldest of them until it restarts, as with Kafka's controller,
whose full UpdateMetadata removes nothing either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from ctrlchan._codec import ListColumn, Partitions, StringColumn, Topics
from ctrlchan.batch.selection import Int32, Int64
from ctrlchan.state import NO_LEADERSHIP, ClusterState
from ctrlchan.state.changes import Changes, Gone
from ctrlchan.state.lists import take
from ctrlchan.state.table import FIXED_COLUMNS, LIST_COLUMNS, make_partitions

__all__ = ["Lack", "Told", "lack_of", "told_all", "told_rows"]

_LEADER_DURING_DELETE: Final = -2
#: Pushes of single rows that are remembered on top of a version; older ones are told again.
_MOST_EXTRAS: Final = 8

#: (the version, the rows that were told as they were then, as numbered then).
_Extra: TypeAlias = tuple[int, Int64]


@dataclass(frozen=True, slots=True, eq=False)
class Told:
    """What a broker knows. Compared by identity: equal knowledge is one object."""

    #: The state's own counters: versions of another state say nothing.
    changes: Changes
    #: All rows, the live brokers, and the removals, as of these versions.
    version: int
    brokers: int
    gone: int
    extras: tuple[_Extra, ...] = ()


@dataclass(frozen=True, slots=True)
class Lack:
    """What to tell. ``rows``: ascending, with leadership; None: all of the state's."""

    topics: Topics
    partitions: Partitions
    rows: Int64 | None
    #: The broker is told everything.
    full: bool


def told_all(state: ClusterState, before: Told | None = None) -> Told:
    """After all rows were sent; ``before``: what the broker knows already, as of removals."""
    changes = state.changes
    gone = -1 if before is None or before.changes is not changes else before.gone
    return Told(changes, changes.version, changes.version, gone)


def told_rows(state: ClusterState, before: Told | None, rows: Int64) -> Told | None:
    """After these rows and the live brokers were sent to a broker that knows ``before``."""
    changes = state.changes
    if before is None or before.changes is not changes:
        return None
    extras = before.extras
    if len(rows):
        extras = (*extras, (changes.version, rows))[-_MOST_EXTRAS:]
    return Told(changes, before.version, changes.version, before.gone, extras)


def lack_of(
    state: ClusterState, told: Told | None, also_gone: Sequence[Gone] = ()
) -> tuple[Lack | None, Told]:
    """What somebody lacks who knows ``told`` (None: nothing that is certain), and what it knows afterwards.

    ``also_gone``: it has not been told of these removals either. None: it lacks nothing. Costs one
    comparison of the rows' versions.
    """
    changes = state.changes
    if told is not None and told.changes is not changes:
        told = None
    after = Told(changes, changes.version, changes.version, changes.version)
    if told is None:
        gone = [*changes.gone_after(-1), *also_gone]
        rows = _with_leadership(state, None)
        return Lack(*_with_gone(state, rows, gone), full=True), after
    if not also_gone and min(told.version, told.brokers, told.gone) == changes.version:
        return None, told
    rows = _with_leadership(state, _changed(changes, told))
    gone = [*changes.gone_after(told.gone), *also_gone]
    if not len(rows) and not gone and changes.brokers <= told.brokers:
        return None, told
    return Lack(*_with_gone(state, rows, gone), full=False), after


def _changed(changes: Changes, told: Told) -> Int64:
    late = changes.rows > told.version
    for version, rows in told.extras:
        # Rows have moved since: their old numbers say nothing.
        if version >= changes.layout:
            late[rows[changes.rows[rows] <= version]] = False
    return np.flatnonzero(late)


def _with_leadership(state: ClusterState, rows: Int64 | None) -> Int64:
    leader_epoch = state.partitions.leader_epoch
    if rows is None:
        return np.flatnonzero(leader_epoch != NO_LEADERSHIP)
    known: Int64 = rows[leader_epoch[rows] != NO_LEADERSHIP]
    return known


def _with_gone(state: ClusterState, rows: Int64, gone: list[Gone]) -> tuple[Topics, Partitions, Int64 | None]:
    """The state's own columns, or, when there are removals to be told, columns made of both."""
    topics, partitions = state.topics, state.partitions
    topic_row, number, names = _without_returned(state, gone)
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
    # A topic's live partitions before those that are gone: a broker drops the topic with its last partition.
    order = np.argsort(np.concatenate((partitions.topic_row[rows], topic_row)), kind="stable")
    count = len(number)
    dead = {
        **dict.fromkeys(FIXED_COLUMNS, np.zeros(count, np.int32)),
        "topic_row": topic_row,
        "partition": number,
        "controller_epoch": np.full(count, max(state.controller_epoch, 0), np.int32),
        "leader": np.full(count, _LEADER_DURING_DELETE, np.int32),
    }
    fixed = {
        name: np.concatenate((getattr(partitions, name)[rows], dead[name]))[order] for name in FIXED_COLUMNS
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


def _without_returned(state: ClusterState, gone: list[Gone]) -> tuple[Int32, Int32, list[bytes]]:
    """(topic rows, partition numbers, names of topics that get rows behind the state's own) of the removed
    partitions that are not there again, each once, ascending."""
    names: dict[bytes, int] = {}
    wanted: dict[int, set[int]] = {}
    total = len(state.topics)
    for one in gone:
        try:
            row = state.topic_row(one.topic)
        except KeyError:
            row = names.setdefault(one.topic, total + len(names))
            numbers = one.partition.tolist()
        else:
            rows = state.rows_of_topic(one.topic)
            known = state.partitions.leader_epoch[rows] != NO_LEADERSHIP
            numbers = np.setdiff1d(one.partition, state.partitions.partition[rows][known]).tolist()
        if numbers:
            wanted.setdefault(row, set()).update(numbers)
    pairs = [(row, number) for row in sorted(wanted) for number in sorted(wanted[row])]
    columns = np.array(pairs, dtype=np.int32).reshape(-1, 2)
    return columns[:, 0].copy(), columns[:, 1].copy(), list(names)

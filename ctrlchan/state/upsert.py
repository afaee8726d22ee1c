"""Rows of a decoded request replace or join the rows of a state."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from ctrlchan._codec import Partitions, Topics
from ctrlchan.errors import InvalidStateError
from ctrlchan.state.lists import empty_lists, take
from ctrlchan.state.rows import locate, sort_keys
from ctrlchan.state.table import FIXED_COLUMNS, LIST_COLUMNS, PartitionTable, make_partitions
from ctrlchan.state.topic_table import TopicTable, name_list

__all__ = ["VALUE_COLUMNS", "upsert"]

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]

#: The columns other than the key (topic, partition).
VALUE_COLUMNS = FIXED_COLUMNS[2:] + LIST_COLUMNS


def upsert(
    topic_table: TopicTable,
    table: PartitionTable,
    topics: Topics,
    topic_starts: Int64,
    partitions: Partitions,
    columns: Iterable[str],
) -> Int64:
    """See ``ClusterState.upsert``."""
    taken = frozenset(columns)
    if not taken.issubset(VALUE_COLUMNS):
        raise InvalidStateError(f"no such column: {', '.join(sorted(taken.difference(VALUE_COLUMNS)))}")
    count = len(partitions)
    if (
        len(topic_starts) != len(topics) + 1
        or topic_starts[0] != 0
        or topic_starts[-1] != count
        or (topic_starts[1:] < topic_starts[:-1]).any()
    ):
        raise InvalidStateError(f"topic_starts do not divide {count} rows among {len(topics)} topics")
    topic_row = np.repeat(_join_topics(topic_table, topics), np.diff(topic_starts))
    ours = table.columns
    if (
        count == len(table)
        and np.array_equal(topic_row, ours.topic_row)
        and np.array_equal(partitions.partition, ours.partition)
    ):
        _replace(table, slice(0, count), partitions, taken)
        return np.arange(count)
    return _merge(table, topic_row, partitions, taken)


def _join_topics(topic_table: TopicTable, topics: Topics) -> Int32:
    """Return our topic row of each of their topics; add new names, take their ids that are not zero."""
    if topic_table.have_names(topics.names):
        rows = np.arange(len(topics), dtype=np.int32)
    else:
        index, added = topic_table.index, dict[bytes, int]()
        rows = np.empty(len(topics), dtype=np.int32)
        for i, name in enumerate(name_list(topics.names)):
            row = index.get(name)
            rows[i] = added.setdefault(name, len(index) + len(added)) if row is None else row
        if added:
            topic_table.append(list(added), np.zeros((len(added), 16), np.uint8))
    known = topics.ids.any(axis=1)
    topic_table.ids[rows[known]] = topics.ids[known]
    return rows


def _merge(table: PartitionTable, topic_row: Int32, partitions: Partitions, taken: frozenset[str]) -> Int64:
    """Merge rows in any order, the later of two with the same partition; return our row of each."""
    keys = sort_keys(topic_row, partitions.partition)
    chosen: Int64 | slice = slice(0, len(keys))
    place: Int64 | slice = slice(0, len(keys))
    if (keys[1:] <= keys[:-1]).any():
        order = np.argsort(keys, kind="stable")
        ends = np.append(keys[order[1:]] != keys[order[:-1]], True)
        chosen = order[ends]
        place = np.empty(len(keys), dtype=np.int64)
        place[order] = np.cumsum(ends) - ends
    at, found = locate(table.columns, topic_row[chosen], partitions.partition[chosen])
    new = np.flatnonzero(~found)
    if not len(new):
        _replace(table, at, _taken_rows(partitions, None, chosen), taken)
        return at[place]
    old = np.flatnonzero(found)
    every = np.arange(len(keys)) if isinstance(chosen, slice) else chosen
    if len(old):
        _replace(table, at[old], _taken_rows(partitions, None, every[old]), taken)
    at += np.cumsum(~found) - ~found
    joining: Int64 | slice = chosen if not len(old) else every[new]
    table.insert(at[new], _taken_rows(partitions, topic_row[joining], joining))
    return at[place]


def _replace(
    table: PartitionTable, rows: Int64 | slice, partitions: Partitions, taken: frozenset[str]
) -> None:
    fixed = {name: getattr(partitions, name) for name in FIXED_COLUMNS if name in taken}
    lists = {
        name: empty_lists(len(partitions)) if column is None else column
        for name in LIST_COLUMNS
        if name in taken
        for column in [getattr(partitions, name)]
    }
    table.assign(rows, fixed, lists)


def _taken_rows(partitions: Partitions, topic_row: Int32 | None, rows: Int64 | slice) -> Partitions:
    """Return these rows of ``partitions``, with another ``topic_row`` unless None."""
    fixed = {name: getattr(partitions, name)[rows] for name in FIXED_COLUMNS}
    if topic_row is not None:
        fixed["topic_row"] = topic_row
    lists = {
        name: None if column is None else take(column, rows)
        for name in LIST_COLUMNS
        for column in [getattr(partitions, name)]
    }
    return make_partitions(fixed, lists)

"""Functions over list columns, for all rows at once.

A list column is ``starts``, ``lengths`` and ``values`` (see ``ctrlchan._codec.ListColumn``). Lists may be
stored in any order, share values and leave gaps; ``packed_values`` returns them one after another.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ctrlchan._codec import ListColumn

__all__ = [
    "contains",
    "differing",
    "empty_lists",
    "entries_within",
    "entry_rows",
    "first_flagged",
    "has_duplicates",
    "joined",
    "not_within",
    "packed_values",
    "select",
    "take",
    "total_length",
]

Bool = npt.NDArray[np.bool_]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]


def empty_lists(rows: int) -> ListColumn:
    """Return ``rows`` empty lists."""
    return ListColumn(np.zeros(rows, np.int32), np.zeros(rows, np.int32), np.empty(0, np.int32))


def total_length(lists: ListColumn) -> int:
    """Return the sum of all lengths, which may be more than an int32 holds."""
    return int(lists.lengths.sum(dtype=np.int64))


def packed_values(lists: ListColumn) -> Int32:
    """Return all lists one after another, in row order. A view where they are stored so already."""
    lengths = lists.lengths
    filled = lengths if lengths.all() else lengths[lengths > 0]
    if not len(filled):
        return np.empty(0, np.int32)
    starts = lists.starts if filled is lengths else lists.starts[lengths > 0]
    # A start plus a length may be more than an int32 holds.
    if np.array_equal(starts[1:], starts[:-1].astype(np.int64) + filled[:-1]):
        first = int(starts[0])
        return lists.values[first : int(starts[-1]) + int(filled[-1])]
    ends = np.cumsum(filled, dtype=np.int64)
    index = np.repeat(starts - (ends - filled), filled)
    index += np.arange(ends[-1])
    values: Int32 = lists.values[index]
    return values


def entry_rows(lists: ListColumn) -> Int64:
    """Return the row of each element of ``packed_values``."""
    return np.repeat(np.arange(len(lists)), lists.lengths)


def take(lists: ListColumn, rows: Int64 | slice) -> ListColumn:
    """Return the lists of these rows. Values are shared, not copied."""
    return ListColumn(lists.starts[rows], lists.lengths[rows], lists.values)


def joined(columns: Sequence[ListColumn]) -> ListColumn:
    """Return the lists of one column after the other, as one column."""
    if len(columns) == 1:
        return columns[0]
    sizes = np.array([len(one.values) for one in columns])
    before = np.repeat((np.cumsum(sizes) - sizes).astype(np.int32), [len(one) for one in columns])
    return ListColumn(
        np.concatenate([one.starts for one in columns]) + before,
        np.concatenate([one.lengths for one in columns]),
        np.concatenate([one.values for one in columns]),
    )


def select(lists: ListColumn, keep: Bool) -> ListColumn:
    """Return each list with only its flagged elements; ``keep``: a flag for each of ``packed_values``."""
    counts = np.bincount(entry_rows(lists)[keep], minlength=len(lists)).astype(np.int32)
    ends = np.cumsum(counts, dtype=np.int64)
    return ListColumn((ends - counts).astype(np.int32), counts, packed_values(lists)[keep])


def contains(lists: ListColumn, wanted: Int32) -> Bool:
    """Return a flag for each row: whether its list has ``wanted`` of this row."""
    found = np.zeros(len(lists), dtype=bool)
    rows = entry_rows(lists)
    found[rows[packed_values(lists) == wanted[rows]]] = True
    return found


def differing(lists: ListColumn, others: ListColumn) -> Bool:
    """Return a flag for each row: whether its list differs from the same row's of ``others``."""
    found: Bool = lists.lengths != others.lengths
    rows = np.flatnonzero(~found & (lists.lengths > 0))
    mine, theirs = take(lists, rows), take(others, rows)
    found[rows[entry_rows(mine)[packed_values(mine) != packed_values(theirs)]]] = True
    return found


def first_flagged(lists: ListColumn, flags: Bool, absent: int) -> Int32:
    """Return the first flagged element of each list, ``absent`` where there is none, as int32.

    ``flags``: one for each of ``packed_values``.
    """
    first = np.full(len(lists), absent, np.int32)
    # Of a row that is assigned twice the last value counts, so the elements are taken backwards.
    chosen = np.flatnonzero(flags)[::-1]
    first[entry_rows(lists)[chosen]] = packed_values(lists)[chosen]
    return first


def entries_within(lists: ListColumn, others: ListColumn) -> Bool:
    """Return a flag for each of ``packed_values(lists)``: whether the same row's list of ``others`` has it.

    Costs the product of a row's two lengths: meant for lists of replicas, which are short.
    """
    rows, values = entry_rows(lists), packed_values(lists)
    found = np.zeros(len(values), dtype=bool)
    open_ = np.arange(len(values))
    for place in range(int(others.lengths.max(initial=0))):
        open_ = open_[others.lengths[rows[open_]] > place]
        same = others.values[others.starts[rows[open_]] + place] == values[open_]
        found[open_[same]] = True
        open_ = open_[~same]
    return found


def has_duplicates(lists: ListColumn) -> Bool:
    """Return a flag for each row: whether its list has an element twice."""
    found = np.zeros(len(lists), dtype=bool)
    keys = np.sort(_keys(lists))
    found[keys[1:][keys[1:] == keys[:-1]] >> 32] = True
    return found


def not_within(lists: ListColumn, others: ListColumn) -> Bool:
    """Return a flag for each row: whether its list has an element that ``others`` does not have there."""
    found = np.zeros(len(lists), dtype=bool)
    if not total_length(lists):
        return found
    # Both sides in one sorted array, ``others`` first among equal keys: equal keys that begin with one of
    # ``lists`` have none of ``others``.
    keys = np.concatenate((_keys(others) << 1, (_keys(lists) << 1) | 1))
    keys.sort()
    begins = np.empty(len(keys), dtype=bool)
    begins[0] = True
    np.not_equal(keys[1:] >> 1, keys[:-1] >> 1, out=begins[1:])
    found[keys[begins & (keys & 1 == 1)] >> 33] = True
    return found


def _keys(lists: ListColumn) -> Int64:
    """Return ``row << 32 | value`` for each element. Rows are below 2**30: one more bit is free."""
    return (entry_rows(lists) << 32) | packed_values(lists).view(np.uint32)

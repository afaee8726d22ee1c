"""Finding partition rows by (topic row, partition), many at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ctrlchan._codec import Partitions

__all__ = ["distinct", "first_unsorted", "locate", "sort_keys"]

Bool = npt.NDArray[np.bool_]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]


def sort_keys(topic_row: Int32, partition: Int32) -> Int64:
    """Return int64 keys in the order of (topic_row, partition), for any int32 partition."""
    return (topic_row.astype(np.int64) << 32) + partition


def distinct(values: Int64) -> Int64:
    """Return the values ascending, each once. ``np.unique`` hashes integers: 2,000 ns for each of 300,000."""
    ascends = values[1:] > values[:-1]
    if ascends.all():
        return values
    ordered = np.sort(values)
    found: Int64 = ordered[np.append(True, ordered[1:] != ordered[:-1])]
    return found


def first_unsorted(keys: Int64) -> int | None:
    """Return the first row whose key is not above the one before it; None when keys ascend strictly."""
    wrong = np.flatnonzero(keys[1:] <= keys[:-1])
    return int(wrong[0]) + 1 if len(wrong) else None


def locate(columns: Partitions, topic_row: Int32, partition: Int32) -> tuple[Int64, Bool]:
    """Return (the row of each, or the row where it would be inserted; whether it exists).

    Costs a binary search for each wanted row in ``topic_row``, and one among its topic's partitions only
    where these are not dense (partition p is the topic's row number p).
    """
    first = np.searchsorted(columns.topic_row, topic_row, "left")
    end = np.searchsorted(columns.topic_row, topic_row, "right")
    at = first + partition
    found = (partition >= 0) & (at < end)
    found[found] = columns.partition[at[found]] == partition[found]
    rest = np.flatnonzero(~found)
    if len(rest):
        wanted = partition[rest]
        at[rest] = places = _bisect(columns.partition, wanted, first[rest], end[rest])
        inside = places < end[rest]
        found[rest[inside]] = columns.partition[places[inside]] == wanted[inside]
    return at, found


def _bisect(values: Int32, wanted: Int32, low: Int64, high: Int64) -> Int64:
    """Return for each i the first place in ``low[i] .. high[i]`` whose value is not below ``wanted[i]``."""
    while len(open_ := np.flatnonzero(low < high)):
        middle = (low[open_] + high[open_]) >> 1
        below = values[middle] < wanted[open_]
        low[open_[below]] = middle[below] + 1
        high[open_[~below]] = middle[~below]
    return low

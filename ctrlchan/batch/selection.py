"""Selections of rows of a state, collected call by call and merged once.

A controller adds partitions one by one (an election) or a hundred thousand at once (a failover); both become
one ascending row array for the codec. A row with its flag is an integer key here, ``row * 2 + flag``: in
sorted order the key with the flag is the last one of a row, so merging keeps that one and a set flag wins.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Int64: TypeAlias = npt.NDArray[np.int64]
Int32: TypeAlias = npt.NDArray[np.int32]
UInt8: TypeAlias = npt.NDArray[np.uint8]

_EMPTY: Int64 = np.empty(0, dtype=np.int64)


class Selection:
    """Rows with a flag each. Adding is cheap; ``merge`` sorts them and removes duplicates."""

    __slots__ = ("_chunks", "_singles", "_whole", "_whole_flag")

    def __init__(self) -> None:
        self._whole = False
        self._whole_flag = False
        self._singles = array("q")
        self._chunks: list[Int64] = []

    def add(self, rows: int | Int64 | None, flag: bool = False) -> None:
        """Add one row, an int64 array of rows (copied), or None for every row."""
        if rows is None:
            self._whole = True
            self._whole_flag |= flag
        elif isinstance(rows, int):
            self._singles.append(rows << 1 | flag)
        else:
            self._chunks.append(keys_of(rows, flag))

    def add_keys(self, keys: Int64) -> None:
        """Add keys from ``keys_of``. They are kept, not copied, so that many selections can share them."""
        self._chunks.append(keys)

    @property
    def fingerprint(self) -> Hashable:
        """Equal for two selections that had the same calls with the same arrays: they have equal rows and
        flags."""
        return self._whole, self._whole_flag, tuple(map(id, self._chunks)), self._singles.tobytes()

    def rows(self) -> Int64 | None:
        """Return the ascending unique int64 rows, or None for all. The state may no longer have some."""
        return None if self._whole else np.unique(self._keys() >> 1)

    def merge(self, total: int) -> tuple[Int64 | None, UInt8 | None]:
        """Return the ascending unique int64 rows and their uint8 flags.

        The rows are None for all ``total`` of them, the flags if none is set.
        """
        if len(self._singles) == 1 and not self._chunks and not self._whole:
            # Most batches of a healthy cluster have one partition.
            [key] = self._singles
            return np.array([key >> 1], dtype=np.int64), np.ones(1, dtype=np.uint8) if key & 1 else None
        keys = self._keys()
        if self._whole:
            flagged = keys[keys & 1 == 1] >> 1
            if self._whole_flag:
                return None, np.ones(total, dtype=np.uint8)
            if not len(flagged):
                return None, None
            flags = np.zeros(total, dtype=np.uint8)
            flags[flagged] = 1
            return None, flags
        if len(keys) > 1:
            if not (keys[1:] > keys[:-1]).all():
                keys = np.sort(keys)
            last_of_row = np.empty(len(keys), dtype=bool)
            last_of_row[-1] = True
            np.not_equal(keys[1:] >> 1, keys[:-1] >> 1, out=last_of_row[:-1])
            if not last_of_row.all():
                keys = keys[last_of_row]
        flags = (keys & 1).astype(np.uint8)
        return keys >> 1, flags if flags.any() else None

    def _keys(self) -> Int64:
        parts = list(self._chunks)
        if self._singles:
            parts.append(np.array(self._singles, dtype=np.int64))
        if len(parts) == 1:
            return parts[0]
        return np.concatenate(parts) if parts else _EMPTY


class EpochSelection:
    """Rows with a flag and a leader epoch each, which are those of the time when a row is added.

    For a row that is added again, the last epoch counts, and a set flag stays set.
    """

    __slots__ = ("_chunks", "_prints", "_single_epochs", "_single_keys")

    def __init__(self) -> None:
        self._single_keys = array("q")
        self._single_epochs = array("i")
        # Keys of ``keys_of`` and int32 leader epochs, in the order in which they were added, and what they
        # are compared by: shared arrays by identity, single rows by content.
        self._chunks: list[tuple[Int64, Int32]] = []
        self._prints: list[int | bytes] = []

    def add(self, row: int, flag: bool, epoch: int) -> None:
        """Add one row."""
        self._single_keys.append(row << 1 | flag)
        self._single_epochs.append(epoch)

    def add_keys(self, keys: Int64, epochs: Int32) -> None:
        """Add keys from ``keys_of`` with their epochs. Both are kept, not copied."""
        self._close_singles()
        self._chunks.append((keys, epochs))
        self._prints.append(id(keys))

    def _close_singles(self) -> None:
        """Make a chunk of the single rows, because the order of chunks counts."""
        if self._single_keys:
            keys = np.array(self._single_keys, dtype=np.int64)
            epochs = np.array(self._single_epochs, dtype=np.int32)
            self._chunks.append((keys, epochs))
            self._prints.append(keys.tobytes() + epochs.tobytes())
            self._single_keys, self._single_epochs = array("q"), array("i")

    @property
    def fingerprint(self) -> Hashable:
        """Equal for two selections that had the same calls with the same arrays and epochs."""
        self._close_singles()
        return tuple(self._prints)

    def rows(self) -> Int64:
        """Return the ascending unique int64 rows, also those that the state no longer has."""
        return self.merge()[0]

    def merge(self) -> tuple[Int64, UInt8, Int32]:
        """Return the ascending unique int64 rows, their uint8 flags and int32 leader epochs."""
        self._close_singles()
        if not self._chunks:
            return _EMPTY, np.empty(0, dtype=np.uint8), np.empty(0, dtype=np.int32)
        keys = np.concatenate([keys for keys, _ in self._chunks])
        epochs = np.concatenate([epochs for _, epochs in self._chunks])
        rows, flags = keys >> 1, (keys & 1).astype(np.uint8)
        if len(rows) > 1 and not (rows[1:] > rows[:-1]).all():
            # Stable: within a row, the last added one stays the last.
            order = np.argsort(rows, kind="stable")
            rows, flags, epochs = rows[order], flags[order], epochs[order]
            starts = np.flatnonzero(np.diff(rows, prepend=-1))
            lasts = np.append(starts[1:], len(rows)) - 1
            rows, flags, epochs = rows[starts], np.maximum.reduceat(flags, starts), epochs[lasts]
        return rows, flags, epochs


def keys_of(rows: Int64, flag: bool) -> Int64:
    """Return a new array of ``row * 2 + flag``."""
    keys = rows << 1
    if flag:
        keys |= 1
    return keys

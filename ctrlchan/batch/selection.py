"""Which rows of a state a request is about, collected call by call and merged once.

A controller adds partitions one by one (an election) or a hundred thousand at once (a failover); both end
as one ascending row array for the codec. A partition is an integer key here, ``row * 2 + flag``: sorting
puts the flagged twin of a row last, so that merging keeps one key for each row and a flag once set stays.
"""

from __future__ import annotations

from array import array
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Int64: TypeAlias = npt.NDArray[np.int64]
Int32: TypeAlias = npt.NDArray[np.int32]
UInt8: TypeAlias = npt.NDArray[np.uint8]

#: Equal histories hold equal rows and flags.
History: TypeAlias = tuple[bool, bool, tuple[int, ...], bytes]

_EMPTY: Int64 = np.empty(0, dtype=np.int64)


class Selection:
    """Rows with a flag each. Adding is cheap; ``merge`` sorts and makes rows unique, a set flag wins."""

    __slots__ = ("_chunks", "_singles", "_whole", "_whole_flag")

    def __init__(self) -> None:
        self._whole = False
        self._whole_flag = False
        self._singles = array("q")
        self._chunks: list[Int64] = []

    def add(self, rows: int | Int64 | None, flag: bool = False) -> None:
        """``rows``: one row, an int64 array of rows (copied), or None for every row."""
        if rows is None:
            self._whole = True
            self._whole_flag |= flag
        elif isinstance(rows, int):
            self._singles.append(rows << 1 | flag)
        else:
            self._chunks.append(keys_of(rows, flag))

    def add_keys(self, keys: Int64) -> None:
        """Keys from ``keys_of``; kept, not copied, so that many selections can share them."""
        self._chunks.append(keys)

    @property
    def history(self) -> History:
        """What was added: equal for two selections that went through the same calls with the same arrays."""
        return self._whole, self._whole_flag, tuple(map(id, self._chunks)), self._singles.tobytes()

    def merge(self, total: int) -> tuple[Int64 | None, UInt8 | None]:
        """(ascending unique int64 rows, or None for all ``total`` of them; uint8 flags of these rows, or
        None when no flag is set)."""
        if len(self._singles) == 1 and not self._chunks and not self._whole:
            # One partition, which is what most batches of a quiet cluster are about.
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


def keys_of(rows: Int64, flag: bool) -> Int64:
    """A new array of ``row * 2 + flag``."""
    keys = rows << 1
    if flag:
        keys |= 1
    return keys

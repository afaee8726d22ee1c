"""int32 columns that a user of a state attaches to its partition rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ctrlchan.state.vector import Vector

__all__ = ["Fill", "SideColumn"]

Bool = npt.NDArray[np.bool_]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]

#: The value of every inserted row, or a function: number of inserted rows -> a value for each.
Fill: TypeAlias = int | Callable[[int], Int32]


class SideColumn:
    """One int32 value for each partition row of a state. Values move with their rows.

    The owner writes values through ``array``; this counts as no change of the state and is no part of a
    snapshot. ``layout`` is a counter that goes up whenever rows were inserted or removed, so that an index
    over the column can be made again.
    """

    __slots__ = ("_fill", "_vector", "layout")

    def __init__(self, rows: int, fill: Fill) -> None:
        self._fill = fill
        self._vector = Vector(self._filled(rows))
        self.layout = 0

    @property
    def array(self) -> Int32:
        """The values, int32, writeable; valid until rows are inserted or removed."""
        return self._vector.array

    # -- for the table

    def insert(self, at: Int64) -> None:
        """Insert rows with the fill value. ``at``: their row numbers after it, strictly ascending."""
        self._vector.insert(at, self._filled(len(at)))
        self.layout += 1

    def keep(self, kept: Bool) -> None:
        """Drop the rows whose flag is not set."""
        self._vector.keep(kept)
        self.layout += 1

    def _filled(self, rows: int) -> Int32:
        if callable(self._fill):
            return self._fill(rows)
        return np.full(rows, self._fill, np.int32)

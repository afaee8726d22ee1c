"""Growable int32 arrays, for columns that change in place."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["Vector"]

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]

#: The least number of spare elements of a new buffer.
_SPARE = 64


class Vector:
    """The first ``size`` elements of ``buffer``, which may be longer.

    A vector adopts the array it is made from. The array is copied on the first write when it is read-only
    (Arrow's memory), and never written beyond its end. Changing methods return True when they replaced
    ``buffer``: views of the old buffer are then out of date.
    """

    __slots__ = ("buffer", "size")

    def __init__(self, array: Int32) -> None:
        self.buffer = array
        self.size = len(array)

    @property
    def array(self) -> Int32:
        """A view of the elements."""
        return self.buffer[: self.size]

    def make_writeable(self) -> bool:
        """Copy the buffer if it is read-only."""
        if self.buffer.flags.writeable:
            return False
        self.buffer = self.array.copy()
        return True

    def reserve(self, extra: int) -> bool:
        """Make room for ``extra`` more elements; a new buffer is half as long again."""
        if not extra or (self.size + extra <= len(self.buffer) and self.buffer.flags.writeable):
            return False
        self.buffer = _roomy(self.array, extra)
        return True

    @classmethod
    def copy_of(cls, array: Int32, extra: int) -> Vector:
        """Return a vector with a copy of the array and room for ``extra`` more elements."""
        vector = cls(_roomy(array, extra))
        vector.size = len(array)
        return vector

    def append(self, values: Int32) -> None:
        """Add ``values`` after the last element."""
        self.reserve(len(values))
        self.buffer[self.size : self.size + len(values)] = values
        self.size += len(values)

    def insert(self, at: Int64, values: Int32) -> None:
        """Insert ``values[i]`` as element ``at[i]`` of the result; ``at`` ascends strictly."""
        if not len(at) or at[0] == self.size:
            self.append(values)
            return
        merged = np.empty(self.size + len(values), dtype=np.int32)
        old = np.ones(len(merged), dtype=bool)
        old[at] = False
        merged[at] = values
        merged[old] = self.array
        self.buffer = merged
        self.size = len(merged)

    def keep(self, kept: npt.NDArray[np.bool_]) -> None:
        """Drop the elements whose flag is not set."""
        self.buffer = self.array[kept]
        self.size = len(self.buffer)


def _roomy(array: Int32, extra: int) -> Int32:
    room = np.zeros(len(array) + extra + max(len(array) // 2, _SPARE), dtype=np.int32)
    room[: len(array)] = array
    return room

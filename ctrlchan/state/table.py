"""The partition rows of a state, changed in place.

A ``Partitions`` object refers to the arrays that it was made from. Each method here that replaces an array
therefore ends with a new ``Partitions`` object.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ctrlchan._codec import ListColumn, Partitions
from ctrlchan.errors import InvalidStateError
from ctrlchan.state.changes import Changes
from ctrlchan.state.lists import empty_lists, packed_values, total_length
from ctrlchan.state.side_columns import Fill, SideColumn
from ctrlchan.state.vector import Vector

__all__ = ["FIXED_COLUMNS", "LIST_COLUMNS", "PartitionTable", "make_partitions"]

Bool = npt.NDArray[np.bool_]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]

#: The int32 columns, in the order of ``Partitions``.
FIXED_COLUMNS: Final[tuple[str, ...]] = (
    "topic_row",
    "partition",
    "controller_epoch",
    "leader",
    "leader_epoch",
    "partition_epoch",
    "recovery_state",
)
#: The list columns, in the order of ``Partitions``.
LIST_COLUMNS: Final[tuple[str, ...]] = ("isr", "replicas", "adding", "removing", "offline")

#: ``starts`` are int32, so a list column's values cannot be more.
_MAX_VALUES = 2**31 - 1


class EditableLists:
    """One list column. New lists are appended to spare room in ``values``, and their rows refer to them.

    Values that no row refers to are garbage. They are dropped when the room is used up and more than half of
    the values are garbage.
    """

    __slots__ = ("_owned", "lengths", "starts", "values")

    def __init__(self, lists: ListColumn) -> None:
        self.starts = Vector(lists.starts)
        self.lengths = Vector(lists.lengths)
        self.values = Vector(lists.values)
        # Adopted values may be shared with other columns and are never written.
        self._owned = False

    def column(self) -> ListColumn:
        """Return the codec's object. It has the spare room of the values: appending keeps it valid."""
        return ListColumn(self.starts.array, self.lengths.array, self.values.buffer)

    def assign(self, rows: Int64 | slice, lists: ListColumn) -> bool:
        """Set the lists of ``rows``: one for each, or a single one for all. Return whether an array moved."""
        # NumPy broadcasts a single list: all rows refer to one copy of it.
        starts, lengths, values = _packed(lists)
        whole = isinstance(rows, slice) and rows.indices(self.starts.size) == (0, self.starts.size, 1)
        moved = self.starts.make_writeable() | self.lengths.make_writeable()
        if whole and self._owned and len(values) <= len(self.values.buffer):
            # Every row gets a new list, so all room is free.
            self.values.buffer[: len(values)] = values
            self.values.size = len(values)
            base = 0
        elif whole:
            self.values = Vector(values.copy())
            self._owned = moved = True
            base = 0
        else:
            moved |= self._make_room(len(values))
            base = self.values.size
            self.values.append(values)
        self.starts.array[rows] = starts + np.int32(base)
        self.lengths.array[rows] = lengths
        return moved

    def insert(self, at: Int64, lists: ListColumn) -> None:
        """Insert a row for each of ``lists``, as ``Vector.insert``."""
        starts, lengths, values = _packed(lists)
        self._make_room(len(values))
        starts = starts + np.int32(self.values.size)
        self.values.append(values)
        self.starts.insert(at, starts)
        self.lengths.insert(at, lengths)

    def keep(self, kept: Bool) -> None:
        """Drop the rows whose flag is not set, and the garbage when it is more than half."""
        self.starts.keep(kept)
        self.lengths.keep(kept)
        if self._mostly_garbage():
            self._compact(0)

    def _make_room(self, extra: int) -> bool:
        if not extra or (self._owned and self.values.size + extra <= len(self.values.buffer)):
            return False
        if self._mostly_garbage() or self.values.size + extra > _MAX_VALUES:
            self._compact(extra)
        else:
            self.values.reserve(extra)
            self._owned = True
        return True

    def _mostly_garbage(self) -> bool:
        return 2 * int(self.lengths.array.sum(dtype=np.int64)) < self.values.size

    def _compact(self, extra: int) -> None:
        values = packed_values(self.column())
        if len(values) + extra > _MAX_VALUES:
            raise InvalidStateError(f"a list column cannot hold {len(values) + extra:,} values")
        self.values = Vector.copy_of(values, extra)
        self.starts.make_writeable()
        self.starts.array[:1] = 0
        np.cumsum(self.lengths.array[:-1], out=self.starts.array[1:])
        self._owned = True


class PartitionTable:
    """Partition rows sorted by (topic_row, partition). Others read ``columns``.

    Adopts the arrays it is given. ``columns`` is replaced when arrays move: take it again after a change.
    """

    columns: Partitions

    def __init__(self, partitions: Partitions) -> None:
        rows = len(partitions)
        self._fixed = {name: Vector(getattr(partitions, name)) for name in FIXED_COLUMNS}
        self._lists: dict[str, EditableLists] = {}
        for name in LIST_COLUMNS:
            lists = getattr(partitions, name)
            self._lists[name] = EditableLists(empty_lists(rows) if lists is None else lists)
        vectors = list(self._fixed.values())
        for editable in self._lists.values():
            vectors += editable.starts, editable.lengths
        _separate(vectors)
        #: None until changes are counted.
        self.changes: Changes | None = None
        self._side: list[SideColumn] = []
        self._renew()

    def __len__(self) -> int:
        return self._fixed["topic_row"].size

    def assign(
        self,
        rows: Int64 | slice,
        fixed: Mapping[str, Int32 | np.int32],
        lists: Mapping[str, ListColumn],
        *,
        changed: Int64 | slice | None = None,
    ) -> None:
        """Write columns of ``rows``: one value or one for each row; one list or one for each.

        ``changed``: the rows whose values differ from those before, or None for all of ``rows``.
        """
        if self.changes is not None:
            self.changes.touch(rows if changed is None else changed)
        moved = False
        for name, values in fixed.items():
            vector = self._fixed[name]
            moved |= vector.make_writeable()
            vector.array[rows] = values
        for name, column in lists.items():
            moved |= self._lists[name].assign(rows, column)
        if moved:
            self._renew()

    def insert(self, at: Int64, rows: Partitions) -> None:
        """Insert ``rows``; row i of them becomes row ``at[i]`` of the result. ``at`` ascends strictly."""
        for name, vector in self._fixed.items():
            vector.insert(at, getattr(rows, name))
        for name, lists in self._lists.items():
            column = getattr(rows, name)
            lists.insert(at, empty_lists(len(rows)) if column is None else column)
        if self.changes is not None:
            self.changes.insert(at)
        for side in self._side:
            side.insert(at)
        self._renew()

    def keep(self, kept: Bool) -> None:
        """Drop the rows whose flag is not set."""
        for vector in self._fixed.values():
            vector.keep(kept)
        for lists in self._lists.values():
            lists.keep(kept)
        if self.changes is not None:
            self.changes.keep(kept)
        for side in self._side:
            side.keep(kept)
        self._renew()

    def attach(self, fill: Fill) -> SideColumn:
        """Return a new column beside the rows, filled for all of them."""
        side = SideColumn(len(self), fill)
        self._side.append(side)
        return side

    def renumber_topics(self, new_rows: Int32) -> None:
        """Replace topic row t by ``new_rows[t]``; the order of topics stays."""
        vector = self._fixed["topic_row"]
        self._fixed["topic_row"] = Vector(new_rows[vector.array])
        self._renew()

    def _renew(self) -> None:
        self.columns = make_partitions(
            {name: vector.array for name, vector in self._fixed.items()},
            {name: lists.column() for name, lists in self._lists.items()},
        )


def _separate(vectors: Iterable[Vector]) -> None:
    """Copy arrays that several columns share (of zeros, say): they must not change together."""
    seen: set[int] = set()
    for vector in vectors:
        pointer = vector.buffer.ctypes.data
        if pointer in seen and vector.buffer.flags.writeable:
            vector.buffer = vector.buffer.copy()
        seen.add(pointer)


def make_partitions(fixed: Mapping[str, Int32], lists: Mapping[str, ListColumn | None]) -> Partitions:
    """Return ``Partitions`` from columns by name."""
    columns: dict[str, Any] = {**fixed, **lists}
    return Partitions(**columns)


def _packed(lists: ListColumn) -> tuple[Int32, Int32, Int32]:
    """Return (starts, lengths, values) with no more values than the lists have elements."""
    total = total_length(lists)
    if len(lists.values) <= total:
        return lists.starts, lists.lengths, lists.values
    ends = np.cumsum(lists.lengths, dtype=np.int64)
    return (ends - lists.lengths).astype(np.int32), lists.lengths, packed_values(lists)

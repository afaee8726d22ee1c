"""Arguments of ``ClusterState`` methods -> checked arrays: row selections, int32 columns, list columns.

All arguments are checked before the first column is written, so that a refused change leaves the state as it
was. Every refusal is an InvalidStateError that names column, row and reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from ctrlchan._codec import ListColumn
from ctrlchan.errors import InvalidStateError
from ctrlchan.state.lists import packed_values

__all__ = ["HIGHEST", "LOWEST", "IntValues", "Lists", "Rows", "as_int32", "as_lists", "as_rows", "count_rows"]

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]

#: One row, an int64 row array (or a bool flag for each row), a slice, or every row.
Rows: TypeAlias = (
    int | npt.NDArray[np.integer] | npt.NDArray[np.bool_] | Sequence[int] | slice | Literal["all"]
)
#: One value for all selected rows or one for each.
IntValues: TypeAlias = int | npt.NDArray[np.integer] | Sequence[int]
#: One list for all selected rows, a list for each, a 2-d array (a list for each) or a column.
Lists: TypeAlias = Sequence[int] | Sequence[Sequence[int]] | npt.NDArray[np.integer] | ListColumn

_INT32: Final = np.iinfo(np.int32)
#: The lowest value a state holds: leader -2 is LeaderDuringDelete, -1 no leader; an epoch of -1 is unknown.
LOWEST: Final[Mapping[str, int]] = {
    "partition": 0,
    "controller_epoch": -1,
    "leader": -2,
    "leader_epoch": -1,
    "partition_epoch": -1,
    "recovery_state": 0,
}
#: The highest value where it is not int32's: ``LeaderRecoveryState`` has 0 RECOVERED and 1 RECOVERING.
HIGHEST: Final[Mapping[str, int]] = {"recovery_state": 1}


def as_rows(rows: Rows, total: int) -> Int64 | slice:
    """Return the selection as an ascending slice of step 1 or an int64 array, inside ``0 .. total - 1``."""
    if isinstance(rows, str):
        if rows != "all":
            raise InvalidStateError(f'rows {rows!r}: a row, a selection of rows or "all"')
        return slice(0, total)
    if isinstance(rows, slice):
        start, stop, step = rows.indices(total)
        return slice(start, max(start, stop)) if step == 1 else np.arange(start, stop, step, dtype=np.int64)
    if isinstance(rows, (int, np.integer)):
        row = int(rows)
        if not 0 <= row < total:
            raise InvalidStateError(f"row {row} of a state with {total} rows")
        return slice(row, row + 1)
    given = np.asarray(rows)
    if given.ndim != 1 or (given.size and given.dtype.kind not in "iub"):
        raise InvalidStateError(
            f"rows must be a one-dimensional array of integers, not {given.ndim}-d {given.dtype}"
        )
    if given.dtype.kind == "b":
        if len(given) != total:
            raise InvalidStateError(f"{len(given)} row flags for a state with {total} rows")
        return np.flatnonzero(given)
    selected = given.astype(np.int64, copy=False)
    if len(selected):
        lowest, highest = int(selected.min()), int(selected.max())
        if lowest < 0 or highest >= total:
            raise InvalidStateError(f"row {lowest if lowest < 0 else highest} of a state with {total} rows")
    return selected


def count_rows(rows: Int64 | slice) -> int:
    """Return the number of rows of a selection that ``as_rows`` made."""
    return int(rows.stop - rows.start) if isinstance(rows, slice) else len(rows)


def as_columns(
    values: Mapping[str, Any], count: int
) -> tuple[dict[str, Int32 | np.int32], dict[str, ListColumn]]:
    """Return (int32 columns, list columns) by name for ``count`` rows."""
    fixed = {name: as_int32(name, value, count) for name, value in values.items() if name in LOWEST}
    lists = {name: as_lists(name, value, count) for name, value in values.items() if name not in LOWEST}
    return fixed, lists


def as_int32(name: str, values: IntValues, count: int) -> Int32 | np.int32:
    """Return the values of one int32 column for ``count`` rows."""
    lowest, highest = LOWEST[name], HIGHEST.get(name, _INT32.max)
    if isinstance(values, (int, np.integer)):
        if not lowest <= values <= highest:
            raise InvalidStateError(f"{name}: {values} is not in {lowest} .. {highest}")
        return np.int32(values)
    array = np.asarray(values)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise InvalidStateError(
            f"{name}: expected a value or a 1-d array of integers, not {array.ndim}-d {array.dtype}"
        )
    if len(array) != count:
        raise InvalidStateError(f"{name}: {len(array)} values for {count} rows")
    if count and (int(array.min()) < lowest or int(array.max()) > highest):
        at = int(np.flatnonzero((array < lowest) | (array > highest))[0])
        raise InvalidStateError(
            f"{name}: {array[at]} (number {at} of the selection) is not in {lowest} .. {highest}"
        )
    return array.astype(np.int32, copy=False)


def as_lists(name: str, lists: Lists, count: int) -> ListColumn:
    """Return the lists of one list column for ``count`` rows: as many, or a single one for all rows."""
    if isinstance(lists, ListColumn):
        column = lists
    elif isinstance(lists, np.ndarray):
        column = _from_array(name, lists)
    elif not len(lists) or isinstance(lists[0], (int, np.integer)):
        column = _from_array(name, np.asarray(lists))
    else:
        try:
            column = ListColumn.from_lists(cast("Sequence[Sequence[int]]", lists))
        except (TypeError, ValueError) as error:
            raise InvalidStateError(f"{name}: expected lists of integers ({error})") from error
        if len(column) != count:
            raise InvalidStateError(f"{name}: {len(column)} lists for {count} rows")
    if len(column) != count and (len(column) != 1 or isinstance(lists, ListColumn)):
        raise InvalidStateError(f"{name}: {len(column)} lists for {count} rows")
    ends = column.starts.astype(np.int64) + column.lengths
    if len(column) and (
        column.starts.min() < 0 or column.lengths.min() < 0 or int(ends.max()) > len(column.values)
    ):
        raise InvalidStateError(f"{name}: a list points outside its values")
    held = packed_values(column)
    if len(held) and held.min() < 0:
        raise InvalidStateError(f"{name}: a broker id below 0")
    return column


def _from_array(name: str, array: npt.NDArray[np.integer]) -> ListColumn:
    if array.ndim not in (1, 2) or (array.size and array.dtype.kind not in "iu"):
        raise InvalidStateError(
            f"{name}: expected integers, one list or a 2-d array, not {array.ndim}-d {array.dtype}"
        )
    if array.size and int(array.max()) > _INT32.max:
        raise InvalidStateError(f"{name}: {array.max()} does not fit int32")
    rows, width = array.shape if array.ndim == 2 else (1, len(array))
    values = np.ascontiguousarray(array, dtype=np.int32).reshape(-1)
    return ListColumn(
        np.arange(rows, dtype=np.int32) * np.int32(width), np.full(rows, width, np.int32), values
    )

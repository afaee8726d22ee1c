"""Single columns of an Arrow table -> arrays, without a copy where the memory layout is the same.

``columns_of`` finds the columns, ``require_…`` check their types, ``checked_…`` their values. An error of a
whole column is raised at once; bad rows are added to ``Problems``.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute

from ctrlchan._codec import ListColumn
from ctrlchan.errors import CtrlchanError
from ctrlchan.state.storage.problems import Problems, Source
from ctrlchan.state.values import HIGHEST, LOWEST
from ctrlchan.topic_names import ZERO_ID

__all__ = [
    "Array",
    "array_over",
    "checked_ids",
    "checked_ints",
    "checked_lists",
    "columns_of",
    "is_text",
    "null_flags",
    "require_ids",
    "require_ints",
    "require_lists",
    "rows_of_elements",
    "topic_dictionary",
    "view_of",
    "wrong_type",
]

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
UInt8 = npt.NDArray[np.uint8]
Bool = npt.NDArray[np.bool_]
#: Arrow's arrays and buffers, which differ in their ``type`` at run time, not in their class.
Array: TypeAlias = Any

#: Its functions accept and return arrays of any class; their type hints do not.
_compute: Any = pyarrow.compute
_INT32: Final = np.iinfo(np.int32)
_ID_SIZE: Final = len(ZERO_ID)


def columns_of(table: pa.Table | pa.RecordBatch, names: list[str], source: Source) -> dict[str, Array]:
    """Return one array for each name: a view of the column where it is a single chunk."""
    there = table.schema.names
    missing = [name for name in names if name not in there]
    if missing:
        raise source.fail(f"no column {', '.join(missing)} (columns: {', '.join(there) or 'none'})")
    twice = [name for name in names if there.count(name) > 1]
    if twice:
        raise source.fail(f"more than one column {', '.join(twice)}")
    columns: dict[str, Array] = {}
    for name in names:
        column: Array = table.column(name)
        if isinstance(column, pa.ChunkedArray):
            column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
        columns[name] = column
    return columns


# -- types


def wrong_type(source: Source, name: str, found: pa.DataType, expected: str) -> CtrlchanError:
    """Return the error for a column of another type."""
    return source.fail(f"column {name} has type {found}, expected {expected}")


def is_text(kind: pa.DataType) -> bool:
    """Return whether the type is string or large_string."""
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def require_ints(array: Array, name: str, source: Source) -> None:
    """Raise the source's error unless the column has an integer type."""
    if not pa.types.is_integer(array.type):
        raise wrong_type(source, name, array.type, "int32")


def require_ids(array: Array, name: str, source: Source) -> None:
    """Raise the source's error unless the column has bytes, 16 in each row where the width is fixed."""
    kind = array.type
    fixed = pa.types.is_fixed_size_binary(kind) and kind.byte_width == _ID_SIZE
    if not (fixed or pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
        raise wrong_type(source, name, kind, "fixed_size_binary[16]")


def require_lists(array: Array, name: str, source: Source) -> None:
    """Raise the source's error unless the column has lists of integers."""
    kind = array.type
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    if not (is_list and pa.types.is_integer(kind.value_type)):
        raise wrong_type(source, name, kind, "list<int32>")


def topic_dictionary(array: Array, name: str, source: Source) -> Array:
    """Return a dictionary<int32, string> of a text column, without null or duplicate entries."""
    is_dictionary = pa.types.is_dictionary(array.type)
    kind = array.type.value_type if is_dictionary else array.type
    if not (is_text(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
        raise wrong_type(source, name, array.type, "string")
    if is_dictionary and (
        array.dictionary.null_count or len(array.dictionary.unique()) < len(array.dictionary)
    ):
        array = array.dictionary_decode()
    if not pa.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    try:
        entries = array.dictionary.cast(pa.string())
    except pa.ArrowInvalid as error:
        raise source.fail(f"column {name} has a name that is not UTF-8") from error
    return pa.DictionaryArray.from_arrays(array.indices.cast(pa.int32()), entries)


# -- values


def null_flags(array: Array) -> Bool:
    """Return a flag for each row: whether it is null."""
    if not array.null_count:
        return np.zeros(len(array), dtype=bool)
    flags: Bool = array.is_null().to_numpy(zero_copy_only=False)
    return flags


def checked_ints(array: Array, name: str, problems: Problems) -> Int32:
    """Return int32 values in the column's range, without a copy when that is its type. No nulls allowed."""
    values: npt.NDArray[Any] = array.to_numpy(zero_copy_only=True)
    lowest, highest = LOWEST[name], HIGHEST.get(name, int(_INT32.max))
    if len(values) and (int(values.min()) < lowest or int(values.max()) > highest):
        problems.flag(
            (values < lowest) | (values > highest),
            lambda row: f"{name} {values[row]} is not in {lowest} .. {highest}",
        )
    return values.astype(np.int32, copy=False)


def checked_ids(array: Array, name: str, problems: Problems) -> UInt8:
    """Return uint8[n, 16], without a copy when the width is fixed. No nulls allowed."""
    if not pa.types.is_fixed_size_binary(array.type):
        lengths: Int64 = _compute.binary_length(array).to_numpy(zero_copy_only=False)
        wrong = lengths != _ID_SIZE
        if wrong.any():
            problems.flag(wrong, lambda row: f"{name} has {lengths[row]} bytes, not {_ID_SIZE}")
            return np.zeros((len(array), _ID_SIZE), np.uint8)
        array = array.cast(pa.binary(_ID_SIZE))
    data = view_of(array.buffers()[1], np.uint8)
    return data[array.offset * _ID_SIZE :][: len(array) * _ID_SIZE].reshape(len(array), _ID_SIZE)


def checked_lists(array: Array, name: str, problems: Problems) -> ListColumn:
    """Return lists of broker ids, without a copy when the elements are int32. No nulls allowed."""
    values: npt.NDArray[Any] = array.flatten().to_numpy(zero_copy_only=True)
    if len(values) and (int(values.min()) < 0 or int(values.max()) > _INT32.max):
        wrong = rows_of_elements(array, (values < 0) | (values > _INT32.max))
        problems.add(wrong, lambda row: f"{name} {array[row].as_py()} names no broker id")
    values = values.astype(np.int32, copy=False)
    if pa.types.is_fixed_size_list(array.type):
        width = array.type.list_size
        starts = np.arange(len(array), dtype=np.int32) * np.int32(width)
        return ListColumn(starts, np.full(len(array), width, np.int32), values)
    # The offsets of a sliced column do not begin at 0; its flattened values do.
    offsets: npt.NDArray[Any] = array.offsets.to_numpy(zero_copy_only=True)
    offsets = (offsets - offsets[0] if offsets[0] else offsets).astype(np.int32, copy=False)
    return ListColumn(offsets[:-1], np.diff(offsets), values)


def rows_of_elements(array: Array, flags: Bool) -> Int64:
    """Return the rows of flagged elements of a list column, each row once; flags as for ``flatten``."""
    if not flags.any():
        return np.empty(0, np.int64)
    lengths = _compute.fill_null(_compute.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    return np.unique(np.repeat(np.arange(len(array)), lengths)[flags])


# -- memory


def view_of(buffer: Array, dtype: type[Any]) -> npt.NDArray[Any]:
    """Return a read-only array over an Arrow buffer, which is None for an empty column."""
    return np.empty(0, dtype) if buffer is None else np.frombuffer(buffer, dtype)


def array_over(
    kind: pa.DataType, count: int, *arrays: npt.NDArray[Any], children: list[Array] | None = None
) -> Array:
    """Return an Arrow array without nulls over the memory of these arrays (offsets before data)."""
    given: list[Array] = [np.ascontiguousarray(array) for array in arrays]
    return pa.Array.from_buffers(kind, count, [None, *map(pa.py_buffer, given)], children=children)

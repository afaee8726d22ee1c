"""Arrow tables of partitions <-> columns.

``topic`` (string, dictionary or not), ``topic_id`` (16 bytes, zero when unknown), the int columns
``partition``, ``controller_epoch``, ``leader``, ``leader_epoch``, ``partition_epoch``, ``recovery_state`` and
the lists of ints ``isr``, ``replicas``, ``adding_replicas``, ``removing_replicas``, ``offline_replicas``.

All of these columns are required, others are ignored, and nothing may be null. int32 is used without a copy,
other integers when their values fit. Rows count from 0. A snapshot may also have ``row_version`` (int64): the
version of the state at which the row changed last.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ctrlchan._codec import ListColumn, Partitions, StringColumn, Topics
from ctrlchan.errors import InvalidStateError
from ctrlchan.state.lists import packed_values, take, total_length
from ctrlchan.state.rows import sort_keys
from ctrlchan.state.storage.arrow_columns import (
    Array,
    array_over,
    checked_ids,
    checked_ints,
    checked_lists,
    columns_of,
    null_flags,
    require_ids,
    require_ints,
    require_lists,
    rows_of_elements,
    topic_dictionary,
    view_of,
    wrong_type,
)
from ctrlchan.state.storage.problems import Describe, Problems, Source, always
from ctrlchan.state.storage.schemas import PARTITIONS, PARTITIONS_LATER, ROW_VERSION
from ctrlchan.state.table import make_partitions
from ctrlchan.state.topic_table import name_list
from ctrlchan.state.values import LOWEST
from ctrlchan.topic_names import id_to_text, invalid_names, why_invalid

__all__ = [
    "partitions_from_arrow",
    "partitions_to_arrow",
    "versions_from_arrow",
]

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
UInt8 = npt.NDArray[np.uint8]

_INT_COLUMNS: Final = tuple(LOWEST)
#: Column of the table -> column of ``Partitions``.
_LIST_COLUMNS: Final = {
    "isr": "isr",
    "replicas": "replicas",
    "adding_replicas": "adding",
    "removing_replicas": "removing",
    "offline_replicas": "offline",
}
#: The most values that Arrow's list type has offsets for.
_MAX_VALUES: Final = 2**31 - 1


def partitions_from_arrow(table: pa.Table | pa.RecordBatch, source: Source) -> tuple[Topics, Partitions]:
    """Return topics in the order of their name bytes, and rows sorted by (topic, partition).

    Raises the source's error for a column that is missing or of another type, and for bad rows: the first
    of them with their reasons, and their number.
    """
    columns = columns_of(table, PARTITIONS.names, source)
    topic = topic_dictionary(columns["topic"], "topic", source)
    require_ids(columns["topic_id"], "topic_id", source)
    for name in _INT_COLUMNS:
        require_ints(columns[name], name, source)
    for name in _LIST_COLUMNS:
        require_lists(columns[name], name, source)

    def name_of(row: int) -> str:
        return f"{topic[row].as_py()}-{columns['partition'][row].as_py()}"

    _report_nulls({**columns, "topic": topic}, source.problems(), name_of)
    problems = source.problems()
    fixed = {name: checked_ints(columns[name], name, problems) for name in _INT_COLUMNS}
    lists = {inner: checked_lists(columns[name], name, problems) for name, inner in _LIST_COLUMNS.items()}
    ids = checked_ids(columns["topic_id"], "topic_id", problems)
    names, rank = _sorted_names(topic)
    fixed["topic_row"] = rank[topic.indices.to_numpy(zero_copy_only=True)]
    wrong_names = invalid_names(names)
    if len(wrong_names):
        problems.flag(
            np.isin(fixed["topic_row"], wrong_names), lambda row: str(why_invalid(topic[row].as_py()))
        )
    keys = sort_keys(fixed["topic_row"], fixed["partition"])
    order = np.arange(len(keys))
    if (keys[1:] <= keys[:-1]).any():
        order = np.argsort(keys, kind="stable")
        _report_duplicates(keys[order], order, problems)
        ids = ids[order]
        fixed = {name: values[order] for name, values in fixed.items()}
        lists = {name: take(column, order) for name, column in lists.items()}
    topic_ids = _one_id_each(fixed["topic_row"], ids, order, len(names), problems)
    problems.raise_if_any(name_of)
    return Topics(names, topic_ids), make_partitions(fixed, lists)


def versions_from_arrow(table: pa.Table, newest: int, source: Source) -> Int64 | None:
    """Return the versions of the rows in the order of ``partitions_from_arrow``, None without such a column.

    Raises the source's error for a type other than int64, for nulls, and for values outside 0 .. ``newest``.
    """
    if ROW_VERSION not in table.column_names:
        return None
    columns = columns_of(table, ["topic", "partition", ROW_VERSION], source)
    if columns[ROW_VERSION].type != pa.int64():
        raise wrong_type(source, ROW_VERSION, columns[ROW_VERSION].type, "int64")
    problems = source.problems()
    problems.flag(null_flags(columns[ROW_VERSION]), always(f"{ROW_VERSION} is null"))
    versions: Int64 = columns[ROW_VERSION].fill_null(0).to_numpy(zero_copy_only=False).copy()
    problems.flag(
        (versions < 0) | (versions > newest),
        lambda row: f"{ROW_VERSION} {versions[row]} is not in 0 .. {newest}, the snapshot's state_version",
    )
    problems.raise_if_any(lambda row: f"{columns['topic'][row].as_py()}-{columns['partition'][row].as_py()}")
    topic = topic_dictionary(columns["topic"], "topic", source)
    rank = _sorted_names(topic)[1]
    keys = sort_keys(
        rank[topic.indices.to_numpy(zero_copy_only=True)],
        columns["partition"].to_numpy(zero_copy_only=True).astype(np.int32, copy=False),
    )
    if (keys[1:] <= keys[:-1]).any():
        versions = versions[np.argsort(keys, kind="stable")]
    return versions


def partitions_to_arrow(topics: Topics, partitions: Partitions, versions: Int64 | None = None) -> pa.Table:
    """Return a table of ``PARTITIONS``, without a copy where the memory layout is the same.

    ``versions``: int64, the column ``row_version``.
    """
    names = StringColumn.from_strings(name_list(topics.names))
    offsets = np.append(names.starts, np.int32(len(names.data)))
    entries = array_over(pa.string(), len(names), offsets, names.data)
    count = len(partitions)
    arrays: list[Array] = [
        pa.DictionaryArray.from_arrays(array_over(pa.int32(), count, partitions.topic_row), entries),
        array_over(pa.binary(16), count, topics.ids[partitions.topic_row]),
        *(array_over(pa.int32(), count, getattr(partitions, name)) for name in _INT_COLUMNS),
        *(_list_array(getattr(partitions, name)) for name in _LIST_COLUMNS.values()),
    ]
    fields = [field.with_type(array.type) for field, array in zip(PARTITIONS, arrays, strict=True)]
    if versions is not None:
        arrays.append(array_over(pa.int64(), count, versions))
        fields.append(PARTITIONS_LATER.field(ROW_VERSION))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def _list_array(lists: ListColumn) -> Array:
    total = total_length(lists)
    if total > _MAX_VALUES:
        raise InvalidStateError(f"a list column of Arrow holds at most {_MAX_VALUES:,} values, not {total:,}")
    offsets = np.zeros(len(lists) + 1, np.int32)
    np.cumsum(lists.lengths, out=offsets[1:])
    values = array_over(pa.int32(), total, packed_values(lists))
    return array_over(PARTITIONS.field("isr").type, len(lists), offsets, children=[values])


def _report_nulls(columns: dict[str, Array], problems: Problems, name_of: Describe) -> None:
    for name, array in columns.items():
        problems.flag(null_flags(array), always(f"{name} is null"))
        if name in _LIST_COLUMNS:
            rows = rows_of_elements(array, null_flags(array.flatten()))
            problems.add(rows, always(f"{name} has a null in it"))
    problems.raise_if_any(name_of)


def _sorted_names(topic: Array) -> tuple[StringColumn, Int32]:
    """Return (the names in use, in byte order; the place there of each entry of the dictionary)."""
    used = np.zeros(len(topic.dictionary), dtype=bool)
    used[topic.indices.to_numpy(zero_copy_only=True)] = True
    in_order: Int64 = pc.sort_indices(topic.dictionary).to_numpy().astype(np.int64)
    in_order = in_order[used[in_order]]
    rank = np.zeros(len(used), dtype=np.int32)
    rank[in_order] = np.arange(len(in_order), dtype=np.int32)
    ordered = topic.dictionary.take(pa.array(in_order))
    offsets = view_of(ordered.buffers()[1], np.int32)[: len(ordered) + 1]
    return StringColumn(offsets[:-1], np.diff(offsets), view_of(ordered.buffers()[2], np.uint8)), rank


def _report_duplicates(keys: Int64, order: Int64, problems: Problems) -> None:
    """Add rows whose key an earlier row has; sorted key i was row ``order[i]``."""
    again = np.flatnonzero(keys[1:] == keys[:-1]) + 1

    def reason(row: int) -> str:
        at = again[order[again] == row][0]
        return f"the same partition as {problems.place(int(order[np.searchsorted(keys, keys[at])]))}"

    problems.add(order[again], reason)


def _one_id_each(topic_row: Int32, ids: UInt8, order: Int64, topics: int, problems: Problems) -> UInt8:
    """Return the id of each topic; ``topic_row`` ascends, row i was row ``order[i]``."""
    first = np.searchsorted(topic_row, np.arange(topics, dtype=np.int32))
    words = ids.view(np.uint64)
    wrong = np.flatnonzero((words != words[first][topic_row]).any(axis=1))

    def reason(row: int) -> str:
        at = int(np.flatnonzero(order == row)[0])
        other = int(first[topic_row[at]])
        return (
            f"topic_id is {id_to_text(ids[at].tobytes())}, "
            f"but {id_to_text(ids[other].tobytes())} in {problems.place(int(order[other]))} of the same topic"
        )

    problems.add(order[wrong], reason)
    return ids[first]

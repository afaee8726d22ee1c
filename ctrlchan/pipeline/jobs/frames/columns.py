"""Arrow rows of partitions on an executor: split by receiver, and as the codec's columns.

Columns are those of ``ctrlchan.state.storage.schemas.PARTITIONS`` by name; a request needs only some of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ctrlchan._codec import ListColumn, Partitions, StringColumn, Topics
from ctrlchan.errors import SnapshotError
from ctrlchan.state.lists import empty_lists
from ctrlchan.state.storage.arrow_columns import (
    Array,
    null_flags,
    rows_of_elements,
    topic_dictionary,
    view_of,
)
from ctrlchan.state.storage.problems import Source

__all__ = [
    "FLAG_COLUMNS",
    "LEADER_AND_ISR_COLUMNS",
    "STOP_REPLICA_COLUMNS",
    "UPDATE_METADATA_COLUMNS",
    "WireRows",
    "by_receiver",
    "by_replica",
    "wire_rows",
]

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
UInt8 = npt.NDArray[np.uint8]

_PARTITION: Final = ("topic", "topic_id", "partition")
_EPOCHS: Final = ("controller_epoch", "leader", "leader_epoch", "partition_epoch")
_REASSIGNMENT: Final = ("adding_replicas", "removing_replicas")
#: Columns of each API's rows, in any of its versions.
LEADER_AND_ISR_COLUMNS: Final = (*_PARTITION, *_EPOCHS, "recovery_state", "isr", "replicas", *_REASSIGNMENT)
UPDATE_METADATA_COLUMNS: Final = (*_PARTITION, *_EPOCHS, "isr", "replicas", "offline_replicas")
STOP_REPLICA_COLUMNS: Final = (*_PARTITION, "leader_epoch")
#: Further columns of a difference: see ``schemas.DIFF_ROWS``.
FLAG_COLUMNS: Final = ("gone", "changed", "is_new", "delete")

#: Columns that have the same name in ``Partitions``.
_INTS: Final = ("partition", *_EPOCHS, "recovery_state")
#: Column of the table -> column of ``Partitions``.
_LISTS: Final = {
    "isr": "isr",
    "replicas": "replicas",
    "adding_replicas": "adding",
    "removing_replicas": "removing",
    "offline_replicas": "offline",
}
_ID_SIZE: Final = 16
_STEP_MASK: Final = 2**32 - 1


class WireRows(NamedTuple):
    """Rows in the order of the wire. Columns that the table does not have are zero or empty.

    ``flags``: the ``FLAG_COLUMNS`` that the table has, uint8[n].
    """

    topics: Topics
    partitions: Partitions
    flags: dict[str, UInt8]


# -- rows by receiver


def by_replica(
    batch: pa.RecordBatch, columns: Sequence[str], brokers: Int32
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield (broker, the rows that it has a replica of, in their order), ascending; only these ``brokers``.

    One stable sort of all replicas by broker, one ``take`` of all rows.
    """
    replicas = _list_column(batch.column("replicas"), "replicas")
    rows = np.repeat(np.arange(len(replicas)), replicas.lengths)
    ends = np.cumsum(replicas.lengths, dtype=np.int64)
    within = np.arange(len(rows)) - np.repeat(ends - replicas.lengths, replicas.lengths)
    receivers = replicas.values[np.repeat(replicas.starts, replicas.lengths) + within]
    order = np.argsort(receivers, kind="stable")
    receivers, rows = receivers[order], rows[order]
    # A broker that a list has twice has one replica.
    again = np.zeros(len(rows), dtype=bool)
    again[1:] = (receivers[1:] == receivers[:-1]) & (rows[1:] == rows[:-1])
    wanted = np.flatnonzero(np.isin(receivers, brokers) & ~again)
    receivers, rows = receivers[wanted], rows[wanted]
    yield from _runs(receivers, batch.select(list(columns)).take(_indices(rows)))


def by_receiver(batch: pa.RecordBatch, columns: Sequence[str]) -> Iterator[tuple[int, int, pa.RecordBatch]]:
    """Yield (broker, step, their rows in order), ascending, of a difference's rows with a receiver."""
    keys = (_ints(batch.column("broker")).astype(np.int64) << 32) + _ints(batch.column("step"))
    taken = batch.select(list(columns))
    if (keys[1:] < keys[:-1]).any():
        order = np.argsort(keys, kind="stable")
        keys, taken = keys[order], taken.take(_indices(order))
    for key, rows in _runs(keys, taken):
        yield key >> 32, key & _STEP_MASK, rows


def _runs(keys: npt.NDArray[Any], rows: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield each run of equal keys with its rows."""
    starts = np.flatnonzero(np.diff(keys, prepend=keys[:1] - 1))
    for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(keys)], strict=True):
        yield int(keys[start]), rows.slice(start, end - start)


# -- columns


def wire_rows(table: pa.Table, source: str) -> WireRows:
    """Return the rows ordered by topic name bytes, then ``gone`` last, then by partition.

    The columns are views of the table's memory if its rows have this order and its types fit; keep the table
    while they are used. Raises SnapshotError, naming ``source``, for a null, for a repeated partition and for
    columns of another type.
    """
    _refuse_nulls(table, source)
    topic = topic_dictionary(_array(table, "topic"), "topic", Source(source, SnapshotError))
    keys = _keys(table, topic)
    if (keys[1:] <= keys[:-1]).any():
        order = np.argsort(keys, kind="stable")
        _refuse_duplicates(keys[order], order, topic, table, source)
        table = table.take(_indices(order))
        topic = topic.take(_indices(order))
    index: Int32 = topic.indices.to_numpy(zero_copy_only=True)
    starts = np.flatnonzero(np.diff(index, prepend=-1))
    topic_row = np.zeros(len(index), np.int32)
    topic_row[starts[1:]] = 1
    np.cumsum(topic_row, out=topic_row)
    names = topic.dictionary.take(_indices(index[starts]))
    topics = Topics(_strings(names), _ids(_array(table, "topic_id"), starts, source))
    zeros = np.zeros(len(index), np.int32)
    columns: dict[str, Any] = {
        name: _ints(_array(table, name)) if name in table.column_names else zeros for name in _INTS
    }
    for name, inner in _LISTS.items():
        columns[inner] = _list_column(_array(table, name), name) if name in table.column_names else None
    for name in ("isr", "replicas"):
        if columns[name] is None:
            columns[name] = empty_lists(len(index))
    flags: dict[str, UInt8] = {
        name: _array(table, name).cast(pa.uint8()).to_numpy(zero_copy_only=False)
        for name in FLAG_COLUMNS
        if name in table.column_names
    }
    return WireRows(topics, Partitions(topic_row=topic_row, **columns), flags)


def _indices(rows: npt.NDArray[Any]) -> Array:
    return pa.array(rows)


def _array(table: pa.Table, name: str) -> Array:
    column = table.column(name)
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _keys(table: pa.Table, topic: Array) -> Int64:
    """Return int64 keys with the order of (topic, gone, partition)."""
    in_order: Int64 = pc.sort_indices(topic.dictionary).to_numpy().astype(np.int64)
    rank = np.empty(len(in_order), np.int64)
    rank[in_order] = np.arange(len(in_order))
    keys: Int64 = (rank[topic.indices.to_numpy(zero_copy_only=True)] << 32) + _ints(
        _array(table, "partition")
    )
    if "gone" in table.column_names:
        keys += _array(table, "gone").cast(pa.int64()).to_numpy(zero_copy_only=False) << 31
    return keys


def _refuse_nulls(table: pa.Table, source: str) -> None:
    for name in table.column_names:
        array = _array(table, name)
        flags = null_flags(array)
        if name in _LISTS and array.values.null_count:
            flags[rows_of_elements(array, null_flags(array.flatten()))] = True
        if flags.any():
            row = int(np.flatnonzero(flags)[0])
            raise SnapshotError(f"{source}: {name} of {_name(table, row)} is null, or has a null in it")


def _refuse_duplicates(keys: Int64, order: Int64, topic: Array, table: pa.Table, source: str) -> None:
    again = np.flatnonzero(keys[1:] == keys[:-1])
    if len(again):
        raise SnapshotError(
            f"{source}: {len(again):,} partitions occur more than once; "
            f"the first is {_name(table, int(order[again[0]]))}"
        )


def _name(table: pa.Table, row: int) -> str:
    return f"{table.column('topic')[row].as_py()}-{table.column('partition')[row].as_py()}"


def _ints(array: Array) -> Int32:
    values: npt.NDArray[Any] = array.to_numpy(zero_copy_only=True)
    return _aligned(values.astype(np.int32, copy=False))


def _list_column(array: Array, name: str) -> ListColumn:
    """Starts and lengths over the offsets, values as they lie (``flatten`` would copy)."""
    if not (pa.types.is_list(array.type) and pa.types.is_int32(array.type.value_type)):
        raise SnapshotError(f"column {name} has type {array.type}, expected list<int32>")
    count = len(array)
    if not count:
        return empty_lists(0)
    offsets = view_of(array.buffers()[1], np.int32)[array.offset : array.offset + count + 1]
    values: Int32 = array.values.to_numpy(zero_copy_only=True)
    return ListColumn(_aligned(offsets[:-1]), np.diff(offsets), _aligned(values))


def _strings(array: Array) -> StringColumn:
    count = len(array)
    if not count:
        return StringColumn.from_strings([])
    offsets = _aligned(view_of(array.buffers()[1], np.int32)[array.offset : array.offset + count + 1])
    data = array.buffers()[2]
    return StringColumn(
        offsets[:-1], np.diff(offsets), np.empty(0, np.uint8) if data is None else view_of(data, np.uint8)
    )


def _ids(array: Array, rows: Int64, source: str) -> UInt8:
    """Return the ids of these rows, uint8[len(rows), 16]."""
    try:
        chosen = array.take(_indices(rows)).cast(pa.binary(_ID_SIZE))
    except pa.ArrowInvalid as problem:
        raise SnapshotError(f"{source}: a topic_id has not {_ID_SIZE} bytes ({problem})") from problem
    if not len(chosen):
        return np.zeros((0, _ID_SIZE), np.uint8)
    data = view_of(chosen.buffers()[1], np.uint8)[chosen.offset * _ID_SIZE :]
    return data[: len(chosen) * _ID_SIZE].reshape(len(chosen), _ID_SIZE)


def _aligned(values: Int32) -> Int32:
    """Values in packed rows may lie at any address; the codec reads whole int32."""
    return np.require(values, requirements="A")

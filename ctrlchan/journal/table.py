"""Turns chunks of rows into an Arrow table in the schema of the journal."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic_ns, time_ns
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute
from numpy.typing import NDArray

from ctrlchan.journal.rows import NO_NUMBER, NO_TEXT, Chunk
from ctrlchan.state.storage.schemas import JOURNAL, TIMESTAMPS

__all__ = ["names_of", "table_of", "wall_offset"]

#: In a microsecond.
_NANOSECONDS: Final = 1_000
_NO_CORRELATION: Final = -1
_NO_GENERATION: Final = 0

#: Its type hints do not allow arrays of any class, which its functions take and return.
_compute: Any = pyarrow.compute


def wall_offset() -> int:
    """Return the nanoseconds to add to the monotonic clock for wall time."""
    before = monotonic_ns()
    wall = time_ns()
    return wall - (before + monotonic_ns()) // 2


def table_of(chunks: Sequence[Chunk], host: str, offset: int) -> pa.Table:
    """Return one row for each row of the chunks. ``offset``: ``wall_offset`` at about their time."""
    return pa.concat_tables([_table_of(chunk, host, offset) for chunk in chunks])


def names_of(texts: pa.Array[Any]) -> pa.Array[Any]:
    """Split texts at commas into lists of names; an empty text becomes an empty list."""
    names: pa.Array[Any] = _compute.split_pattern(texts, ",")
    none = _compute.equal(texts, "")
    if _compute.any(none).as_py():
        empty = pa.scalar([], names.type)
        names = _compute.if_else(none, empty, names)
    return names


def _table_of(chunk: Chunk, host: str, offset: int) -> pa.Table:
    rows, count = chunk.rows, len(chunk.rows)
    texts = pa.array(chunk.texts, pa.string())

    def whole(field: str) -> NDArray[Any]:
        return np.ascontiguousarray(rows[field])

    def nullable(field: str, null: int) -> pa.Array[Any]:
        values = whole(field)
        array: pa.Array[Any] = pa.array(values, mask=values == null)
        return array

    def text(field: str) -> pa.Array[Any]:
        array: pa.Array[Any] = texts.take(nullable(field, NO_TEXT))
        return array

    columns: dict[str, pa.Array[Any]] = {
        "channel": pa.repeat(chunk.channel, count),
        "sequence": pa.array(np.arange(chunk.sequence, chunk.sequence + count, dtype=np.int64)),
        "host": pa.repeat(host, count),
        "controller_id": pa.repeat(pa.scalar(chunk.controller_id, pa.int32()), count),
        "broker_epoch": nullable("broker_epoch", NO_NUMBER),
        "state_version": nullable("state_version", NO_NUMBER),
        "generation": nullable("generation", _NO_GENERATION),
        "state_id": text("state_id"),
        "from_version": nullable("from_version", NO_NUMBER),
        "partitions": names_of(text("partitions")),
        "dataset": text("dataset"),
        "frame": nullable("frame", NO_NUMBER),
        "correlation_id": nullable("correlation_id", _NO_CORRELATION),
        "encoding_ns": pa.array(whole("encoding"), mask=rows["encoded"] == 0),
        "outcome": texts.take(pa.array(whole("kind"))),
        "detail": texts.take(pa.array(whole("detail"))),
    }
    for name, field in TIMESTAMPS.items():
        timestamps = whole(field)
        never = timestamps == 0
        columns[f"{name}_ns"] = pa.array(timestamps, mask=never)
        columns[f"{name}_at"] = pa.array((timestamps + offset) // _NANOSECONDS, mask=never)
    arrays = []
    for name, arrow_type in zip(JOURNAL.names, JOURNAL.types, strict=True):
        column = columns.get(name)
        arrays.append((pa.array(whole(name)) if column is None else column).cast(arrow_type))
    return pa.Table.from_arrays(arrays, schema=JOURNAL)

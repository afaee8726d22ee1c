"""Chunks of rows -> one Arrow table in the schema of the journal."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic_ns, time_ns
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute
from numpy.typing import NDArray

from ctrlchan.journal.rows import NOT_KNOWN, NOT_SAID, Chunk
from ctrlchan.state.storage.schemas import JOURNAL, MOMENTS

__all__ = ["names_of", "table_of", "wall_offset"]

#: In a microsecond.
_NANOSECONDS: Final = 1_000
_NO_CORRELATION: Final = -1
_NO_GENERATION: Final = 0

#: Its functions take and give arrays of any class, which their type hints do not say.
_compute: Any = pyarrow.compute


def wall_offset() -> int:
    """What to add to the monotonic clock for wall time, nanoseconds."""
    before = monotonic_ns()
    wall = time_ns()
    return wall - (before + monotonic_ns()) // 2


def table_of(chunks: Sequence[Chunk], host: str, offset: int) -> pa.Table:
    """One row for each of theirs. ``offset``: ``wall_offset``, taken at about the time of the rows."""
    return pa.concat_tables([_table_of(chunk, host, offset) for chunk in chunks])


def names_of(texts: pa.Array[Any]) -> pa.Array[Any]:
    """Lists of the names in texts with commas between them; no name in an empty text."""
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

    def said(field: str) -> pa.Array[Any]:
        array: pa.Array[Any] = texts.take(nullable(field, NOT_SAID))
        return array

    columns: dict[str, pa.Array[Any]] = {
        "channel": pa.repeat(chunk.channel, count),
        "sequence": pa.array(np.arange(chunk.sequence, chunk.sequence + count, dtype=np.int64)),
        "host": pa.repeat(host, count),
        "controller_id": pa.repeat(pa.scalar(chunk.controller_id, pa.int32()), count),
        "broker_epoch": nullable("broker_epoch", NOT_KNOWN),
        "state_version": nullable("state_version", NOT_KNOWN),
        "generation": nullable("generation", _NO_GENERATION),
        "state_id": said("state_id"),
        "from_version": nullable("from_version", NOT_KNOWN),
        "partitions": names_of(said("partitions")),
        "dataset": said("dataset"),
        "frame": nullable("frame", NOT_KNOWN),
        "correlation_id": nullable("correlation_id", _NO_CORRELATION),
        "encoding_ns": pa.array(whole("encoding"), mask=rows["encoded"] == 0),
        "outcome": texts.take(pa.array(whole("kind"))),
        "detail": texts.take(pa.array(whole("detail"))),
    }
    for name, field in MOMENTS.items():
        moments = whole(field)
        never = moments == 0
        columns[f"{name}_ns"] = pa.array(moments, mask=never)
        columns[f"{name}_at"] = pa.array((moments + offset) // _NANOSECONDS, mask=never)
    arrays = []
    for name, arrow_type in zip(JOURNAL.names, JOURNAL.types, strict=True):
        column = columns.get(name)
        arrays.append((pa.array(whole(name)) if column is None else column).cast(arrow_type))
    return pa.Table.from_arrays(arrays, schema=JOURNAL)

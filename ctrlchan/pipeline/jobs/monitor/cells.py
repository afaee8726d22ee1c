"""Sums over rows of a journal: in Spark over a batch, in Arrow over batches.

A cell is all that ended in one way: broker, api, outcome, error_code, and at, the beginning of ``STEP``
seconds of wall time (``EVER``: of all time). What a cell holds can be added up, except ``last_at``, of which
the latest counts.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users call it

from ctrlchan.channel.observability.counters import EDGES

__all__ = ["CELLS", "EVER", "HISTOGRAM", "JOURNAL_COLUMNS", "STEP", "added", "cells_of", "no_cells", "since"]

#: Seconds; the grain of rolling windows.
STEP: Final = 10
#: ``at`` of sums over all time.
EVER: Final = -1
_NANOSECONDS: Final = 1e9

#: Requests by the time from ``enqueue`` to their end, one column for each of EDGES and one for the rest.
HISTOGRAM: Final = [f"up_to_{round(edge * 1e6)}_us" for edge in EDGES] + ["longer"]

_KEYS: Final = ["broker", "api", "outcome", "error_code", "at"]
_SUMS: Final = ["requests", "bytes", "attempts", "repeated", "seconds", *HISTOGRAM]
#: What is read of a journal.
JOURNAL_COLUMNS: Final = [
    "channel",
    "sequence",
    "broker",
    "api",
    "outcome",
    "error_code",
    "bytes",
    "attempts",
    "enqueue_ns",
    "end_ns",
    "end_at",
]

_TYPES: Final[list[pa.Field[Any]]] = [
    pa.field("broker", pa.int32()),
    pa.field("api", pa.int16()),
    pa.field("outcome", pa.string()),
    pa.field("error_code", pa.int16()),
    # Seconds since 1970.
    pa.field("at", pa.int64()),
    *(pa.field(name, pa.float64() if name == "seconds" else pa.int64()) for name in _SUMS),
    # Microseconds since 1970.
    pa.field("last_at", pa.int64()),
]
CELLS: Final = pa.schema(_TYPES)


def cells_of(journal: DataFrame, begin: float) -> pa.Table:
    """Rows of a journal -> CELLS. What ended before ``begin`` (seconds since 1970) is put together as EVER,
    the rest stands in steps and not in EVER."""
    seconds = (F.col("end_ns") - F.col("enqueue_ns")) / _NANOSECONDS
    ended = F.unix_micros("end_at")
    step = (F.floor(ended / (STEP * 1_000_000)) * STEP).cast("long")
    sums = [
        F.count("*").alias("requests"),
        F.sum("bytes").alias("bytes"),
        F.sum(F.col("attempts").cast("long")).alias("attempts"),
        F.count_if(F.col("attempts") > 1).alias("repeated"),
        F.sum(F.coalesce(seconds, F.lit(0.0))).alias("seconds"),
        *(
            F.count_if(condition).alias(name)
            for name, condition in zip(HISTOGRAM, _between(seconds), strict=True)
        ),
        F.max(ended).alias("last_at"),
    ]
    at = F.when(step >= begin, step).otherwise(F.lit(EVER)).alias("at")
    found = journal.groupBy("broker", "api", "outcome", "error_code", at).agg(*sums)
    return found.select(CELLS.names).toArrow().cast(CELLS)


def _between(seconds: Column) -> list[Column]:
    """Conditions, one for each column of HISTOGRAM; a request without both times is in none."""
    ends = [*EDGES, float("inf")]
    return [
        (seconds > (ends[place - 1] if place else float("-inf"))) & (seconds <= end)
        for place, end in enumerate(ends)
    ]


def no_cells() -> pa.Table:
    return CELLS.empty_table()


def added(*cells: pa.Table) -> pa.Table:
    """All of these together, one row for each key."""
    together = pa.concat_tables(cells)
    if not together.num_rows:
        return no_cells()
    how: list[Any] = [*((name, "sum") for name in _SUMS), ("last_at", "max")]
    grouped = together.group_by(_KEYS).aggregate(how)
    names = [*_KEYS, *_SUMS, "last_at"]
    columns = [grouped.column(name if name in _KEYS else f"{name}_{_how(name)}") for name in names]
    return pa.table(columns, names=names).select(CELLS.names).cast(CELLS)


def _how(name: str) -> str:
    return "max" if name == "last_at" else "sum"


def since(cells: pa.Table, begin: float) -> pa.Table:
    """The steps that begin no earlier."""
    return cells.filter((pc.field("at") != EVER) & (pc.field("at") >= begin))

"""Sums rows of a journal: in Spark over a batch, in Arrow over batches.

A row of AGGREGATES stands for all requests with one broker, api, outcome, error_code and at, the beginning of
``STEP`` seconds of wall time (``EVER``: all time). The other columns can be added up, except ``last_at``, of
which the maximum counts.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users call it

from ctrlchan.channel.observability.counters import EDGES
from ctrlchan.pipeline.jobs.monitor.config import STEP

__all__ = [
    "AGGREGATES",
    "EVER",
    "HISTOGRAM",
    "JOURNAL_COLUMNS",
    "added",
    "aggregates_of",
    "no_aggregates",
    "since",
]

#: ``at`` of sums over all time.
EVER: Final = -1
_NANOSECONDS: Final = 1e9

#: Columns that count requests by the time from ``enqueue`` to the end: one for each of EDGES, and the rest.
HISTOGRAM: Final = [f"up_to_{round(edge * 1e6)}_us" for edge in EDGES] + ["longer"]

_KEYS: Final = ["broker", "api", "outcome", "error_code", "at"]
_SUMS: Final = ["requests", "bytes", "attempts", "repeated", "seconds", *HISTOGRAM]
#: The columns that are read from a journal.
JOURNAL_COLUMNS: Final = [
    *("channel", "sequence", "broker", "api", "outcome", "error_code"),
    *("bytes", "attempts", "enqueue_ns", "end_ns", "end_at"),
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
AGGREGATES: Final = pa.schema(_TYPES)


def aggregates_of(journal: DataFrame, begin: float) -> pa.Table:
    """Return AGGREGATES of journal rows.

    Requests that ended before ``begin`` (seconds since 1970) count as EVER, the others in their steps only.
    """
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
    return found.select(AGGREGATES.names).toArrow().cast(AGGREGATES)


def _between(seconds: Column) -> list[Column]:
    """Return a condition for each column of HISTOGRAM; all are false for a request without both times."""
    ends = [*EDGES, float("inf")]
    return [
        (seconds > (ends[place - 1] if place else float("-inf"))) & (seconds <= end)
        for place, end in enumerate(ends)
    ]


def no_aggregates() -> pa.Table:
    """Return an empty table of AGGREGATES."""
    return AGGREGATES.empty_table()


def added(*tables: pa.Table) -> pa.Table:
    """Add tables of AGGREGATES up, to one row for each key."""
    together = pa.concat_tables(tables)
    if not together.num_rows:
        return no_aggregates()
    functions: dict[str, Any] = {**dict.fromkeys(_SUMS, "sum"), "last_at": "max"}
    grouped = together.group_by(_KEYS).aggregate(list(functions.items()))
    columns = {name: grouped.column(name) for name in _KEYS}
    columns |= {name: grouped.column(f"{name}_{function}") for name, function in functions.items()}
    return pa.table(columns).select(AGGREGATES.names).cast(AGGREGATES)


def since(aggregates: pa.Table, begin: float) -> pa.Table:
    """Return the steps that begin at ``begin`` or later."""
    return aggregates.filter((pc.field("at") != EVER) & (pc.field("at") >= begin))

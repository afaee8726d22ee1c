"""Counts, times and errors per broker and API, and how they went over time: aggregates of a journal.

``cells`` is everything that can be added up, read in one scan and small: the rest is made of it. Percentiles
cannot be added up; they are a scan of their own, of other columns.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users call it

from ctrlchan.errors import ErrorCode
from ctrlchan.protocol import API_NAMES

__all__ = [
    "ACCURACY",
    "TIMES",
    "api_name",
    "bucket_of",
    "cells_of",
    "channels_of",
    "errors_of",
    "figures_of",
    "series_of",
]

#: Spark's ``percentile_approx``: a rank is off by at most this share of the rows of a broker and API, and by
#: nothing while they are no more than the inverse.
ACCURACY: Final = 10_000
_SHARES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}

#: What is measured -> (its beginning, its end), columns of the journal. ``encode``: a column of its own.
_SPANS: Final = {
    "queue": ("enqueue_ns", "first_byte_ns"),
    "send": ("first_byte_ns", "last_byte_ns"),
    "remote": ("last_byte_ns", "response_ns"),
    "total": ("enqueue_ns", "end_ns"),
}
TIMES: Final = ("encode", *_SPANS)

#: Seconds that a point of a time series may stand for, and how many points there may be.
_BUCKETS: Final = (1, 5, 15, 60, 300, 900, 3_600, 21_600, 86_400, 604_800)
_MOST_BUCKETS: Final = 120


def bucket_of(seconds: float) -> int:
    """The shortest bucket, in seconds, of which a range so long has no more than can be shown."""
    return next((bucket for bucket in _BUCKETS if seconds <= bucket * _MOST_BUCKETS), _BUCKETS[-1])


def cells_of(journal: DataFrame, bucket: int) -> DataFrame:
    """One row for each (channel, broker, api, outcome, error_code, at) with sums; ``at``: the beginning of
    the
    ``bucket`` (seconds) in which requests have ended."""
    at = F.window("end_at", f"{bucket} seconds")["start"]
    return journal.groupBy("channel", "broker", "api", "outcome", "error_code", at.alias("at")).agg(
        F.count("*").alias("requests"),
        F.sum("bytes").alias("bytes"),
        F.sum("rows").alias("rows"),
        F.sum("attempts").alias("attempts"),
        F.max("attempts").alias("most_attempts"),
        F.sum(F.when(F.col("merged") > 1, 1).otherwise(0)).alias("merged"),
        F.sum(_span("total")).alias("total_ns"),
        F.max(_span("total")).alias("longest_ns"),
        F.max("sequence").alias("last_sequence"),
        F.min("end_at").alias("first_at"),
        F.max("end_at").alias("last_at"),
        F.max_by("detail", "end_at").alias("detail"),
        F.min("controller_epoch").alias("lowest_epoch"),
        F.max("controller_epoch").alias("highest_epoch"),
    )


def figures_of(journal: DataFrame, cells: DataFrame) -> DataFrame:
    """One row for each broker and API: what was sent, how it ended, and milliseconds as percentiles.

    ``queue``: from being given to the channel to the first byte of the last attempt, ``send``: to its last
    byte,
    ``remote``: to the whole response; ``total``: until the outcome was known, also where none came.
    """

    def of(condition: Column) -> Column:
        return F.sum(F.when(condition, F.col("requests")).otherwise(0))

    counts = cells.groupBy("broker", "api").agg(
        F.sum("requests").alias("requests"),
        of(F.col("outcome") == "acknowledged").alias("acknowledged"),
        of(F.col("outcome") != "acknowledged").alias("failed"),
        of(F.col("error_code") == ErrorCode.STALE_CONTROLLER_EPOCH.value).alias("stale_controller_epoch"),
        of(F.col("error_code") == ErrorCode.STALE_BROKER_EPOCH.value).alias("stale_broker_epoch"),
        of(F.col("outcome") == "fenced").alias("fenced"),
        F.sum("merged").alias("merged"),
        F.sum("bytes").alias("bytes"),
        F.sum("rows").alias("rows"),
        F.sum("attempts").alias("attempts"),
        F.max("most_attempts").alias("most_attempts"),
        F.min("first_at").alias("first_at"),
        F.max("last_at").alias("last_at"),
    )
    shares = list(_SHARES.values())
    spans = journal.select("broker", "api", *(_span(name).alias(name) for name in TIMES))
    times = spans.groupBy("broker", "api").agg(
        *(F.percentile_approx(name, shares, ACCURACY).alias(name) for name in TIMES),
        *(F.max(name).alias(f"{name}_longest") for name in TIMES),
    )
    milliseconds = [
        column
        for name in TIMES
        for column in (
            *((F.col(name)[at] / 1e6).alias(f"{name}_{share}_ms") for at, share in enumerate(_SHARES)),
            (F.col(f"{name}_longest") / 1e6).alias(f"{name}_max_ms"),
        )
    ]
    joined = counts.join(times.select("broker", "api", *milliseconds), ["broker", "api"])
    return joined.withColumn("api_name", api_name()).orderBy("broker", "api")


def errors_of(cells: DataFrame) -> DataFrame:
    """One row for each broker, API, outcome and error code: how many, when first and last, the last's
    words."""
    codes = {code.value: code.name for code in ErrorCode}
    name = F.create_map(*[F.lit(one) for pair in codes.items() for one in pair])[
        F.col("error_code").cast("int")
    ]
    return (
        cells.groupBy("broker", "api", "outcome", "error_code")
        .agg(
            F.sum("requests").alias("requests"),
            F.min("first_at").alias("first_at"),
            F.max("last_at").alias("last_at"),
            F.max_by("detail", "last_at").alias("detail"),
        )
        .withColumn("api_name", api_name())
        .withColumn("error", F.coalesce(name, F.col("error_code").cast("string")))
        .orderBy("broker", "api", "outcome", "error_code")
    )


def series_of(cells: DataFrame) -> DataFrame:
    """One row for each broker and bucket: requests, failures, bytes, mean and longest time to the outcome."""
    return (
        cells.groupBy("at", "broker")
        .agg(
            F.sum("requests").alias("requests"),
            F.sum(F.when(F.col("outcome") != "acknowledged", F.col("requests")).otherwise(0)).alias("failed"),
            F.sum("bytes").alias("bytes"),
            (F.sum("total_ns") / F.sum("requests") / 1e6).alias("mean_ms"),
            (F.max("longest_ns") / 1e6).alias("longest_ms"),
        )
        .orderBy("at", "broker")
    )


def channels_of(cells: DataFrame, views: DataFrame) -> DataFrame:
    """One row for each channel: its controller epochs, from when to when, and whether all of it is there.

    ``lost``: outcomes that never came into the journal, as far as that can be told (numbers that are
    missing);
    ``closed``: null where the journal does not say.
    """
    rows = cells.groupBy("channel").agg(
        F.sum("requests").alias("requests"),
        F.max("last_sequence").alias("last_sequence"),
        F.min("first_at").alias("first_at"),
        F.max("last_at").alias("last_at"),
        F.min("lowest_epoch").alias("lowest_epoch"),
        F.max("highest_epoch").alias("highest_epoch"),
    )
    seen = views.groupBy("channel").agg(
        F.first("host").alias("host"),
        F.first("controller_id").alias("controller_id"),
        F.max("outcomes").alias("outcomes"),
        F.bool_and("closed").alias("closed"),
        F.max("seen_at").alias("seen_at"),
    )
    expected = F.greatest(F.col("last_sequence") + 1, F.col("outcomes"))
    return (
        rows.join(seen, "channel", "full")
        .withColumn("lost", F.coalesce(expected, F.lit(0)) - F.coalesce("requests", F.lit(0)))
        .drop("last_sequence", "outcomes")
        .orderBy("first_at", "channel")
    )


def _span(name: str) -> Column:
    if name == "encode":
        return F.col("encoding_ns")
    begin, end = _SPANS[name]
    return F.col(end) - F.col(begin)


def api_name() -> Column:
    """Of column ``api``, in words."""
    names = F.create_map(*[F.lit(one) for pair in API_NAMES.items() for one in pair])
    return F.coalesce(names[F.col("api").cast("int")], F.col("api").cast("string"))

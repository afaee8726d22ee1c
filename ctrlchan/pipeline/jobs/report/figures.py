"""Aggregates a journal: counts, times and errors by broker and API, and over time.

All that can be added up is read in one scan into a small table, ``sums``; other tables are made from it.
Percentiles cannot be added up; they need a second scan, of other columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users call it

from ctrlchan.errors import ErrorCode
from ctrlchan.protocol import API_NAMES

__all__ = [
    "ACCURACY",
    "api_name",
    "bucket_of",
    "channels_of",
    "errors_of",
    "figures_of",
    "series_of",
    "sums_of",
]

#: Accuracy of Spark's ``percentile_approx``: percentiles of a broker and API are exact up to this number of
#: requests; beyond that the rank is off by at most one in this number.
ACCURACY: Final = 10_000
_SHARES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}

#: Name of a time -> columns of the journal for its begin and end. ``encode`` has a column of its own,
#: ``unanswered`` is the total of requests without a response.
_SPANS: Final = {
    "queue": ("enqueue_ns", "first_byte_ns"),
    "send": ("first_byte_ns", "last_byte_ns"),
    "remote": ("last_byte_ns", "response_ns"),
    "total": ("enqueue_ns", "end_ns"),
}
_TIMES: Final = ("encode", *_SPANS, "unanswered")

#: Lengths of a bucket of the time series in seconds, and the number of buckets at most.
_BUCKETS: Final = (1, 5, 15, 60, 300, 900, 3_600, 21_600, 86_400, 604_800)
_MOST_BUCKETS: Final = 120


def bucket_of(seconds: float) -> int:
    """Return the shortest bucket, in seconds, that divides a time of ``seconds`` into few enough buckets."""
    return next((bucket for bucket in _BUCKETS if seconds <= bucket * _MOST_BUCKETS), _BUCKETS[-1])


def sums_of(journal: DataFrame, bucket: int) -> DataFrame:
    """Return sums, one row for each (channel, broker, api, outcome, error_code, at).

    ``at``: the beginning of the ``bucket`` (seconds) in which the requests ended.
    """
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


def figures_of(journal: DataFrame, sums: DataFrame) -> DataFrame:
    """Return one row for each broker and API: counts, and percentiles of times in milliseconds.

    ``queue``: from ``enqueue`` to the first byte of the last attempt; ``send``: to its last byte; ``remote``:
    to the whole response; ``total``: from ``enqueue`` to the outcome, also without a response;
    ``unanswered``: the total of the ``without_response`` requests, as those whose connections were refused.
    """

    def of(condition: Column) -> Column:
        return F.sum(F.when(condition, F.col("requests")).otherwise(0))

    counts = sums.groupBy("broker", "api").agg(
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
    spans = journal.select("broker", "api", *(_span(name).alias(name) for name in _TIMES))
    times = spans.groupBy("broker", "api").agg(
        *(F.percentile_approx(name, shares, ACCURACY).alias(name) for name in _TIMES),
        *(F.max(name).alias(f"{name}_longest") for name in _TIMES),
        F.count("unanswered").alias("without_response"),
    )
    milliseconds = [
        column
        for name in _TIMES
        for column in (
            *((F.col(name)[at] / 1e6).alias(f"{name}_{share}_ms") for at, share in enumerate(_SHARES)),
            (F.col(f"{name}_longest") / 1e6).alias(f"{name}_max_ms"),
        )
    ]
    joined = counts.join(times.select("broker", "api", "without_response", *milliseconds), ["broker", "api"])
    return joined.withColumn("api_name", api_name()).orderBy("broker", "api")


def errors_of(sums: DataFrame) -> DataFrame:
    """Return one row for each broker, API, outcome and error code: number, times, last detail."""
    codes = {code.value: code.name for code in ErrorCode}
    return (
        sums.groupBy("broker", "api", "outcome", "error_code")
        .agg(
            F.sum("requests").alias("requests"),
            F.min("first_at").alias("first_at"),
            F.max("last_at").alias("last_at"),
            F.max_by("detail", "last_at").alias("detail"),
        )
        .withColumn("api_name", api_name())
        .withColumn("error", _looked_up("error_code", codes))
        .orderBy("broker", "api", "outcome", "error_code")
    )


def series_of(sums: DataFrame) -> DataFrame:
    """Return one row for each broker and bucket: requests, failures, bytes, mean and longest total time."""
    return (
        sums.groupBy("at", "broker")
        .agg(
            F.sum("requests").alias("requests"),
            F.sum(F.when(F.col("outcome") != "acknowledged", F.col("requests")).otherwise(0)).alias("failed"),
            F.sum("bytes").alias("bytes"),
            (F.sum("total_ns") / F.sum("requests") / 1e6).alias("mean_ms"),
            (F.max("longest_ns") / 1e6).alias("longest_ms"),
        )
        .orderBy("at", "broker")
    )


def channels_of(sums: DataFrame, connections: DataFrame) -> DataFrame:
    """Return one row for each channel: its controller epochs, first and last time, and lost outcomes.

    ``lost``: outcomes that are missing in the journal, by their sequence numbers; ``closed``: null where the
    journal has no file of the channel.
    """
    rows = sums.groupBy("channel").agg(
        F.sum("requests").alias("requests"),
        F.max("last_sequence").alias("last_sequence"),
        F.min("first_at").alias("first_at"),
        F.max("last_at").alias("last_at"),
        F.min("lowest_epoch").alias("lowest_epoch"),
        F.max("highest_epoch").alias("highest_epoch"),
    )
    seen = connections.groupBy("channel").agg(
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
    """Return a time in nanoseconds."""
    if name == "encode":
        return F.col("encoding_ns")
    if name == "unanswered":
        return F.when(F.col("response_ns").isNull(), _span("total"))
    begin, end = _SPANS[name]
    return F.col(end) - F.col(begin)


def api_name() -> Column:
    """Return the name of column ``api``."""
    return _looked_up("api", API_NAMES)


def _looked_up(column: str, names: Mapping[int, str]) -> Column:
    """Return the name of a code, or the code as text."""
    table = F.create_map(*[F.lit(one) for pair in names.items() for one in pair])
    return F.coalesce(table[F.col(column).cast("int")], F.col(column).cast("string"))

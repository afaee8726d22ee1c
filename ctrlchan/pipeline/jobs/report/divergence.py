"""Finds which brokers hold stale metadata, of which partitions, since when and why.

A row of a snapshot has the version that changed it last. A broker has that version of the row when its
current process has acknowledged an UpdateMetadata of that version or a later one that contained the row: by
name, or by a range (from_version, state_version] of which it contained all changes. The ranges leave few
gaps, and only rows with a version in a gap are compared one by one.

An acknowledgement counts until the broker's process restarts (``acknowledged.py``), also when later requests
fail. A result is uncertain when requests without a list of their contents were acknowledged, outcomes were
lost, channels have not closed, or the broker obeys another controller.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users call it

from ctrlchan.pipeline.jobs.report.acknowledged import (
    NOTHING,
    Acknowledged,
    JournalTables,
    Keep,
    acknowledged_of,
)
from ctrlchan.pipeline.spark.tables import Snapshot
from ctrlchan.state import NO_LEADERSHIP
from ctrlchan.state.storage.schemas import ROW_VERSION

__all__ = ["Divergence", "Lineage", "divergence_of", "with_counts"]

#: Failed requests with a range that are kept for each broker as possible reasons, the last ones.
_MOST_RANGES: Final = 20
_NAME: Final = r"^(.*)-(\d+)$"
_PARTITION: Final = ["broker", "topic", "partition"]


@dataclass(frozen=True, slots=True)
class Lineage:
    """The state to compare with: its id, its newest version, and the version of its live brokers."""

    state_id: str
    version: int
    brokers_version: int


@dataclass(frozen=True, slots=True)
class Divergence:
    """The partitions that are stale or may be, and the brokers.

    ``partitions``, one row for each (broker, topic, partition):

    row_version                  the version of the row in the snapshot
    acknowledged_version         the last that the broker has acknowledged by name; null: none
    reason                       "waiting", the outcome of the failed request, "restarted", "no request",
                                 "another controller", "not listed", "not sent"
    error_code, detail, attempts of the request that failed or waits
    since, last_at               when the first such request was queued, when the last ended or was seen
    certain                      false: the broker may have the row

    ``brokers``: one row each: ``Acknowledged.brokers``, known_version, live_brokers_stale.
    """

    partitions: DataFrame
    brokers: DataFrame


def divergence_of(
    tables: JournalTables, lineage: Lineage, snapshot: Snapshot | None, keep: Keep
) -> Divergence:
    """Return the stale partitions; without a snapshot only those that failed or waiting requests name."""
    live = None if snapshot is None else snapshot.brokers
    found = acknowledged_of(tables, lineage.state_id, live, keep)
    missed = _missed(found)
    gaps = keep(_gaps(found, lineage.version))
    if snapshot is None:
        candidates = _candidates_of_names(missed, found.ranges)
    else:
        candidates = _candidates_of_rows(snapshot.partitions, gaps)
    named = _newest_by_name(found.acknowledged, "acknowledged_version")
    stale = candidates.join(named, ["broker", "name"], "left").where(
        F.col("acknowledged_version").isNull() | (F.col("acknowledged_version") < F.col(ROW_VERSION))
    )
    known = gaps.groupBy("broker").agg(F.min("low").alias("known_version"))
    brokers_version = F.coalesce("acknowledged_version", F.lit(NOTHING))
    brokers = (
        found.brokers.join(known, "broker", "left")
        .withColumn("known_version", F.coalesce("known_version", F.lit(lineage.version)))
        .withColumn("live_brokers_stale", brokers_version < F.lit(lineage.brokers_version))
    )
    return Divergence(_explained(stale, missed, brokers), brokers)


def with_counts(divergence: Divergence) -> DataFrame:
    """Return ``brokers`` with numbers of stale and uncertain partitions, and the most frequent reason."""
    reasons = divergence.partitions.groupBy("broker", "reason").agg(
        F.sum(F.col("certain").cast("long")).alias("stale"),
        F.sum((~F.col("certain")).cast("long")).alias("uncertain"),
        F.min("since").alias("since"),
        F.max_by(F.struct("error_code", "detail"), "last_at").alias("last"),
    )
    counts = reasons.groupBy("broker").agg(
        F.sum("stale").alias("stale"),
        F.sum("uncertain").alias("uncertain"),
        F.min("since").alias("since"),
        F.max_by(
            F.struct("reason", "last.error_code", "last.detail"), F.struct("stale", "uncertain", "reason")
        ).alias("why"),
    )
    return (
        divergence.brokers.join(counts, "broker", "left")
        .select(
            *divergence.brokers.columns,
            *(F.coalesce(name, F.lit(0)).alias(name) for name in ("stale", "uncertain")),
            "since",
            "why.reason",
            "why.error_code",
            "why.detail",
        )
        .orderBy("broker")
    )


# -- what a broker has not acknowledged


def _gaps(found: Acknowledged, newest: int) -> DataFrame:
    """Return (broker, low, high]: the versions that no acknowledged range contains."""
    before = Window.partitionBy("broker").orderBy("from_version").rowsBetween(Window.unboundedPreceding, -1)
    low = F.coalesce(F.max("to_version").over(before), F.lit(NOTHING))
    inner = (
        found.ranges.withColumn("low", low)
        .where((F.col("from_version") > F.col("low")) & (F.col("low") < newest))
        .select("broker", "low", F.col("from_version").alias("high"))
    )
    last = found.ranges.groupBy("broker").agg(F.max("to_version").alias("low"))
    behind = (
        found.brokers.select("broker")
        .join(last, "broker", "left")
        .select("broker", F.coalesce("low", F.lit(NOTHING)).alias("low"), F.lit(newest).alias("high"))
        .where(F.col("low") < F.col("high"))
    )
    return inner.unionByName(behind)


def _candidates_of_rows(partitions: DataFrame, gaps: DataFrame) -> DataFrame:
    """Return the rows of a snapshot in a gap of each broker. Rows without leadership are never sent."""
    version = F.col(ROW_VERSION) if ROW_VERSION in partitions.columns else F.lit(0)
    rows = partitions.where(F.col("leader_epoch") != NO_LEADERSHIP).select(
        "topic",
        "partition",
        version.cast("long").alias(ROW_VERSION),
        F.concat_ws("-", "topic", "partition").alias("name"),
    )
    inside = (F.col(ROW_VERSION) > F.col("low")) & (F.col(ROW_VERSION) <= F.col("high"))
    return rows.join(F.broadcast(gaps), inside).drop("low", "high")


def _candidates_of_names(missed: DataFrame, ranges: DataFrame) -> DataFrame:
    """Return the partitions that missed requests name and no acknowledged range contains."""
    names = _newest_by_name(missed, ROW_VERSION).select(
        "broker",
        F.regexp_extract("name", _NAME, 1).alias("topic"),
        F.regexp_extract("name", _NAME, 2).cast("int").alias("partition"),
        ROW_VERSION,
        "name",
    )
    inside = (F.col(ROW_VERSION) > F.col("from_version")) & (F.col(ROW_VERSION) <= F.col("to_version"))
    ranges = ranges.withColumnRenamed("broker", "of")
    return names.join(ranges, (F.col("broker") == F.col("of")) & inside, "left_anti")


def _newest_by_name(requests: DataFrame, version: str) -> DataFrame:
    """Return the newest version, in a column of this name, for each broker and partition that is named."""
    return (
        requests.where(F.col("partitions").isNotNull())
        .select("broker", F.explode("partitions").alias("name"), "state_version")
        .groupBy("broker", "name")
        .agg(F.max("state_version").alias(version))
    )


# -- why


def _missed(found: Acknowledged) -> DataFrame:
    """Return the requests that have failed or are waiting."""
    columns = ("broker", "from_version", "state_version", "partitions", "error_code", "detail", "attempts")
    failed = found.requests.where(F.col("outcome") != "acknowledged").select(
        *columns,
        F.col("outcome").alias("kind"),
        F.col("enqueue_at").alias("since"),
        F.col("end_at").alias("at"),
    )
    return failed.unionByName(
        found.waiting.withColumn("error_code", F.lit(0).cast("short"))
        .withColumnRenamed("last_error", "detail")
        .select(
            *columns,
            F.lit("waiting").alias("kind"),
            F.col("enqueue_at").alias("since"),
            F.col("seen_at").alias("at"),
        )
    )


def _explained(stale: DataFrame, missed: DataFrame, brokers: DataFrame) -> DataFrame:
    """Return ``Divergence.partitions``: stale partitions with the reason, from missed requests."""
    seen = ("kind", "error_code", "detail", "attempts", "since", "at")
    names = missed.where(F.col("partitions").isNotNull()).select(
        F.col("broker"), F.explode("partitions").alias("name"), F.col("state_version").alias("to"), *seen
    )
    by_name = stale.join(names, ["broker", "name"]).where(F.col("to") >= F.col(ROW_VERSION))
    latest = Window.partitionBy("broker").orderBy(F.desc("at"), F.desc("state_version"))
    ranges = (
        missed.where(F.col("from_version").isNotNull())
        .withColumn("place", F.row_number().over(latest))
        .where(F.col("place") <= _MOST_RANGES)
        .select(F.col("broker").alias("of"), "from_version", F.col("state_version").alias("to"), *seen)
    )
    by_range = stale.join(
        F.broadcast(ranges),
        (F.col("broker") == F.col("of"))
        & (F.col(ROW_VERSION) > F.col("from_version"))
        & (F.col(ROW_VERSION) <= F.col("to")),
    )
    evidence = (
        by_name.select(*_PARTITION, *seen)
        .unionByName(by_range.select(*_PARTITION, *seen))
        .groupBy(*_PARTITION)
        .agg(
            F.min("since").alias("since"),
            # A waiting request is the reason, even if others failed before it.
            F.max_by(F.struct(*seen), F.struct(F.col("kind") == "waiting", "at")).alias("last"),
        )
    )
    facts = brokers.select(
        *("broker", "earlier_version", "fenced_at", "recorded_version", "unlisted_version"),
        *("complete", "lossy"),
    )
    joined = stale.join(evidence, _PARTITION, "left").join(F.broadcast(facts), "broker")
    return joined.select(
        *_PARTITION,
        ROW_VERSION,
        "acknowledged_version",
        _reason().alias("reason"),
        F.col("last.error_code").alias("error_code"),
        F.col("last.detail").alias("detail"),
        F.col("last.attempts").alias("attempts"),
        "since",
        F.col("last.at").alias("last_at"),
        _certain().alias("certain"),
    )


def _unlisted() -> Column:
    """Return whether an acknowledged request without a list of its contents may have contained the row."""
    return F.coalesce(F.col("unlisted_version") >= F.col(ROW_VERSION), F.lit(False))


def _reason() -> Column:
    return (
        F.when(F.col("fenced_at").isNotNull(), "another controller")
        .when(F.col("last").isNotNull(), F.col("last.kind"))
        .when(_unlisted(), "not listed")
        .when(F.col("earlier_version") >= F.col(ROW_VERSION), "restarted")
        .when(F.col("recorded_version").isNull(), "no request")
        .otherwise("not sent")
    )


def _certain() -> Column:
    recorded = F.coalesce(F.col("recorded_version") >= F.col(ROW_VERSION), F.lit(False))
    # The journal contains every acknowledgement if channels have closed or a later outcome is recorded.
    all_there = F.col("complete") | (F.col("last").isNotNull() | recorded)
    return F.col("fenced_at").isNull() & ~_unlisted() & all_there & ~F.col("lossy")

"""Which broker holds stale metadata, of which partitions, since when and why.

A row of a snapshot has the version that changed it last. A broker has it when one UpdateMetadata that its
present process has acknowledged told it at that version or a later one: by name, or because it told all that
changed in a range of versions (from_version, state_version]. What the ranges leave open are gaps, few for a
broker, and only rows with a version in a gap are looked at one by one.

What was acknowledged stays known, also when a later request fails, until the broker's process is another
(``knowledge.py``). What cannot be known is said to be uncertain: acknowledged requests that do not say what
they told, outcomes that were lost, channels that have not closed, brokers that obey another controller.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users call it

from ctrlchan.pipeline.jobs.report.knowledge import NOTHING, Keep, Knowledge, knowledge_of
from ctrlchan.pipeline.spark.tables import Snapshot
from ctrlchan.state import NO_LEADERSHIP
from ctrlchan.state.storage.schemas import ROW_VERSION

__all__ = ["Divergence", "Lineage", "divergence_of", "with_counts"]

#: Of the requests of a broker that told a range of versions and failed, the last that may be a reason.
_MOST_RANGES: Final = 20
_NAME: Final = r"^(.*)-(\d+)$"
_PARTITION: Final = ["broker", "topic", "partition"]


@dataclass(frozen=True, slots=True)
class Lineage:
    """The state whose versions are compared: its id, its newest change, and that of its live brokers."""

    state_id: str
    version: int
    brokers_version: int


@dataclass(frozen=True, slots=True)
class Divergence:
    """``partitions``: one row for each (broker, topic, partition) that is stale, or may be.

    row_version; told_version (the last that the broker has acknowledged by name, null: none); reason:
    "waiting", the
    outcome of the request that failed, "restarted", "never told", "another controller", "not said", "not
    sent";
    error_code, detail, attempts of that request; since, last_at: when the first request that carried it was
    queued,
    and when the last of them ended (or was seen waiting); certain.

    ``brokers``: one row for each broker, what it knows (``knowledge.py``).
    """

    partitions: DataFrame
    brokers: DataFrame


def divergence_of(
    journal: DataFrame,
    waiting: DataFrame,
    views: DataFrame,
    channels: DataFrame,
    lineage: Lineage,
    snapshot: Snapshot | None,
    keep: Keep,
) -> Divergence:
    """``waiting``, ``views``, ``channels``: see ``report``. Without a snapshot only partitions are looked at
    that a
    request named which was not acknowledged."""
    live = None if snapshot is None else snapshot.brokers
    knowledge = knowledge_of(journal, waiting, views, channels, lineage.state_id, live, keep)
    missed = _missed(knowledge)
    gaps = keep(_gaps(knowledge, lineage.version))
    if snapshot is None:
        candidates = _candidates_of_names(missed, knowledge.ranges)
    else:
        candidates = _candidates_of_rows(snapshot.partitions, gaps)
    named = (
        knowledge.acknowledged.where(F.col("partitions").isNotNull())
        .select("broker", F.explode("partitions").alias("name"), "state_version")
        .groupBy("broker", "name")
        .agg(F.max("state_version").alias("told_version"))
    )
    stale = candidates.join(named, ["broker", "name"], "left").where(
        F.col("told_version").isNull() | (F.col("told_version") < F.col(ROW_VERSION))
    )
    known = gaps.groupBy("broker").agg(F.min("low").alias("known_version"))
    brokers = (
        knowledge.brokers.join(known, "broker", "left")
        .withColumn("known_version", F.coalesce("known_version", F.lit(lineage.version)))
        .withColumn(
            "live_brokers_stale", F.coalesce("told_version", F.lit(NOTHING)) < F.lit(lineage.brokers_version)
        )
    )
    return Divergence(_explained(stale, missed, brokers), brokers)


def with_counts(divergence: Divergence) -> DataFrame:
    """``brokers`` with the numbers of their partitions: stale, uncertain; since when; the most frequent
    reason."""
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


# -- what a broker does not have


def _gaps(knowledge: Knowledge, newest: int) -> DataFrame:
    """(broker, low, high]: versions of which no range says that the broker has them."""
    before = Window.partitionBy("broker").orderBy("from_version").rowsBetween(Window.unboundedPreceding, -1)
    low = F.coalesce(F.max("to_version").over(before), F.lit(NOTHING))
    inner = (
        knowledge.ranges.withColumn("low", low)
        .where((F.col("from_version") > F.col("low")) & (F.col("low") < newest))
        .select("broker", "low", F.col("from_version").alias("high"))
    )
    last = knowledge.ranges.groupBy("broker").agg(F.max("to_version").alias("low"))
    behind = (
        knowledge.brokers.select("broker")
        .join(last, "broker", "left")
        .select("broker", F.coalesce("low", F.lit(NOTHING)).alias("low"), F.lit(newest).alias("high"))
        .where(F.col("low") < F.col("high"))
    )
    return inner.unionByName(behind)


def _candidates_of_rows(partitions: DataFrame, gaps: DataFrame) -> DataFrame:
    """Rows of a snapshot, for each broker with a gap there. Rows without leadership are never told."""
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
    """What requests named that were not acknowledged, unless a range told it since."""
    names = (
        missed.where(F.col("partitions").isNotNull())
        .select("broker", F.explode("partitions").alias("name"), "state_version")
        .groupBy("broker", "name")
        .agg(F.max("state_version").alias(ROW_VERSION))
        .select(
            "broker",
            F.regexp_extract("name", _NAME, 1).alias("topic"),
            F.regexp_extract("name", _NAME, 2).cast("int").alias("partition"),
            ROW_VERSION,
            "name",
        )
    )
    told = ranges.withColumnRenamed("broker", "of")
    inside = (F.col(ROW_VERSION) > F.col("from_version")) & (F.col(ROW_VERSION) <= F.col("to_version"))
    return names.join(told, (F.col("broker") == F.col("of")) & inside, "left_anti")


# -- why


def _missed(knowledge: Knowledge) -> DataFrame:
    """Requests that were not acknowledged: waiting ones, and those that failed."""
    told = ("broker", "from_version", "state_version", "partitions", "error_code", "detail", "attempts")
    failed = knowledge.requests.where(F.col("outcome") != "acknowledged").select(
        *told, F.col("outcome").alias("kind"), F.col("enqueue_at").alias("since"), F.col("end_at").alias("at")
    )
    return failed.unionByName(
        knowledge.waiting.withColumn("error_code", F.lit(0).cast("short"))
        .withColumnRenamed("last_error", "detail")
        .select(
            *told,
            F.lit("waiting").alias("kind"),
            F.col("enqueue_at").alias("since"),
            F.col("seen_at").alias("at"),
        )
    )


def _explained(stale: DataFrame, missed: DataFrame, brokers: DataFrame) -> DataFrame:
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
            # What waits is the reason, whatever failed before it.
            F.max_by(F.struct(*seen), F.struct(F.col("kind") == "waiting", "at")).alias("last"),
        )
    )
    knowledge = brokers.select(
        "broker", "forgotten_version", "fenced_at", "recorded_version", "unsaid_version", "complete", "lossy"
    )
    joined = stale.join(evidence, _PARTITION, "left").join(F.broadcast(knowledge), "broker")
    return joined.select(
        *_PARTITION,
        ROW_VERSION,
        "told_version",
        _reason().alias("reason"),
        F.col("last.error_code").alias("error_code"),
        F.col("last.detail").alias("detail"),
        F.col("last.attempts").alias("attempts"),
        "since",
        F.col("last.at").alias("last_at"),
        _certain().alias("certain"),
    )


def _unsaid() -> Column:
    """A request that does not say what it told may have told it."""
    return F.coalesce(F.col("unsaid_version") >= F.col(ROW_VERSION), F.lit(False))


def _reason() -> Column:
    return (
        F.when(F.col("fenced_at").isNotNull(), "another controller")
        .when(F.col("last").isNotNull(), F.col("last.kind"))
        .when(_unsaid(), "not said")
        .when(F.col("forgotten_version") >= F.col(ROW_VERSION), "restarted")
        .when(F.col("recorded_version").isNull(), "never told")
        .otherwise("not sent")
    )


def _certain() -> Column:
    recorded = F.coalesce(F.col("recorded_version") >= F.col(ROW_VERSION), F.lit(False))
    # With all outcomes there, or a later one, no acknowledgement can be missing from the journal.
    all_there = F.col("complete") | (F.col("last").isNotNull() | recorded)
    return F.col("fenced_at").isNull() & ~_unsaid() & all_there & ~F.col("lossy")

"""``explain``: what Spark fetches for a story, from merged logs, a journal and a snapshot."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users call it

from ctrlchan._codec import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA
from ctrlchan.errors import ConfigError
from ctrlchan.pipeline.jobs.explain.findings import findings_of
from ctrlchan.pipeline.jobs.explain.model import (
    Context,
    ControllerReign,
    JournalRequest,
    LogCoverage,
    PlacedEntry,
    Refusals,
    SnapshotRow,
    Story,
)
from ctrlchan.pipeline.jobs.explain.steps import lives_of
from ctrlchan.pipeline.jobs.merge_logs.entries import Entry
from ctrlchan.pipeline.jobs.merge_logs.fields import Answer
from ctrlchan.pipeline.jobs.merge_logs.job import (
    MergedLogs,
    MergeLogsConfig,
    in_order,
    merge_logs,
    of_partition,
)
from ctrlchan.pipeline.spark.tables import read_journal, read_snapshot

__all__ = ["MOST_ENTRIES", "ExplainConfig", "TopicPartition", "explain", "story_of"]

#: What a story is told from; a partition that has more to tell needs a shorter time.
MOST_ENTRIES: Final = 50_000
#: Groups of refused requests, journal rows.
_MOST_OTHERS: Final = 1_000

#: What state-change logs call the APIs.
_APIS: Final = {
    LEADER_AND_ISR: "LEADER_AND_ISR",
    STOP_REPLICA: "STOP_REPLICA",
    UPDATE_METADATA: "UPDATE_METADATA",
}


@dataclass(frozen=True, slots=True)
class TopicPartition:
    """``orders-eu.v2-7`` is partition 7 of ``orders-eu.v2``."""

    topic: str
    partition: int

    @classmethod
    def of(cls, name: str) -> Self:
        """Raises ConfigError when the name does not end in ``-`` and a number."""
        topic, dash, partition = name.rpartition("-")
        if not (dash and topic and partition.isascii() and partition.isdigit()) or int(partition) >= 2**31:
            raise ConfigError(f"{name!r} is not TOPIC-PARTITION, as orders-0")
        return cls(topic, int(partition))

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, kw_only=True)
class ExplainConfig:
    """Whose story. ``logs``: which logs, and which time; what it says of topics does not count.

    ``journal``: a journal folder, for how the requests fared. ``snapshot``: a snapshot folder, which the end
    of the story is compared with.
    """

    partition: TopicPartition
    logs: MergeLogsConfig
    journal: str | Path | None = None
    snapshot: str | Path | None = None


def explain(spark: SparkSession, config: ExplainConfig) -> Story:
    """The story of one partition. Raises PipelineError, JournalError, SnapshotError for bad input."""
    with merge_logs(spark, config.logs) as merged:
        return story_of(spark, merged, config)


def story_of(spark: SparkSession, merged: MergedLogs, config: ExplainConfig) -> Story:
    """The same from logs that are merged already (without filters of topics)."""
    mine = of_partition(merged.unordered, config.partition.topic, config.partition.partition)
    fetched = in_order(mine).limit(MOST_ENTRIES + 1).withColumn("time", F.unix_micros("time")).collect()
    entries = [_entry(row) for row in fetched[:MOST_ENTRIES]]
    context = Context(
        coverage=_coverage(merged.unordered),
        reigns=_reigns(merged.unordered),
        refusals=_refusals(merged.unordered),
        requests=() if config.journal is None else _requests(spark, entries, config),
        snapshot=None if config.snapshot is None else _snapshot_row(spark, config),
        truncated=len(fetched) > MOST_ENTRIES,
    )
    lives = lives_of(entries)
    partition = config.partition
    return Story(partition.topic, partition.partition, lives, context, findings_of(lives, context))


def _entry(row: Row) -> PlacedEntry:
    values: dict[str, Any] = {name: row[name] for name in (*Entry.__slots__, "text", "file", "line")}
    values["partitions"] = [Answer(*answer) for answer in row["partitions"] or ()]
    return PlacedEntry(**values)


def _coverage(entries: DataFrame) -> tuple[LogCoverage, ...]:
    """One row a broker."""
    found = (
        entries.where("broker IS NOT NULL")
        .groupBy("broker")
        .agg(
            F.unix_micros(F.min("time")),
            F.unix_micros(F.max("time")),
            F.count("*"),
            # What a broker writes as a controller says nothing of what it logs as a broker.
            F.count_if((F.col("level") == "TRACE") & (F.col("role") == "broker")),
        )
        .orderBy("broker")
    )
    return tuple(LogCoverage(*row) for row in found.collect())


def _reigns(entries: DataFrame) -> tuple[ControllerReign, ...]:
    """One row for each controller and epoch; what a broker still heard of an old one is no reign."""
    spoken = entries.where("role = 'controller' AND controller_epoch IS NOT NULL")
    heard = entries.where("role = 'broker' AND controller_id IS NOT NULL AND controller_epoch IS NOT NULL")

    def spans(of: DataFrame) -> DataFrame:
        return of.groupBy("controller_id", "controller_epoch").agg(
            F.unix_micros(F.min("time")).alias("first"), F.unix_micros(F.max("time")).alias("last")
        )

    # A controller whose own log is not there is known from its brokers.
    unspoken = spans(heard.where("event != 'stale_controller'")).join(
        spans(spoken), ["controller_id", "controller_epoch"], "left_anti"
    )
    found = spans(spoken).unionByName(unspoken).orderBy("controller_epoch", "first")
    return tuple(ControllerReign(*row) for row in found.collect())


def _refusals(entries: DataFrame) -> tuple[Refusals, ...]:
    found = (
        entries.where("event = 'stale_controller'")
        .groupBy("broker", "api", "controller_id", "controller_epoch", "known_epoch")
        .agg(F.count("*"), F.unix_micros(F.min("time")), F.unix_micros(F.max("time")).alias("last"))
        .orderBy("last")
        .limit(_MOST_OTHERS)
    )
    return tuple(Refusals(*row) for row in found.collect())


def _requests(
    spark: SparkSession, entries: list[PlacedEntry], config: ExplainConfig
) -> tuple[JournalRequest, ...]:
    """Of the journal: rows that name the partition, and those of the requests that brokers logged.

    A correlation id is counted on one connection, so of several rows that have it the one nearest in time
    is meant.
    """
    assert config.journal is not None
    journal = read_journal(spark, config.journal).withColumn(
        "api", F.create_map(*(F.lit(one) for pair in _APIS.items() for one in pair))[F.col("api")]
    )
    keys = {
        (
            entry.broker,
            entry.api,
            entry.controller_id,
            entry.controller_epoch,
            entry.correlation_id,
        ): entry.time
        for entry in entries
        if entry.role == "broker"
        and None not in (entry.broker, entry.api, entry.correlation_id)
        and None not in (entry.controller_id, entry.controller_epoch)
    }
    named = journal.where(F.array_contains("partitions", str(config.partition)))
    columns = ["broker", "api", "controller_id", "controller_epoch", "correlation_id"]
    logged = spark.createDataFrame(
        [(*key, time) for key, time in keys.items()],
        "broker int, api string, controller_id int, controller_epoch int, correlation_id int, logged long",
    )
    away = F.abs(F.unix_micros("end_at") - F.col("logged"))
    nearest = (
        journal.join(F.broadcast(logged), columns)
        .groupBy(*columns, "logged")
        .agg(F.min_by(F.struct("channel", "sequence"), away).alias("row"))
        .select("row.*")
    )
    rows = (
        journal.join(F.broadcast(nearest), ["channel", "sequence"], "left_semi")
        .unionByName(named)
        .dropDuplicates(["channel", "sequence"])
        .select(
            "broker",
            "api",
            "controller_epoch",
            "correlation_id",
            "outcome",
            "error_code",
            "attempts",
            (F.expr("end_ns - enqueue_ns") / 1e6).alias("milliseconds"),
            F.unix_micros("end_at").alias("time"),
        )
        .orderBy("time")
        .limit(_MOST_OTHERS)
    )
    return tuple(JournalRequest(*row) for row in rows.collect())


def _snapshot_row(spark: SparkSession, config: ExplainConfig) -> SnapshotRow:
    assert config.snapshot is not None
    partitions = read_snapshot(spark, config.snapshot).partitions
    row = (
        partitions.where(
            (F.col("topic") == config.partition.topic) & (F.col("partition") == config.partition.partition)
        )
        .select("leader", "leader_epoch", "partition_epoch", "isr", "replicas")
        .first()
    )
    if row is None:
        return SnapshotRow(exists=False)
    isr, replicas = tuple(row["isr"] or ()), tuple(row["replicas"] or ())
    return SnapshotRow(True, row["leader"], row["leader_epoch"], row["partition_epoch"], isr, replicas)

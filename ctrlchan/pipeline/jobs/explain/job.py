"""Fetches the history of a partition with Spark from merged logs, a journal and a snapshot."""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users call it

from ctrlchan._codec import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA
from ctrlchan.pipeline.jobs.explain.config import ExplainConfig
from ctrlchan.pipeline.jobs.explain.epochs import incarnations_of
from ctrlchan.pipeline.jobs.explain.findings import findings_of
from ctrlchan.pipeline.jobs.explain.model import (
    Context,
    ControllerTerm,
    JournalRequest,
    LocatedEntry,
    LogCoverage,
    PartitionHistory,
    Refusals,
    SnapshotRow,
)
from ctrlchan.pipeline.jobs.merge_logs.entries import Entry
from ctrlchan.pipeline.jobs.merge_logs.job import (
    MergedLogs,
    in_order,
    merge_logs,
    of_partition,
)
from ctrlchan.pipeline.jobs.merge_logs.messages import EVENTS_SINCE_APPLIED
from ctrlchan.pipeline.jobs.merge_logs.values import Answer
from ctrlchan.pipeline.spark.tables import read_journal, read_snapshot

__all__ = ["MOST_ENTRIES", "explain", "history_of"]

#: Log entries of one history, which the driver holds in memory.
MOST_ENTRIES: Final = 50_000
#: Groups of refused requests; journal rows.
_MOST_OTHERS: Final = 1_000

#: The names of the APIs in state-change logs.
_APIS: Final = {
    LEADER_AND_ISR: "LEADER_AND_ISR",
    STOP_REPLICA: "STOP_REPLICA",
    UPDATE_METADATA: "UPDATE_METADATA",
}


def explain(spark: SparkSession, config: ExplainConfig) -> PartitionHistory:
    """Return the history of one partition; raises PipelineError, JournalError, SnapshotError."""
    with merge_logs(spark, config.logs) as merged:
        return history_of(spark, merged, config)


def history_of(spark: SparkSession, merged: MergedLogs, config: ExplainConfig) -> PartitionHistory:
    """Return the history from logs that are merged already (without filters of topics)."""
    partition = config.topic_partition
    mine = of_partition(merged.unordered, partition.topic, partition.partition)
    fetched = in_order(mine).limit(MOST_ENTRIES + 1).withColumn("time", F.unix_micros("time")).collect()
    entries = [_entry(row) for row in fetched[:MOST_ENTRIES]]
    context = Context(
        coverage=_coverage(merged.unordered),
        terms=_terms(merged.unordered),
        refusals=_refusals(merged.unordered),
        requests=() if config.journal is None else _requests(spark, entries, config),
        snapshot=None if config.snapshot is None else _snapshot_row(spark, config),
        truncated=len(fetched) > MOST_ENTRIES,
    )
    incarnations = incarnations_of(entries)
    findings = findings_of(incarnations, context)
    return PartitionHistory(partition.topic, partition.partition, incarnations, context, findings)


def _entry(row: Row) -> LocatedEntry:
    values: dict[str, Any] = {name: row[name] for name in (*Entry.__slots__, "text", "file", "line")}
    values["partitions"] = [Answer(*answer) for answer in row["partitions"] or ()]
    return LocatedEntry(**values)


def _coverage(entries: DataFrame) -> tuple[LogCoverage, ...]:
    """Return one row for each broker."""
    found = (
        entries.where("broker IS NOT NULL")
        .groupBy("broker")
        .agg(
            F.unix_micros(F.min("time")),
            F.unix_micros(F.max("time")),
            F.count("*"),
            # The logger of a broker's controller may have another level.
            F.count_if((F.col("level") == "TRACE") & (F.col("role") == "broker")),
            F.count_if(F.col("event").isin(*EVENTS_SINCE_APPLIED)),
        )
        .orderBy("broker")
    )
    return tuple(LogCoverage(*row) for row in found.collect())


def _terms(entries: DataFrame) -> tuple[ControllerTerm, ...]:
    """Return one row for each controller and epoch, from its own log, else from those of brokers.

    Refused requests of an old controller do not extend its term.
    """
    own = entries.where("role = 'controller' AND controller_epoch IS NOT NULL")
    received = entries.where(
        "role = 'broker' AND event != 'stale_controller' "
        "AND controller_id IS NOT NULL AND controller_epoch IS NOT NULL"
    )

    def spans(of: DataFrame) -> DataFrame:
        return of.groupBy("controller_id", "controller_epoch").agg(
            F.unix_micros(F.min("time")).alias("first"), F.unix_micros(F.max("time")).alias("last")
        )

    others = spans(received).join(spans(own), ["controller_id", "controller_epoch"], "left_anti")
    found = spans(own).unionByName(others).orderBy("controller_epoch", "first")
    return tuple(ControllerTerm(*row) for row in found.collect())


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
    spark: SparkSession, entries: list[LocatedEntry], config: ExplainConfig
) -> tuple[JournalRequest, ...]:
    """Return the journal's rows that name the partition or that brokers logged by correlation id.

    Correlation ids repeat, as each connection counts its own: of several rows the nearest in time is taken.
    """
    assert config.journal is not None
    journal = read_journal(spark, config.journal).withColumn(
        "api", F.create_map(*(F.lit(one) for pair in _APIS.items() for one in pair))[F.col("api")]
    )
    columns = ["broker", "api", "controller_id", "controller_epoch", "correlation_id"]
    keys = {
        tuple(getattr(entry, name) for name in columns): entry.time
        for entry in entries
        if entry.role == "broker"
    }
    named = journal.where(F.array_contains("partitions", str(config.topic_partition)))
    logged = spark.createDataFrame(
        [(*key, time) for key, time in keys.items() if None not in key],
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
    partitions, wanted = read_snapshot(spark, config.snapshot).partitions, config.topic_partition
    row = (
        partitions.where((F.col("topic") == wanted.topic) & (F.col("partition") == wanted.partition))
        .select("leader", "leader_epoch", "partition_epoch", "isr", "replicas")
        .first()
    )
    if row is None:
        return SnapshotRow(exists=False)
    isr, replicas = tuple(row["isr"] or ()), tuple(row["replicas"] or ())
    return SnapshotRow(True, row["leader"], row["leader_epoch"], row["partition_epoch"], isr, replicas)

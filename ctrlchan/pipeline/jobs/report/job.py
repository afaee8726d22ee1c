"""Reads a journal and a snapshot and returns the tables of a report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import reduce
from operator import and_
from typing import Any

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users call it

from ctrlchan._codec import UPDATE_METADATA
from ctrlchan.journal.channels import read_channels
from ctrlchan.pipeline.jobs.report.acknowledged import JournalTables, waiting_of
from ctrlchan.pipeline.jobs.report.config import ReportConfig
from ctrlchan.pipeline.jobs.report.divergence import Divergence, Lineage, divergence_of
from ctrlchan.pipeline.jobs.report.figures import (
    api_name,
    bucket_of,
    channels_of,
    errors_of,
    figures_of,
    series_of,
    sums_of,
)
from ctrlchan.pipeline.spark.kept import kept
from ctrlchan.pipeline.spark.tables import Snapshot, gathered, of_arrow, read_journal, read_snapshot
from ctrlchan.state import NO_LEADERSHIP
from ctrlchan.state.storage.schemas import CHANNELS

__all__ = ["Report", "report"]


@dataclass(frozen=True, slots=True)
class Report:
    """The tables of a report.

    - ``figures``, ``errors``, ``series``, ``channels``: see ``figures.py``.
    - ``waiting``: see ``acknowledged.py``.
    - ``divergence``: None if nothing can be compared, for the reason in ``about["not_compared"]``.
    - ``about``: JSON values: rows, first_at, last_at, bucket, state_id, state_version, newest_version, ...
    """

    figures: DataFrame
    errors: DataFrame
    series: DataFrame
    channels: DataFrame
    waiting: DataFrame
    divergence: Divergence | None
    about: dict[str, Any]
    kept: list[DataFrame]

    def unpersist(self) -> None:
        """Release the small tables that Spark caches for this report; they can still be computed."""
        for table in self.kept:
            table.unpersist()


def report(spark: SparkSession, config: ReportConfig) -> Report:
    """Return the tables, which are lazy but for small inputs; the time range of the journal is read now.

    Raises JournalError, SnapshotError, PipelineError.
    """
    # Channel files are read before outcomes: a request that ends in between is in the journal.
    connections = of_arrow(spark, read_channels(config.journal).select(CHANNELS.names), CHANNELS)
    journal = gathered(read_journal(spark, config.journal))
    snapshot = None if config.snapshot is None else read_snapshot(spark, config.snapshot)
    in_time = _in_time(config)
    counted = journal if in_time is None else journal.where(in_time)
    states = _states(journal, F.lit(True) if in_time is None else in_time)
    first = min((state["first_at"] for state in states if state["first_at"] is not None), default=None)
    last = max((state["last_at"] for state in states if state["last_at"] is not None), default=None)
    bucket = config.bucket or bucket_of(0.0 if first is None or last is None else (last - first) / 1e6)
    lineage, newest, reason = _lineage(states, snapshot)
    used: list[DataFrame] = []

    def keep(table: DataFrame) -> DataFrame:
        used.append(kept(table))
        return used[-1]

    sums = keep(sums_of(counted, bucket))
    waiting = keep(waiting_of(journal, connections))
    channels = keep(channels_of(sums if counted is journal else sums_of(journal, bucket), connections))
    divergence = None
    if lineage is not None:
        tables = JournalTables(journal, connections, waiting, channels)
        divergence = divergence_of(tables, lineage, snapshot, keep)
    return Report(
        figures=figures_of(counted, sums),
        errors=errors_of(sums),
        series=series_of(sums),
        channels=channels,
        waiting=waiting.withColumn("api_name", api_name()).drop("place").orderBy("broker", "enqueue_ns"),
        divergence=divergence,
        about={
            "journal": str(config.journal),
            "snapshot": None if config.snapshot is None else str(config.snapshot),
            "cluster_id": None if snapshot is None else snapshot.cluster.get("cluster_id"),
            "rows": sum(state["rows"] for state in states),
            "first_at": _iso(first),
            "last_at": _iso(last),
            "bucket": bucket,
            "state_id": None if lineage is None else lineage.state_id,
            "state_version": None if lineage is None else lineage.version,
            "newest_version": newest,
            "partitions": None if snapshot is None else _sent_rows(snapshot),
            "not_compared": reason,
        },
        kept=used,
    )


def _sent_rows(snapshot: Snapshot) -> int:
    """Return the number of partitions; those without leadership are never sent."""
    return snapshot.partitions.where(F.col("leader_epoch") != NO_LEADERSHIP).count()


def _in_time(config: ReportConfig) -> Column | None:
    """Return whether a request is counted, or None if each is."""
    bounds = [] if config.since is None else [F.col("end_at") >= F.lit(config.since)]
    bounds += [] if config.until is None else [F.col("end_at") < F.lit(config.until)]
    return reduce(and_, bounds) if bounds else None


def _states(journal: DataFrame, in_time: Column) -> list[Row]:
    """Return a row for each state that was sent by UpdateMetadata, and one for all other requests.

    ``version``, ``ended_at``: the newest of the state. ``rows``, ``first_at``, ``last_at``: of the requests
    that are counted. Times are microseconds since 1970.
    """
    ended_at = F.when(in_time, F.col("end_at"))
    return (
        journal.groupBy(F.when(F.col("api") == UPDATE_METADATA, F.col("state_id")).alias("state_id"))
        .agg(
            F.max("state_version").alias("version"),
            F.unix_micros(F.max("end_at")).alias("ended_at"),
            F.count_if(in_time).alias("rows"),
            F.unix_micros(F.min(ended_at)).alias("first_at"),
            F.unix_micros(F.max(ended_at)).alias("last_at"),
        )
        .collect()
    )


def _lineage(
    states: Sequence[Row], snapshot: Snapshot | None
) -> tuple[Lineage | None, int | None, str | None]:
    """Return the state to compare with, the newest version in the journal, or why nothing can be compared."""
    if snapshot is None:
        ended = {row["state_id"]: row["ended_at"] for row in states if None not in (row[0], row["ended_at"])}
        if not ended:
            return None, None, "no request in the journal has the id and version of its state"
        state_id, version, brokers_version = str(max(ended, key=lambda one: ended[one])), None, 0
    else:
        cluster = snapshot.cluster
        if not cluster.get("state_id"):
            reason = "the snapshot has no versions (it was written by an older ctrlchan, or by hand): "
            return None, None, f"{reason}read it, write it again, and push the new one"
        state_id = str(cluster["state_id"])
        version, brokers_version = int(cluster["state_version"]), int(cluster.get("brokers_version", 0))
    newest = next((row["version"] for row in states if row["state_id"] == state_id), None)
    if newest is None:
        reason = "the journal has no request of the snapshot's state: they are of different clusters or times"
        return None, None, reason
    return Lineage(state_id, newest if version is None else version, brokers_version), newest, None


def _iso(microseconds: int | None) -> str | None:
    return None if microseconds is None else datetime.fromtimestamp(microseconds / 1e6, UTC).isoformat()

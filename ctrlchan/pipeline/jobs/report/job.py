"""The job: a journal and a snapshot in, tables out."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users call it

from ctrlchan._codec import UPDATE_METADATA
from ctrlchan.errors import ConfigError
from ctrlchan.journal.channels import read_channels
from ctrlchan.pipeline.jobs.report.divergence import Divergence, Lineage, divergence_of
from ctrlchan.pipeline.jobs.report.figures import (
    api_name,
    bucket_of,
    cells_of,
    channels_of,
    errors_of,
    figures_of,
    series_of,
)
from ctrlchan.pipeline.jobs.report.knowledge import waiting_of
from ctrlchan.pipeline.spark.tables import Snapshot, read_journal, read_snapshot
from ctrlchan.state import NO_LEADERSHIP
from ctrlchan.state.storage.schemas import CHANNELS

__all__ = ["Report", "ReportConfig", "report"]


@dataclass(frozen=True, kw_only=True)
class ReportConfig:
    """``journal``: a folder. ``snapshot``: what all brokers should know; None: only what the journal itself
    shows to
    be missing. ``since``, ``until``: only requests that ended in [since, until) are counted (what brokers
    know is
    always told by the whole journal). ``bucket``: seconds of a point of the time series; None: by the
    range."""

    journal: str | Path
    snapshot: str | Path | None = None
    since: datetime | None = None
    until: datetime | None = None
    bucket: int | None = None

    def __post_init__(self) -> None:
        if self.bucket is not None and self.bucket < 1:
            raise ConfigError(f"bucket must be at least 1 second, not {self.bucket}")
        if self.since is not None and self.until is not None and self.since >= self.until:
            raise ConfigError(f"since ({self.since}) must be before until ({self.until})")


@dataclass(frozen=True, slots=True)
class Report:
    """``figures``, ``errors``, ``series``, ``channels``: see ``figures.py``; ``waiting``: ``knowledge.py``.
    ``divergence``: None where nothing can be compared, and ``about["not_compared"]`` says why.
    ``about``: JSON values: rows, first_at, last_at, bucket, state_id, state_version, newest_version, ...
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
        """Spark forgets the small tables that it keeps for this report; they can still be asked for."""
        for table in self.kept:
            table.unpersist()


def report(spark: SparkSession, config: ReportConfig) -> Report:
    """Looks at the range of the journal (one scan of two columns); everything else waits until it is asked
    for.

    Raises JournalError, SnapshotError, PipelineError for what cannot be read.
    """
    # How channels stand before what has ended: a request that ends meanwhile is in the journal.
    views = spark.createDataFrame(read_channels(config.journal).select(CHANNELS.names))
    journal = read_journal(spark, config.journal)
    snapshot = None if config.snapshot is None else read_snapshot(spark, config.snapshot)
    counted = journal
    if config.since is not None:
        counted = counted.where(F.col("end_at") >= F.lit(config.since))
    if config.until is not None:
        counted = counted.where(F.col("end_at") < F.lit(config.until))
    first = counted.agg(
        F.count("*").alias("rows"),
        F.unix_micros(F.min("end_at")).alias("first_at"),
        F.unix_micros(F.max("end_at")).alias("last_at"),
    ).first()
    assert first is not None
    length = (first["last_at"] - first["first_at"]) / 1e6 if first["rows"] else 0.0
    bucket = config.bucket or bucket_of(length)
    lineage, newest, reason = _lineage(journal, snapshot)
    kept: list[DataFrame] = []

    def keep(table: DataFrame) -> DataFrame:
        kept.append(table.persist())
        return table

    cells = keep(cells_of(counted, bucket))
    waiting = keep(waiting_of(journal, views))
    channels = keep(channels_of(cells if counted is journal else cells_of(journal, bucket), views))
    divergence = None
    if lineage is not None:
        divergence = divergence_of(journal, waiting, views, channels, lineage, snapshot, keep)
    return Report(
        figures=figures_of(counted, cells),
        errors=errors_of(cells),
        series=series_of(cells),
        channels=channels,
        waiting=waiting.withColumn("api_name", api_name()).drop("place").orderBy("broker", "enqueue_ns"),
        divergence=divergence,
        about={
            "journal": str(config.journal),
            "snapshot": None if config.snapshot is None else str(config.snapshot),
            "cluster_id": None if snapshot is None else snapshot.cluster.get("cluster_id"),
            "rows": first["rows"],
            "first_at": _iso(first["first_at"]),
            "last_at": _iso(first["last_at"]),
            "bucket": bucket,
            "state_id": None if lineage is None else lineage.state_id,
            "state_version": None if lineage is None else lineage.version,
            "newest_version": newest,
            "partitions": None if snapshot is None else _told(snapshot).count(),
            "not_compared": reason,
        },
        kept=kept,
    )


def _told(snapshot: Snapshot) -> DataFrame:
    return snapshot.partitions.where(F.col("leader_epoch") != NO_LEADERSHIP)


def _lineage(journal: DataFrame, snapshot: Snapshot | None) -> tuple[Lineage | None, int | None, str | None]:
    """(what to compare, the newest version in the journal, why nothing can be compared)."""
    told = journal.where((F.col("api") == UPDATE_METADATA) & F.col("state_id").isNotNull())
    if snapshot is None:
        last = told.groupBy().agg(F.max_by("state_id", "end_at").alias("state_id")).first()
        if last is None or last["state_id"] is None:
            return None, None, "no request in the journal says what it told"
        state_id, version, brokers_version = str(last["state_id"]), None, 0
    else:
        cluster = snapshot.cluster
        if not cluster.get("state_id"):
            return (
                None,
                None,
                (
                    "the snapshot has no versions (it was written by an older ctrlchan, or by hand): "
                    "read it and write it again, and push that one"
                ),
            )
        state_id = str(cluster["state_id"])
        version, brokers_version = int(cluster["state_version"]), int(cluster.get("brokers_version", 0))
    newest = told.where(F.col("state_id") == state_id).agg(F.max("state_version").alias("newest")).first()
    assert newest is not None
    if newest["newest"] is None:
        reason = "the journal has nothing of the snapshot's state: they are of different clusters or times"
        return None, None, reason
    found = int(newest["newest"])
    return Lineage(state_id, found if version is None else version, brokers_version), found, None


def _iso(microseconds: int | None) -> str | None:
    return None if microseconds is None else datetime.fromtimestamp(microseconds / 1e6, UTC).isoformat()

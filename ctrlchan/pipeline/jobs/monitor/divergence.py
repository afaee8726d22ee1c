"""Finds the brokers that hold stale metadata, by the job ``report``."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users call it

from ctrlchan.errors import PipelineError
from ctrlchan.pipeline.jobs.monitor.figures import Diverged
from ctrlchan.pipeline.jobs.report.config import ReportConfig
from ctrlchan.pipeline.jobs.report.job import report
from ctrlchan.storage import PathLike

__all__ = ["diverged_brokers"]


def diverged_brokers(spark: SparkSession, journal: PathLike, snapshot: PathLike) -> list[Diverged]:
    """Return the brokers that are certainly stale, each with its first stale partition.

    Raises PipelineError when journal and snapshot cannot be compared.
    """
    found = report(spark, ReportConfig(journal=journal, snapshot=snapshot))
    try:
        if found.divergence is None:
            raise PipelineError(f"{snapshot}: {found.about['not_compared']}")
        name = F.concat_ws("-", "topic", "partition")
        stale = found.divergence.partitions.where("certain").groupBy("broker")
        rows = stale.agg(F.count("*").alias("count"), F.min_by(name, name).alias("first")).orderBy("broker")
        return [Diverged(row["broker"], row["count"], (row["first"],)) for row in rows.collect()]
    finally:
        # A monitor runs for days: cached tables must not pile up.
        found.unpersist()

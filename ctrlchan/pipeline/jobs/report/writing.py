"""Writes a report: Parquet tables, ``report.json`` and the page, in a folder that appears when complete."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any, Final, TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users call it

from ctrlchan.pipeline.jobs.report.divergence import Divergence, with_counts
from ctrlchan.pipeline.jobs.report.findings import findings_of, notes_of, result_of
from ctrlchan.pipeline.jobs.report.job import Report
from ctrlchan.pipeline.spark.kept import collected
from ctrlchan.pipeline.spark.tables import (
    is_small,
    literally,
    new_folder,
    write_json,
    write_part,
    write_rows,
)
from ctrlchan.storage import AnyPath, PathLike, contents_of, path_of, replace

__all__ = ["PAGE", "SUMMARY", "Summary", "page_in", "write_report"]

SUMMARY: Final = "report.json"
PAGE: Final = "report.html"
#: Stale partitions of each broker that the page lists.
_NAMED: Final = 50

#: The content of ``report.json``: result, findings, notes, and ``Report.about``.
Summary: TypeAlias = dict[str, Any]
_Rows: TypeAlias = list[dict[str, Any]]


def write_report(
    spark: SparkSession, report: Report, output: PathLike, *, overwrite: bool = False
) -> Summary:
    """Write ``report.html``, ``report.json`` and a folder of Parquet files for each table.

    The tables: figures, errors, series, channels, waiting, brokers and divergence (all stale partitions,
    sorted by broker, topic, partition). Small tables, with a row for each broker and API, are read into the
    driver. Releases what Spark caches for the report. Raises PipelineError when ``output`` exists and
    ``overwrite`` is false.
    """
    # Bokeh and Jinja2, which only the page needs.
    from ctrlchan.pipeline.jobs.report.page import PageData, page_of

    with new_folder(path_of(output), SUMMARY, overwrite=overwrite) as folder:
        rows = {
            name: _write(getattr(report, name), folder / name)
            for name in ("figures", "errors", "series", "channels", "waiting")
        }
        brokers, named = _divergence(spark, report.divergence, folder)
        found = findings_of(brokers, rows["figures"], rows["errors"], report.about["partitions"])
        known = {row["broker"] for row in (*brokers, *rows["figures"])}
        summary: Summary = {
            "result": result_of(found, len(known), compared=report.divergence is not None),
            "brokers": len(known),
            "stale": {str(row["broker"]): row["stale"] for row in brokers if row["stale"]},
            "uncertain": {str(row["broker"]): row["uncertain"] for row in brokers if row["uncertain"]},
            "slow": sorted({one.broker for one in found if one.kind == "slow"}),
            "findings": [asdict(one) for one in found],
            "notes": notes_of(report.about, rows["channels"], brokers),
            **report.about,
        }
        page = page_of(PageData(summary=summary, findings=found, brokers=brokers, named=named, **rows))
        replace(folder / PAGE, page.encode())
        write_json(folder / SUMMARY, summary)
    report.unpersist()
    return summary


def page_in(output: PathLike) -> AnyPath:
    """Return the path of the page of a written report."""
    folder = path_of(output)
    return contents_of(folder, json.loads((folder / SUMMARY).read_bytes())) / PAGE


def _write(table: DataFrame, folder: AnyPath) -> _Rows:
    """Write a small table as one file, through the driver, and return its rows."""
    rows = table.toArrow()
    write_part(rows, folder)
    return _rows(rows)


def _rows(table: pa.Table) -> _Rows:
    # Times in Arrow's rows have a time zone, in Spark's rows they have none.
    rows: _Rows = table.to_pylist()
    return rows


def _divergence(
    spark: SparkSession, divergence: Divergence | None, folder: AnyPath
) -> tuple[_Rows, dict[int, _Rows]]:
    """Write both tables; return the rows of brokers, and the first stale partitions of each broker."""
    if divergence is None:
        return [], {}
    place = folder / "divergence"
    partitions = divergence.partitions.sort("broker", "topic", "partition")
    if is_small(spark):
        partitions = collected(partitions)
    write_rows(partitions, place)
    if not is_small(spark):
        # This table may be large: it is computed once, and read back for the rest.
        partitions = spark.read.schema(partitions.schema).parquet(literally(place))
    counted = with_counts(Divergence(partitions, divergence.brokers))
    brokers = _write(counted, folder / "brokers")
    first = Window.partitionBy("broker").orderBy(F.desc("certain"), "topic", "partition")
    shown = (
        partitions.withColumn("place", F.row_number().over(first))
        .where(F.col("place") <= _NAMED)
        .orderBy("broker", "place")
    )
    named: dict[int, _Rows] = {}
    for row in _rows(shown.toArrow()):
        named.setdefault(row["broker"], []).append(row)
    return brokers, named

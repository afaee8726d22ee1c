"""Snapshot folders -> entries: a row of Parquet is an entry, ``cluster.json`` another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from ctrlchan.pipeline.jobs.ingest.entries import INTS, LISTS, About, entries_of, put, reasons_of, record
from ctrlchan.pipeline.spark.tables import read_snapshot
from ctrlchan.pipeline.spark.text_lines import plain_path
from ctrlchan.storage import path_of

__all__ = ["snapshot_entries"]

KIND: Final = "snapshot"
_PARTITION: Final = ("topic", "topic_id", "partition", *INTS, *LISTS)
_BROKER: Final = ("id", "epoch", "rack", "endpoints")


def snapshot_entries(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """Return the entries of these folders.

    Raises SnapshotError for a folder that is no snapshot, or whose columns are wrong.
    """
    found: list[DataFrame] = []
    for path in paths:
        snapshot = read_snapshot(spark, path, by_tasks=True)
        found.append(_entries(snapshot.partitions, _PARTITION, _partition(snapshot.cluster)))
        found.append(_entries(snapshot.brokers, _BROKER, _broker()))
        found.append(_cluster(spark, path, snapshot.cluster))
    whole = found[0]
    for more in found[1:]:
        whole = whole.unionByName(more)
    return whole


def _entries(table: DataFrame, names: Sequence[str], entry: Column) -> DataFrame:
    rows = table.select(
        plain_path(sf.col("_metadata.file_path")).alias("file"),
        sf.col("_metadata.row_index").alias("row"),
        *names,
    )
    return entries_of(rows, KIND, "row", sf.array(entry))


def _partition(cluster: dict[str, object]) -> Column:
    deleting = cluster.get("deleting") or []
    assert isinstance(deleting, list)
    values = {name: sf.col(name) for name in _PARTITION}
    for name in ("partition", *INTS):
        values[name] = sf.col(name).try_cast("bigint")
    for name in LISTS:
        values[name] = sf.col(name).try_cast("array<bigint>")
    return record(
        role=KIND,
        text=_text(*_PARTITION),
        deleting=sf.col("topic").isin(deleting) if deleting else sf.lit(None),
        reasons=reasons_of(
            *(sf.when(sf.col(name).isNull(), sf.lit(f"{name} is null")) for name in _PARTITION)
        ),
        **values,
    )


def _broker() -> Column:
    endpoints = sf.transform(
        "endpoints",
        lambda one: sf.struct(
            one["listener"].alias("listener"),
            sf.upper(one["security_protocol"]).alias("security_protocol"),
            one["host"].alias("host"),
            one["port"].try_cast("bigint").alias("port"),
        ),
    )
    return record(
        about=About.BROKER,
        role=KIND,
        key=sf.col("id").cast("string"),
        text=_text(*_BROKER),
        broker=sf.struct(
            sf.col("id").try_cast("bigint").alias("id"),
            sf.col("epoch").try_cast("bigint").alias("epoch"),
            "rack",
            endpoints.alias("endpoints"),
        ),
        reasons=reasons_of(
            *(sf.when(sf.col(name).isNull(), sf.lit(f"{name} is null")) for name in _BROKER if name != "rack")
        ),
    )


def _text(*names: str) -> Column:
    return sf.to_json(sf.struct(*names), {"ignoreNullFields": "false"})


def _cluster(spark: SparkSession, path: str, cluster: dict[str, object]) -> DataFrame:
    names = ("cluster_id", "controller_id", "controller_epoch")
    file = str(path_of(path) / "cluster.json")
    row = spark.range(1).select(sf.lit(file).alias("file"), sf.lit(0).alias("row"))
    facts = sf.struct(*(sf.lit(cluster[name]).alias(name) for name in names))
    entry = record(
        about=About.CLUSTER,
        role=KIND,
        key=sf.lit(file),
        text=sf.to_json(facts),
        cluster=facts,
        reasons=reasons_of(
            sf.when(
                facts["controller_epoch"] < 0,
                put("controller_epoch ", facts["controller_epoch"].cast("string"), " is below 0"),
            )
        ),
    )
    return entries_of(row, KIND, "row", sf.array(entry))

"""``spark.read.format("ctrlchan")``: the same rows as the functions of ``tables`` give."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException, PySparkException

from ctrlchan.pipeline import Snapshot, read_journal, read_snapshot, write_snapshot
from tests.spark.test_tables import a_journal, a_snapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def alike(one: DataFrame, other: DataFrame, *key: str) -> bool:
    return one.sort(*key).toArrow().to_pylist() == other.sort(*key).toArrow().to_pylist()


def test_a_snapshot(spark: SparkSession, tmp_path: Path) -> None:
    a_snapshot(tmp_path / "s")
    read = read_snapshot(spark, tmp_path / "s")
    reader = spark.read.format("ctrlchan")
    assert alike(reader.load(str(tmp_path / "s")), read.partitions, "topic", "partition")
    assert alike(reader.option("table", "brokers").load(str(tmp_path / "s")), read.brokers, "id")


def test_part_files_are_tasks(spark: SparkSession, tmp_path: Path) -> None:
    a_snapshot(tmp_path / "s")
    read = read_snapshot(spark, tmp_path / "s")
    write_snapshot(Snapshot(read.partitions.repartition(3), read.brokers, read.cluster), tmp_path / "parts")
    parts = list((tmp_path / "parts" / "partitions.parquet").glob("*.parquet"))
    found = spark.read.format("ctrlchan").load(str(tmp_path / "parts"))
    assert found.rdd.getNumPartitions() == len(parts)
    assert alike(found, read.partitions, "topic", "partition")


def test_a_journal_also_with_older_files(spark: SparkSession, tmp_path: Path) -> None:
    a_journal(tmp_path / "j", 2)
    newest = max((tmp_path / "j").glob("*.parquet"))
    table = pq.read_table(newest)
    pq.write_table(table.append_column("owner", pa.array(["me"] * len(table))), newest)
    found = spark.read.format("ctrlchan").load(str(tmp_path / "j"))
    assert alike(found, read_journal(spark, tmp_path / "j"), "sequence")
    assert sorted(row["owner"] or "" for row in found.collect()) == ["", "", "me", "me"]


def test_errors_are_raised_before_a_job_runs(spark: SparkSession, tmp_path: Path) -> None:
    reader = spark.read.format("ctrlchan")
    with pytest.raises(AnalysisException, match="no such folder"):
        reader.load(str(tmp_path / "none"))
    with pytest.raises(AnalysisException, match="neither a snapshot nor frames nor a journal"):
        reader.load(str(tmp_path))
    a_snapshot(tmp_path / "s")
    with pytest.raises(
        AnalysisException, match="snapshot has no table 'rows'; there are partitions, brokers"
    ):
        reader.option("table", "rows").load(str(tmp_path / "s"))


def test_a_file_that_breaks_later_is_named(spark: SparkSession, tmp_path: Path) -> None:
    a_snapshot(tmp_path / "s")
    file = tmp_path / "s" / "partitions.parquet"
    found = spark.read.format("ctrlchan").load(str(tmp_path / "s"))
    whole = bytearray(file.read_bytes())
    whole[4 : len(whole) // 2] = bytes(len(whole) // 2 - 4)
    file.write_bytes(whole)
    with pytest.raises(PySparkException, match=r"partitions\.parquet: broken"):
        found.count()

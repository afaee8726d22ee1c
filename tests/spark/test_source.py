"""``spark.read.format("ctrlchan")``: the same rows as the functions of ``tables`` give."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException, PySparkException

from ctrlchan.pipeline import Snapshot, read_journal, read_snapshot, write_snapshot
from ctrlchan.pipeline.source import pieces
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
    # Spark Connect asks the server when the columns are needed.
    reader = spark.read.format("ctrlchan")
    with pytest.raises(AnalysisException, match="no such folder"):
        _ = reader.load(str(tmp_path / "none")).schema
    with pytest.raises(AnalysisException, match="neither a snapshot nor frames nor a journal"):
        _ = reader.load(str(tmp_path)).schema
    a_snapshot(tmp_path / "s")
    with pytest.raises(
        AnalysisException, match="snapshot has no table 'rows'; there are partitions, brokers"
    ):
        _ = reader.option("table", "rows").load(str(tmp_path / "s")).schema


def test_a_file_that_breaks_later_is_named(spark: SparkSession, tmp_path: Path) -> None:
    a_snapshot(tmp_path / "s")
    file = tmp_path / "s" / "partitions.parquet"
    found = spark.read.format("ctrlchan").load(str(tmp_path / "s"))
    whole = bytearray(file.read_bytes())
    whole[4 : len(whole) // 2] = bytes(len(whole) // 2 - 4)
    file.write_bytes(whole)
    with pytest.raises(PySparkException, match=r"partitions\.parquet: broken"):
        found.count()


def test_some_topics(spark: SparkSession, tmp_path: Path) -> None:
    """Row groups without them are not read."""
    a_snapshot(tmp_path / "s")
    file = tmp_path / "s" / "partitions.parquet"
    pq.write_table(pq.read_table(file), file, row_group_size=10, store_schema=False)
    columns = pq.read_schema(file)
    last = pc.field("topic") == "topic-000006"
    assert [one.row_groups for one in pieces.pieces_of([str(file)], columns, last)] == [(7, 8, 9)]
    reader = spark.read.format("ctrlchan")
    two = reader.option("topics", "topic-000002, topic-000006,none").load(str(tmp_path / "s"))
    table = read_snapshot(spark, tmp_path / "s").partitions
    assert alike(two, table.where("topic in ('topic-000002', 'topic-000006')"), "topic", "partition")
    assert reader.option("topics", "none").load(str(tmp_path / "s")).collect() == []
    # What one query selects does not change another one of the same DataFrame.
    assert (two.where("partition = 3").count(), two.count()) == (2, 26)
    with pytest.raises(PySparkException, match="option topics is for the partitions of a snapshot"):
        reader.option("table", "brokers").load(str(tmp_path / "s")).collect()


def test_a_large_file_is_read_by_several_tasks(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_snapshot(tmp_path / "s")
    file = str(tmp_path / "s" / "partitions.parquet")
    pq.write_table(pq.read_table(file), file, row_group_size=10, store_schema=False)
    columns = pq.read_schema(file)
    monkeypatch.setattr(pieces, "_MOST_BYTES", 1)
    assert [one.row_groups for one in pieces.pieces_of([file], columns)] == [(n,) for n in range(10)]
    monkeypatch.setattr(pieces, "_MOST_BYTES", 2**30)
    assert [one.row_groups for one in pieces.pieces_of([file], columns)] == [tuple(range(10))]


def test_a_journal_as_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    """Several writers, few files a batch, and a query that is started again from its checkpoint."""
    a_journal(tmp_path / "j", 3)
    a_journal(tmp_path / "j", 2)

    def read_on() -> int:
        stream = (
            spark.readStream.format("ctrlchan").option("maxFilesPerTrigger", "2").load(str(tmp_path / "j"))
        )
        query = (
            stream.writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "found"))
        )
        query.awaitTermination(120)
        assert query.exception() is None
        return len([one for one in query.recentProgress if one.numInputRows])

    def is_all() -> bool:
        found = spark.read.parquet(str(tmp_path / "found"))
        return alike(found, read_journal(spark, tmp_path / "j"), "channel", "sequence")

    assert read_on() == -(-len(list((tmp_path / "j").glob("*.parquet"))) // 2)
    assert is_all()
    assert read_on() == 0
    a_journal(tmp_path / "j", 1)
    assert not is_all()
    assert read_on() == 1
    assert is_all()


def test_only_a_journal_is_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    a_snapshot(tmp_path / "s")
    stream = spark.readStream.format("ctrlchan").load(str(tmp_path / "s"))
    with pytest.raises(PySparkException, match="a snapshot does not grow; only a journal"):
        stream.writeStream.format("noop").trigger(availableNow=True).start().awaitTermination(60)

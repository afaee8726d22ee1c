"""Snapshots and journals as DataFrames: the same rows as without Spark, and clear errors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ctrlchan
from ctrlchan.errors import JournalError, PipelineError
from ctrlchan.pipeline import MonitorConfig, monitor, read_journal, read_snapshot, write_snapshot
from ctrlchan.pipeline.spark.text_lines import lines
from ctrlchan.state.importing.generate import GeneratorConfig, generate
from ctrlchan.state.storage.schemas import JOURNAL, JOURNAL_VERSION_KEY
from tests.unit.state.helpers import rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def a_snapshot(path: Path) -> ctrlchan.ClusterState:
    state = generate(GeneratorConfig(topics=7, partitions_per_topic=13, brokers=5, replication=3))
    state.write(path)
    return state


def a_journal(path: Path, files: int) -> None:
    """Write a journal of a channel without brokers."""
    config = ctrlchan.ChannelConfig(controller_id=3, connection_setup_timeout=0.2, senders=1)
    with ctrlchan.EmbeddedCluster(2, log_dir=None, first_id=0) as brokers, ctrlchan.Journal(path) as journal:
        state = generate(GeneratorConfig(topics=2, partitions_per_topic=3, brokers=2, replication=1))
        state.set_brokers(brokers.brokers)
        with ctrlchan.ControllerChannelManager(config, controller_epoch=1, journal=journal) as channel:
            channel.startup(state.brokers)
            batch = ctrlchan.ControllerBrokerRequestBatch(channel, state)
            for _ in range(files):
                batch.new_batch()
                batch.add_update_metadata([0, 1], rows="all")
                channel.wait(batch.send_requests_to_brokers(controller_epoch=1), timeout=30)
                journal.flush()


def test_a_snapshot_is_written_and_read(spark: SparkSession, tmp_path: Path) -> None:
    state = a_snapshot(tmp_path / "s [1]")
    read = read_snapshot(spark, tmp_path / "s [1]")
    assert read.partitions.count() == 91
    assert read.cluster["controller_epoch"] == state.controller_epoch
    write_snapshot(read, tmp_path / "again")
    again = ctrlchan.ClusterState.read(tmp_path / "again")
    again.write(tmp_path / "third")
    for name in ("partitions.parquet", "brokers.parquet"):
        first = pq.read_table(tmp_path / "s [1]" / name)
        assert pq.read_table(tmp_path / "third" / name).equals(first)


def test_an_existing_folder_is_not_replaced_by_default(spark: SparkSession, tmp_path: Path) -> None:
    a_snapshot(tmp_path / "s")
    read = read_snapshot(spark, tmp_path / "s")
    with pytest.raises(PipelineError, match="already there"):
        write_snapshot(read, tmp_path / "s")
    (tmp_path / "mine").mkdir()
    with pytest.raises(PipelineError, match="is not replaced because it has no"):
        write_snapshot(read, tmp_path / "mine", overwrite=True)
    write_snapshot(read, tmp_path / "t")
    write_snapshot(read, tmp_path / "t", overwrite=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "s", "t"]


def test_unknown_columns_are_kept_and_missing_ones_named(spark: SparkSession, tmp_path: Path) -> None:
    a_snapshot(tmp_path / "s")
    file = tmp_path / "s" / "partitions.parquet"
    table = pq.read_table(file)
    pq.write_table(table.append_column("owner", pa.array(["me"] * len(table))), file)
    assert read_snapshot(spark, tmp_path / "s").partitions.select("owner").distinct().count() == 1
    pq.write_table(table.drop_columns(["isr"]), file)
    with pytest.raises(PipelineError, match=r"partitions\.parquet: no column isr"):
        read_snapshot(spark, tmp_path / "s")
    pq.write_table(table.set_column(2, "partition", table["partition"].cast(pa.string())), file)
    with pytest.raises(PipelineError, match="column partition has type string, expected int32"):
        read_snapshot(spark, tmp_path / "s")
    file.write_bytes(b"PAR1 and nothing")
    with pytest.raises(PipelineError, match=r"partitions\.parquet: not a whole Parquet file"):
        read_snapshot(spark, tmp_path / "s")


def test_a_newer_snapshot_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    a_snapshot(tmp_path / "s")
    file = tmp_path / "s" / "cluster.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "format_version": 99}))
    with pytest.raises(PipelineError, match=r"cluster\.json: a snapshot version 99 is of a newer ctrlchan"):
        read_snapshot(spark, tmp_path / "s")


@pytest.fixture
def remote_default(spark: SparkSession) -> Iterator[None]:
    """Spark's paths without a scheme are of an HDFS that nobody serves."""
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    before = hadoop.get("fs.defaultFS")
    hadoop.set("fs.defaultFS", "hdfs://127.0.0.1:1")
    yield
    hadoop.set("fs.defaultFS", before)


@pytest.mark.usefixtures("remote_default")
def test_plain_paths_are_local_with_another_default_file_system(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    state = a_snapshot(tmp_path / "s [1]")
    write_snapshot(read_snapshot(spark, "s [1]"), "again")
    assert rows_of(ctrlchan.ClusterState.read("again")) == rows_of(state)
    a_journal(tmp_path / "journal", 1)
    with monitor(spark, MonitorConfig(journal="journal", checkpoint="checkpoint")) as running:
        running.catch_up()
        assert running.look().rows == read_journal(spark, "journal").count() == 2
    Path("a text").write_text("one\ntwo\n")
    for paths in ("a text", "a t*", (tmp_path / "a text").as_uri().replace("%20", " ")):
        assert [row["text"] for row in lines(spark, paths).collect()] == ["one", "two"]


def test_a_journal_is_what_arrow_reads(spark: SparkSession, tmp_path: Path) -> None:
    """Also with delta encoding and microseconds."""
    a_journal(tmp_path / "journal", 3)
    expected = ctrlchan.read_journal(tmp_path / "journal").sort_by("sequence")
    found = read_journal(spark, tmp_path / "journal").toArrow().sort_by("sequence")
    assert expected.num_rows == found.num_rows == 6
    assert found.column_names == expected.column_names
    for name in expected.column_names:
        assert found[name].to_pylist() == expected[name].to_pylist(), name


def test_a_broken_or_newer_journal_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    for number in range(3):
        pq.write_table(JOURNAL.empty_table(), tmp_path / f"{number}.parquet")
    assert read_journal(spark, tmp_path).count() == 0
    pq.write_table(JOURNAL.with_metadata({JOURNAL_VERSION_KEY: b"99"}).empty_table(), tmp_path / "3.parquet")
    with pytest.raises(JournalError, match=r"3\.parquet: journal version 99 is of a newer ctrlchan"):
        read_journal(spark, tmp_path)
    (tmp_path / "3.parquet").write_bytes(b"PAR1")
    with pytest.raises(JournalError, match=r"3\.parquet: not a whole Parquet file"):
        read_journal(spark, tmp_path)
    with pytest.raises(JournalError, match="no such journal folder"):
        read_journal(spark, tmp_path / "none")

"""Columns of many files: each file is checked, by the driver or by tasks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ctrlchan.errors import PipelineError
from ctrlchan.pipeline import read_snapshot
from ctrlchan.pipeline.spark import footers
from ctrlchan.state.storage.schemas import BROKERS, PARTITIONS, PARTITIONS_LATER
from tests.spark.test_tables import a_snapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(params=["driver", "tasks"])
def most(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(footers, "_MOST", 64 if request.param == "driver" else 2)


def parts_of(snapshot: Path, count: int) -> list[pa.Table]:
    """Write the partitions of a snapshot as so many part files."""
    file = snapshot / "partitions.parquet"
    whole = pq.read_table(file)
    file.unlink()
    file.mkdir()
    tables = [whole.slice(at, 10) for at in range(0, 10 * count, 10)]
    for number, table in enumerate(tables):
        pq.write_table(table, file / f"part-{number}.parquet")
    return tables


@pytest.mark.usefixtures("most")
def test_columns_of_some_files_are_null_in_the_others(spark: SparkSession, tmp_path: Path) -> None:
    a_snapshot(tmp_path / "s")
    tables = parts_of(tmp_path / "s", 6)
    last = tmp_path / "s" / "partitions.parquet" / "part-5.parquet"
    pq.write_table(tables[5].append_column("owner", pa.array(["me"] * len(tables[5]))), last)
    without = tables[0].drop_columns(["row_version"])
    pq.write_table(without, tmp_path / "s" / "partitions.parquet" / "part-0.parquet")
    rows = read_snapshot(spark, tmp_path / "s").partitions
    assert set(PARTITIONS.names) | {"row_version", "owner"} == set(rows.columns)
    found = rows.toArrow()
    assert found.num_rows == sum(map(len, tables))
    assert found["owner"].null_count == found.num_rows - len(tables[5])
    assert found["row_version"].null_count == len(tables[0])


@pytest.mark.usefixtures("most")
@pytest.mark.parametrize(
    ("harm", "message"),
    [
        ("misses a column", "no column isr"),
        ("another type", "column leader has type int64, expected int32"),
        ("another type of what it need not have", "column row_version has type string, expected int64"),
        ("broken", "not a whole Parquet file"),
        ("unlike the others", "its columns do not fit those of others"),
    ],
)
def test_one_bad_file_among_many_is_named(
    harm: str, message: str, spark: SparkSession, tmp_path: Path
) -> None:
    a_snapshot(tmp_path / "s")
    tables = parts_of(tmp_path / "s", 6)
    folder = tmp_path / "s" / "partitions.parquet"
    bad, file = tables[3], folder / "part-3.parquet"
    if harm == "misses a column":
        bad = bad.drop_columns(["isr"])
    elif harm == "another type":
        bad = bad.set_column(bad.column_names.index("leader"), "leader", bad["leader"].cast(pa.int64()))
    elif harm == "another type of what it need not have":
        at = bad.column_names.index("row_version")
        bad = bad.set_column(at, "row_version", bad["row_version"].cast(pa.string()))
    elif harm == "unlike the others":
        before = tables[2].append_column("owner", pa.array([["me"]] * len(bad)))
        pq.write_table(before, folder / "part-2.parquet")
        bad = bad.append_column("owner", pa.array([1] * len(bad)))
    pq.write_table(bad, file)
    if harm == "broken":
        file.write_bytes(file.read_bytes()[:-4])
    with pytest.raises(PipelineError, match=f"part-3.parquet: {message}"):
        read_snapshot(spark, tmp_path / "s")


def test_a_folder_without_parts(spark: SparkSession, tmp_path: Path) -> None:
    a_snapshot(tmp_path / "s")
    parts_of(tmp_path / "s", 0)
    (tmp_path / "s" / "partitions.parquet" / "_SUCCESS").touch()
    with pytest.raises(PipelineError, match=r"partitions\.parquet: no part files in it"):
        read_snapshot(spark, tmp_path / "s")


def test_the_order_is_that_of_the_first_file(tmp_path: Path) -> None:
    a_snapshot(tmp_path / "s")
    snapshot = tmp_path / "s"
    found = footers.columns_of_files([snapshot / "partitions.parquet"], PARTITIONS, later=PARTITIONS_LATER)
    assert found.names == [*PARTITIONS.names, *PARTITIONS_LATER.names]
    assert footers.columns_of_files([snapshot / "brokers.parquet"], BROKERS).names == BROKERS.names

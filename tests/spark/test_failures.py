"""Errors of Spark as one line with the reason."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from ctrlchan.errors import PipelineError, SnapshotError
from ctrlchan.pipeline.spark.failures import as_pipeline_errors, reason_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def raising(problem: Exception, spark: SparkSession) -> None:
    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        raise problem
        yield from batches

    spark.range(2).mapInArrow(work, "id long").groupBy("id").count().collect()


def test_our_error_in_a_worker_keeps_its_message(spark: SparkSession) -> None:
    with pytest.raises(PipelineError) as caught, as_pipeline_errors():
        raising(SnapshotError("f: row 3: leader is -7 (a: b)"), spark)
    assert str(caught.value) == "f: row 3: leader is -7 (a: b)"
    (note,) = caught.value.__notes__
    assert "Traceback" in note


def test_another_error_in_a_worker_is_named(spark: SparkSession) -> None:
    with pytest.raises(PipelineError) as caught, as_pipeline_errors():
        raising(ZeroDivisionError("division by nothing"), spark)
    assert str(caught.value) == "ZeroDivisionError: division by nothing"


def test_an_error_of_spark_itself(spark: SparkSession, tmp_path: Path) -> None:
    with (
        pytest.raises(PipelineError, match=r"^\[PATH_NOT_FOUND\] Path does not exist: \S+/none"),
        as_pipeline_errors(),
    ):
        spark.read.parquet(str(tmp_path / "none"))


def test_an_error_in_java(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PipelineError) as caught, as_pipeline_errors():
        spark.range(1).write.parquet(str(tmp_path / "file" / "below"))
    assert str(tmp_path / "file") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_error_on_the_driver_passes_unchanged() -> None:
    problem = SnapshotError("x")
    with pytest.raises(SnapshotError) as caught, as_pipeline_errors():
        raise problem
    assert caught.value is problem


#: A command like those of the package.
SCRIPT = """
import sys
from ctrlchan.cli import main
from ctrlchan.cli.pipeline import app
from ctrlchan.cli.pipeline.common import RunOptions, spark_of

@app.command()
def failing(folder: str) -> None:
    def work(batches):
        from ctrlchan.errors import SnapshotError
        raise SnapshotError("f: row 3: leader is -7")
        yield from batches

    run = RunOptions(master="local[1]", conf={"spark.driver.memory": "600m"}, as_json=True)
    with spark_of("failing", run) as spark:
        spark.range(2).mapInArrow(work, "id long").write.parquet(folder)

main(["pipeline", "failing", sys.argv[1]])
"""


def test_a_command_prints_the_error_once(tmp_path: Path) -> None:
    script = tmp_path / "failing.py"
    script.write_text(SCRIPT)
    ran = subprocess.run(
        [sys.executable, script, tmp_path / "out"], capture_output=True, text=True, timeout=240, check=False
    )
    assert ran.returncode == 1
    assert ran.stdout == ""
    # Java prints a line about its modules.
    lines = [line for line in ran.stderr.splitlines() if "incubator modules" not in line]
    assert lines == ["error: f: row 3: leader is -7"]


TEXTS = {
    "An error occurred while calling o9.parquet.\n: java.io.IOException: no\n\tat a.b(C.java:1)": (
        "java.io.IOException: no"
    ),
    "x.Y: outer\n\tat a.b(C.java:1)\nCaused by: p.Q: inner\n\tat a.c(C.java:2)\n\t... 3 more\n": "p.Q: inner",
    "[CODE] text. SQLSTATE: 1;\n'Project [x]\n+- Y\n": "[CODE] text. SQLSTATE: 1;\n'Project [x]\n+- Y",
    "Traceback (most recent call last):\n  File 1\n": "Traceback (most recent call last):\n  File 1",
    "": "Spark does not say why",
}


@pytest.mark.parametrize(("text", "reason"), TEXTS.items())
def test_reasons(text: str, reason: str) -> None:
    assert reason_of(text) == reason

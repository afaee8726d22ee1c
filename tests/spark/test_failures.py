"""Errors of Spark as one line with the reason."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JError

from ctrlchan.errors import PipelineError, SnapshotError
from ctrlchan.pipeline import read_journal
from ctrlchan.pipeline.spark.failures import as_pipeline_errors, reason_of
from ctrlchan.state.storage.schemas import JOURNAL
from tests.spark.planted import Planted

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


def test_a_python_worker_that_is_killed(spark: SparkSession) -> None:
    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        os.kill(os.getpid(), signal.SIGKILL)
        yield from batches

    with (
        pytest.raises(PipelineError, match=r"^a Python worker of Spark died: it was killed"),
        as_pipeline_errors(),
    ):
        spark.range(2).mapInArrow(work, "id long").collect()


def test_executors_without_a_package(spark: SparkSession) -> None:
    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import nopackage.inner  # type: ignore[import-not-found]  # noqa: F401

        yield from batches

    message = r"^the Python of Spark's executors has no nopackage: install 'ctrlchan\[spark\]' there"
    with pytest.raises(PipelineError, match=message), as_pipeline_errors():
        spark.range(2).mapInArrow(work, "id long").collect()


def test_a_broken_page_of_a_file(spark: SparkSession, tmp_path: Path) -> None:
    """Also one that unpacks without an error: pages of a journal have checksums."""
    planted = Planted(tmp_path / "journal")
    planted.full(*range(200))
    planted.write()
    [file] = (tmp_path / "journal").glob("*.parquet")
    pq.write_table(pq.read_table(file), file, compression="none", write_page_checksum=True)
    column = pq.read_metadata(file).row_group(0).column(JOURNAL.names.index("sequence"))
    whole = bytearray(file.read_bytes())
    whole[column.data_page_offset + column.total_compressed_size - 1] ^= 1
    file.write_bytes(whole)
    message = f"^{file}: damaged, Spark cannot read it: restore it from a copy"
    with pytest.raises(PipelineError, match=message), as_pipeline_errors():
        read_journal(spark, file.parent).toArrow()


def test_an_error_on_the_driver_passes_unchanged() -> None:
    problem = SnapshotError("x")
    with pytest.raises(SnapshotError) as caught, as_pipeline_errors():
        raise problem
    assert caught.value is problem


#: A command whose JVM ends, then one whose job fails, in a session that is not disturbed by the first.
SCRIPT = """
import os, signal, sys
from ctrlchan.cli import main
from ctrlchan.cli.pipeline import app
from ctrlchan.cli.pipeline.common import RunOptions, spark_of

RUN = RunOptions(master="local[1]", conf={"spark.driver.memory": "600m"}, as_json=True)

@app.command()
def ending() -> None:
    with spark_of("ending", RUN) as spark:
        os.kill(spark.sparkContext._gateway.proc.pid, signal.SIGKILL)
        spark.sparkContext._gateway.proc.wait()
        # At the end of this line a broker could be meant.
        spark.range(2).count()

@app.command()
def failing(folder: str) -> None:
    def work(batches):
        from ctrlchan.errors import SnapshotError
        raise SnapshotError("f: row 3: leader is -7")
        yield from batches

    with spark_of("failing", RUN) as spark:
        spark.range(2).mapInArrow(work, "id long").write.parquet(folder)

for words in (["ending"], ["failing", sys.argv[1]]):
    try:
        main(["pipeline", *words])
    except SystemExit as ended:
        print(ended.code)
"""


def test_a_command_prints_the_error_once(tmp_path: Path) -> None:
    script = tmp_path / "commands.py"
    script.write_text(SCRIPT)
    ran = subprocess.run(
        [sys.executable, script, tmp_path / "out"], capture_output=True, text=True, timeout=480, check=False
    )
    # Java prints no line about its modules.
    ended, failed = ran.stderr.splitlines()
    assert ended.startswith("error: Spark's JVM has ended: it was killed, or had no memory left")
    assert failed == "error: f: row 3: leader is -7"
    assert ran.stdout == "1\n1\n"


class _OfDeadJvm(Py4JError):  # type: ignore[misc]  # py4j has no types
    """Asks the JVM for its text, as ``Py4JJavaError`` does."""

    def __str__(self) -> str:
        raise ConnectionRefusedError(111, "Connection refused")


def test_an_error_whose_text_has_gone_with_the_jvm() -> None:
    with pytest.raises(PipelineError, match="Spark's JVM has ended"), as_pipeline_errors():
        raise _OfDeadJvm("x")


TEXTS = {
    "x.SparkException: Job aborted: Lost task 0.3 in stage 1.0 (TID 4) (host executor 2): "
    "ExecutorLostFailure (executor 2 exited caused by one of the running tasks) "
    "Reason: Command exited with code 137\nStack:": (
        "an executor of Spark died: executor 2 exited caused by one of the running tasks: Command exited "
        "with code 137 (spark.executor.memory is what it may use)"
    ),
    "Traceback (most recent call last):\n  File 1\nx.PySparkImportError: [PACKAGE_NOT_INSTALLED] PyArrow >= "
    "18.0.0 must be installed; however, it was not found.\n": (
        "the Python of Spark's executors has no PyArrow: install 'ctrlchan[spark]' there, or name another "
        "Python by PYSPARK_PYTHON"
    ),
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

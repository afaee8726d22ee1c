"""Measures jobs on this machine's disk, on HDFS and on S3 (moto's server, in this process), in turn.

Command: ``python -m bench spark_stores``, or by itself ``python -m pytest bench/test_spark_stores.py
--benchmark-json=build/bench/spark_stores.json``. Needs ``java`` and ``mvn``.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench.alternate import milliseconds
from bench.spark import DATA, SETTINGS, journal_of, snapshot_of
from ctrlchan.storage import AnyPath, files_in, path_of, replace
from tests.storage.hdfs import hadoop_jars, serving_hdfs
from tests.storage.s3 import serving_s3

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS: Final = 100_000
BROKERS: Final = 30
OUTCOMES: Final = 1_000_000
ROUNDS: Final = 3


@pytest.fixture(scope="module")
def stores() -> Iterator[Mapping[str, AnyPath]]:
    """A folder of each store, with the snapshot and the journal in it."""
    import s3fs

    local = DATA / "stores"
    shutil.rmtree(local, ignore_errors=True)
    local.mkdir(parents=True)
    with serving_hdfs() as hdfs, serving_s3() as s3, pytest.MonkeyPatch.context() as patch:
        for name, value in s3.environment.items():
            patch.setenv(name, value)
        s3fs.S3FileSystem.clear_instance_cache()
        roots = {"disk": local, "HDFS": path_of(f"{hdfs}/bench"), "S3": path_of(s3.bucket("bench"))}
        for root in roots.values():
            for source in (snapshot_of(PARTITIONS, BROKERS), journal_of(OUTCOMES)):
                if root is local:
                    shutil.copytree(source, local / source.name)
                    continue
                for file in files_in(source):
                    replace(root / source.name / file.name, file.read_bytes())
        yield roots


@pytest.fixture(scope="module")
def spark(stores: Mapping[str, AnyPath]) -> Iterator[SparkSession]:
    from ctrlchan.pipeline import running

    settings = {**SETTINGS, "spark.jars": ",".join(hadoop_jars())}
    with running("ctrlchan-bench-stores", master="local[*]", conf=settings) as session:
        yield session


def make_frames(spark: SparkSession, root: AnyPath) -> None:
    """Run the job of ``ctrlchan pipeline frames`` inside one store."""
    from ctrlchan.pipeline import FramesConfig, frames, read_snapshot, write_frames

    source = read_snapshot(spark, root / snapshot_of(PARTITIONS, BROKERS).name)
    write_frames(frames(spark, source, FramesConfig()), root / "frames", overwrite=True)


def make_report(spark: SparkSession, root: AnyPath) -> None:
    """Run the job of ``ctrlchan pipeline report`` inside one store."""
    from ctrlchan.pipeline import ReportConfig, report, write_report

    made = report(spark, ReportConfig(journal=root / journal_of(OUTCOMES).name))
    write_report(spark, made, root / "report", overwrite=True)


JOBS: Final = {
    f"`frames` of {PARTITIONS:,} partitions for {BROKERS} brokers": make_frames,
    f"`report` of {OUTCOMES:,} outcomes": make_report,
}


@pytest.mark.parametrize("job", JOBS)
def test_stores(
    benchmark: BenchmarkFixture,
    spark: SparkSession,
    stores: Mapping[str, AnyPath],
    scaled: Callable[[int], int],
    job: str,
) -> None:
    run = JOBS[job]
    took: dict[str, list[float]] = {name: [] for name in stores}

    def all_in_turn() -> None:
        for name, root in stores.items():
            took[name].append(milliseconds(lambda root=root: run(spark, root)))  # type: ignore[misc]

    all_in_turn()  # the first run of each compiles its plan
    for times in took.values():
        times.clear()
    benchmark.extra_info.update(suite="spark_stores", job=job, ms=took)
    benchmark.pedantic(all_in_turn, rounds=scaled(ROUNDS))  # type: ignore[no-untyped-call]

"""Measures jobs of the pipeline beside Spark moving the same data without ctrlchan.

Command: ``python -m bench spark``, or by itself ``python -m pytest bench/test_spark.py
--benchmark-json=build/bench/spark.json`` (``--quick``, ``-k reading``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench.spark import DATA, SETTINGS, beside_spark, journal_of, run, snapshot_of
from ctrlchan.state.storage.snapshot import PARTITIONS_FILE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROUNDS: Final = 10
#: Rounds of jobs that write gigabytes.
SLOW_ROUNDS: Final = 3
#: Partitions, and a tenth of them.
SIZES: Final = (100_000, 1_000_000)
BROKERS: Final = 100
#: Outcomes of a journal, and a tenth of them. A report takes a minute.
OUTCOMES: Final = (1_000_000, 10_000_000)
REPORT_ROUNDS: Final = 3
SMALL_ROUNDS: Final = 3


def test_small_jobs(benchmark: BenchmarkFixture, scaled: Callable[[int], int]) -> None:
    """Measure commands on small inputs; without other Spark sessions, so it is the first test."""
    from bench.spark_small import SESSION, commands, prepare, processor_ms

    prepare()
    wanted = {
        f"{name}{', prepared' if prepared else ''}": (command, prepared)
        for prepared in (False, True)
        for name, command in {"session": SESSION, **commands()}.items()
    }
    took: dict[str, list[float]] = {name: [] for name in wanted}

    def all_in_turn() -> None:
        for name, (command, prepared) in wanted.items():
            took[name].append(processor_ms(command, prepared=prepared))

    benchmark.extra_info.update(suite="spark_small", ms=took)
    benchmark.pedantic(all_in_turn, rounds=scaled(SMALL_ROUNDS))  # type: ignore[no-untyped-call]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    from ctrlchan.pipeline import running

    with running("ctrlchan-bench", master="local[*]", conf=SETTINGS) as session:
        yield session


@pytest.mark.parametrize("partitions", SIZES)
@pytest.mark.parametrize("how", ["read_snapshot", "format"])
def test_reading(
    benchmark: BenchmarkFixture,
    spark: SparkSession,
    scaled: Callable[[int], int],
    how: str,
    partitions: int,
) -> None:
    from ctrlchan.pipeline import read_snapshot

    path = snapshot_of(partitions, BROKERS)
    ours = {
        "read_snapshot": lambda: run(read_snapshot(spark, path).partitions),
        "format": lambda: run(spark.read.format("ctrlchan").load(str(path))),
    }
    beside_spark(
        benchmark,
        ours[how],
        lambda: run(spark.read.parquet(str(path / PARTITIONS_FILE))),
        scaled(ROUNDS),
        job={"read_snapshot": "`read_snapshot`", "format": '`format("ctrlchan")`'}[how],
        work="partitions read",
        rows=partitions,
    )


@pytest.mark.parametrize("partitions", SIZES)
def test_frames(
    benchmark: BenchmarkFixture,
    spark: SparkSession,
    scaled: Callable[[int], int],
    partitions: int,
) -> None:
    from bench.spark_frames import encoded, moved

    beside_spark(
        benchmark,
        lambda: encoded(spark, partitions, BROKERS),
        lambda: moved(spark, partitions, BROKERS),
        scaled(SLOW_ROUNDS),
        job="`frames`",
        work=f"partitions for {BROKERS} brokers",
        rows=partitions,
    )


@pytest.mark.parametrize("outcomes", OUTCOMES)
def test_report(
    benchmark: BenchmarkFixture, spark: SparkSession, scaled: Callable[[int], int], outcomes: int
) -> None:
    """Measure the whole report with its page; the other side reads every column of the journal once."""
    from ctrlchan.pipeline import ReportConfig, report, write_report

    path = journal_of(outcomes)

    def ours() -> None:
        made = report(spark, ReportConfig(journal=path))
        write_report(spark, made, DATA / "report", overwrite=True)

    beside_spark(
        benchmark,
        ours,
        lambda: run(spark.read.parquet(str(path))),
        scaled(REPORT_ROUNDS),
        job="`report`",
        work="outcomes",
        rows=outcomes,
    )

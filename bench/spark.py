"""Data and settings of the suite ``spark``, which measures a job beside the same work without ctrlchan.

``WITHOUT`` is the side of Spark alone, which moves the same data: the limit. Every job is also measured at a
tenth of its size, so that the table shows whether time and memory grow linearly.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pytest_benchmark.fixture import BenchmarkFixture

from bench.alternate import OURS, Side, milliseconds, side_by_side
from bench.journals import write_journal
from bench.memory import peak_pss_mib
from bench.peers.process import ROOT
from bench.workload import PARTITIONS_PER_TOPIC
from ctrlchan.state.importing.generate import GeneratorConfig, generate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["DATA", "SETTINGS", "WITHOUT", "beside_spark", "journal_of", "run", "snapshot_of"]

WITHOUT: Final = "without"
#: Kept for the next run: a journal of ten million rows takes minutes to make.
DATA: Final = ROOT / "build" / "bench" / "spark"
#: Settings of the session: little memory, so that memory that grows with the data is visible.
SETTINGS: Final = {"spark.driver.memory": "2g", "spark.local.dir": str(DATA / "tmp")}


def snapshot_of(partitions: int, brokers: int) -> Path:
    """Return a snapshot folder with replication 3 and topics of 100 partitions; made if it is missing."""
    path = DATA / f"snapshot-{partitions}-{brokers}"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        shape = GeneratorConfig(
            topics=partitions // PARTITIONS_PER_TOPIC,
            partitions_per_topic=PARTITIONS_PER_TOPIC,
            brokers=brokers,
        )
        generate(shape).write(path)
    return path


def journal_of(outcomes: int) -> Path:
    """Return a journal folder of one controller, 100 brokers and updates of single partitions."""
    path = DATA / f"journal-{outcomes}"
    if not path.exists():
        made = path.with_suffix(".made")
        shutil.rmtree(made, ignore_errors=True)
        write_journal(made, outcomes)
        made.rename(path)
    return path


def run(rows: DataFrame) -> None:
    """Compute all rows and discard them."""
    rows.write.format("noop").mode("overwrite").save()


def beside_spark(
    benchmark: BenchmarkFixture,
    ours: Callable[[], object],
    without: Callable[[], object],
    rounds: int,
    *,
    job: str,
    work: str,
    rows: int,
) -> None:
    """Time both sides, then measure the memory of one more call of each.

    The memory is that of this process and all its descendants: driver, JVM and Python workers. ``work``: the
    unit of work, as text of the table. ``rows``: the number of units.
    """
    calls = {OURS: ours, WITHOUT: without}
    sides = {name: Side(call=lambda call=call: milliseconds(call)) for name, call in calls.items()}  # type: ignore[misc]
    side_by_side(benchmark, sides, rounds, suite="spark", job=job, work=work, rows=rows)
    benchmark.extra_info["pss_mib"] = {name: peak_pss_mib(os.getpid(), call) for name, call in calls.items()}

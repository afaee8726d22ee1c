"""What is missing on the executors of a session, asked of each of them."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Final

from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

import ctrlchan
from ctrlchan.errors import PipelineError
from ctrlchan.pipeline.spark import executor_check
from ctrlchan.pipeline.spark.remote import is_remote, parallelism
from ctrlchan.pipeline.spark.tables import literally
from ctrlchan.storage import AnyPath, is_url, replace

__all__ = ["examine_executors"]

#: Seconds of a task, so that one executor does not take the tasks of all.
_TASK_SECONDS: Final = 0.5
_PAUSE_SECONDS: Final = 0.2
_TASKS_PER_CORE: Final = 2


def examine_executors(
    spark: SparkSession,
    *,
    storage: Sequence[AnyPath] = (),
    listeners: Sequence[tuple[str, int]] = (),
    timeout: float = 60.0,
) -> list[dict[str, Any]]:
    """Run a task on each executor; return its host, folder, Python and problems, ordered by host.

    ``storage``: folders that all executors must read and write, by URL from Python and from Spark.
    ``listeners``: addresses of brokers that they must reach.

    Raises PipelineError if no executor starts, not every executor has run a task within ``timeout`` seconds,
    this process cannot write into a folder, or Spark cannot read there.
    """
    deadline = time.monotonic() + timeout
    _wait_for_one(spark, deadline, timeout)
    # By value: an executor without ctrlchan could not import its functions.
    pickling: Any = cloudpickle
    pickling.register_pickle_by_value(executor_check)
    with ExitStack() as cleanup:
        cleanup.callback(pickling.unregister_pickle_by_value, executor_check)
        for folder in storage:
            probe = folder / executor_check.PROBE
            try:
                replace(probe, b"")
            except OSError as problem:
                raise PipelineError(f"{folder}: cannot be written: {problem}") from problem
            cleanup.callback(probe.unlink, missing_ok=True)
        executors = _examined(spark, [str(one) for one in storage], list(listeners), deadline)
        if not any(one["problems"] for one in executors):
            # Jobs use Spark's own classes of a store, too.
            for folder in filter(is_url, storage):
                spark.read.format("binaryFile").load(literally(folder / executor_check.PROBE)).count()
        return executors


def _examined(
    spark: SparkSession, storage: list[str], listeners: list[tuple[str, int]], deadline: float
) -> list[dict[str, Any]]:
    examine, version = executor_check.examine, ctrlchan.__version__

    def described(_: int) -> str:
        return json.dumps(examine(version, storage, listeners, _TASK_SECONDS))

    # Not by Arrow, which the executor may not have.
    task = udf(described, "string", useArrow=False)
    found: dict[tuple[str, str], dict[str, Any]] = {}
    while True:
        tasks = _TASKS_PER_CORE * max(parallelism(spark), _count(spark))
        for row in spark.range(0, tasks, 1, tasks).select(task("id")).collect():
            one = json.loads(row[0])
            found[one["host"], one["folder"]] = one
        if len(found) >= _count(spark):
            return [found[key] for key in sorted(found)]
        if time.monotonic() > deadline:
            raise PipelineError(
                f"only {len(found)} of {_count(spark)} executors have run a task: run the check again"
            )


def _wait_for_one(spark: SparkSession, deadline: float, timeout: float) -> None:
    while _count(spark) == 0:
        if time.monotonic() > deadline:
            raise PipelineError(
                f"no executor has started on {spark.sparkContext.master} within {timeout:g} s: each machine "
                "needs Java 17 or later (JAVA_HOME, or on the path), and what spark.executor.* asks for; "
                "the logs of the workers say more"
            )
        time.sleep(_PAUSE_SECONDS)


def _count(spark: SparkSession) -> int:
    """Return the number of executors; on one machine the driver is one.

    A Spark Connect server does not tell it: one at least, and those that run a task are found.
    """
    if is_remote(spark):
        return 1
    context: Any = spark.sparkContext
    members = int(context._jsc.sc().getExecutorMemoryStatus().size())
    return members if context.master.startswith("local") else members - 1

"""``load``: one task for each worker of a load, all at the same time (Spark's barrier mode)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from ctrlchan.errors import CtrlchanError, PipelineError
from ctrlchan.loads.load import Load
from ctrlchan.loads.result import Result

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["FEW_RETRIES", "run_load"]

#: Settings for the start of a session: Spark looks for enough cores for half a minute, not for ten.
FEW_RETRIES: Final = {
    "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "2s",
    "spark.scheduler.barrier.maxConcurrentTasksCheck.maxFailures": "15",
}
_SCHEMA: Final = pa.schema([("answer", pa.string())])


def run_load(spark: SparkSession, load: Load) -> Result:
    """Run the load with a task for each of its clients; return the sum of what they have done.

    Executors need the packages of ctrlchan's extra ``bench``, and as many cores as there are clients: all
    tasks run at the same time. ``FEW_RETRIES`` lets Spark say soon that it has fewer. Raises PipelineError.
    """
    # With the passwords of the clients, which so are in no plan and no log.
    text = load.encode()

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column("id").to_numpy().tolist():
                yield pa.RecordBatch.from_pylist([{"answer": _answer(text, number)}], schema=_SCHEMA)

    tasks = spark.range(0, load.clients, 1, load.clients)
    answers = [json.loads(row[0]) for row in tasks.mapInArrow(work, "answer string", barrier=True).collect()]
    problems = sorted(one["error"] for one in answers if one.get("error"))
    if problems:
        raise PipelineError(problems[0])
    if len(answers) < load.clients or any("result" not in one for one in answers):
        raise PipelineError(f"{len(answers)} of {load.clients} clients have answered")
    return Result.merged(Result.decode(one["result"]) for one in answers)


def _answer(text: str, number: int) -> str:
    """Be a worker, in a task; return its result or its error as JSON.

    A task that raised an error would be started again, and load the cluster again.
    """
    from pyspark import BarrierTaskContext

    has_met = False

    def meet(problem: str) -> None:
        """Wait until all workers are ready. Raises CtrlchanError if one of them is not."""
        nonlocal has_met
        has_met = True
        # All have to come, or those who wait would wait for ever.
        if any(BarrierTaskContext.get().allGather(problem)) and not problem:
            raise CtrlchanError("")

    try:
        from ctrlchan.loads.run import run_worker

        result = run_worker(Load.decode(text), number, wait_for_start=lambda: meet(""))
    except (CtrlchanError, ImportError) as problem:
        if not has_met:
            meet(str(problem) or type(problem).__name__)
        return json.dumps({"error": str(problem)})
    return json.dumps({"result": result.encode()})

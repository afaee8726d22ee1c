"""Progress of Spark's jobs on a terminal."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, TypeAlias

from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ctrlchan.pipeline.spark.remote import is_remote

__all__ = ["Stage", "progress", "reported"]

#: Seconds between two updates.
_INTERVAL: Final = 0.2
#: Seconds that the last update may take.
_PATIENCE: Final = 2.0


class Stage(NamedTuple):
    """A running stage and its tasks."""

    number: int
    tasks: int
    completed: int


Show: TypeAlias = Callable[[Sequence[Stage]], None]


@contextmanager
def progress(spark: SparkSession, title: str, *, shown: bool = True) -> Iterator[None]:
    """Show a bar of finished tasks on standard error while the block runs, if it is a terminal."""
    console = Console(stderr=True)
    if not (shown and console.is_terminal):
        yield
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("tasks"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(title, total=None)

        def show(stages: Sequence[Stage]) -> None:
            if stages:
                # Names of stages are internal to Spark; numbers show progress.
                bar.update(
                    task,
                    description=f"{title}: stage {', '.join(str(stage.number) for stage in stages)}",
                    completed=sum(stage.completed for stage in stages),
                    total=sum(stage.tasks for stage in stages),
                )

        with (reported if is_remote(spark) else _watched)(spark, show):
            yield


@contextmanager
def _watched(spark: SparkSession, show: Show) -> Iterator[None]:
    """Ask the JVM of this process for its stages, on a thread."""
    from py4j.protocol import Py4JError

    ended = threading.Event()

    def watch() -> None:
        status = spark.sparkContext.statusTracker()
        while not ended.wait(_INTERVAL):
            try:
                stages = [status.getStageInfo(stage) for stage in status.getActiveStageIds()]
            except (Py4JError, OSError):
                # The JVM has ended; the thread that waits for the job raises.
                return
            show(
                [Stage(one.stageId, one.numTasks, one.numCompletedTasks) for one in stages if one is not None]
            )

    watcher = threading.Thread(target=watch, name="ctrlchan-progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        # After Ctrl-C the thread may wait for ever: py4j has closed its connection.
        watcher.join(_PATIENCE)


@contextmanager
def reported(spark: SparkSession, show: Show) -> Iterator[None]:
    """Let a Spark Connect server report its stages, while a call waits for its answer."""

    def report(stages: Iterable[Any] | None, **_: object) -> None:
        running = [one for one in stages or () if not one.done]
        show([Stage(one.stage_id, one.num_tasks, one.num_completed_tasks) for one in running])

    # Its type wants a class.
    handler: Any = report
    spark.registerProgressHandler(handler)
    try:
        yield
    finally:
        spark.removeProgressHandler(handler)

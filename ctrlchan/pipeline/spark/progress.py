"""Progress of Spark's jobs on a terminal."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

__all__ = ["progress"]

#: Seconds between two updates.
_INTERVAL: Final = 0.2
#: Seconds that the last update may take.
_PATIENCE: Final = 2.0


@contextmanager
def progress(spark: SparkSession, title: str, *, shown: bool = True) -> Iterator[None]:
    """Show a bar of finished tasks on standard error while the block runs, if it is a terminal."""
    console = Console(stderr=True)
    if not (shown and console.is_terminal):
        yield
        return
    ended = threading.Event()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("tasks"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(title, total=None)

        def watch() -> None:
            status = spark.sparkContext.statusTracker()
            while not ended.wait(_INTERVAL):
                try:
                    stages = [status.getStageInfo(stage) for stage in status.getActiveStageIds()]
                except (Py4JError, OSError):
                    # The JVM has ended; the thread that waits for the job raises.
                    return
                found = [stage for stage in stages if stage is not None]
                if found:
                    # Names of stages are internal to Spark; numbers show progress.
                    numbers = ", ".join(str(stage.stageId) for stage in found)
                    bar.update(
                        task,
                        description=f"{title}: stage {numbers}",
                        completed=sum(stage.numCompletedTasks for stage in found),
                        total=sum(stage.numTasks for stage in found),
                    )

        watcher = threading.Thread(target=watch, name="ctrlchan-progress", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            # After Ctrl-C the thread may wait for ever: py4j has closed its connection.
            watcher.join(_PATIENCE)

"""Runs the monitor: Structured Streaming over a journal folder adds up rows, ``look`` returns figures."""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users call it
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery

from ctrlchan.errors import CtrlchanError, PipelineError
from ctrlchan.journal.check import check_journal
from ctrlchan.pipeline.jobs.monitor.aggregates import JOURNAL_COLUMNS
from ctrlchan.pipeline.jobs.monitor.batches import Batches
from ctrlchan.pipeline.jobs.monitor.checkpoint import CheckpointStore
from ctrlchan.pipeline.jobs.monitor.config import MonitorConfig
from ctrlchan.pipeline.jobs.monitor.divergence import diverged_brokers
from ctrlchan.pipeline.jobs.monitor.figures import Diverged, Figures, figures_of
from ctrlchan.pipeline.jobs.monitor.unfinished import read_unfinished
from ctrlchan.pipeline.spark.failures import reason_of
from ctrlchan.pipeline.spark.remote import is_remote
from ctrlchan.pipeline.spark.tables import JOURNAL_OPTIONS, destination, literally
from ctrlchan.state.storage.schemas import JOURNAL
from ctrlchan.storage import path_of, remove_tree

__all__ = ["Monitor", "monitor"]

_PY4J: Final = "py4j.clientserver"
_READ: Final = pa.schema([JOURNAL.field(name).with_nullable(True) for name in JOURNAL_COLUMNS])


class Monitor(AbstractContextManager["Monitor"]):
    """A monitor of one journal; a context manager, which stops the Spark query.

    ``catch_up`` reads all existing rows, ``start`` continues in the background, ``look`` returns figures.
    """

    def __init__(self, spark: SparkSession, config: MonitorConfig) -> None:
        self._spark = spark
        self._config = config
        check_journal(config.journal)
        self._journal = str(path_of(config.journal).resolve())
        self._temporary = config.checkpoint is None
        folder = config.checkpoint or tempfile.mkdtemp(prefix="ctrlchan-monitor-")
        self._folder = path_of(folder).resolve()
        self._checkpoint = CheckpointStore(self._folder / "sums", self._journal)
        self._batches = Batches(config, self._journal, str(self._folder / "sums"))
        self._query: StreamingQuery | None = None
        self._problem: CtrlchanError | None = None
        self._divergence = _Divergence(spark, config)
        # ``look`` raises the error of a batch; py4j would also log it, with all its frames.
        logging.getLogger(_PY4J).addFilter(self._no_problem)

    def catch_up(self) -> None:
        """Read all existing rows. Raises JournalError, PipelineError."""
        self._query = self._start(available_now=True)
        self._wait(self._query)
        self._query = None

    def start(self) -> None:
        """Start reading new rows in the background, until ``close``."""
        self._query = self._start(available_now=False)

    def look(self) -> Figures:
        """Return the figures now. Raises the error that stopped the query, if any."""
        if self._query is not None and not self._query.isActive:
            self._wait(self._query)
        unfinished = read_unfinished(self._config.journal)
        state = self._checkpoint.newest()
        return figures_of(
            state,
            unfinished.waits(state.ended),
            now=self._now(),
            window=self._config.window,
            diverged=self._divergence.now(),
        )

    def close(self) -> None:
        """Stop the query; delete the checkpoint if it is temporary."""
        logging.getLogger(_PY4J).removeFilter(self._no_problem)
        if self._query is not None:
            self._query.stop()
            self._query = None
        if self._temporary:
            remove_tree(self._folder)

    def __exit__(self, *_: object) -> None:
        self.close()

    def _no_problem(self, record: logging.LogRecord) -> bool:
        return self._problem is None

    def _now(self) -> float:
        return time.time() if self._config.now is None else self._config.now

    def _start(self, *, available_now: bool) -> StreamingQuery:
        stream = (
            self._spark.readStream.schema(from_arrow_schema(_READ))
            .options(maxFilesPerTrigger=self._config.max_files, **JOURNAL_OPTIONS)
            .parquet(literally(self._journal))
            .select("*", F.col("_metadata.file_path").alias("file"))
        )
        writer = stream.writeStream.foreachBatch(self._process).option(
            "checkpointLocation", destination(self._folder / "spark")
        )
        if available_now:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{round(self._config.interval * 1000)} milliseconds").start()

    def _process(self, batch: DataFrame, number: int) -> None:
        """Add a batch to the state, and keep its error; Spark calls this on its own thread."""
        try:
            self._batches(batch, number)
        except CtrlchanError as problem:
            self._problem = problem
            raise
        except Exception as problem:
            self._problem = PipelineError(f"{self._config.journal}: {reason_of(str(problem))}")
            raise

    def _wait(self, query: StreamingQuery) -> None:
        """Wait for the end of the query and raise its error."""
        try:
            query.awaitTermination()
        except StreamingQueryException as problem:
            if self._problem is not None:
                raise self._problem from None
            raise PipelineError(f"{self._config.journal}: {reason_of(str(problem))}") from problem


@dataclass
class _Divergence:
    """Finds the brokers with stale metadata; repeats the search when the last result is too old."""

    spark: SparkSession
    config: MonitorConfig
    found: list[Diverged] = field(default_factory=list)
    at: float = float("-inf")

    def now(self) -> Sequence[Diverged] | None:
        if self.config.snapshot is None:
            return None
        if time.monotonic() - self.at >= self.config.divergence_interval:
            self.found = diverged_brokers(self.spark, self.config.journal, self.config.snapshot)
            self.at = time.monotonic()
        return self.found


def monitor(spark: SparkSession, config: MonitorConfig) -> Monitor:
    """Return a monitor of a journal, with the state of its checkpoint; nothing is read yet.

    Raises JournalError for a missing folder, PipelineError for a checkpoint of another journal and in a
    session of Spark Connect, where batches would run in a process of the server.
    """
    if is_remote(spark):
        raise PipelineError("monitor needs Spark in this process (--master): not a Spark Connect server")
    return Monitor(spark, config)

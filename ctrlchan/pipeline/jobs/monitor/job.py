"""The job: Structured Streaming over a journal folder; sums per batch, figures whenever somebody looks."""

from __future__ import annotations

import logging
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users call it
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery

from ctrlchan.errors import ConfigError, CtrlchanError, PipelineError
from ctrlchan.journal import journal_files
from ctrlchan.pipeline.jobs.monitor.cells import JOURNAL_COLUMNS, STEP, cells_of
from ctrlchan.pipeline.jobs.monitor.checkpoint import Ledger, Sums
from ctrlchan.pipeline.jobs.monitor.figures import Diverged, Figures, figures_of
from ctrlchan.pipeline.jobs.monitor.unfinished import RequestKey, Shown, shown_by
from ctrlchan.pipeline.spark.footers import columns_of_journal
from ctrlchan.pipeline.spark.tables import literally
from ctrlchan.pipeline.spark.text_lines import plain_path
from ctrlchan.state.storage.schemas import JOURNAL

__all__ = ["Monitor", "MonitorConfig", "monitor"]

_PY4J: Final = "py4j.clientserver"
_UNREADABLE: Final = re.compile(r"Encountered error while reading file (\S+?)\.?(?:\s|$)")
_READ: Final = pa.schema([JOURNAL.field(name).with_nullable(True) for name in JOURNAL_COLUMNS])


@dataclass(frozen=True, kw_only=True)
class MonitorConfig:
    """``journal``: its folder. ``checkpoint``: a folder on this machine, where a monitor that is started
    again goes on; None: each begins with the oldest row. ``window``: seconds of the rolling figures.
    ``interval``: seconds between two looks into the folder. ``max_files``: that one batch takes, at most.
    ``snapshot``: what brokers should know, for divergence, which reads the whole journal, every
    ``divergence_interval`` seconds at most. ``now``: the time for which figures are made, seconds since
    1970; None: the clock's.
    """

    journal: str | Path
    checkpoint: str | Path | None = None
    window: float = 300.0
    interval: float = 5.0
    max_files: int = 1_000
    snapshot: str | Path | None = None
    divergence_interval: float = 60.0
    now: float | None = None

    def __post_init__(self) -> None:
        if self.window < STEP:
            raise ConfigError(f"window: {self.window:g} s; it has to be {STEP} s or more")
        if not self.interval > 0:
            raise ConfigError(f"interval: {self.interval:g} s; it has to be more than 0")
        if self.max_files < 1:
            raise ConfigError(f"max_files: {self.max_files}; it has to be 1 or more")


class Monitor:
    """A journal that is watched; a context manager, which ends the query.

    ``catch_up`` reads all there is now, ``start`` goes on reading in the background; ``look`` gives figures.
    """

    def __init__(self, spark: SparkSession, config: MonitorConfig) -> None:
        self._spark = spark
        self._config = config
        # Also says when there is no such folder.
        journal_files(config.journal)
        self._journal = str(Path(config.journal).resolve())
        self._temporary = config.checkpoint is None
        self._folder = Path(config.checkpoint or tempfile.mkdtemp(prefix="ctrlchan-monitor-")).resolve()
        self._ledger = Ledger(self._folder / "sums", self._journal)
        self._lock = threading.Lock()
        self._sums = self._ledger.newest()
        self._query: StreamingQuery | None = None
        self._problem: CtrlchanError | None = None
        self._divergence = _Divergence(spark, config)
        # What fails in a batch is raised by whoever looks; py4j would also log it, with all its frames.
        logging.getLogger(_PY4J).addFilter(self._is_news)

    def catch_up(self) -> None:
        """Read what there is now. Raises JournalError, PipelineError."""
        self._query = self._started(available_now=True)
        self._ended(self._query)
        self._query = None

    def start(self) -> None:
        """Go on reading, until the block ends."""
        self._query = self._started(available_now=False)

    def look(self) -> Figures:
        """The figures now. Raises what ended the reading, if something did."""
        if self._query is not None and not self._query.isActive:
            self._ended(self._query)
        shown = shown_by(self._config.journal)
        with self._lock:
            sums = self._sums
        return figures_of(
            sums,
            shown.waits(sums.ended),
            now=self._now(),
            window=self._config.window,
            diverged=self._divergence.now(),
        )

    def close(self) -> None:
        logging.getLogger(_PY4J).removeFilter(self._is_news)
        if self._query is not None:
            self._query.stop()
            self._query = None
        if self._temporary:
            shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _is_news(self, record: logging.LogRecord) -> bool:
        return self._problem is None

    def _now(self) -> float:
        return time.time() if self._config.now is None else self._config.now

    def _started(self, *, available_now: bool) -> StreamingQuery:
        stream = (
            self._spark.readStream.schema(from_arrow_schema(_READ))
            .option("maxFilesPerTrigger", self._config.max_files)
            .parquet(literally(self._journal))
            .select("*", F.col("_metadata.file_path").alias("file"))
        )
        writer = stream.writeStream.foreachBatch(self._take).option(
            "checkpointLocation", str(self._folder / "spark")
        )
        if available_now:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{round(self._config.interval * 1000)} milliseconds").start()

    def _take(self, batch: DataFrame, number: int) -> None:
        """On a thread of Spark's."""
        try:
            sums = self._summed(batch, number)
        except CtrlchanError as problem:
            self._problem = problem
            raise
        except Exception as problem:
            self._problem = PipelineError(f"{self._config.journal}: {_cause(problem)}")
            raise
        with self._lock:
            self._sums = sums

    def _summed(self, batch: DataFrame, number: int) -> Sums:
        before = self._ledger.before(number)
        # After Spark has listed the files: a request that ended in one of them is not shown as waiting by a
        # channel file that is read later, except by one that was written before.
        shown = shown_by(self._config.journal)
        batch = batch.persist()
        try:
            self._check(batch)
            begin = self._now() - self._config.window
            cells = cells_of(batch, begin)
            ended = self._ended_of(batch, shown)
        finally:
            batch.unpersist()
        sums = before.after(number, cells, ended, shown.requests, begin)
        self._ledger.keep(sums)
        return sums

    def _check(self, batch: DataFrame) -> None:
        """Versions stand in the footers, which Spark does not look at."""
        files = [
            Path(row["file"])
            for row in batch.select(plain_path(F.col("file")).alias("file")).distinct().collect()
        ]
        columns_of_journal(files, spark=self._spark)

    def _ended_of(self, batch: DataFrame, shown: Shown) -> list[RequestKey]:
        """Of what is shown as waiting, as many as 16 a broker."""
        if not shown.requests:
            return []
        keys = self._spark.createDataFrame(
            [tuple(key) for key in shown.requests], "channel string, broker int, enqueue_ns long"
        )
        found = batch.join(F.broadcast(keys), ["channel", "broker", "enqueue_ns"], "left_semi")
        rows = found.select("channel", "broker", "enqueue_ns").distinct().collect()
        return [RequestKey(row["channel"], row["broker"], row["enqueue_ns"]) for row in rows]

    def _ended(self, query: StreamingQuery) -> None:
        try:
            query.awaitTermination()
        except StreamingQueryException as problem:
            if self._problem is not None:
                raise self._problem from None
            raise PipelineError(f"{self._config.journal}: {_cause(problem)}") from problem


@dataclass
class _Divergence:
    """Who holds stale metadata; found out anew when the last answer has become too old."""

    spark: SparkSession
    config: MonitorConfig
    found: list[Diverged] = field(default_factory=list)
    at: float = float("-inf")

    def now(self) -> Sequence[Diverged] | None:
        if self.config.snapshot is None:
            return None
        if time.monotonic() - self.at >= self.config.divergence_interval:
            from ctrlchan.pipeline.jobs.monitor.divergence import diverged_brokers

            self.found = diverged_brokers(self.spark, self.config.journal, self.config.snapshot)
            self.at = time.monotonic()
        return self.found


def _cause(problem: Exception) -> str:
    """The file that could not be read, when that is what happened; else the first line with words of
    Spark's."""
    said = str(problem).strip() or type(problem).__name__
    file = _UNREADABLE.search(said)
    if file is not None:
        return f"{file[1]} cannot be read; is it a whole Parquet file?"
    lines = [line for line in said.splitlines() if not line.startswith("An error occurred while calling")]
    return lines[0].removeprefix(": ") if lines else said


def monitor(spark: SparkSession, config: MonitorConfig) -> Monitor:
    """A monitor of a journal, with what its checkpoint knows already; nothing is read yet.

    Raises JournalError when there is no such folder, PipelineError for a checkpoint of another journal.
    """
    return Monitor(spark, config)

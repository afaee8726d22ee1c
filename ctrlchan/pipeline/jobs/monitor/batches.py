"""Adds batches of a journal to the state of a monitor, in a checkpoint folder.

Spark calls this for each batch, on a thread of its own. The result is in the folder.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users call it

from ctrlchan.journal.check import check_journal
from ctrlchan.pipeline.jobs.monitor.aggregates import aggregates_of
from ctrlchan.pipeline.jobs.monitor.checkpoint import CheckpointStore
from ctrlchan.pipeline.jobs.monitor.config import MonitorConfig
from ctrlchan.pipeline.jobs.monitor.unfinished import RequestKey, UnfinishedRequests, read_unfinished
from ctrlchan.pipeline.spark.text_lines import plain_path
from ctrlchan.storage import path_of

__all__ = ["Batches"]

_KEYS: Final = "array<struct<channel: string, broker: int, enqueue_ns: long>>"


@dataclass(frozen=True)
class Batches:
    """A function for ``foreachBatch``. ``journal``, ``sums``: whole paths of the journal and the states."""

    config: MonitorConfig
    journal: str
    sums: str

    def __call__(self, batch: DataFrame, number: int) -> None:
        """Add a batch to the state before it. Raises JournalError naming a file that is broken."""
        checkpoint = CheckpointStore(path_of(self.sums), self.journal)
        before = checkpoint.before(number)
        # Spark has listed the files of the batch already. A channel file that is read now lists a request of
        # this batch as unfinished only if it was written before the request ended.
        unfinished = read_unfinished(self.journal)
        batch = batch.persist()
        try:
            self._check(batch)
            now = time.time() if self.config.now is None else self.config.now
            begin = now - self.config.window
            aggregates = aggregates_of(batch, begin)
            ended = _ended(batch, unfinished)
        finally:
            batch.unpersist()
        checkpoint.write(before.after(number, aggregates, ended, unfinished.requests, begin))

    def _check(self, batch: DataFrame) -> None:
        """Check the files, of whose footers Spark reads one."""
        files = batch.select(plain_path(F.col("file")).alias("file")).distinct().collect()
        check_journal(self.journal, [path_of(row["file"]) for row in files])


def _ended(batch: DataFrame, unfinished: UnfinishedRequests) -> list[RequestKey]:
    """Return the requests of the batch that channel files list as unfinished (16 per broker at most)."""
    if not unfinished.requests:
        return []
    # ``createDataFrame`` would make the session of the batch, a copy, the active one of this process.
    listed = F.lit(json.dumps([key._asdict() for key in unfinished.requests]))
    keys = batch.sparkSession.range(1).select(F.inline(F.from_json(listed, _KEYS)))
    found = batch.join(F.broadcast(keys), ["channel", "broker", "enqueue_ns"], "left_semi")
    rows = found.select("channel", "broker", "enqueue_ns").distinct().collect()
    return [RequestKey(row["channel"], row["broker"], row["enqueue_ns"]) for row in rows]

"""Merges the state-change logs of many brokers into one stream, ordered by time.

Replaces ``kafka.tools.StateChangeLogMerger`` (removed in Kafka 4), for logs of any size.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users call it
from pyspark.sql.pandas.types import from_arrow_schema

from ctrlchan.errors import PipelineError
from ctrlchan.pipeline.jobs.merge_logs.config import MergeLogsConfig
from ctrlchan.pipeline.jobs.merge_logs.grouping import ENTRY_COLUMNS, GROUPED, group_lines
from ctrlchan.pipeline.jobs.merge_logs.origins import FileOrigins
from ctrlchan.pipeline.spark.kept import mapped
from ctrlchan.pipeline.spark.tables import is_small
from ctrlchan.pipeline.spark.text_lines import lines

__all__ = ["LogCounts", "MergedLogs", "in_order", "merge_logs", "of_partition"]

#: Bytes of text that one task returns when rows are streamed; the driver holds them in memory.
STREAMED_BYTES: Final = 16 << 20

_ENTRY: Final = [*(column.name for column in ENTRY_COLUMNS), "text", "file", "line", "lines"]
_REJECT: Final = ["file", "line", "text", "reason"]


@dataclass(frozen=True)
class LogCounts:
    """Counts of lines and entries; ``lines`` is the sum of ``entry_lines`` and ``rejected``."""

    lines: int
    entries: int
    entry_lines: int
    rejected: int


class MergedLogs(AbstractContextManager["MergedLogs"]):
    """Merged logs, which are read once and kept on the executors' disks until ``close``; a context manager.

    ``entries``: the entries that pass the filters, ordered by time, broker (null last), file (rotated ones
    oldest first) and line; columns: those of ``entries.Entry`` and text, file, line, lines.
    ``rejects``: file, line, text, reason of each line that belongs to no entry. Both are lazy.
    """

    def __init__(self, read: DataFrame, numbered: DataFrame, config: MergeLogsConfig) -> None:
        self._read = read
        self._numbered = numbered
        first = read.where("raw IS NULL")
        self._all = first.unionByName(_joined_edges(read, config.origins))
        wanted = _in_time(self._all.where("reason IS NULL"), config)
        if config.topics or config.topic_pattern is not None:
            wanted = _of_topics(wanted, config)
        #: The entries in no order, with the column ``rotation``, which ``in_order`` needs.
        self.unordered = wanted.select(*_ENTRY, "rotation")
        self.entries = in_order(self.unordered).select(*_ENTRY)
        self.rejects = self._all.where("reason IS NOT NULL").orderBy("file", "line").select(*_REJECT)

    @cached_property
    def counts(self) -> LogCounts:
        """Counts of all lines; raises PipelineError when a line was lost or counted twice."""
        of_all = self._all.agg(
            F.count_if(F.col("reason").isNull()).alias("entries"),
            F.sum(F.expr("IF(reason IS NULL, lines, 0)")).alias("entry_lines"),
            F.count_if(F.col("reason").isNotNull()).alias("rejected"),
        ).first()
        assert of_all is not None
        found = LogCounts(self._numbered.count(), of_all[0], of_all[1] or 0, of_all[2])
        if found.lines != found.entry_lines + found.rejected:
            raise PipelineError(
                f"{found.lines} lines were read, but {found.entry_lines} are in entries and {found.rejected} "
                "are rejected; do the files change while they are read?"
            )
        return found

    def texts(self) -> Iterator[str]:
        """Yield the texts of the entries in order; the driver holds about STREAMED_BYTES at a time."""
        columns = ("time", "broker", "rotation", "file", "line", "text")
        for row in _streamed(self.unordered.select(*columns), _order()):
            yield row["text"]

    def rejected(self) -> Iterator[Row]:
        """Yield the rows of ``rejects``; the driver holds about STREAMED_BYTES at a time."""
        return _streamed(self.rejects, [F.col("file"), F.col("line")])

    def close(self) -> None:
        """Release the entries on the executors' disks."""
        self._read.unpersist()

    def __exit__(self, *_: object) -> None:
        self.close()


def merge_logs(spark: SparkSession, config: MergeLogsConfig) -> MergedLogs:
    """Return entries and rejects of the logs, both lazy. Raises PipelineError for a missing path."""
    numbered = lines(spark, config.logs, name=tuple(config.names))
    read = _grouped(numbered, config.origins, final=False)
    if not is_small(spark):
        read = read.persist(StorageLevel.DISK_ONLY)
    return MergedLogs(read, numbered, config)


def _grouped(numbered: DataFrame, origins: FileOrigins, *, final: bool) -> DataFrame:
    def group(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return group_lines(batches, origins, final=final)

    raw = numbered.select("file", "line", F.col("text").cast("binary").alias("text"))
    return mapped(raw, group, from_arrow_schema(GROUPED))


def _joined_edges(read: DataFrame, origins: FileOrigins) -> DataFrame:
    """Group the edges of neighbouring pieces; each is at most one entry long."""
    edges = (
        read.where("raw IS NOT NULL")
        .select("file", "line", F.posexplode("raw").alias("at", "text"))
        .select("file", (F.col("line") + F.col("at")).alias("line"), "text")
        .repartition("file")
        .sortWithinPartitions("file", "line")
    )
    return _grouped(edges, origins, final=True)


def in_order(entries: DataFrame) -> DataFrame:
    """Sort rows of ``MergedLogs.unordered`` like ``MergedLogs.entries``."""
    return entries.orderBy(*_order())


def _order() -> list[Column]:
    return [F.col("time"), F.col("broker").asc_nulls_last(), *map(F.col, ("rotation", "file", "line"))]


def _streamed(rows: DataFrame, order: list[Column]) -> Iterator[Row]:
    """Yield rows with a column ``text`` in this order, fetched in pieces of about STREAMED_BYTES."""
    size = rows.agg(F.sum(F.octet_length("text"))).first()
    pieces = 1 + (size[0] if size and size[0] else 0) // STREAMED_BYTES
    ordered = rows.repartitionByRange(pieces, *order).sortWithinPartitions(*order)
    yield from ordered.toLocalIterator(prefetchPartitions=True)


def of_partition(entries: DataFrame, topic: str, partition: int) -> DataFrame:
    """Return the entries that name one partition."""
    return _of_topics(entries, MergeLogsConfig(logs=(), topics=(topic,), partitions=(partition,)))


def _in_time(entries: DataFrame, config: MergeLogsConfig) -> DataFrame:
    if config.start is not None:
        entries = entries.where(F.col("time") >= F.lit(config.utc(config.start)))
    if config.end is not None:
        entries = entries.where(F.col("time") <= F.lit(config.utc(config.end)))
    return entries


def _of_topics(entries: DataFrame, config: MergeLogsConfig) -> DataFrame:
    """Return the entries that name the topics and partitions of ``config``.

    A response may name topics by id only; their ids are taken from entries that contain both.
    """
    by_topic = _is_topic(config, F.col("topic"))
    ids = entries.where(by_topic & F.col("topic_id").isNotNull()).agg(F.collect_set("topic_id").alias("ids"))
    by_name = by_topic & _is_partition(config, F.col("partition"))

    def wanted(one: Column) -> Column:
        by_id = F.coalesce(F.array_contains("ids", one["topic_id"]), F.lit(False))
        return (_is_topic(config, one["topic"]) | by_id) & _is_partition(config, one["partition"])

    listed = F.exists("partitions", wanted)
    return entries.crossJoin(F.broadcast(ids)).where(by_name | F.coalesce(listed, F.lit(False))).drop("ids")


def _is_topic(config: MergeLogsConfig, topic: Column) -> Column:
    named = topic.isin(*config.topics) if config.topics else F.lit(False)
    if config.topic_pattern is not None:
        named = named | topic.rlike(f"^(?:{config.topic_pattern})$")
    return F.coalesce(named, F.lit(False))


def _is_partition(config: MergeLogsConfig, partition: Column) -> Column:
    return partition.isin(*config.partitions) if config.partitions else F.lit(True)

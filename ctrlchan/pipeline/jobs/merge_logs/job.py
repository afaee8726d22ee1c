"""``merge_logs``: the state-change logs of many brokers as one stream, ordered by time.

What ``kafka.tools.StateChangeLogMerger`` did (gone since Kafka 4), for logs of any size.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users call it
from pyspark.sql.pandas.types import from_arrow_schema

from ctrlchan.errors import ConfigError, PipelineError
from ctrlchan.pipeline.jobs.merge_logs.grouping import ENTRY_COLUMNS, GROUPED, group_lines
from ctrlchan.pipeline.jobs.merge_logs.places import Places, zone_of
from ctrlchan.pipeline.spark.text_lines import lines

__all__ = ["LogCounts", "MergeLogsConfig", "MergedLogs", "in_order", "merge_logs", "of_partition"]

#: The files of a folder that are read when nothing else is said; rotated and compressed ones too.
STATE_CHANGE_LOGS: Final = ("state-change.log*",)

#: What is fetched from one task when rows are streamed: its result has to fit into the driver.
STREAMED_BYTES: Final = 16 << 20

_ENTRY: Final = [*(column.name for column in ENTRY_COLUMNS), "text", "file", "line", "lines"]
_REJECT: Final = ["file", "line", "text", "reason"]


@dataclass(frozen=True, kw_only=True)
class MergeLogsConfig:
    """Which logs, and what of them.

    ``logs``: files, folders, or Hadoop's patterns; of folders the files whose names match ``names``.
    ``time_zone``: where the brokers wrote, since log lines do not say; ``time_zones``: path pattern -> zone
    for those that wrote elsewhere. ``brokers``: path pattern -> broker id, for entries without one; where
    neither says, the folder's name does when it ends in a number (``broker-3``). Patterns are those of
    ``fnmatch``, against the whole path or its end.

    Kept are entries that speak of ``topics`` (exact names), of topics that ``topic_pattern`` (a regular
    expression) matches as a whole, of these ``partitions``, and from ``start`` to ``end``, both included; a
    datetime without a zone is of ``time_zone``.

    Raises ConfigError for a pattern or a zone that is none, and for partitions without a topic.
    """

    logs: str | Path | Sequence[str | Path]
    names: Sequence[str] = STATE_CHANGE_LOGS
    topics: Sequence[str] = ()
    topic_pattern: str | None = None
    partitions: Sequence[int] = ()
    start: datetime | None = None
    end: datetime | None = None
    time_zone: str = "UTC"
    time_zones: Mapping[str, str] = field(default_factory=dict)
    brokers: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.partitions and not self.topics and self.topic_pattern is None:
            raise ConfigError("partitions: of which topic? Give topics or a topic pattern with them")
        if self.topic_pattern is not None:
            try:
                re.compile(self.topic_pattern)
            except re.error as problem:
                raise ConfigError(f"topic pattern {self.topic_pattern!r}: {problem}") from problem
        if (self.start is not None and self.end is not None) and self.moment(self.end) < self.moment(
            self.start
        ):
            raise ConfigError(f"the end {self.end} is before the start {self.start}")
        _ = self.places

    @property
    def places(self) -> Places:
        return Places(self.time_zone, tuple(self.brokers.items()), tuple(self.time_zones.items()))

    def moment(self, time: datetime) -> datetime:
        """The same in UTC."""
        return (time if time.tzinfo else time.replace(tzinfo=zone_of(self.time_zone))).astimezone(UTC)


@dataclass(frozen=True)
class LogCounts:
    """``lines`` were read; they are the ``entry_lines`` of ``entries``, and ``rejected`` lines."""

    lines: int
    entries: int
    entry_lines: int
    rejected: int


class MergedLogs:
    """Logs, read once and kept on the executors' disks until ``close``; a context manager.

    ``entries``: one row each, kept by the filters, ordered by time, broker (unknown ones last), file (rotated
    ones oldest first) and line; the columns are those of ``logs.entries.Entry`` and text, file, line, lines.
    ``rejects``: file, line, text, reason of each line that belongs to no entry. Both are lazy.
    """

    def __init__(self, read: DataFrame, numbered: DataFrame, config: MergeLogsConfig) -> None:
        self._read = read
        self._numbered = numbered
        first = read.where("raw IS NULL")
        self._all = first.unionByName(_judged_edges(read, config.places))
        wanted = _in_time(self._all.where("reason IS NULL"), config)
        if config.topics or config.topic_pattern is not None:
            wanted = _of_topics(wanted, config)
        #: The entries, in no order; with ``turn``, by which ``in_order`` sorts rotated files.
        self.unordered = wanted.select(*_ENTRY, "turn")
        self.entries = in_order(self.unordered).select(*_ENTRY)
        self.rejects = self._all.where("reason IS NOT NULL").orderBy("file", "line").select(*_REJECT)

    @cached_property
    def counts(self) -> LogCounts:
        """Raises PipelineError when a line was lost or counted twice."""
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
        """The texts of the entries in order; about STREAMED_BYTES of them are in the driver at a time."""
        columns = ("time", "broker", "turn", "file", "line", "text")
        for row in _streamed(self.unordered.select(*columns), _order()):
            yield row["text"]

    def rejected(self) -> Iterator[Row]:
        """The rows of ``rejects``, as ``texts`` gives the texts."""
        return _streamed(self.rejects, [F.col("file"), F.col("line")])

    def close(self) -> None:
        self._read.unpersist()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def merge_logs(spark: SparkSession, config: MergeLogsConfig) -> MergedLogs:
    """The logs as entries and rejects; nothing is read before they are used.

    Raises PipelineError when a path is not there.
    """
    numbered = lines(spark, config.logs, name=tuple(config.names))
    read = _grouped(numbered, config.places, final=False)
    return MergedLogs(read.persist(StorageLevel.DISK_ONLY), numbered, config)


def _grouped(numbered: DataFrame, places: Places, *, final: bool) -> DataFrame:
    def group(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return group_lines(batches, places, final=final)

    raw = numbered.select("file", "line", F.col("text").cast("binary").alias("text"))
    return raw.mapInArrow(group, from_arrow_schema(GROUPED))


def _judged_edges(read: DataFrame, places: Places) -> DataFrame:
    """The ends of the pieces, at most one entry's worth each, beside their neighbours."""
    edges = (
        read.where("raw IS NOT NULL")
        .select("file", "line", F.posexplode("raw").alias("at", "text"))
        .select("file", (F.col("line") + F.col("at")).alias("line"), "text")
        .repartition("file")
        .sortWithinPartitions("file", "line")
    )
    return _grouped(edges, places, final=True)


def in_order(entries: DataFrame) -> DataFrame:
    """``MergedLogs.unordered``, or some of it, as ``MergedLogs.entries`` is ordered."""
    return entries.orderBy(*_order())


def _order() -> list[Column]:
    return [F.col("time"), F.col("broker").asc_nulls_last(), *map(F.col, ("turn", "file", "line"))]


def _streamed(rows: DataFrame, order: list[Column]) -> Iterator[Row]:
    """Rows with a ``text`` in this order, fetched in pieces that fit into the driver."""
    size = rows.agg(F.sum(F.octet_length("text"))).first()
    pieces = 1 + (size[0] if size and size[0] else 0) // STREAMED_BYTES
    ordered = rows.repartitionByRange(pieces, *order).sortWithinPartitions(*order)
    yield from ordered.toLocalIterator(prefetchPartitions=True)


def of_partition(entries: DataFrame, topic: str, partition: int) -> DataFrame:
    """Those of these entries that speak of one partition."""
    return _of_topics(entries, MergeLogsConfig(logs=(), topics=(topic,), partitions=(partition,)))


def _in_time(entries: DataFrame, config: MergeLogsConfig) -> DataFrame:
    if config.start is not None:
        entries = entries.where(F.col("time") >= F.lit(config.moment(config.start)))
    if config.end is not None:
        entries = entries.where(F.col("time") <= F.lit(config.moment(config.end)))
    return entries


def _of_topics(entries: DataFrame, config: MergeLogsConfig) -> DataFrame:
    """Answers name topics by their ids only: the ids are learned from the entries that give both."""
    named = _named(config, F.col("topic"))
    ids = entries.where(named & F.col("topic_id").isNotNull()).agg(F.collect_set("topic_id").alias("ids"))
    by_name = named & _numbered(config, F.col("partition"))
    listed = F.exists(
        "partitions",
        lambda one: (
            (
                _named(config, one["topic"])
                | F.coalesce(F.array_contains("ids", one["topic_id"]), F.lit(False))
            )
            & _numbered(config, one["partition"])
        ),
    )
    return entries.crossJoin(F.broadcast(ids)).where(by_name | F.coalesce(listed, F.lit(False))).drop("ids")


def _named(config: MergeLogsConfig, topic: Column) -> Column:
    named = topic.isin(*config.topics) if config.topics else F.lit(False)
    if config.topic_pattern is not None:
        named = named | topic.rlike(f"^(?:{config.topic_pattern})$")
    return F.coalesce(named, F.lit(False))


def _numbered(config: MergeLogsConfig, partition: Column) -> Column:
    return partition.isin(*config.partitions) if config.partitions else F.lit(True)

"""``spark.readStream.format("ctrlchan").load(journal)``: the rows of a journal as they are written.

An offset has the name of the newest file that was read of each writer: the names of one writer ascend, and
several writers may write into one folder. So an offset stays small, and a query that is started again from
its checkpoint neither loses nor repeats a file. ``maxFilesPerTrigger`` limits the files of a batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from ctrlchan.journal.check import check_journal
from ctrlchan.journal.names import writer_of
from ctrlchan.journal.reader import journal_files
from ctrlchan.pipeline.source.pieces import pieces_of, read_piece
from ctrlchan.pipeline.source.rows import as_spark_has_them
from ctrlchan.storage import AnyPath

__all__ = ["JournalStream"]

#: Writer -> the name of the newest file of it that was read.
Offset: TypeAlias = dict[str, str]


class JournalStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the new files of a journal folder in each batch."""

    def __init__(self, folder: AnyPath, schema: StructType, most_files: int | None = None) -> None:
        self._folder = folder
        self._schema = schema
        self._most_files = most_files
        #: Of a query that ends with what is there now.
        self._last: Offset | None = None

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's names
        """Return the offset before the first file."""
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit of a batch, of the option ``maxFilesPerTrigger``."""
        return ReadAllAvailable() if self._most_files is None else ReadMaxFiles(self._most_files)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Let the query end with the files that are there now."""
        self._last = self._after({}, self._new_files({}, None))

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """Return the offset after the next batch: the oldest new files, as many as the limit allows."""
        new = self._new_files(start, self._last)
        if isinstance(limit, ReadMaxFiles):
            new = new[: limit.max_files]
        return self._after(start, new)

    def reportLatestOffset(self) -> Offset:  # noqa: N802
        """Return the offset after all files that are there."""
        return self._after({}, self._new_files({}, None))

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return the tasks of a batch. Raises JournalError naming a file that is broken."""
        files = self._new_files(start, end)
        columns = check_journal(self._folder, files)
        return [
            InputPartition((piece, columns)) for piece in pieces_of([str(file) for file in files], columns)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one piece, in a worker."""
        if partition is None:
            return
        piece, columns = partition.value
        yield from as_spark_has_them(read_piece(piece, columns), self._schema)

    def _new_files(self, start: Mapping[str, str], end: Mapping[str, str] | None) -> list[AnyPath]:
        """Return the files after ``start``, up to ``end`` (None: all), oldest first."""
        found = []
        for file in journal_files(self._folder):
            writer = writer_of(file.name)
            if file.name > start.get(writer, "") and (end is None or file.name <= end.get(writer, "")):
                found.append(file)
        return found

    @staticmethod
    def _after(start: Mapping[str, str], files: Sequence[AnyPath]) -> Offset:
        # The files are in the order of their names, so the last of a writer is its newest.
        return {**start, **{writer_of(file.name): file.name for file in files}}

"""``spark.read.format("ctrlchan").load(path)``: reads a snapshot, frames or a journal; writing sends frames.

====================  ===================================================================================
option ``kind``       ``snapshot``, ``frames`` or ``journal``; by default chosen by the folder's files
option ``table``      of a snapshot ``partitions`` (default) or ``brokers``, of frames ``frames`` (default) or
                      ``brokers``
====================  ===================================================================================

Every Parquet file is one task. ``session`` registers the source; other sessions call
``spark.dataSource.register(CtrlchanSource)``. The functions of ``tables`` read the same folders with Spark's
own Parquet reader, which skips columns and rows that a query does not need: they are faster for large data.
``jobs.dispatch.sink`` is the writer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceWriter, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from ctrlchan.errors import PipelineError
from ctrlchan.journal.check import check_journal
from ctrlchan.journal.reader import journal_files
from ctrlchan.paths import local_path
from ctrlchan.pipeline.spark.footers import columns_of_files
from ctrlchan.pipeline.spark.tables import (
    FRAMES_FILE,
    FRAMES_FOLDER,
    parts_of,
    require_frames,
    require_snapshot,
)
from ctrlchan.state.storage.schemas import BROKERS, FRAMES, PARTITIONS, PARTITIONS_LATER
from ctrlchan.state.storage.snapshot import BROKERS_FILE, CLUSTER_FILE, PARTITIONS_FILE

__all__ = ["CtrlchanSource"]

_MARKS: Final = {CLUSTER_FILE: "snapshot", FRAMES_FILE: "frames"}
#: kind -> table -> (path in the folder, its columns, optional columns); the first table is the default.
_TABLES: Final[dict[str, dict[str, tuple[str, pa.Schema, pa.Schema | None]]]] = {
    "snapshot": {
        "partitions": (PARTITIONS_FILE, PARTITIONS, PARTITIONS_LATER),
        "brokers": (BROKERS_FILE, BROKERS, None),
    },
    "frames": {"frames": (FRAMES_FOLDER, FRAMES, None), "brokers": (BROKERS_FILE, BROKERS, None)},
}


class CtrlchanSource(DataSource):
    """The data source. Spark asks for the schema in one process and for the reader in another."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format``."""
        return "ctrlchan"

    def schema(self) -> StructType:
        """Return the columns of the files, also those that this version does not use."""
        return from_arrow_schema(self._files()[1])

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader. ``schema``: result of ``schema``, or the user's own."""
        return _FilesReader(self._files()[0], schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer, which sends frames to brokers; see ``ctrlchan.pipeline.jobs.dispatch.sink``."""
        # The channel, which readers do not need.
        from ctrlchan.pipeline.jobs.dispatch.sink import FramesWriter

        return FramesWriter(self.options, schema, overwrite)

    def _files(self) -> tuple[list[Path], pa.Schema]:
        path = self.options.get("path")
        if not path:
            raise PipelineError('no path: spark.read.format("ctrlchan").load(PATH)')
        folder = local_path(path)
        kind = self.options.get("kind") or _kind_of(folder)
        if kind == "journal":
            files = journal_files(folder)
            return files, check_journal(folder, files)
        if kind not in _TABLES:
            raise PipelineError(f"{kind!r} is no kind of folder; there are snapshot, frames, journal")
        (require_snapshot if kind == "snapshot" else require_frames)(folder)
        tables = _TABLES[kind]
        table = self.options.get("table") or next(iter(tables))
        if table not in tables:
            raise PipelineError(f"{kind} has no table {table!r}; there are {', '.join(tables)}")
        where, wanted, later = tables[table]
        files = parts_of(folder / where)
        return files, columns_of_files(files, wanted, later=later)


class _FilesReader(DataSourceReader):
    def __init__(self, files: list[Path], schema: StructType) -> None:
        self._files = files
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """Return one task for each file."""
        return [InputPartition(str(file)) for file in self._files]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one file, in a worker. Columns that the file does not have are null."""
        # Spark runs a task without a partition if there are no files.
        if partition is None:
            return
        schema = to_arrow_schema(self._schema, timezone="UTC")
        try:
            with pq.ParquetFile(partition.value, page_checksum_verification=True) as file:
                for batch in file.iter_batches():
                    yield _like(batch, schema)
        except (pa.ArrowException, OSError) as problem:
            raise PipelineError(f"{partition.value}: broken: {problem}") from problem


def _like(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    names = batch.schema.names
    return pa.RecordBatch.from_arrays(
        [
            batch.column(field.name).cast(field.type)
            if field.name in names
            else pa.nulls(len(batch), field.type)
            for field in schema
        ],
        schema=schema,
    )


def _kind_of(folder: Path) -> str:
    if not folder.is_dir():
        raise PipelineError(f"{folder}: {'not a folder' if folder.exists() else 'no such folder'}")
    for mark, kind in _MARKS.items():
        if (folder / mark).is_file():
            return kind
    if journal_files(folder):
        return "journal"
    raise PipelineError(f"{folder}: neither a snapshot nor frames nor a journal (option kind names it)")

"""``spark.read.format("ctrlchan").load(path)``: reads a snapshot, frames or a journal; writing sends frames.

====================  ===================================================================================
option ``kind``       ``snapshot``, ``frames`` or ``journal``; by default chosen by the folder's files
option ``table``      of a snapshot ``partitions`` (default) or ``brokers``, of frames ``frames`` (default) or
                      ``brokers``
option ``topics``     of the partitions of a snapshot: only these topics, names separated by commas
====================  ===================================================================================

A large file is read by several tasks. Spark's interface does not tell a source which columns a query needs.
Filters are not taken from Spark (``pushFilters``): Spark 4.3 keeps the filters of the last query in the
DataFrame, so ``df.where("a = 1").count()`` would change what ``df.count()`` returns. Option ``topics`` reads
less, and the functions of ``tables`` read the same folders with Spark's own Parquet reader, which skips
columns and rows that a query does not need: they are faster for large data.

``session`` registers the source; other sessions call ``spark.dataSource.register(CtrlchanSource)``.
``spark.readStream.format("ctrlchan").load(journal)`` reads a journal as it grows (``stream``);
``jobs.dispatch.sink`` is the writer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from ctrlchan.errors import PipelineError
from ctrlchan.journal.check import check_journal
from ctrlchan.journal.reader import journal_files
from ctrlchan.pipeline.source.pieces import pieces_of, read_piece
from ctrlchan.pipeline.source.rows import as_spark_has_them
from ctrlchan.pipeline.source.stream import JournalStream
from ctrlchan.pipeline.spark.footers import columns_of_files
from ctrlchan.pipeline.spark.tables import (
    FRAMES_FILE,
    FRAMES_FOLDER,
    parts_of,
    require_folder,
    require_frames,
    require_snapshot,
)
from ctrlchan.state.storage.schemas import BROKERS, FRAMES, PARTITIONS, PARTITIONS_LATER
from ctrlchan.state.storage.snapshot import BROKERS_FILE, CLUSTER_FILE, PARTITIONS_FILE
from ctrlchan.storage import AnyPath, path_of

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
        files, columns = self._files()
        return _FilesReader(files, columns, schema, self._wanted(columns))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return the reader of a journal that grows. Raises PipelineError for another folder."""
        folder, kind = self._folder()
        if kind != "journal":
            raise PipelineError(f"{folder}: a {kind} does not grow; only a journal can be read as a stream")
        most = self.options.get("maxFilesPerTrigger")
        if most is not None and not (most.isdecimal() and int(most)):
            raise PipelineError(f"maxFilesPerTrigger: {most!r} is no number above 0")
        return JournalStream(folder, schema, None if most is None else int(most))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer, which sends frames to brokers; see ``ctrlchan.pipeline.jobs.dispatch.sink``."""
        # The channel, which readers do not need.
        from ctrlchan.pipeline.jobs.dispatch.sink import FramesWriter

        return FramesWriter(self.options, schema, overwrite)

    def _folder(self) -> tuple[AnyPath, str]:
        path = self.options.get("path")
        if not path:
            raise PipelineError('no path: spark.read.format("ctrlchan").load(PATH)')
        folder = path_of(path)
        return folder, self.options.get("kind") or _kind_of(folder)

    def _files(self) -> tuple[list[AnyPath], pa.Schema]:
        folder, kind = self._folder()
        if kind == "journal":
            files = journal_files(folder)
            return files, check_journal(folder, files)
        if kind not in _TABLES:
            raise PipelineError(f"{kind!r} is no kind of folder; there are snapshot, frames, journal")
        inner = (require_snapshot if kind == "snapshot" else require_frames)(folder)[0]
        tables = _TABLES[kind]
        table = self.options.get("table") or next(iter(tables))
        if table not in tables:
            raise PipelineError(f"{kind} has no table {table!r}; there are {', '.join(tables)}")
        where, wanted, later = tables[table]
        files = parts_of(inner / where)
        return files, columns_of_files(files, wanted, later=later)

    def _wanted(self, columns: pa.Schema) -> pc.Expression | None:
        topics = self.options.get("topics")
        if topics is None:
            return None
        if "topic" not in columns.names:
            raise PipelineError("option topics is for the partitions of a snapshot")
        names = [name for one in topics.split(",") if (name := one.strip())]
        return pc.field("topic").isin(pa.array(names, pa.string()))


class _FilesReader(DataSourceReader):
    """Reads the rows ``wanted`` of files (None: all).

    ``columns``: of all files together; ``schema``: those that Spark wants.
    """

    def __init__(
        self, files: list[AnyPath], columns: pa.Schema, schema: StructType, wanted: pc.Expression | None
    ) -> None:
        self._files = [str(file) for file in files]
        self._columns = columns
        self._schema = schema
        self._wanted = wanted

    def partitions(self) -> Sequence[InputPartition]:
        """Return one task for each piece of the files that may have wanted rows."""
        return [InputPartition(one) for one in pieces_of(self._files, self._columns, self._wanted)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one piece, in a worker."""
        # Spark runs one task, of nothing, if there are no pieces.
        if partition is None or partition.value is None:
            return
        yield from as_spark_has_them(read_piece(partition.value, self._columns, self._wanted), self._schema)


def _kind_of(folder: AnyPath) -> str:
    require_folder(folder)
    for mark, kind in _MARKS.items():
        if (folder / mark).is_file():
            return kind
    if journal_files(folder):
        return "journal"
    raise PipelineError(f"{folder}: neither a snapshot nor frames nor a journal (option kind names it)")

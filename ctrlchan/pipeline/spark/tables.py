"""Snapshots, frames and journals as DataFrames, checked against ``ctrlchan.state.storage.schemas``.

Paths are folders of a file system that the driver and all executors see, or URLs. The driver reads names,
footers and small JSON files, never rows.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from ctrlchan.errors import PipelineError
from ctrlchan.journal import read_journal as arrow_journal
from ctrlchan.journal.check import check_journal
from ctrlchan.pipeline.spark.footers import columns_of_files
from ctrlchan.pipeline.spark.input_size import SMALL_INPUTS
from ctrlchan.state.storage.schemas import (
    BROKERS,
    FRAMES,
    FRAMES_VERSION,
    PARTITIONS,
    PARTITIONS_LATER,
    SNAPSHOT_VERSION,
    check_version,
)
from ctrlchan.state.storage.snapshot import (
    BROKERS_FILE,
    CLUSTER_FILE,
    FORMAT_NAME,
    PARTITIONS_FILE,
)
from ctrlchan.storage import (
    MARK_FOLDER,
    AnyPath,
    PathLike,
    contents_of,
    files_in,
    is_url,
    occupied,
    path_of,
    replace,
    whole_folder,
)
from ctrlchan.storage.parquet import arrow_source, dataset_files, write_parquet

__all__ = [
    "FRAMES_FILE",
    "FRAMES_FOLDER",
    "JOURNAL_OPTIONS",
    "Frames",
    "Snapshot",
    "count_rows",
    "destination",
    "gathered",
    "is_small",
    "literally",
    "new_folder",
    "of_arrow",
    "parts_of",
    "read_frames",
    "read_journal",
    "read_json",
    "read_mark",
    "read_parquet",
    "read_snapshot",
    "require_folder",
    "require_frames",
    "require_snapshot",
    "write_brokers",
    "write_frames",
    "write_json",
    "write_part",
    "write_rows",
    "write_snapshot",
]

FRAMES_FILE: Final = "frames.json"
FRAMES_FOLDER: Final = "frames"
#: Frames are cells of MiB. By default a writer checks the size of a page after a hundred rows, and a reader
#: takes thousands of rows of a row group into memory. Frames differ, so a dictionary is of no use.
_LARGE_CELLS: Final = {
    "parquet.page.size.row.check.min": "1",
    "parquet.page.size.row.check.max": "1",
    "parquet.block.row.count.limit": "16",
    "parquet.enable.dictionary#frame": "false",
}
#: How Spark reads a journal: the files of ``journal_files``, with their checksums.
JOURNAL_OPTIONS: Final = {"pathGlobFilter": "*.parquet", "parquet.page.verify-checksum.enabled": "true"}
#: The file of a table that the driver writes into a folder of its own.
_PART_FILE: Final = "part-00000.zstd.parquet"
_FRAMES_NAME: Final = "ctrlchan-frames"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot. ``partitions``, ``brokers``: columns of ``schemas``, or more. ``cluster``: cluster.json."""

    partitions: DataFrame
    brokers: DataFrame
    cluster: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Frames:
    """Frames. ``frames``: ``schemas.FRAMES``. ``brokers``: their receivers. ``about``: frames.json."""

    frames: DataFrame
    brokers: DataFrame
    about: dict[str, Any]


# -- snapshots


def read_snapshot(spark: SparkSession, path: PathLike, *, by_tasks: bool = False) -> Snapshot:
    """Read a snapshot.

    ``by_tasks``: tasks read also a small one, so that its tables have Spark's column ``_metadata``.
    Raises PipelineError, naming the file, if it is missing, broken, newer or has other columns.
    """
    folder, cluster = require_snapshot(path_of(path))
    small = is_small(spark) and not by_tasks
    return Snapshot(
        read_parquet(spark, folder / PARTITIONS_FILE, PARTITIONS, PARTITIONS_LATER, small=small),
        read_parquet(spark, folder / BROKERS_FILE, BROKERS, small=small),
        cluster,
    )


def require_snapshot(folder: AnyPath) -> tuple[AnyPath, dict[str, Any]]:
    """Return the folder of the tables and the content of cluster.json; raises as ``read_snapshot`` does."""
    tables, cluster = read_mark(folder, CLUSTER_FILE, FORMAT_NAME)
    check_version(cluster.get("format_version"), SNAPSHOT_VERSION, "a snapshot", folder / CLUSTER_FILE)
    return tables, cluster


def write_snapshot(snapshot: Snapshot, path: PathLike, *, overwrite: bool = False) -> None:
    """Write a folder that ``ClusterState.read`` takes, its rows in the order of (topic, partition).

    The folder appears when it is complete. Raises PipelineError if it exists and ``overwrite`` is false.
    """
    with new_folder(path_of(path), CLUSTER_FILE, overwrite=overwrite) as folder:
        write_rows(snapshot.partitions.orderBy("topic", "partition"), folder / PARTITIONS_FILE)
        write_brokers(snapshot.brokers, folder)
        write_json(
            folder / CLUSTER_FILE,
            {**snapshot.cluster, "format": FORMAT_NAME, "format_version": SNAPSHOT_VERSION},
        )


# -- frames


def read_frames(spark: SparkSession, path: PathLike) -> Frames:
    """Read frames.

    Raises PipelineError, naming the file, if it is missing, broken, newer or has other columns.
    """
    folder, about = require_frames(path_of(path))
    return Frames(
        read_parquet(spark, folder / FRAMES_FOLDER, FRAMES),
        read_parquet(spark, folder / BROKERS_FILE, BROKERS),
        about,
    )


def require_frames(folder: AnyPath) -> tuple[AnyPath, dict[str, Any]]:
    """Return the folder of the tables and the content of frames.json; raises as ``read_frames`` does."""
    tables, about = read_mark(folder, FRAMES_FILE, _FRAMES_NAME)
    check_version(about.get("format_version"), FRAMES_VERSION, "frames", folder / FRAMES_FILE)
    return tables, about


def write_frames(frames: Frames, path: PathLike, *, overwrite: bool = False) -> None:
    """Write a folder that ``read_frames`` takes, the frames in their order (sorted within each file).

    The folder appears when it is complete. Raises PipelineError if it exists and ``overwrite`` is false.
    """
    with new_folder(path_of(path), FRAMES_FILE, overwrite=overwrite) as folder:
        frames.frames.write.options(**_LARGE_CELLS).parquet(destination(folder / FRAMES_FOLDER))
        write_brokers(frames.brokers, folder)
        write_json(
            folder / FRAMES_FILE, {**frames.about, "format": _FRAMES_NAME, "format_version": FRAMES_VERSION}
        )


# -- journals


def read_journal(spark: SparkSession, path: PathLike) -> DataFrame:
    """Return all rows of a journal folder, also of one that is being written.

    Columns that older files do not have are null. Raises JournalError as ``check_journal`` does.
    """
    columns = check_journal(path)
    if is_small(spark):
        return of_arrow(spark, arrow_journal(path), columns)
    return spark.read.schema(from_arrow_schema(columns)).options(**JOURNAL_OPTIONS).parquet(literally(path))


# -- folders and files


def destination(path: PathLike) -> str:
    """Return the path as Spark must be given it: of the local file system, which need not be its default."""
    if not is_url(path):
        return f"file://{os.path.abspath(str(path))}"
    # Hadoop has no class for s3, only for s3a.
    text = str(path)
    return f"s3a:{text[3:]}" if text.startswith("s3:") else text


def literally(path: PathLike) -> str:
    """Return ``destination`` with escapes, so that Spark does not read it as a pattern."""
    return "".join(f"\\{c}" if c in "{}[]*?\\" else c for c in destination(path))


@contextmanager
def new_folder(path: AnyPath, mark: str, *, overwrite: bool) -> Iterator[AnyPath]:
    """Yield a folder to write into, which becomes ``path`` on success and is removed otherwise.

    ``mark``: a file that only our folders have, which the block writes; other folders are never replaced.
    Raises PipelineError if ``path`` exists, or cannot be written.
    """
    in_block = False
    try:
        reason = occupied(path, mark, overwrite=overwrite)
        if reason is not None:
            raise PipelineError(f"{path}: {reason}")
        with whole_folder(path, mark, overwrite=overwrite) as folder:
            in_block = True
            yield folder
            in_block = False
    except OSError as problem:
        if in_block:
            raise
        if isinstance(problem, FileExistsError):
            raise PipelineError(f"{path}: already there: another writer was faster") from problem
        raise PipelineError(f"{path}: cannot be written: {problem}") from problem


def write_brokers(brokers: DataFrame, folder: AnyPath) -> None:
    """Write brokers.parquet through the driver: there are thousands of brokers at most."""
    table = brokers.orderBy("id").toArrow()
    wanted = [(name, table[name].cast(BROKERS.field(name).type)) for name in BROKERS.names]
    others = [(name, table[name]) for name in table.column_names if name not in BROKERS.names]
    write_parquet(pa.table(dict([*wanted, *others])), folder / BROKERS_FILE, compression="zstd")


def read_mark(folder: AnyPath, mark: str, name: str) -> tuple[AnyPath, dict[str, Any]]:
    """Return the folder of a dataset's files and the content of its ``mark``, of the format ``name``."""
    require_folder(folder)
    read = read_json(folder / mark, name)
    tables = contents_of(folder, read)
    # Of this folder alone: what is made of the dataset has a folder of its own.
    read.pop(MARK_FOLDER, None)
    return tables, read


def read_json(file: AnyPath, name: str) -> dict[str, Any]:
    try:
        read = json.loads(file.read_bytes())
    except (OSError, ValueError) as problem:
        raise PipelineError(f"{file}: {problem}") from problem
    if not isinstance(read, dict) or read.get("format") != name:
        raise PipelineError(f"{file}: not of the format {name}")
    return read


def write_json(file: AnyPath, content: dict[str, Any]) -> None:
    replace(file, f"{json.dumps(content, indent=2, ensure_ascii=False)}\n".encode())


def require_folder(folder: AnyPath) -> None:
    try:
        if not folder.is_dir():
            raise PipelineError(f"{folder}: {'not a folder' if folder.exists() else 'no such folder'}")
    except OSError as problem:
        raise PipelineError(f"{folder}: cannot be read: {problem}") from problem


def parts_of(path: AnyPath) -> list[AnyPath]:
    """Return a file alone, or the part files of a folder that Spark sees. Raises PipelineError for none."""
    try:
        if not path.is_dir():
            return [path]
        parts = files_in(path)
    except OSError as problem:
        raise PipelineError(f"{path}: cannot be read: {problem}") from problem
    if not parts:
        raise PipelineError(f"{path}: no part files in it")
    return parts


def is_small(spark: SparkSession) -> bool:
    """Return whether the session is for small inputs (``session(small=True)``)."""
    return spark.conf.get(SMALL_INPUTS, "false") == "true"


def gathered(table: DataFrame) -> DataFrame:
    """Return the rows, those of small inputs in one partition: Spark then plans no shuffles."""
    return table.coalesce(1) if is_small(table.sparkSession) else table


def write_rows(table: DataFrame, folder: AnyPath) -> None:
    """Write a folder of Parquet files; of small inputs the driver writes one, without a job of Spark."""
    if is_small(table.sparkSession):
        write_part(table.toArrow(), folder)
    else:
        table.write.mode("append").parquet(destination(folder))


def write_part(rows: pa.Table, folder: AnyPath) -> None:
    """Write a table's only file through the driver, its times as Spark writes them."""
    write_parquet(rows, folder / _PART_FILE, compression="zstd", use_deprecated_int96_timestamps=True)


def count_rows(path: AnyPath) -> int:
    """Return the number of rows of a file or a folder of part files, from their footers."""
    return sum(pq.read_metadata(arrow_source(part)).num_rows for part in parts_of(path))


def read_parquet(
    spark: SparkSession,
    path: AnyPath,
    wanted: pa.Schema,
    later: pa.Schema | None = None,
    *,
    small: bool = False,
) -> DataFrame:
    """Read a file or a folder of part files, and check each of them.

    ``later``: optional columns. ``small``: the driver reads all rows now.
    """
    parts = parts_of(path)
    columns = columns_of_files(parts, wanted, later=later, spark=spark)
    if not small:
        return spark.read.schema(from_arrow_schema(columns)).parquet(literally(path))
    names, store = dataset_files(parts)
    try:
        rows = ds.dataset(names, schema=columns, format="parquet", filesystem=store).to_table()
    except (pa.ArrowException, OSError) as problem:
        raise PipelineError(f"{path}: cannot be read: {problem}") from problem
    return of_arrow(spark, rows, columns)


def of_arrow(spark: SparkSession, rows: pa.Table, columns: pa.Schema) -> DataFrame:
    """Return the rows of the driver as a DataFrame with these columns, also without rows."""
    # PySpark takes no column without a chunk.
    return spark.createDataFrame(rows if len(rows) else columns.empty_table(), from_arrow_schema(columns))

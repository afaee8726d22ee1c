"""Lines of text files with file and line number, also of large files that are read in many pieces.

Spark splits a large text file among tasks and does not number lines. Here the lines of every piece are
counted first; a line's number is its position in the piece plus the lines of the pieces before. Files are
read twice for that, nothing is shuffled.

Limits: lines end in ``\\n`` (a ``\\r`` before it stays); files are read through Hadoop's file systems; a
compressed file (``.gz``, ``.bz2``, ... by the name's ending) is read by one task; a line is at most 2 GiB;
Spark does not see files whose names begin with ``_`` or ``.``. Files that are being written are read up to
about their end when ``lines`` was called.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from os import fspath
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users call it

from ctrlchan.errors import PipelineError
from ctrlchan.pipeline.spark.tables import destination, literally

__all__ = ["files", "frozen", "lines", "plain_path"]


def lines(
    spark: SparkSession, paths: str | Path | Sequence[str | Path], *, name: str | Sequence[str] = "*"
) -> DataFrame:
    """Return every line of these files: file string, line int64 (from 1), text string.

    ``paths``: files, folders (with all that is in them), or Hadoop's patterns (``logs/*/state-change.log``);
    local ones, or URLs of Hadoop's file systems.
    ``name``: which files of a folder are read, by patterns of their names; a file that is itself named is
    always read. ``file`` is a plain path for local files and a URI for others. ``text`` may hold bytes that
    are not UTF-8. Lines of one piece stay together and in order. Raises PipelineError if a path does
    not exist or no file is found.
    """
    found = files(spark, paths, name=name)
    scan = (
        spark.read.option("lineSep", "\n")
        .text([literally(path) for path in found])
        .select(
            F.col("_metadata.file_path").alias("uri"),
            F.col("_metadata.file_block_start").alias("piece"),
            F.monotonically_increasing_id().alias("place"),
            F.col("value").alias("text"),
        )
    )
    pieces = frozen(spark, scan)
    before = Window.partitionBy("uri").orderBy("piece").rowsBetween(Window.unboundedPreceding, -1)
    offsets = (
        pieces.groupBy("uri", "piece")
        .agg(F.min("place").alias("first"), F.count("*").alias("count"))
        .select(
            "uri",
            "piece",
            plain_path(F.col("uri")).alias("file"),
            (F.coalesce(F.sum("count").over(before), F.lit(0)) + 1 - F.col("first")).alias("offset"),
        )
    )
    return pieces.join(F.broadcast(offsets), ["uri", "piece"]).select(
        "file", (F.col("place") + F.col("offset")).alias("line"), "text"
    )


def files(
    spark: SparkSession, paths: str | Path | Sequence[str | Path], *, name: str | Sequence[str] = "*"
) -> list[str]:
    """Return the files that ``lines`` reads, as URIs in the order of their names; raises as it does."""
    names = [name] if isinstance(name, str) else list(name)
    given = [paths] if isinstance(paths, (str, Path)) else list(paths)
    found: dict[str, None] = {}
    for path in given:
        for status in _statuses(spark, fspath(path)):
            if status.isFile():
                found.update(dict.fromkeys(_seen([status.getPath()])))
            else:
                found.update(dict.fromkeys(_in_folder(spark, status.getPath(), names)))
    if not found:
        listed = ", ".join(fspath(path) for path in given)
        raise PipelineError(f"{listed or 'no path'}: no file named {' or '.join(names)} there")
    return sorted(found)


def _statuses(spark: SparkSession, path: str) -> list[Any]:
    """Return Hadoop's status of a path, or of all paths that a pattern matches."""
    hadoop, location = _file_system(spark, path)
    # A path that exists is no pattern, whatever characters it has.
    if hadoop.exists(location):
        return [hadoop.getFileStatus(location)]
    matched = hadoop.globStatus(location)
    if not matched:
        raise PipelineError(f"{path}: no such file or folder")
    return list(matched)


def _in_folder(spark: SparkSession, folder: Any, names: list[str]) -> list[str]:
    hadoop = folder.getFileSystem(_context(spark).hadoopConfiguration())
    listing = hadoop.listFiles(folder, True)
    below = []
    while listing.hasNext():
        path = listing.next().getPath()
        inner = str(folder.toUri().relativize(path.toUri()).getPath()).split("/")
        if not any(_hidden(part) for part in inner) and any(fnmatchcase(inner[-1], name) for name in names):
            below.append(path)
    return _seen(below)


def _seen(paths: list[Any]) -> list[str]:
    for path in paths:
        if _hidden(str(path.getName())):
            raise PipelineError(f"{path}: Spark does not read files whose names begin with _ or .")
    return [str(path.toString()) for path in paths]


def plain_path(uri: Column) -> Column:
    """``/logs/a b.log`` of ``file:/logs/a%20b.log`` (``_metadata.file_path``); others keep their scheme."""
    decoded = F.url_decode(F.replace(uri, F.lit("+"), F.lit("%2B")))
    return F.regexp_replace(decoded, "^file:(//)?(?=/)", "")


def _hidden(name: str) -> bool:
    return name.startswith(("_", "."))


def _file_system(spark: SparkSession, path: str) -> tuple[Any, Any]:
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    try:
        location = jvm.org.apache.hadoop.fs.Path(destination(path))
        hadoop = location.getFileSystem(_context(spark).hadoopConfiguration())
        return hadoop, location.makeQualified(hadoop.getUri(), hadoop.getWorkingDirectory())
    except Exception as problem:
        raise PipelineError(f"{path!r}: {problem}") from problem


def _context(spark: SparkSession) -> Any:
    return spark.sparkContext._jsc.sc()


def frozen(spark: SparkSession, scan: DataFrame) -> DataFrame:
    """Return the same rows with a fixed division into tasks.

    Spark divides files into tasks by the number of executors, again for each use of a DataFrame. While a
    cluster still grows, counting and numbering would see different pieces. Rows keep Spark's internal form:
    ``DataFrame.rdd`` would convert each of them twice.
    """
    rows = scan._jdf.queryExecution().toRdd()
    return DataFrame(spark._jsparkSession.internalCreateDataFrame(rows, scan._jdf.schema(), False), spark)

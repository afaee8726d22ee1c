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

import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from os import fspath
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users call it

from ctrlchan.errors import PipelineError
from ctrlchan.pipeline.spark.failures import reason_of
from ctrlchan.pipeline.spark.remote import frozen
from ctrlchan.pipeline.spark.tables import destination, gathered, is_small, literally

__all__ = ["files", "lines", "plain_path"]

#: Scheme and authority of a URI.
_STORE: Final = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*:(?://[^/]*)?")
#: Alternatives in a pattern.
_BRACES: Final = re.compile(r"\{[^{}]*\}")
_NO_PATH: Final = "PATH_NOT_FOUND"


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
    if is_small(spark):
        # One task reads all pieces of a file, so it can count.
        place = Window.partitionBy("uri").orderBy("piece", "place")
        number = F.row_number().over(place).cast("long")
        return gathered(scan).select(plain_path(F.col("uri")).alias("file"), number.alias("line"), "text")
    pieces = frozen(scan)
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
    found = {file for path in given for file in _found(spark, fspath(path), names)}
    if not found:
        listed = ", ".join(fspath(path) for path in given)
        raise PipelineError(f"{listed or 'no path'}: no file named {' or '.join(names)} there")
    return sorted(found)


def _found(spark: SparkSession, path: str, names: list[str]) -> Iterator[str]:
    """Yield the files of one path or pattern."""
    listed = _listed(spark, path)
    last = destination(path).rstrip("/").rpartition("/")[2]
    if not listed and _hidden(last):
        raise PipelineError(f"{path}: Spark does not read files whose names begin with _ or .")
    # A match has as many names as its pattern; those in braces may have slashes, and stand for one.
    depth = len(_names_of(_BRACES.sub("x", destination(path))))
    for file in listed:
        inner = _names_of(file)[depth:]
        if any(_hidden(part) for part in inner):
            continue
        if not inner or any(fnmatchcase(inner[-1], name) for name in names):
            yield file


def _listed(spark: SparkSession, path: str) -> list[str]:
    """Return all files of a path, or of all paths that a pattern matches, with those in folders.

    Spark lists them: a Spark Connect server may see files that this machine does not.
    """
    # A path that exists is no pattern, whatever characters it has.
    for one in dict.fromkeys((literally(path), destination(path))):
        try:
            found = spark.read.option("recursiveFileLookup", "true").text(one).inputFiles()
        except Exception as problem:
            # Of an unknown kind of storage it is an error of py4j.
            if not isinstance(problem, PySparkException) or problem.getCondition() != _NO_PATH:
                raise PipelineError(f"{path!r}: {reason_of(str(problem))}") from problem
        else:
            return [unquote(uri) for uri in found]
    raise PipelineError(f"{path}: no such file or folder")


def _names_of(uri: str) -> list[str]:
    return [name for name in _STORE.sub("", uri).split("/") if name]


def plain_path(uri: Column) -> Column:
    """``/logs/a b.log`` of ``file:/logs/a%20b.log`` (``_metadata.file_path``); others keep their scheme."""
    decoded = F.url_decode(F.replace(uri, F.lit("+"), F.lit("%2B")))
    return F.regexp_replace(decoded, "^file:(//)?(?=/)", "")


def _hidden(name: str) -> bool:
    return name.startswith(("_", "."))

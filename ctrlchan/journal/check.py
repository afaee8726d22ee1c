"""Checks all files of a journal folder before a job counts their rows.

Only names and footers are read; of files whose footers do not show that their rows are different ones, also
the keys (channel, sequence). Bytes that changed within a page show when the page is read: it has a checksum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ctrlchan.errors import JournalError
from ctrlchan.journal.reader import REMEDY, journal_files, require_journal, unified_schema, why_unopened
from ctrlchan.state.storage.schemas import JOURNAL
from ctrlchan.storage import AnyPath, PathLike, files_in, names_in, path_of
from ctrlchan.storage.parquet import arrow_source, unreadable

__all__ = ["check_journal"]

_KEY: Final = ("channel", "sequence")
_REQUIRED: Final = frozenset(field.name for field in JOURNAL if not field.nullable)
#: Footers that are read at the same time.
_THREADS: Final = 8


class _Rows(NamedTuple):
    """Rows of one channel in one file, from ``first`` to ``last`` sequence."""

    channel: str
    first: int
    last: int
    rows: int
    file: AnyPath


def check_journal(
    path: PathLike,
    files: Sequence[AnyPath] | None = None,
    open_file: Callable[[AnyPath], Any] = arrow_source,
) -> pa.Schema:
    """Return the columns of a journal's files together, as ``journal_schema`` does. ``files``: only these.

    ``open_file``: returns what Arrow reads a file from, on one of several threads. Each file is opened once.

    Raises JournalError, with the file and what to do about it: an empty or broken file, a file that is not of
    a journal, a newer version, a column with another type or with nulls that no journal has, and rows that
    are there twice.
    """
    if files is None:
        files = journal_files(path)
        _refuse_other_files(path_of(path))
    with ThreadPoolExecutor(_THREADS) as pool:
        checked = list(pool.map(partial(_checked, open_file=open_file), files))
    schema = unified_schema((file, schema) for file, (schema, _) in zip(files, checked, strict=True))
    _refuse_repeated([row for _, rows in checked for row in rows])
    return schema


def _refuse_other_files(folder: AnyPath) -> None:
    for file in files_in(folder):
        if file.suffix != ".parquet":
            raise JournalError(f"{file}: not a file of a journal: move it out of the folder")
    for name in names_in(folder):
        # Spark would take it for the value of a column, and read nothing but such folders.
        if "=" in name and not name.startswith("."):
            raise JournalError(f"{folder / name}: not of a journal: move it out of the folder")


def _checked(file: AnyPath, open_file: Callable[[AnyPath], Any]) -> tuple[pa.Schema, list[_Rows]]:
    """Return the columns of a file and its rows by channel.

    Raises JournalError for a file that is not of a journal, and for a null in a column that has none.
    """
    try:
        # Opened by name, a file could be replaced between footer and keys.
        opened = pq.ParquetFile(open_file(file))
    except (pa.ArrowException, OSError) as problem:
        raise JournalError(why_unopened(file, problem)) from problem
    try:
        with opened as parquet:
            schema = parquet.schema_arrow
            require_journal(schema, file)
            _refuse_nulls(parquet, file)
            return schema, list(_rows_of_groups(parquet, file))
    except (pa.ArrowException, OSError) as problem:
        raise JournalError(f"{file}: {unreadable(problem) or f'broken: {problem}; {REMEDY}'}") from problem


def _refuse_nulls(parquet: pq.ParquetFile, file: AnyPath) -> None:
    nullable = [field.name for field in parquet.schema_arrow if field.nullable and field.name in _REQUIRED]
    if not nullable:
        return
    for name, chunk in _chunks(parquet, nullable):
        statistics = chunk.statistics
        if statistics is None or not statistics.has_null_count:
            nulls = parquet.read(columns=[name])[name].null_count
        else:
            nulls = statistics.null_count
        if nulls:
            raise JournalError(
                f"{file}: {nulls} of its rows have no {name}, which no journal writes; {REMEDY}"
            )


def _chunks(parquet: pq.ParquetFile, names: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """Yield (name, metadata) of the columns ``names`` in every row group."""
    for number in range(parquet.num_row_groups):
        group = parquet.metadata.row_group(number)
        for place in range(group.num_columns):
            chunk = group.column(place)
            if chunk.path_in_schema in names:
                yield chunk.path_in_schema, chunk


def _rows_of_groups(parquet: pq.ParquetFile, file: AnyPath) -> Iterator[_Rows]:
    """Yield the rows of each row group by channel: from its statistics if it has one channel."""
    for number in range(parquet.num_row_groups):
        group = parquet.metadata.row_group(number)
        bounds: dict[str, tuple[Any, Any]] = {}
        for place in range(group.num_columns):
            chunk = group.column(place)
            if chunk.path_in_schema in _KEY and (found := chunk.statistics) and found.has_min_max:
                bounds[chunk.path_in_schema] = found.min, found.max
        if len(bounds) == len(_KEY) and bounds["channel"][0] == bounds["channel"][1]:
            first, last = bounds["sequence"]
            yield _Rows(bounds["channel"][0], first, last, group.num_rows, file)
            continue
        keys = parquet.read_row_group(number, columns=list(_KEY))
        sums = keys.group_by("channel").aggregate([("sequence", how) for how in ("min", "max", "count")])
        for row in sums.to_pylist():
            first, last, count = (row[f"sequence_{how}"] for how in ("min", "max", "count"))
            yield _Rows(row["channel"], first, last, count, file)


def _refuse_repeated(rows: Sequence[_Rows]) -> None:
    """Raise JournalError if a (channel, sequence) is there twice."""
    suspects: set[AnyPath] = set()
    before: _Rows | None = None
    for one in sorted(rows):
        if one.rows != one.last - one.first + 1:
            suspects.add(one.file)
        if before is not None and before.channel == one.channel and one.first <= before.last:
            suspects |= {before.file, one.file}
        if before is None or before.channel != one.channel or one.last > before.last:
            before = one
    if not suspects:
        return
    tables = []
    files = sorted(suspects)
    for number, file in enumerate(files):
        keys = pq.read_table(arrow_source(file), columns=list(_KEY))
        tables.append(keys.append_column("file", pa.repeat(number, len(keys))))
    sums = (
        pa.concat_tables(tables)
        .group_by(list(_KEY))
        .aggregate([("file", how) for how in ("count", "min", "max")])
    )
    repeated = sums.filter(pc.field("file_count") > 1)
    if not len(repeated):
        return
    row = repeated.slice(0, 1).to_pylist()[0]
    first, last = files[row["file_min"]], files[row["file_max"]]
    what = f"{len(repeated):,} requests of the journal are there twice"
    if first == last:
        raise JournalError(f"{first}: {what}; {REMEDY}")
    raise JournalError(f"{last}: {what}, also in {first}: move one of the two out of the folder")

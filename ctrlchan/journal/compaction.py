"""Makes a journal of few large files of a journal of many small ones.

A journal writes a file for each flush interval, so that rows are seen soon; each file costs a reader an open,
a footer and a task. The copy has the same rows in larger files, and is a journal itself. The journal is not
changed: channels may write into it and monitors read it meanwhile, and neither would notice that files were
replaced. So the copy has the rows that were in complete files when it began.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ctrlchan.errors import ConfigError, JournalError
from ctrlchan.journal.channels import CHANNELS_FOLDER
from ctrlchan.journal.check import check_journal
from ctrlchan.journal.files import write_rows
from ctrlchan.journal.reader import REMEDY, journal_files
from ctrlchan.state.storage.schemas import JOURNAL, JOURNAL_LATER
from ctrlchan.storage import local_path

__all__ = ["Compacted", "compact_journal"]

_MIB: Final = 2**20


@dataclass(frozen=True)
class Compacted:
    """What a compaction read and wrote: numbers of files and rows, and bytes on the disk."""

    files_read: int
    files_written: int
    rows: int
    bytes_read: int
    bytes_written: int


def compact_journal(
    journal: str | Path,
    out: str | Path,
    *,
    max_file_bytes: int = 256 * _MIB,
) -> Compacted:
    """Write the rows of a journal into a new folder, in files that are as large as may be.

    ``max_file_bytes``: a file takes rows until they have so many bytes before compression; so many bytes, and
    a file of the journal, are in memory at a time. The rows of a file are ordered by channel; those of a
    channel keep their order. ``out`` appears when it is whole.

    Raises ConfigError for ``max_file_bytes`` below 1, JournalError if ``out`` exists, for each reason of
    ``check_journal``, and if ``out`` cannot be written.
    """
    if max_file_bytes < 1:
        raise ConfigError(f"max_file_bytes must be at least 1, not {max_file_bytes}")
    source, made = local_path(journal), local_path(out)
    if made.exists():
        raise JournalError(f"{made}: already there; name a new folder")
    hidden = made.with_name(f".{made.name}.{secrets.token_hex(4)}")
    try:
        hidden.mkdir(parents=True)
        compacted = _compact(source, hidden, max_file_bytes)
        hidden.rename(made)
    except OSError as problem:
        raise JournalError(f"{made}: not written: {problem}") from problem
    finally:
        shutil.rmtree(hidden, ignore_errors=True)
    return compacted


def _compact(source: Path, out: Path, max_file_bytes: int) -> Compacted:
    # Before the rows: a request that a channel lists as unfinished may have its row, not the other way round.
    if (source / CHANNELS_FOLDER).is_dir():
        shutil.copytree(source / CHANNELS_FOLDER, out / CHANNELS_FOLDER, ignore=shutil.ignore_patterns(".*"))
    files = [local_path(file) for file in journal_files(source)]
    columns = _columns(check_journal(source, files))
    rows = written = bytes_written = 0
    for first, tables in _groups(files, columns, max_file_bytes):
        file = out / first.name
        table = pa.concat_tables(tables)
        with file.open("xb") as sink:
            write_rows(list(_by_channel(table)), sink)
            sink.flush()
            os.fsync(sink.fileno())
        rows, written, bytes_written = rows + len(table), written + 1, bytes_written + file.stat().st_size
    bytes_read = sum(file.stat().st_size for file in files)
    return Compacted(len(files), written, rows, bytes_read, bytes_written)


def _groups(
    files: list[Path], columns: pa.Schema, max_file_bytes: int
) -> Iterator[tuple[Path, list[pa.Table]]]:
    """Yield the rows of each file to be written, with the first file that they are of."""
    tables: list[pa.Table] = []
    first, size = None, 0
    for file in files:
        table = _read(file, columns)
        if first is not None and size + table.nbytes > max_file_bytes:
            yield first, tables
            first, tables, size = None, [], 0
        first = first or file
        tables.append(table)
        size += table.nbytes
    if first is not None:
        yield first, tables


def _read(file: Path, columns: pa.Schema) -> pa.Table:
    try:
        table = pq.read_table(file, page_checksum_verification=True)
        arrays: list[Any] = [
            table[field.name].cast(field.type)
            if field.name in table.column_names
            else pa.nulls(len(table), field.type)
            for field in columns
        ]
        return pa.Table.from_arrays(arrays, schema=columns)
    except (pa.ArrowException, OSError) as problem:
        raise JournalError(f"{file}: broken: {problem}; {REMEDY}") from problem


def _columns(found: pa.Schema) -> pa.Schema:
    """Return the columns of a new journal: those of this version, and the others that files have."""
    ours = [
        field.with_nullable(True) if field.name in JOURNAL_LATER else field
        for field in JOURNAL
        if field.name in found.names
    ]
    others = [field for field in found if field.name not in JOURNAL.names]
    return pa.schema([*ours, *others]).with_metadata(JOURNAL.metadata)


def _by_channel(table: pa.Table) -> Iterator[pa.Table]:
    """Yield the rows of each channel: a row group of one channel shows in its footer which rows it has."""
    for channel in pc.unique(table["channel"]).to_pylist():
        yield table.filter(pc.field("channel") == channel)

"""Makes a journal of few large files of a journal of many small ones.

A journal writes a file for each flush interval, so that rows are seen soon; each file costs a reader an open,
a footer and a task. The copy has the same rows in larger files, and is a journal itself. The journal is not
changed: channels may write into it and monitors read it meanwhile, and neither would notice that files were
replaced. So the copy has the rows that were in complete files when it began.

On this machine the copy appears by a rename. Elsewhere its files are put one by one, and as long as
``_compacting`` is beside them every reader refuses the folder (``journal_files``).
"""

from __future__ import annotations

import errno
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ctrlchan.errors import ConfigError, JournalError
from ctrlchan.journal.channels import CHANNELS_FOLDER, channel_files
from ctrlchan.journal.check import check_journal
from ctrlchan.journal.files import write_rows
from ctrlchan.journal.reader import COMPACTING, REMEDY, journal_files
from ctrlchan.state.storage.schemas import JOURNAL, JOURNAL_LATER
from ctrlchan.storage import (
    AnyPath,
    PathLike,
    UrlPath,
    names_in,
    path_of,
    remove_empty,
    remove_tree,
    replace,
    write_new,
)

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
    journal: PathLike,
    out: PathLike,
    *,
    max_file_bytes: int = 256 * _MIB,
) -> Compacted:
    """Write the rows of a journal into a new folder, in files that are as large as may be.

    ``max_file_bytes``: a file takes rows until they have so many bytes before compression; so many bytes, and
    a file of the journal, are in memory at a time. The rows of a file are ordered by channel; those of a
    channel keep their order. Both folders may be URLs. ``out`` can be read when it is whole.

    Raises ConfigError for ``max_file_bytes`` below 1, JournalError if ``out`` exists, for each reason of
    ``check_journal``, and if ``out`` cannot be written.
    """
    if max_file_bytes < 1:
        raise ConfigError(f"max_file_bytes must be at least 1, not {max_file_bytes}")
    source, made = path_of(journal), path_of(out)
    try:
        if made.exists():
            raise FileExistsError
        with _renamed(made) if isinstance(made, Path) else _marked(made) as folder:
            return _compact(source, folder, max_file_bytes)
    except FileExistsError:
        raise JournalError(f"{made}: already there; name a new folder") from None
    except OSError as problem:
        raise JournalError(f"{made}: not written: {problem}") from problem


@contextmanager
def _renamed(made: Path) -> Iterator[Path]:
    """Yield a hidden folder, which gets its name at the end of the block."""
    hidden = made.with_name(f".{made.name}.{secrets.token_hex(4)}")
    try:
        hidden.mkdir(parents=True)
        yield hidden
        try:
            hidden.rename(made)
        except OSError as problem:
            # Another compaction was faster.
            raise FileExistsError if problem.errno == errno.ENOTEMPTY else problem from None
    finally:
        remove_tree(hidden)


@contextmanager
def _marked(made: UrlPath) -> Iterator[AnyPath]:
    """Yield a folder that no reader takes for a journal before the end of the block."""
    mark = made / COMPACTING
    # Of two compactions into one folder, one raises FileExistsError.
    write_new(mark, secrets.token_hex(8).encode())
    try:
        yield made
    except BaseException:
        for name in names_in(made):
            if name != COMPACTING:
                remove_tree(made / name)
        remove_tree(mark)
        remove_empty(made)
        raise
    mark.unlink()


def _compact(source: AnyPath, out: AnyPath, max_file_bytes: int) -> Compacted:
    # Before the rows: a request that a channel lists as unfinished may have its row, not the other way round.
    channels = channel_files(source)
    if channels and isinstance(out, Path):
        (out / CHANNELS_FOLDER).mkdir()
    for file in channels:
        replace(out / CHANNELS_FOLDER / file.name, file.read_bytes())
    files = journal_files(source)
    columns = _columns(check_journal(source, files))
    rows = read = written = bytes_written = 0
    for first, tables, size in _groups(files, columns, max_file_bytes):
        table = pa.concat_tables(tables)
        sink = pa.BufferOutputStream()
        write_rows(list(_by_channel(table)), sink)
        content = sink.getvalue()
        replace(out / first.name, content.to_pybytes())
        rows, read, written = rows + len(table), read + size, written + 1
        bytes_written += content.size
    return Compacted(len(files), written, rows, read, bytes_written)


def _groups(
    files: list[AnyPath], columns: pa.Schema, max_file_bytes: int
) -> Iterator[tuple[AnyPath, list[pa.Table], int]]:
    """Yield the rows of each file to be written, with the first file that they are of, and the bytes read."""
    tables: list[pa.Table] = []
    first, size, read = None, 0, 0
    for file in files:
        content = _content(file)
        table = _table(content, file, columns)
        if first is not None and size + table.nbytes > max_file_bytes:
            yield first, tables, read
            first, tables, size, read = None, [], 0, 0
        first = first or file
        tables.append(table)
        size, read = size + table.nbytes, read + len(content)
    if first is not None:
        yield first, tables, read


def _content(file: AnyPath) -> bytes:
    try:
        return file.read_bytes()
    except OSError as problem:
        raise JournalError(f"{file}: cannot be read: {problem}") from problem


def _table(content: bytes, file: AnyPath, columns: pa.Schema) -> pa.Table:
    try:
        table = pq.read_table(pa.BufferReader(content), page_checksum_verification=True)
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

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
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
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
    local_path,
    names_in,
    path_of,
    remove_empty,
    remove_tree,
    replace,
    write_new,
)
from ctrlchan.storage.parquet import arrow_source

__all__ = ["Compacted", "compact_journal"]

_MIB: Final = 2**20
#: A file of an object store of at most so many bytes is read as a whole, with one request.
_SMALL_BYTES: Final = _MIB
#: Files that are read at the same time, and bytes of all of them if they are more than one.
_AT_ONCE: Final = 8
_BYTES_AT_ONCE: Final = 32 * _MIB


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

    ``max_file_bytes``: a file takes rows until they have so many bytes before compression. In memory are at
    a time so many bytes of rows, as many of small files that are elsewhere, and a few files. The rows of a
    file are ordered by channel; those of a channel keep their order. Both folders may be URLs. ``out`` can be
    read when it is whole.

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
    contents = _Contents(source, files, max_file_bytes)
    columns = _columns(check_journal(source, files, contents.open))
    rows = read = written = bytes_written = 0
    for first, tables, size in _groups(contents, columns, max_file_bytes):
        table = pa.concat_tables(tables)
        sink = pa.BufferOutputStream()
        write_rows(list(_by_channel(table)), sink)
        content = sink.getvalue()
        replace(out / first.name, content.to_pybytes())
        rows, read, written = rows + len(table), read + size, written + 1
        bytes_written += content.size
    return Compacted(len(files), written, rows, read, bytes_written)


def _groups(
    contents: _Contents, columns: pa.Schema, max_file_bytes: int
) -> Iterator[tuple[AnyPath, list[pa.Table], int]]:
    """Yield the rows of each file to be written, with the first file that they are of, and the bytes read."""
    tables: list[pa.Table] = []
    first, size, read = None, 0, 0
    for file, content in contents.in_order():
        table = _table(content, file, columns)
        if first is not None and size + table.nbytes > max_file_bytes:
            yield first, tables, read
            first, tables, size, read = None, [], 0, 0
        first = first or file
        tables.append(table)
        size, read = size + table.nbytes, read + len(content)
    if first is not None:
        yield first, tables, read


class _Contents:
    """Reads the files of a journal, several at a time.

    Small files of another machine are read once, by the check, and kept until they are copied, as long as
    they are not more than ``kept_bytes`` together.
    """

    def __init__(self, folder: AnyPath, files: Sequence[AnyPath], kept_bytes: int) -> None:
        self._files = files
        self._sizes = dict(zip(files, _sizes(folder, files), strict=True))
        self._lock = threading.Lock()
        self._kept: dict[AnyPath, bytes] = {}
        self._room = kept_bytes

    def open(self, file: AnyPath) -> Any:
        """Return what Arrow reads a file from, for the check. Any thread may call it. Raises OSError."""
        if isinstance(file, Path) or self._sizes[file] > _SMALL_BYTES:
            return arrow_source(file)
        content = self._read(file)
        with self._lock:
            if len(content) <= self._room:
                self._room -= len(content)
                self._kept[file] = content
        return pa.BufferReader(content)

    def in_order(self) -> Iterator[tuple[AnyPath, bytes]]:
        """Yield each file with its content. Raises JournalError."""
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="compact") as pool:
            for some in self._groups():
                yield from zip(some, pool.map(self._content, some), strict=True)

    def _groups(self) -> Iterator[list[AnyPath]]:
        """Yield the files that are read at the same time."""
        group: list[AnyPath] = []
        size = 0
        for file in self._files:
            if group and (len(group) == _AT_ONCE or size + self._sizes[file] > _BYTES_AT_ONCE):
                yield group
                group, size = [], 0
            group.append(file)
            size += self._sizes[file]
        if group:
            yield group

    def _content(self, file: AnyPath) -> bytes:
        kept = self._kept.pop(file, None)
        if kept is not None:
            return kept
        try:
            return self._read(file)
        except OSError as problem:
            raise JournalError(f"{file}: cannot be read: {problem}") from problem

    def _read(self, file: AnyPath) -> bytes:
        size = self._sizes[file]
        if isinstance(file, Path) or not 0 < size <= _SMALL_BYTES:
            return file.read_bytes()
        with file.file_system() as (store, path):
            # Without a range s3fs asks for the size before.
            content: bytes = store.cat_file(path, start=0, end=size)
            return content


def _sizes(folder: AnyPath, files: Sequence[AnyPath]) -> list[int]:
    """Return the size of each file in bytes; elsewhere from one listing of the folder. Raises OSError."""
    if isinstance(folder, Path):
        return [local_path(file).stat().st_size for file in files]
    with folder.file_system() as (store, place):
        listed = {one["name"].rpartition("/")[2]: one["size"] for one in store.ls(place, detail=True)}
    # A file that is newer than a listing that the store has kept.
    return [listed.get(file.name, _BYTES_AT_ONCE) for file in files]


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

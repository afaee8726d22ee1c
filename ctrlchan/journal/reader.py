"""Reads a journal folder, also while it is being written."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from ctrlchan.errors import JournalError, PipelineError
from ctrlchan.state.storage.schemas import JOURNAL, JOURNAL_LATER, JOURNAL_VERSION, JOURNAL_VERSION_KEY, check
from ctrlchan.storage import AnyPath, PathLike, UrlPath, files_in, path_of
from ctrlchan.storage.parquet import arrow_source, dataset_files, unreadable

__all__ = [
    "COMPACTING",
    "REMEDY",
    "journal_dataset",
    "journal_files",
    "journal_schema",
    "read_journal",
    "require_journal",
    "require_types",
    "unified_schema",
    "why_unopened",
]

REMEDY: Final = "restore it from a copy, or move it out of the folder"
#: In a folder that ``compact_journal`` has not finished.
COMPACTING: Final = "_compacting"


def journal_files(path: PathLike) -> list[AnyPath]:
    """Return the files of a journal folder that are complete now, oldest first.

    ``path``: a folder of this machine, or a URL. Raises JournalError when there is no such folder, or it is a
    copy that is not finished.
    """
    folder = path_of(path)
    try:
        if not folder.is_dir():
            raise JournalError(f"{folder}: no such journal folder")
        if isinstance(folder, UrlPath) and (folder / COMPACTING).exists():
            raise JournalError(
                f"{folder}: a copy that compact has not finished; if it runs no more, delete the folder and "
                "compact again"
            )
        return files_in(folder, ".parquet")
    except OSError as problem:
        raise JournalError(f"{folder}: cannot be read: {problem}") from problem


def journal_dataset(path: PathLike) -> ds.Dataset:
    """Return a journal folder, or one file of it, as a dataset: for journals that do not fit into memory.

    One row for each outcome; columns as in ``ctrlchan.state.storage.schemas.JOURNAL``, with times as UTC
    microseconds (``_at``) and monotonic nanoseconds of the host (``_ns``). Unknown columns are kept; a column
    that an older file does not have is null there. Raises JournalError naming the file that is broken, is no
    journal, or is of a newer version.
    """
    place = path_of(path)
    files = [place] if place.is_file() else journal_files(place)
    checked = ds.ParquetFragmentScanOptions(page_checksum_verification=True)
    parquet = ds.ParquetFileFormat(default_fragment_scan_options=checked)
    names, store = dataset_files(files)
    return ds.dataset(names, schema=journal_schema(files), format=parquet, filesystem=store)


def journal_schema(files: Iterable[PathLike]) -> pa.Schema:
    """Return the columns of these files and of this version together, all nullable.

    Reads only footers. Raises JournalError naming the file that is broken, is no journal, is of a newer
    version, or does not fit to the others.
    """
    return unified_schema((file, _schema_of(path_of(file))) for file in files)


def unified_schema(schemas_of_files: Iterable[tuple[PathLike, pa.Schema]]) -> pa.Schema:
    """Return ``journal_schema`` of files whose own schemas are read. Raises JournalError."""
    schemas = [JOURNAL]
    unified = _nullable(JOURNAL)
    for file, schema in schemas_of_files:
        # Nearly all files have the same columns.
        if not any(schema.equals(known) for known in schemas):
            schemas.append(schema)
            try:
                unified = pa.unify_schemas([unified, _nullable(schema)], promote_options="permissive")
            except pa.ArrowException as problem:
                raise JournalError(f"{file}: the files do not fit together: {problem}") from problem
    return unified


def read_journal(path: PathLike, columns: list[str] | None = None) -> pa.Table:
    """Return all rows of a journal folder, or these columns of them, in the order of the files.

    Columns and errors are those of ``journal_dataset``.
    """
    dataset = journal_dataset(path)
    try:
        return dataset.to_table(columns=columns)
    except (pa.ArrowException, OSError) as problem:
        # The footer is whole, a page is not.
        raise JournalError(f"{path}: {unreadable(problem) or f'a file is broken: {problem}'}") from problem


def _schema_of(file: AnyPath) -> pa.Schema:
    try:
        schema = pq.read_schema(arrow_source(file))
    except (pa.ArrowException, OSError) as problem:
        raise JournalError(why_unopened(file, problem)) from problem
    require_journal(schema, file)
    return schema


def why_unopened(file: AnyPath, problem: BaseException) -> str:
    """Return why a file could not be opened as a Parquet file, and what to do."""
    if reason := unreadable(problem):
        return f"{file}: {reason}"
    if file.is_file() and not file.read_bytes():
        return f"{file}: empty, which no journal writes: delete it"
    return f"{file}: not a whole Parquet file: {problem}; {REMEDY}"


def require_journal(schema: pa.Schema, file: AnyPath) -> None:
    """Raise JournalError, with what to do, if the schema of a file is not one of a journal."""
    written = (schema.metadata or {}).get(JOURNAL_VERSION_KEY)
    if written is None:
        raise JournalError(
            f"{file}: not a journal file (its metadata has no {JOURNAL_VERSION_KEY.decode()}): "
            "move it out of the folder"
        )
    try:
        version = int(written)
    except ValueError:
        raise JournalError(f"{file}: {written!r} is no version of a journal") from None
    if version > JOURNAL_VERSION:
        raise JournalError(
            f"{file}: journal version {version} is of a newer ctrlchan; "
            f"this one reads up to {JOURNAL_VERSION}"
        )
    missing = [name for name in JOURNAL.names if name not in schema.names and name not in JOURNAL_LATER]
    if missing:
        raise JournalError(f"{file}: these columns are missing: {', '.join(missing)}; {REMEDY}")
    require_types(schema, JOURNAL, file, optional=JOURNAL_LATER)


def require_types(
    found: pa.Schema, wanted: pa.Schema, file: AnyPath, *, optional: Collection[str] = ()
) -> None:
    """Raise JournalError, with what to do, if a column of the file has another type."""
    try:
        check(found, wanted, file, optional=optional)
    except PipelineError as problem:
        raise JournalError(f"{problem}; {REMEDY}") from problem


def _nullable(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_nullable(True) for field in schema])

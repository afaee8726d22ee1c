"""Parquet files by Arrow, on this machine and elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq

from ctrlchan.storage.files import replace
from ctrlchan.storage.paths import AnyPath, OpenedFile, UrlPath, store_errors

__all__ = ["arrow_file", "arrow_source", "dataset_files", "unreadable", "write_parquet"]


def unreadable(problem: BaseException) -> str | None:
    """Return why a file could not be read, where its content is not the reason; else None."""
    # Arrow's own errors have no number.
    if isinstance(problem, OSError) and (problem.errno or isinstance(problem, FileNotFoundError)):
        return f"cannot be read: {problem}"
    return None


def arrow_source(path: AnyPath) -> Any:
    """Return what Arrow's functions take to read this file: its name, or the opened file. Raises OSError."""
    return str(path) if isinstance(path, Path) else pa.PythonFile(path.open(), mode="r")


def arrow_file(path: AnyPath) -> tuple[str, pyarrow.fs.FileSystem]:
    """Return the name of a file and Arrow's file system, for functions that take both."""
    if isinstance(path, Path):
        return str(path), pyarrow.fs.LocalFileSystem()
    with path.file_system() as (store, name):
        return name, _file_system(store)


def dataset_files(files: Sequence[AnyPath]) -> tuple[list[str], Any]:
    """Return the names of these files and the file system they are of, as ``pyarrow.dataset`` takes them."""
    names, of = [], None
    for file in files:
        if isinstance(file, UrlPath):
            with file.file_system() as (store, name):
                names.append(name)
                of = _file_system(store)
        else:
            names.append(str(file))
    return names, of


def _file_system(store: Any) -> pyarrow.fs.FileSystem:
    # Its type hints do not know that the class is complete.
    base: Any = pyarrow.fs.FSSpecHandler

    class Handler(base):  # type: ignore[misc]
        """As Arrow's own, but errors of the store are OSErrors."""

        def open_input_file(self, path: str) -> pa.PythonFile:
            with store_errors(path):
                return pa.PythonFile(OpenedFile(store.open(path, "rb"), path), mode="r")

    return pyarrow.fs.PyFileSystem(Handler(store))


def write_parquet(table: pa.Table, path: AnyPath, **options: Any) -> None:
    """Write a table; elsewhere than on this machine in one step, through memory. Raises OSError."""
    if isinstance(path, Path):
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, path, **options)
        return
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    replace(path, sink.getvalue().to_pybytes())

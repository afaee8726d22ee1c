"""Whole files: written in one step, or by one writer only."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TextIO, cast

from ctrlchan.storage.paths import RENAMING, AnyPath, UrlPath

__all__ = ["files_in", "names_in", "remove_empty", "remove_tree", "replace", "text_file", "write_new"]

#: A file system without hard links.
_NO_LINKS: Final = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
#: How often a conditional put is tried that met another one (409).
_TRIES: Final = 4


def replace(path: AnyPath, content: bytes) -> None:
    """Write a file in one step: readers see the old content or the new one. Raises OSError."""
    if isinstance(path, UrlPath) and path.scheme not in RENAMING:
        with path.file_system() as (store, place):
            store.pipe_file(place, content)
        return
    hidden = _hidden(path)
    try:
        _write(hidden, content)
        if isinstance(path, Path):
            os.replace(str(hidden), path)
        else:
            _rename(hidden, path, overwrite=True)
    except BaseException:
        with suppress(OSError):
            hidden.unlink(missing_ok=True)
        raise


@contextmanager
def text_file(path: AnyPath) -> Iterator[TextIO]:
    """Open a text file (UTF-8) for writing, which appears under its name at the end of the block, or not at
    all.

    A folder that does not exist is made. For other stores than this machine the text is kept in a temporary
    file until then. Raises OSError.
    """
    if isinstance(path, Path):
        path.parent.mkdir(parents=True, exist_ok=True)
        hidden = _hidden(path)
        try:
            with hidden.open("w", encoding="utf-8") as file:
                yield file
            os.replace(str(hidden), path)
        finally:
            hidden.unlink(missing_ok=True)
        return
    with tempfile.NamedTemporaryFile("w", encoding="utf-8") as file:
        # Typed as a wrapper, which has all of a text file's methods.
        yield cast("TextIO", file)
        file.flush()
        target = _hidden(path) if path.scheme in RENAMING else path
        with target.file_system() as (store, place):
            store.put_file(file.name, place)
        if target != path:
            _rename(target, path, overwrite=True)


def write_new(path: AnyPath, content: bytes) -> None:
    """Write a file that does not exist, in one step; of several writers one succeeds, also across machines.

    ``content`` must be different for each writer. Where an answer of the store was lost, the file itself
    shows who wrote it. Raises FileExistsError, OSError.
    """
    if isinstance(path, Path):
        _link_new(path, content)
        return
    for left in reversed(range(_TRIES)):
        try:
            if path.scheme in RENAMING:
                _rename_new(path, content)
            else:
                with path.file_system() as (store, place):
                    store.pipe_file(place, content, mode="create")
        except OSError as problem:
            # Stores and their packages have many errors for it, and an earlier try may have succeeded.
            found = _content_of(path)
            if found == content:
                return
            if found is not None:
                raise FileExistsError(errno.EEXIST, "already there", str(path)) from problem
            if not left:
                raise
        else:
            return


def _content_of(path: AnyPath) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _link_new(path: Path, content: bytes) -> None:
    hidden = _hidden(path)
    try:
        _write(hidden, content)
        try:
            os.link(str(hidden), path)
        except OSError as problem:
            if problem.errno not in _NO_LINKS:
                raise
            # Exclusive, but not whole in one step.
            with path.open("xb") as file:
                file.write(content)
    finally:
        hidden.unlink(missing_ok=True)


def _rename_new(path: UrlPath, content: bytes) -> None:
    hidden = _hidden(path)
    try:
        _write(hidden, content)
        _rename(hidden, path, overwrite=False)
    except BaseException:
        with suppress(OSError):
            hidden.unlink(missing_ok=True)
        raise


def _hidden(path: AnyPath) -> Any:
    """Return a name beside ``path`` that nobody else has and that Spark and Arrow do not read."""
    return path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")


def _write(path: AnyPath, content: bytes) -> None:
    if isinstance(path, Path):
        with path.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        return
    with path.file_system() as (store, place), store.open(place, "wb") as file:
        file.write(content)


def _rename(old: AnyPath, new: UrlPath, *, overwrite: bool) -> None:
    with new.file_system() as (store, place):
        store.mv(place.rpartition("/")[0] + "/" + old.name, place, overwrite=overwrite)


def names_in(folder: AnyPath) -> list[str]:
    """Return the names of the files and folders in a folder, sorted; none if it does not exist."""
    return sorted(name for name, _ in _entries(folder))


def files_in(folder: AnyPath, suffix: str = "") -> list[AnyPath]:
    """Return the files of a folder whose names end with ``suffix``, sorted by name, without hidden ones.

    Hidden are names that begin with ``.`` or ``_``, which Spark and Arrow do not read either. A folder that
    does not exist has no files. Raises OSError.
    """
    return sorted(
        folder / name
        for name, is_file in _entries(folder)
        if is_file and name.endswith(suffix) and not name.startswith((".", "_"))
    )


def _entries(folder: AnyPath) -> list[tuple[str, bool]]:
    """Return (name, whether it is a file) of what is in a folder."""
    try:
        if isinstance(folder, Path):
            with os.scandir(folder) as found:
                return [(entry.name, entry.is_file()) for entry in found]
        with folder.file_system() as (store, place):
            listed = store.ls(place, detail=True)
    except (FileNotFoundError, NotADirectoryError):
        return []
    named = ((one["name"].rstrip("/").rpartition("/")[2], one) for one in listed)
    # Some tools put an empty object in place of a folder.
    inner = ((name, one) for name, one in named if one["name"].strip("/") != place.strip("/"))
    return [(name, one["type"] == "file") for name, one in inner]


def remove_tree(folder: AnyPath) -> None:
    """Remove a folder with all that is in it, as far as that is possible; what does not exist is no error."""
    if isinstance(folder, Path):
        shutil.rmtree(folder, ignore_errors=True)
        return
    with suppress(OSError), folder.file_system() as (store, place):
        store.rm(place, recursive=True)


def remove_empty(folder: UrlPath) -> None:
    """Remove a folder if nothing is in it. Object stores have no empty folders."""
    if folder.scheme in RENAMING:
        with suppress(OSError), folder.file_system() as (store, place):
            store.rmdir(place)

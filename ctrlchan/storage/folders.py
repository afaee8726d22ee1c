"""Folders that are whole or absent, whatever dies while they are written.

On this machine a folder is written under a hidden name and renamed. Elsewhere nothing is renamed: the files
go into ``data-<token>`` inside the folder, and then one file is put, the mark (``frames.json`` for example),
which names that folder. Readers begin with the mark: without it there is nothing, and what a writer that
died has left behind belongs to no dataset; the next writer names it in a warning. The put is conditional, so
of two writers one succeeds; with ``overwrite`` it replaces the mark in one step.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from ctrlchan.storage.files import names_in, remove_empty, remove_tree, replace, write_new
from ctrlchan.storage.paths import AnyPath, UrlPath

__all__ = ["MARK_FOLDER", "contents_of", "occupied", "whole_folder"]

_LOG: Final = logging.getLogger("ctrlchan.storage")

#: In the mark: the folder with the files, where they are not beside the mark.
MARK_FOLDER: Final = "folder"
_DATA: Final = "data-"


def contents_of(path: AnyPath, mark: Mapping[str, Any]) -> AnyPath:
    """Return the folder that has the files of a dataset. ``mark``: the content of its mark."""
    name = mark.get(MARK_FOLDER)
    if not isinstance(name, str) or not name.startswith(_DATA) or "/" in name:
        return path
    return path / name


def occupied(path: AnyPath, mark: str, *, overwrite: bool) -> str | None:
    """Return why a folder cannot be written here, or None. Only folders with ``mark`` are ever replaced."""
    if (path / mark).is_file():
        return None if overwrite else "already there (--overwrite replaces it)"
    if isinstance(path, Path):
        if not path.exists():
            return None
        return f"exists, and is not replaced because it has no {mark}" if overwrite else "already there"
    if all(name.startswith(_DATA) for name in names_in(path)):
        # Left by writers that have ended, or of one that writes now.
        return None
    return f"exists, and is not replaced because it has no {mark}"


@contextmanager
def whole_folder(path: AnyPath, mark: str, *, overwrite: bool) -> Iterator[AnyPath]:
    """Yield a folder to write into, which appears as ``path`` at the end of the block, or not at all.

    The block writes ``mark`` too: a JSON object, or an empty file. Raises FileExistsError if another writer
    was faster and ``overwrite`` is false, OSError.
    """
    if isinstance(path, Path):
        with _renamed(path, overwrite=overwrite) as folder:
            yield folder
        return
    made = path / f"{_DATA}{secrets.token_hex(6)}"
    try:
        yield made
    except BaseException:
        remove_tree(made)
        remove_empty(path)
        raise
    try:
        _publish(path, made, mark, overwrite=overwrite)
    except FileExistsError:
        # After any other error the mark may have been put, and then it names these files.
        remove_tree(made)
        raise


def _publish(path: UrlPath, made: AnyPath, mark: str, *, overwrite: bool) -> None:
    about = json.loads((made / mark).read_bytes() or b"{}")
    content = json.dumps({**about, MARK_FOLDER: made.name}, indent=2, ensure_ascii=False).encode() + b"\n"
    before = _read(path / mark) if overwrite else None
    if overwrite:
        replace(path / mark, content)
    else:
        write_new(path / mark, content)
    with suppress(OSError):
        (made / mark).unlink(missing_ok=True)
    if before is not None:
        _remove_old(path, before, made)
    _warn_of_others(path, made)


def _remove_old(path: UrlPath, before: Mapping[str, Any], made: AnyPath) -> None:
    old = contents_of(path, before)
    if old != path:
        remove_tree(old)
        return
    # Copied here from a local folder: its files are beside the mark.
    for name in names_in(made):
        remove_tree(path / name)


def _warn_of_others(path: UrlPath, made: AnyPath) -> None:
    """Name the files that other writers have left. They may still be at work, so nothing is removed."""
    try:
        others = [name for name in names_in(path) if name.startswith(_DATA) and name != made.name]
    except OSError:
        return
    if others:
        _LOG.warning(
            "%s: %s: left by a writer that died, or of one that still writes: delete it if none does",
            path,
            ", ".join(others),
        )


def _read(mark: AnyPath) -> dict[str, Any] | None:
    try:
        found = json.loads(mark.read_bytes() or b"{}")
    except FileNotFoundError:
        return None
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


@contextmanager
def _renamed(path: Path, *, overwrite: bool) -> Iterator[Path]:
    # The folder that a symbolic link names is replaced, not the link.
    path = Path(os.path.realpath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    # A sibling, so that the rename stays on one file system.
    made = path.parent / f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}"
    made.mkdir()
    try:
        yield made
        # Flushed before the rename, so that the folder is whole after a power failure too.
        for file in made.iterdir():
            _sync(file)
        _put_in_place(made, path, overwrite=overwrite)
        _sync(path.parent)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _put_in_place(made: Path, path: Path, *, overwrite: bool) -> None:
    if not path.exists():
        made.rename(path)
        return
    if not overwrite:
        raise FileExistsError(errno.EEXIST, "made by another writer in the meantime", str(path))
    # Between the two renames ``path`` does not exist, but both folders are whole on the disk.
    aside = made.with_name(f"{made.name}-old")
    path.rename(aside)
    try:
        made.rename(path)
    except OSError:
        aside.rename(path)
        raise
    shutil.rmtree(aside, ignore_errors=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

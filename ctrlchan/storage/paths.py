"""Paths on this machine, and in file systems that have a URL."""

from __future__ import annotations

import errno
import io
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import total_ordering
from pathlib import Path
from typing import Any, Final, TypeAlias

from ctrlchan.errors import ConfigError
from ctrlchan.storage.hdfs import hdfs_file_system

__all__ = [
    "RENAMING",
    "AnyPath",
    "OpenedFile",
    "PathLike",
    "UrlPath",
    "is_url",
    "local_path",
    "path_of",
    "store_errors",
]

#: ``hdfs://host/x``, and ``hdfs:/host/x``, which is what a ``Path`` makes of it. One letter is no scheme.
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
_URL: Final = re.compile(r"([a-z][a-z0-9+.-]+)://([^/]*)(/.*)?", re.DOTALL)
#: Scheme -> the package of fsspec's file system, as pip names it, and the extra of ctrlchan that has it.
_PACKAGES: Final = {
    "hdfs": ("hdfs-native", "hdfs"),
    "viewfs": ("hdfs-native", "hdfs"),
    "s3": ("s3fs", "s3"),
    "s3a": ("s3fs", "s3"),
    "gs": ("gcsfs", "gcs"),
    "abfs": ("adlfs", "azure"),
    "abfss": ("adlfs", "azure"),
}
#: Schemes of file systems with a rename. The others have puts.
RENAMING: Final = frozenset({"hdfs", "viewfs"})
#: (process, root of the URL) -> HDFS's file system. In a forked child the end of a client waits for threads
#: that are not there. fsspec would end it, and nothing could be started any more as Spark starts its JVM.
_CLIENTS: Final[dict[tuple[int, str], Any]] = {}
#: Bytes that are read at once: a Parquet reader jumps to the footer and reads column by column.
_BLOCK: Final = 4 * 2**20


def is_url(path: str | Path | UrlPath) -> bool:
    """Return whether the path begins with the scheme of a URL."""
    return _SCHEME.match(str(path)) is not None


def local_path(path: str | Path | UrlPath) -> Path:
    """Return the path of a file or folder that must be on this machine. Raises ConfigError for a URL."""
    if is_url(path):
        raise ConfigError(f"{path}: a URL; this must be a path on this machine")
    return Path(str(path))


def path_of(path: str | Path | UrlPath) -> Path | UrlPath:
    """Return a ``Path`` for this machine (``file:`` URLs too), a ``UrlPath`` for any other URL.

    Raises ConfigError for a scheme that is not known, and for a URL that a ``Path`` has damaged.
    """
    if isinstance(path, UrlPath):
        return path
    found = _SCHEME.match(str(path))
    if found is None:
        return Path(path)
    if isinstance(path, Path):
        raise ConfigError(f"{path}: a URL in a Path, which drops one of its slashes: give it as text")
    if found[1].lower() == "file":
        local = path[found.end() - 1 :]
        if local.startswith("//") and not local.startswith("///"):
            raise ConfigError(f"{path}: this names a machine; file:///folder is a folder of this one")
        return Path("/" + local.lstrip("/"))
    return UrlPath(path)


@total_ordering
class UrlPath:
    """A path of a file system that is reached by URL, with the methods of ``pathlib.Path`` that are used.

    Methods raise OSError, never an error of the store's own package. Nothing is remembered between two
    calls: other machines write too.
    """

    __slots__ = ("_parts", "_root")

    def __init__(self, url: str) -> None:
        found = _URL.fullmatch(url)
        if found is None:
            raise ConfigError(f"{url}: not a URL: scheme://host/path is one")
        scheme, host, rest = found.groups()
        if scheme not in _PACKAGES:
            raise ConfigError(
                f"{url}: {scheme} is no storage that is known; there are {', '.join(_PACKAGES)}"
            )
        if not host and scheme not in RENAMING:
            raise ConfigError(f"{url}: no bucket or container in it")
        self._root = f"{scheme}://{host}"
        self._parts = tuple(part for part in (rest or "").split("/") if part)

    # -- the name

    @property
    def scheme(self) -> str:
        return self._root.partition(":")[0]

    @property
    def name(self) -> str:
        return self._parts[-1] if self._parts else ""

    @property
    def stem(self) -> str:
        return Path(self.name).stem

    @property
    def suffix(self) -> str:
        return Path(self.name).suffix

    @property
    def parent(self) -> UrlPath:
        return self._with(self._parts[:-1])

    def with_name(self, name: str) -> UrlPath:
        return self.parent / name

    def absolute(self) -> UrlPath:
        return self

    def resolve(self) -> UrlPath:
        return self

    def __truediv__(self, name: str) -> UrlPath:
        return self._with((*self._parts, *(part for part in name.split("/") if part)))

    def __str__(self) -> str:
        return "/".join((self._root, *self._parts))

    def __repr__(self) -> str:
        return f"UrlPath({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UrlPath) and str(self) == str(other)

    def __lt__(self, other: UrlPath) -> bool:
        return str(self) < str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def _with(self, parts: tuple[str, ...]) -> UrlPath:
        made = object.__new__(UrlPath)
        made._root, made._parts = self._root, parts
        return made

    # -- the file system

    @contextmanager
    def file_system(self) -> Iterator[tuple[Any, str]]:
        """Yield fsspec's file system and the path in it; every error in the block becomes an OSError."""
        with store_errors(str(self)):
            try:
                import fsspec

                if self.scheme in RENAMING:
                    yield self._client(), "/" + "/".join(self._parts)
                    return
                # Asked each time: fsspec keeps one for each process, and drops those from before a fork.
                # A listing that was kept would not show what others have written.
                yield fsspec.core.url_to_fs(str(self), use_listings_cache=False)
            except ImportError as problem:
                package, extra = _PACKAGES[self.scheme]
                raise ConfigError(
                    f"{self}: this needs {package}: pip install 'ctrlchan[{extra}]', here and on every "
                    "executor"
                ) from problem

    def _client(self) -> Any:
        """Return HDFS's file system for this process; see ``_CLIENTS``."""
        key = os.getpid(), self._root
        if key not in _CLIENTS:
            _CLIENTS[key] = hdfs_file_system(self._root)
        return _CLIENTS[key]

    def exists(self) -> bool:
        return self._kind() is not None

    def is_file(self) -> bool:
        return self._kind() == "file"

    def is_dir(self) -> bool:
        return self._kind() == "directory"

    def read_bytes(self) -> bytes:
        with self.file_system() as (store, path):
            content: bytes = store.cat_file(path)
            return content

    def read_text(self, encoding: str = "utf-8") -> str:
        return self.read_bytes().decode(encoding)

    def open(self) -> io.IOBase:
        """Return the file, opened for reading."""
        with self.file_system() as (store, path):
            options = {} if self.scheme in RENAMING else {"block_size": _BLOCK}
            return OpenedFile(store.open(path, "rb", **options), str(self))

    def unlink(self, missing_ok: bool = False) -> None:
        try:
            with self.file_system() as (store, path):
                store.rm_file(path)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def _kind(self) -> str | None:
        try:
            with self.file_system() as (store, path):
                kind: str = store.info(path)["type"]
                return kind
        except FileNotFoundError:
            return None


class OpenedFile(io.RawIOBase):
    """A file of a store, opened for reading; every error becomes an OSError that names it."""

    def __init__(self, file: Any, name: str) -> None:
        self._file = file
        self._name = name

    def read(self, size: int = -1) -> bytes:
        with store_errors(self._name):
            content: bytes = self._file.read(size)
            return content

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._file.seek(offset, whence)
        return self.tell()

    def tell(self) -> int:
        place: int = self._file.tell()
        return place

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


@contextmanager
def store_errors(name: str) -> Iterator[None]:
    """Raise OSError, with ``name``, in place of any error of a store's package. ConfigErrors pass."""
    try:
        yield
    except ConfigError:
        raise
    except OSError as problem:
        if name in str(problem):
            raise
        # The store's own words name a key, or nothing.
        number = errno.ENOENT if isinstance(problem, FileNotFoundError) else errno.EIO
        raise type(problem)(problem.errno or number, _line(problem), name) from problem
    except Exception as problem:
        raise OSError(errno.EIO, f"{type(problem).__name__}: {_line(problem)}", name) from problem


def _line(problem: BaseException) -> str:
    words = problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)
    # The first line: some have a stack of Java's below.
    return next(iter(words.splitlines()), "") or type(problem).__name__


AnyPath: TypeAlias = Path | UrlPath
PathLike: TypeAlias = str | Path | UrlPath

"""The lock of a log directory: at most one broker uses it, of this process or another, ours or Kafka's.

``.lock`` is locked as Java's ``FileChannel.tryLock`` does it: a record lock of the process. Such a lock does
not hold against the process itself, so a set remembers what this process holds. Source: ``FileLock``.
"""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path
from typing import Final

from ctrlchan.errors import LogDirectoryError

__all__ = ["DirectoryLock", "RefusedError"]

LOCK: Final = ".lock"

_held: Final[set[tuple[int, int]]] = set()
_guard: Final = threading.Lock()


class RefusedError(LogDirectoryError):
    """A log directory that this broker must not use: another broker or cluster owns it, or two disagree."""


class DirectoryLock:
    """The lock of one log directory, held from the constructor on.

    Raises RefusedError where another broker holds it, OSError where the file cannot be opened.
    """

    def __init__(self, folder: Path) -> None:
        status = folder.stat()
        self._key = status.st_dev, status.st_ino
        with _guard:
            # To open and close the file would give up the lock that this process holds.
            if self._key in _held:
                raise RefusedError(f"{folder}: another broker of this process uses this log directory")
            self._descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError):
                os.close(self._descriptor)
                raise RefusedError(
                    f"{folder}: another broker uses this log directory ({LOCK} is locked)"
                ) from None
            except OSError:
                os.close(self._descriptor)
                raise
            _held.add(self._key)

    def release(self) -> None:
        """Give the lock back; a second call does nothing."""
        with _guard:
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1
                _held.discard(self._key)

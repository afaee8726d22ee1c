"""Log directories of brokers that are started by a program: given ones, and temporary ones."""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import shutil
import sys
import tempfile
from enum import Enum
from os import PathLike, fspath
from typing import Final, Literal, NoReturn

from ctrlchan.errors import ConfigError

__all__ = ["TEMPORARY", "LogDir", "LogFolder", "SharedFolder", "Temporary", "kept_brokers"]


class Temporary(Enum):
    """The type of ``TEMPORARY``."""

    TEMPORARY = "TEMPORARY"


#: In the place of a log directory: a folder that is removed when the broker or the cluster is closed.
TEMPORARY: Final = Temporary.TEMPORARY

#: Where records are stored. None for a broker that stores none.
LogDir = str | PathLike[str] | Literal[Temporary.TEMPORARY] | None


class LogFolder:
    """The folder of a ``log_dir``. ``path``: None where no records are stored.

    ``is_temporary``: ``close`` removes it. ``made_by_brokers``: a temporary folder has a name here and is
    made by the processes of the brokers, which remove it when this process was killed; else it is made here.
    Raises ConfigError for an empty path: records do not go to the working directory because a variable was
    not set; and for the text "TEMPORARY", which is not ``TEMPORARY``.
    """

    def __init__(self, log_dir: LogDir, *, made_by_brokers: bool = False) -> None:
        self.is_temporary = log_dir is TEMPORARY
        self.path: str | None = None
        if log_dir is TEMPORARY:
            name = os.path.join(tempfile.gettempdir(), f"ctrlchan-{secrets.token_hex(8)}")
            self.path = name if made_by_brokers else tempfile.mkdtemp(prefix="ctrlchan-")
        elif log_dir is not None:
            self.path = fspath(log_dir)
            if not self.path:
                raise ConfigError("log_dir is empty")
            if self.path == Temporary.TEMPORARY.value:
                raise ConfigError(
                    'log_dir is the text "TEMPORARY": for a temporary folder give ctrlchan.TEMPORARY, '
                    "for a folder of this name ./TEMPORARY"
                )

    def close(self) -> None:
        """Remove the folder if it is temporary."""
        if self.is_temporary and self.path is not None:
            shutil.rmtree(self.path, ignore_errors=True)


class SharedFolder:
    """A temporary folder that several processes make and use, and that the last of them removes."""

    def __init__(self, path: str) -> None:
        self._path = path
        os.makedirs(path, mode=0o700, exist_ok=True)
        # Held while this process may write into the folder. An exec gives it up.
        self._use = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(self._use, fcntl.LOCK_SH)

    def remove_instead(self) -> NoReturn:
        """End all threads of this process, and have it remove the folder when no other process uses it.

        The process becomes a new interpreter: a thread that waits for a dead ZooKeeper or that still writes
        can neither delay the removal nor undo it.
        """
        os.execv(sys.executable, [sys.executable, "-I", "-S", "-c", _REMOVE, self._path])


#: The program that removes the folder ``argv[1]`` when nobody has a lock on it.
_REMOVE: Final = """
import fcntl, os, shutil, sys
try:
    folder = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECTORY)
except FileNotFoundError:
    sys.exit()
fcntl.flock(folder, fcntl.LOCK_EX)
shutil.rmtree(sys.argv[1], ignore_errors=True)
"""


def kept_brokers(folder: str | PathLike[str]) -> list[int]:
    """Return the ids of the brokers that have stored records in a folder, in order: N of ``broker-N``."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    return sorted(int(found[1]) for name in names if (found := re.fullmatch(r"broker-(\d+)", name)))

"""Log directories of brokers that are started by a program: given ones, and temporary ones."""

from __future__ import annotations

import shutil
import tempfile
from enum import Enum
from os import PathLike, fspath
from typing import Final, Literal

from ctrlchan.errors import ConfigError

__all__ = ["TEMPORARY", "LogDir", "LogFolder", "Temporary"]


class Temporary(Enum):
    """The type of ``TEMPORARY``."""

    TEMPORARY = "TEMPORARY"


#: In the place of a log directory: a folder that is removed when the broker or the cluster is closed.
TEMPORARY: Final = Temporary.TEMPORARY

#: Where records are stored; None: nowhere.
LogDir = str | PathLike[str] | Literal[Temporary.TEMPORARY] | None


class LogFolder:
    """The folder of a ``log_dir``. ``path``: None where no records are stored.

    ``is_temporary``: ``close`` removes it. Raises ConfigError for an empty path: records do not go to the
    working directory because a variable was not set.
    """

    def __init__(self, log_dir: LogDir) -> None:
        self.is_temporary = log_dir is TEMPORARY
        self.path: str | None = None
        if log_dir is TEMPORARY:
            self.path = tempfile.mkdtemp(prefix="ctrlchan-")
        elif log_dir is not None:
            self.path = fspath(log_dir)
            if not self.path:
                raise ConfigError("log_dir is empty")

    def close(self) -> None:
        """Remove the folder if it is temporary."""
        if self.is_temporary and self.path is not None:
            shutil.rmtree(self.path, ignore_errors=True)

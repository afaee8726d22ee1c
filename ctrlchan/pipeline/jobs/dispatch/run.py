"""One call of ``dispatch``: its files in the journal folder reach the tasks on all executors."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final

from ctrlchan.errors import PipelineError
from ctrlchan.storage import PathLike, path_of, replace

__all__ = ["CLAIMS_FOLDER", "Run"]

#: Folders whose names begin with ``_`` are no data to Spark and Arrow.
CLAIMS_FOLDER: Final = "_dispatch"


class Run:
    """The files of a run: one says that it has begun, another asks all its tasks to stop."""

    def __init__(self, journal: PathLike, name: str) -> None:
        self.folder = path_of(journal) / CLAIMS_FOLDER
        self._begun = self.folder / f"{name}.run"
        self._stop = self.folder / f"{name}.stop"
        self._reason: str | None = None

    def begin(self) -> None:
        """Create the run's file. Raises PipelineError if the folder cannot be written."""
        try:
            if isinstance(self.folder, Path):
                self.folder.mkdir(parents=True, exist_ok=True)
            replace(self._begun, b"")
        except OSError as problem:
            raise PipelineError(f"{self.folder}: cannot be written: {problem}") from problem

    def require_begun(self) -> None:
        """Raise PipelineError if this executor does not have the driver's folder."""
        try:
            begun = self._begun.exists()
        except OSError as problem:
            raise PipelineError(f"{self.folder}: cannot be read: {problem}") from problem
        if not begun:
            raise PipelineError(
                f"the journal folder {self.folder.parent} is not the driver's here: dispatch keeps its "
                "checkpoint in it, so it must be on a file system that all executors share, or a URL"
            )

    def stop(self, reason: str) -> None:
        """Ask all tasks to stop after the frames in flight."""
        self._reason = reason
        replace(self._stop, reason.encode())

    def stopped(self) -> str | None:
        """Return why the tasks are to stop, or None. Of a URL: what ``look`` has found."""
        if isinstance(self.folder, Path):
            self.look()
        return self._reason

    def look(self) -> None:
        """Read whether the tasks are to stop. What cannot be read now is read the next time."""
        if self._reason is None:
            with suppress(OSError):
                self._reason = self._stop.read_text()

    def end(self) -> None:
        for file in (self._begun, self._stop):
            with suppress(OSError):
                file.unlink(missing_ok=True)

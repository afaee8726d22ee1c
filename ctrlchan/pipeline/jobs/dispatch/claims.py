"""Claims: one task at a time sends to a broker, whatever the scheduler does.

A task may run twice at once: as a speculative copy, or because the driver has lost contact with an executor
that still runs. So a task claims a broker before it sends to it, with an exclusive lock on a file in the
journal folder. The kernel releases the lock when the process ends. A second task waits, and then reads the
outcomes of the first in the journal.

``flock`` also works between hosts if the file system of the folder carries locks (NFS does).
"""

from __future__ import annotations

import fcntl
import os
import platform
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from ctrlchan.errors import PipelineError

__all__ = ["CLAIMS_FOLDER", "Claims", "Run"]

#: Folders whose names begin with ``_`` are no data to Spark and Arrow.
CLAIMS_FOLDER: Final = "_dispatch"
#: How often a lock that another holds is tried again, seconds.
_RETRY: Final = 0.05
#: Seconds between two heartbeats of an owner.
_HEARTBEAT: Final = 1.0


class Claims:
    """The brokers that this task owns, until ``release``. Used by one thread."""

    def __init__(self, journal: Path, timeout: float) -> None:
        """``timeout``: seconds to wait for another owner of a broker without a ``heartbeat`` of it."""
        self._folder = journal / CLAIMS_FOLDER
        self._timeout = timeout
        self._last_heartbeat = 0.0
        self._held: dict[int, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def claim(self, brokers: Iterable[int]) -> None:
        """Claim these brokers too, in ascending order, so that two tasks cannot wait for each other.

        Waits as long as another owner works: this task may be its speculative copy. Raises PipelineError,
        naming the owner, if it neither works nor ends.
        """
        for broker in sorted(set(brokers) - self._held.keys()):
            descriptor = os.open(self._folder / f"broker-{broker}.lock", os.O_RDWR | os.O_CREAT, 0o644)
            try:
                self._lock(descriptor, broker)
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"process {os.getpid()} on {platform.node()}".encode(), 0)
            except BaseException:
                os.close(descriptor)
                raise
            self._held[broker] = descriptor

    def heartbeat(self) -> None:
        """Show waiting tasks that this owner works. Call it often: it does little."""
        if time.monotonic() - self._last_heartbeat >= _HEARTBEAT:
            self._last_heartbeat = time.monotonic()
            for descriptor in self._held.values():
                os.utime(descriptor)

    def release(self) -> None:
        while self._held:
            _, descriptor = self._held.popitem()
            os.close(descriptor)

    def _lock(self, descriptor: int, broker: int) -> None:
        deadline = time.monotonic() + self._timeout
        last_seen = 0
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                seen = os.fstat(descriptor).st_mtime_ns
                if seen != last_seen:
                    last_seen, deadline = seen, time.monotonic() + self._timeout
                # Other tasks may wait for brokers that this task owns.
                self.heartbeat()
                if time.monotonic() >= deadline:
                    owner = os.pread(descriptor, 200, 0).decode(errors="replace") or "another process"
                    raise PipelineError(
                        f"broker {broker} is owned by {owner}, which has neither ended nor renewed its "
                        f"claim for {self._timeout:g} s"
                    ) from None
                time.sleep(_RETRY)
            else:
                return


class Run:
    """One call of ``dispatch``; its files ask the tasks on all executors to stop."""

    def __init__(self, journal: str | Path, name: str) -> None:
        self._folder = Path(journal) / CLAIMS_FOLDER
        self._begun = self._folder / f"{name}.run"
        self._stop = self._folder / f"{name}.stop"

    def begin(self) -> None:
        """Create the run's file. Raises OSError if the folder cannot be written."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._begun.touch()

    def require_begun(self) -> None:
        """Raise PipelineError if this executor does not have the driver's folder."""
        if not self._begun.exists():
            raise PipelineError(
                f"the journal folder {self._folder.parent} is not the driver's here: dispatch keeps its "
                "checkpoint in it, so it must be on a file system that all executors share"
            )

    def stop(self, reason: str) -> None:
        """Ask all tasks to stop after the frames in flight."""
        made = self._stop.with_suffix(f".{os.getpid()}.tmp")
        made.write_text(reason)
        made.replace(self._stop)

    def stopped(self) -> str | None:
        """Return why the tasks are to stop, or None."""
        try:
            return self._stop.read_text()
        except FileNotFoundError:
            return None

    def end(self) -> None:
        for file in (self._begun, self._stop):
            with suppress(FileNotFoundError):
                file.unlink()

"""Who may send to a broker: one owner at a time, whatever the scheduler does.

A task may run twice at once: as its own speculative copy, or because the driver believes an executor lost
that still runs. So a task claims a broker before it sends to it: an exclusive lock on a file in the journal
folder, which the kernel gives back when the process ends, however it ends. Who comes second waits, and then
finds in the journal what the first has done.

``flock`` works between hosts too where the folder is on a file system that carries locks (NFS does).
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
#: How often an owner shows that it lives, seconds.
_LIFE: Final = 1.0


class Claims:
    """The brokers that this task owns; ``release`` gives them all back. Belongs to one thread."""

    def __init__(self, journal: Path, timeout: float) -> None:
        """``timeout``: seconds to wait for the owner of a broker while it shows no life (``show_life``)."""
        self._folder = journal / CLAIMS_FOLDER
        self._timeout = timeout
        self._shown = 0.0
        self._held: dict[int, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def claim(self, brokers: Iterable[int]) -> None:
        """Own these too; always in ascending order, so that two who want the same do not wait in a ring.

        An owner that is at work is waited for, however long it takes: this may be its own copy, which has
        nothing better to do. Raises PipelineError naming an owner that neither works nor ends.
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

    def show_life(self) -> None:
        """Tell those who wait that this owner is at work; call it often, it does little."""
        if time.monotonic() - self._shown >= _LIFE:
            self._shown = time.monotonic()
            for descriptor in self._held.values():
                os.utime(descriptor)

    def release(self) -> None:
        while self._held:
            _, descriptor = self._held.popitem()
            os.close(descriptor)

    def _lock(self, descriptor: int, broker: int) -> None:
        deadline = time.monotonic() + self._timeout
        life = 0
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                seen = os.fstat(descriptor).st_mtime_ns
                if seen != life:
                    life, deadline = seen, time.monotonic() + self._timeout
                # While we wait for this one, who waits for those that we have must not give us up.
                self.show_life()
                if time.monotonic() >= deadline:
                    owner = os.pread(descriptor, 200, 0).decode(errors="replace") or "another process"
                    raise PipelineError(
                        f"broker {broker} is being sent to by {owner}, which has neither ended nor shown "
                        f"any life for {self._timeout:g} s"
                    ) from None
                time.sleep(_RETRY)
            else:
                return


class Run:
    """One call of dispatch: its tasks on all executors hear here that they are to stop."""

    def __init__(self, journal: str | Path, name: str) -> None:
        self._folder = Path(journal) / CLAIMS_FOLDER
        self._begun = self._folder / f"{name}.run"
        self._stop = self._folder / f"{name}.stop"

    def begin(self) -> None:
        """Raises OSError where the folder cannot be written."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._begun.touch()

    def require_begun(self) -> None:
        """Raises PipelineError where this executor does not see the driver's folder."""
        if not self._begun.exists():
            raise PipelineError(
                f"the journal folder {self._folder.parent} is not the driver's here: dispatch keeps its "
                "checkpoint in it, so it must be on a file system that all executors share"
            )

    def stop(self, reason: str) -> None:
        """Ask all tasks to stop, in order: what is in flight is still waited for."""
        made = self._stop.with_suffix(f".{os.getpid()}.tmp")
        made.write_text(reason)
        made.replace(self._stop)

    def stopped(self) -> str | None:
        """Why the tasks are to stop; None: they are not."""
        try:
            return self._stop.read_text()
        except FileNotFoundError:
            return None

    def end(self) -> None:
        for file in (self._begun, self._stop):
            with suppress(FileNotFoundError):
                file.unlink()

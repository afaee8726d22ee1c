"""Leases: how a process shows others that it works, where no lock of a kernel reaches them.

An owner rewrites its file every third of its lease. Who waits reads that file, and takes the owner for ended
when its content has not changed for a lease and a tenth, measured by the waiting process alone. The owner
takes itself for ended a tenth of a lease before the end, counted from the start of its last successful write.
So clocks of different machines are never compared; they only must not differ in speed by a tenth.
"""

from __future__ import annotations

import json
import os
import platform
import threading
import time
import uuid
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from ctrlchan.errors import PipelineError
from ctrlchan.storage import AnyPath, replace

__all__ = ["Lease", "Owner", "clock", "owner_file"]

#: Share of a lease: what clocks may differ in speed, and the time from a check to the last byte that is sent.
_ALLOWANCE: Final = 0.1
#: Writes of an owner during one lease.
_WRITES: Final = 3
#: Seconds from one look for the request to stop to the next.
_LOOK: Final = 1.0
#: Fields of ``/proc/PROCESS/stat`` after the name, and the states of a process that has ended: proc(5).
_STATE: Final = 0
_START: Final = 19
_ENDED: Final = ("Z", "X", "x")


def clock() -> float:
    """Return seconds that also pass while the machine sleeps, where the system counts them."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


def owner_file(folder: AnyPath, owner: str) -> AnyPath:
    return folder / f"owner-{owner}"


class Lease:
    """The lease of this process; ``end`` gives it up.

    ``look``: called about once a second by the thread that renews the lease.
    """

    def __init__(self, folder: AnyPath, seconds: float, look: Any = None) -> None:
        """Write the owner's file for the first time. Raises PipelineError if that fails."""
        self.owner = uuid.uuid4().hex[:16]
        self._file = owner_file(folder, self.owner)
        self._seconds = seconds
        self._look = look
        self._count = 0
        # When this process takes itself for ended. Written by the thread, read by all.
        self._until = float("inf")
        self._problem = ""
        # When a write began that has no answer yet.
        self._writing: float | None = None
        self._ended = threading.Event()
        try:
            self._renew()
        except OSError as problem:
            raise PipelineError(f"{folder}: cannot be written: {problem}") from problem
        self._thread = threading.Thread(target=self._run, name="ctrlchan-lease", daemon=True)
        self._thread.start()

    def held(self) -> bool:
        """Return whether nobody else can have taken over yet."""
        return clock() < self._until

    def require(self) -> None:
        """Raise PipelineError if the lease has run out."""
        if not self.held():
            why = self._why()
            raise PipelineError(
                f"the claims on brokers were not renewed for {self._seconds:g} s ({why}): another run may "
                "own the brokers now. Dispatch again: it continues where the journal ends"
            )

    def _why(self) -> str:
        """Return why the lease was not renewed."""
        writing = self._writing
        if writing is not None:
            waited = f"{self._file} has not been written for {clock() - writing:.0f} s"
            return f"{waited}: the store does not answer or is busy"
        return self._problem or "the process was stopped, or its machine was too busy"

    def end(self) -> None:
        """Stop renewing, and let others take over: at once, or after the lease if the store is silent."""
        self._ended.set()
        self._thread.join(self._seconds)
        if self._thread.is_alive():
            return
        with suppress(OSError):
            self._file.unlink(missing_ok=True)

    def _run(self) -> None:
        due = clock() + self._seconds / _WRITES
        while not self._ended.wait(max(0.0, min(_LOOK, due - clock()))):
            if self._look is not None:
                self._look()
            if clock() < due:
                continue
            if not self.held():
                return
            try:
                self._renew()
            except OSError as problem:
                self._problem = " ".join(str(problem).split())
                due = clock() + self._seconds / _WRITES / _WRITES
            else:
                due = clock() + self._seconds / _WRITES

    def _renew(self) -> None:
        begun = clock()
        self._count += 1
        content = {
            "count": self._count,
            "lease": self._seconds,
            "host": platform.node(),
            "process": os.getpid(),
            "started": _started(os.getpid()),
            "kernel": _kernel(),
        }
        self._writing = begun
        try:
            replace(self._file, json.dumps(content).encode())
        finally:
            self._writing = None
        # Too late: others may have taken over while this was written.
        if self.held():
            self._until = begun + self._seconds * (1 - _ALLOWANCE)


class Owner(NamedTuple):
    """What is in the file of an owner; ``content`` changes with every write."""

    content: bytes
    lease: float = 0.0
    host: str = "another machine"
    process: int = 0
    started: int | None = None
    kernel: str | None = None

    @classmethod
    def read(cls, folder: AnyPath, owner: str) -> Owner | None:
        """Return the owner, or None if it has ended and removed its file. Raises OSError."""
        try:
            content = owner_file(folder, owner).read_bytes()
        except FileNotFoundError:
            return None
        try:
            found = json.loads(content)
            return cls(
                content,
                float(found["lease"]),
                str(found["host"]),
                int(found["process"]),
                found["started"],
                found["kernel"],
            )
        except (ValueError, KeyError, TypeError):
            return cls(content)

    def patience(self, own_lease: float) -> float:
        """Return the seconds without a change after which the owner has ended."""
        return (self.lease or own_lease) * (1 + _ALLOWANCE)

    def is_dead(self) -> bool:
        """Return whether this machine knows that the process has ended."""
        if self.kernel is None or self.kernel != _kernel():
            return False
        return _started(self.process) != self.started

    def __str__(self) -> str:
        return f"process {self.process} on {self.host}"


def _started(process: int) -> int | None:
    """Return the clock ticks from the start of this machine to that of a process, or None without one.

    As a time of day it would change for a running process when the clock is set.
    """
    try:
        stat = Path(f"/proc/{process}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field, a name in parentheses, may have blanks and parentheses in it.
    fields = stat.rpartition(")")[2].split()
    return None if fields[_STATE] in _ENDED else int(fields[_START])


@cache
def _kernel() -> str | None:
    """Return a name of the running system and of the processes that can be seen here, or None.

    Containers of one machine may have the same host name, and count their processes from 1. A user may be
    hidden from another one's processes.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')} {os.getuid()}"
    except OSError:
        return None

"""Claims: one task at a time sends to a broker, whatever the scheduler does.

A task may run twice at once: as a speculative copy, because the driver has lost contact with an executor that
still runs, or because the command runs on two clusters. So a task claims a broker before it sends to it. A
second task waits, and then reads the outcomes of the first in the journal.

``_dispatch/broker-7/000003`` names the owner of broker 7; the highest number counts. Only one task can make a
file of that name (``write_new``). ``_dispatch/owner-<id>`` is the owner's lease: when the owner has removed
the file, or has not renewed it in time, the next number may be made. File locks are not used: object stores
and HDFS have none.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

from ctrlchan.errors import PipelineError
from ctrlchan.pipeline.jobs.dispatch.lease import Lease, Owner, clock, owner_file
from ctrlchan.pipeline.jobs.dispatch.run import Run
from ctrlchan.storage import AnyPath, names_in, write_new

__all__ = ["Claims"]

#: Seconds from one look at another owner to the next; on this machine, and elsewhere.
_RETRY: Final = 0.05
_RETRY_URL: Final = 0.5
#: Digits of the number of a claim, so that names have the order of numbers.
_DIGITS: Final = 12


class _Claim(NamedTuple):
    """The newest claim on a broker. ``owner``: empty if its file cannot be read yet."""

    number: int
    owner: str


class Claims:
    """The brokers that this task owns, until ``release``. Used by one thread; ``held`` by any."""

    def __init__(self, run: Run, lease: float) -> None:
        """``lease``: seconds after which others take over from a task that has ended without a word.

        Raises PipelineError if the journal folder cannot be written.
        """
        self._folder = run.folder
        self._seconds = lease
        self._lease = Lease(run.folder, lease, run.look)
        self._held: set[int] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def claim(self, brokers: Iterable[int]) -> None:
        """Claim these brokers too, in ascending order, so that two tasks cannot wait for each other.

        Waits as long as another owner works: this task may be its speculative copy. Raises PipelineError if
        the journal folder cannot be read or written, if this task's own lease has run out, and if it would
        wait for a lower broker than one that it owns.
        """
        for broker in sorted(set(brokers) - self._held):
            try:
                self._claim(broker)
            except OSError as problem:
                raise PipelineError(
                    f"{self._folder}: broker {broker} cannot be claimed: {problem}"
                ) from problem
            self._held.add(broker)

    def held(self) -> bool:
        """Return whether this task still owns its brokers: nobody else can have taken over."""
        return self._lease.held()

    def require(self) -> None:
        """Raise PipelineError if this task may have lost its brokers."""
        self._lease.require()

    def release(self) -> None:
        self._lease.end()
        self._held.clear()

    def _claim(self, broker: int) -> None:
        folder = self._folder / f"broker-{broker}"
        if isinstance(folder, Path):
            folder.mkdir(exist_ok=True)
        seen, since = b"", clock()
        while True:
            self._lease.require()
            newest = _newest(folder)
            owner = Owner.read(self._folder, newest.owner) if newest.owner else Owner(b"")
            if newest.number and owner is not None and not owner.is_dead():
                state = b"%d %s" % (newest.number, owner.content)
                if state != seen:
                    seen, since = state, clock()
                if clock() - since < owner.patience(self._seconds):
                    self._require_ascending(broker, owner)
                    time.sleep(_RETRY if isinstance(folder, Path) else _RETRY_URL)
                    continue
            if self._take(folder, newest.number + 1):
                if owner is not None and newest.owner:
                    # Its other brokers need not be waited for.
                    with suppress(OSError):
                        owner_file(self._folder, newest.owner).unlink(missing_ok=True)
                return

    def _require_ascending(self, broker: int, owner: Owner) -> None:
        """Raise PipelineError if ``owner`` may wait for this task."""
        if self._held and broker < max(self._held):
            raise PipelineError(
                f"broker {broker} belongs to another run ({owner}), which may wait for a broker of this one: "
                "dispatch again when it has ended"
            )

    def _take(self, folder: AnyPath, number: int) -> bool:
        """Return whether this task could make the claim ``number``, and no higher one was made before."""
        try:
            write_new(_file(folder, number), json.dumps({"owner": self._lease.owner}).encode())
        except FileExistsError:
            return False
        # Lower files are removed. So a number that was slow to come may be free again, and is worth nothing.
        numbers = _numbers(folder)
        if numbers[-1:] != [number]:
            return False
        for lower in numbers[:-1]:
            with suppress(OSError):
                _file(folder, lower).unlink(missing_ok=True)
        return True


def _file(folder: AnyPath, number: int) -> AnyPath:
    return folder / f"{number:0{_DIGITS}}"


def _numbers(folder: AnyPath) -> list[int]:
    return sorted(int(name) for name in names_in(folder) if name.isdigit())


def _newest(folder: AnyPath) -> _Claim:
    """Return the newest claim; the number 0 if there is none."""
    numbers = _numbers(folder)
    if not numbers:
        return _Claim(0, "")
    try:
        owner = json.loads(_file(folder, numbers[-1]).read_bytes())["owner"]
    except FileNotFoundError:
        # A higher one has come since.
        return _newest(folder)
    except (ValueError, KeyError, TypeError):
        # Half written, on a file system without links.
        return _Claim(numbers[-1], "")
    return _Claim(numbers[-1], str(owner))

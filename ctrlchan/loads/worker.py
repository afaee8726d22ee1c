"""Worker: the clocks and the counts of one process's part of a load."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from ctrlchan.loads.clock import due_times
from ctrlchan.loads.result import Operation, Result

__all__ = ["Worker"]

#: Seconds between two reports of what was done so far.
_REPORT_SECONDS: Final = 0.5
#: Seconds between two looks whether the load was stopped, and those that records have then.
_DRAIN_STEP: Final = 0.5
_STOP_SECONDS: Final = 5.0


class Worker:
    """What a kind of load works with. ``number``: from 0 on.

    ``client``: settings of its clients. ``rate``: its operations each second; 0: as fast as possible.
    ``warmup``, ``seconds``: how long. ``wait_for_start``: returns when all workers are ready. ``report``:
    called now and then with the items of each operation so far. ``stopped``: ends the load before its time.
    Threads may call ``ended`` and ``failed``.
    """

    def __init__(
        self,
        number: int,
        client: Mapping[str, Any],
        *,
        rate: float,
        warmup: float,
        seconds: float,
        wait_for_start: Callable[[], object],
        report: Callable[[dict[str, int]], object],
        stopped: threading.Event,
    ) -> None:
        self.number = number
        self.settings = dict(client)
        self._rate = rate
        self._warmup = warmup
        self._seconds = seconds
        self._wait_for_start = wait_for_start
        self._report = report
        self._stopped = stopped
        self._operations: dict[str, Operation] = {}
        self._lock = threading.Lock()
        self._begin = self._measured = self._end = self._reported = 0.0

    def operation(self, name: str) -> Operation:
        return self._operations.setdefault(name, Operation())

    def start(self) -> None:
        """Wait until all workers are ready: the clocks of the load start."""
        self._wait_for_start()
        self._begin = self._reported = time.monotonic()
        self._measured = self._begin + self._warmup
        self._end = self._measured + self._seconds

    def is_stopped(self) -> bool:
        """Return whether the load ends before its time."""
        return self._stopped.is_set()

    def is_over(self) -> bool:
        """Return whether no further operation begins."""
        return self._stopped.is_set() or time.monotonic() >= self._end

    def due(
        self, idle: Callable[[float], object], *, share: float = 1.0, each: float = 1.0
    ) -> Iterator[float]:
        """Yield when each operation of this worker is due (``due_times``).

        ``share``: this caller's part of the worker's rate, for loads with several threads. ``each``: how many
        of what the rate counts are in one operation.
        """
        return due_times(self._begin, self._end, self._rate * share / each, idle, self._stopped.is_set)

    def drain(self, producer: Any) -> None:
        """Wait until each record is acknowledged or has failed, which message.timeout.ms limits.

        A load that was stopped waits for a short time only.
        """
        latest = math.inf
        while producer.flush(_DRAIN_STEP):
            if self._stopped.is_set() and latest == math.inf:
                latest = time.monotonic() + _STOP_SECONDS
            if time.monotonic() > latest:
                return

    def ended(self, operation: Operation, due: float, *, items: int = 1, size: int = 0) -> None:
        """Count an operation that has succeeded now."""
        now = time.monotonic()
        with self._lock:
            if due < self._measured:
                operation.warmup += items
            else:
                operation.latencies.record(now - due)
                operation.count += 1
                operation.items += items
                operation.bytes += size
                operation.last = now - self._measured
            if now - self._reported >= _REPORT_SECONDS:
                self._reported = now
                self._report({name: one.items + one.warmup for name, one in self._operations.items()})

    def failed(self, operation: Operation, error: str) -> None:
        """Count an operation that has failed. ``error``: its name."""
        with self._lock:
            operation.errors[error] += 1

    def result(self) -> Result:
        # A load that was stopped was measured for less than it was to be.
        measured = min(time.monotonic(), self._end) - self._measured
        return Result(self._operations, max(0.0, measured))

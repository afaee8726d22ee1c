"""Background work of a broker: one thread that knows the time, and a pool that works (``KafkaScheduler``)."""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

__all__ = ["Scheduler"]

logger: Final = logging.getLogger(__name__)


class Scheduler:
    """Runs functions once or again and again on at most ``threads`` threads. A failure is logged.

    The threads start when there is work for them.
    """

    def __init__(self, threads: int, name: str = "background") -> None:
        self._name = name
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        #: Pools of other sizes, which end what they have begun.
        self._replaced: list[ThreadPoolExecutor] = []
        self._changed = threading.Condition()
        # (due, number, function, period in seconds or None)
        self._due: list[tuple[float, int, Callable[[], object], float | None]] = []
        self._numbers = itertools.count()
        self._stopped = False
        self._inside = threading.local()
        self._thread = threading.Thread(target=self._run, name=f"{name}-scheduler", daemon=True)
        self._thread.start()

    def once(self, function: Callable[[], object], delay: float = 0.0) -> None:
        """Run the function after ``delay`` seconds; nothing when the scheduler is stopped before."""
        self._add(time.monotonic() + delay, function, None)

    def every(self, period: float, function: Callable[[], object], delay: float | None = None) -> None:
        """Run the function after ``delay`` (or ``period``) seconds, and ``period`` seconds after each end."""
        self._add(time.monotonic() + (period if delay is None else delay), function, period)

    def resize(self, threads: int) -> None:
        """Use another number of threads. What was begun or is due goes on on the threads before."""
        with self._changed:
            if not self._stopped:
                self._pool.shutdown(wait=False)
                self._replaced.append(self._pool)
                self._pool = ThreadPoolExecutor(threads, thread_name_prefix=self._name)

    def _add(self, due: float, function: Callable[[], object], period: float | None) -> None:
        with self._changed:
            if not self._stopped:
                heapq.heappush(self._due, (due, next(self._numbers), function, period))
                self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._stopped:
                    left = self._due[0][0] - time.monotonic() if self._due else None
                    if left is not None and left <= 0:
                        break
                    # A wait of more than a few years is refused.
                    self._changed.wait(left if left is None else min(left, threading.TIMEOUT_MAX))
                if self._stopped:
                    return
                _, _, function, period = heapq.heappop(self._due)
                self._pool.submit(self._call, function, period)

    def _call(self, function: Callable[[], object], period: float | None) -> None:
        if self._stopped:
            return
        self._inside.yes = True
        try:
            function()
        except Exception:
            logger.exception("A background task has failed")
        if period is not None:
            self._add(time.monotonic() + period, function, period)

    def stop(self) -> None:
        """Begin nothing more and wait for what runs; one of the functions itself may call this."""
        with self._changed:
            self._stopped = True
            self._due.clear()
            self._changed.notify()
        self._thread.join()
        for pool in (*self._replaced, self._pool):
            pool.shutdown(wait=not getattr(self._inside, "yes", False))

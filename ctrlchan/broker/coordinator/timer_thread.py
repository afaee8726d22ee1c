"""A thread that calls the timers of a timing wheel."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

from ctrlchan.broker.coordinator.common.timing_wheel import Timer, TimingWheel

__all__ = ["TimerThread"]


class TimerThread:
    """Timers whose callbacks are called on one thread, from ``start`` until ``stop``.

    Any thread may start and cancel timers, also before ``start``. `clock` returns seconds that never go back.
    """

    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._wheel = TimingWheel(clock)
        self._wake = threading.Condition()
        # When the thread looks at the wheel by itself; minus infinity while it is awake.
        self._planned = -math.inf
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __len__(self) -> int:
        """Return how many timers are started."""
        return len(self._wheel)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop calling timers, and wait for a callback that runs, unless the callback calls this."""
        with self._wake:
            self._stopped = True
            self._wake.notify()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    def after(self, seconds: float, callback: Callable[[], None], /) -> Timer:
        """Call `callback` once on the thread, at the earliest in `seconds`."""
        timer = self._wheel.after(seconds, callback)
        due = self._clock() + seconds
        # The thread holds the lock while it looks at the wheel and plans, so it has seen the timer or waits.
        with self._wake:
            if due < self._planned:
                self._wake.notify()
        return timer

    def _run(self) -> None:
        while self._wait_for_timers():
            self._wheel.advance(self._clock())

    def _wait_for_timers(self) -> bool:
        """Wait until a timer is due; return False when the thread is to end."""
        with self._wake:
            while not self._stopped:
                due = self._wheel.next_due()
                left = math.inf if due is None else due - self._clock()
                if left <= 0:
                    break
                self._planned = math.inf if due is None else due
                self._wake.wait(None if due is None else min(left, threading.TIMEOUT_MAX))
            self._planned = -math.inf
            return not self._stopped

"""Throttle: limits how many bytes a second the threads of the cleaner read and write together.

Source: ``org.apache.kafka.storage.internals.utils.Throttler``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

__all__ = ["Throttle"]

#: Seconds of unused rate that count, and the longest sleep: who must stop looks so often.
_SLICE: Final = 0.3
#: More bytes a second than this are no limit.
_UNLIMITED: Final = 1e15


class Throttle:
    """Any thread may call every method. ``rate``: bytes a second."""

    def __init__(
        self,
        rate: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._rate = rate
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        #: When what was taken is paid for.
        self._free = clock()

    def use(self, rate: float) -> None:
        """Have another rate from now on."""
        with self._lock:
            self._rate = rate
            self._free = min(self._free, self._clock())

    def take(self, size: int, is_stopped: Callable[[], bool] = lambda: False) -> None:
        """Count bytes that were read or written, and sleep until the rate allows more, or until stopped."""
        with self._lock:
            if self._rate >= _UNLIMITED:
                return
            due = self._free = max(self._free, self._clock() - _SLICE) + size / self._rate
        while (left := min(due, self._free) - self._clock()) > 0 and not is_stopped():
            self._sleep(min(left, _SLICE))

"""The clock of loads: monotonic seconds, and when operations are due."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final

__all__ = ["due_times"]

#: Clients wait whole milliseconds; shorter times are slept.
_LEAST_IDLE: Final = 0.001


def due_times(
    begin: float,
    end: float,
    rate: float,
    idle: Callable[[float], object],
    is_stopped: Callable[[], bool],
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> Iterator[float]:
    """Yield when each operation of one worker is due, in the clock's seconds, not before that time.

    ``rate``: operations each second; 0: as fast as possible, and then an operation is due when it begins.
    Operations that are late are due when they were to begin, one after another: nothing is left out. A
    latency from there to the end has what the operation waited for its predecessors, so it needs no
    correction for coordinated omission. ``idle``: waits for at most so many seconds, and may end sooner.
    """
    if not rate:
        while (now := clock()) < end and not is_stopped():
            yield now
        return
    number = 0
    while (due := begin + number / rate) < end:
        while (left := due - clock()) > 0:
            if is_stopped():
                return
            (idle if left >= _LEAST_IDLE else sleep)(left)
        if is_stopped():
            return
        yield due
        number += 1

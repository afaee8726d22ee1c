"""The time limits of waiting requests.

Every method is called with the channel's lock held; ``next_ns`` may be read without it.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ctrlchan.channel.outcome import Sent

__all__ = ["NEVER", "TimeLimits"]

#: ``next_ns`` when nothing has a limit.
NEVER: Final = 2**63 - 1
#: The heap is swept when it has this many entries, or twice as many as after the last sweep.
_SWEEP_AT: Final = 1024


class TimeLimits:
    """A heap of (deadline, number, requests that share it); times are monotonic nanoseconds."""

    def __init__(self) -> None:
        #: The earliest deadline; ``NEVER`` if there is none.
        self.next_ns = NEVER
        self._heap: list[tuple[int, int, list[Sent]]] = []
        self._last_number = 0
        self._sweep_at = _SWEEP_AT

    def add(self, deadline: int, sent: list[Sent]) -> bool:
        """Add a deadline. True: it is the earliest, so a thread sleeping until ``next_ns`` must be woken."""
        if len(self._heap) >= self._sweep_at:
            self._sweep()
        self._last_number += 1
        heappush(self._heap, (deadline, self._last_number, sent))
        earliest = deadline < self.next_ns
        self.next_ns = self._heap[0][0]
        return earliest

    def due(self, now: int) -> list[Sent]:
        """Remove and return the requests whose deadline has passed; most of them have ended already."""
        sent: list[Sent] = []
        while self._heap and self._heap[0][0] <= now:
            sent += heappop(self._heap)[2]
        self.next_ns = self._heap[0][0] if self._heap else NEVER
        return sent

    def _sweep(self) -> None:
        """Remove requests that no longer wait, so that a long limit does not keep ended ones in memory."""
        left = [
            (deadline, number, waiting)
            for deadline, number, sent in self._heap
            if (waiting := [one for one in sent if one.sequence == 0 and one.outcome is None])
        ]
        heapify(left)
        self._heap = left
        self._sweep_at = max(_SWEEP_AT, 2 * len(left))

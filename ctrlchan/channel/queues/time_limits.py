"""Until when a request may wait for its sender, for those requests that were given such a limit.

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
#: So many entries are kept before anybody asks which of them still matter.
_LEAST: Final = 1024


class TimeLimits:
    """A heap of (deadline, number, requests that share it); times are monotonic nanoseconds."""

    def __init__(self) -> None:
        #: The earliest deadline; far in the future when there is none.
        self.next_ns = NEVER
        self._heap: list[tuple[int, int, list[Sent]]] = []
        self._last_number = 0
        self._sweep_at = _LEAST

    def add(self, deadline: int, sent: list[Sent]) -> bool:
        """True when it is the earliest of all: whoever sleeps until ``next_ns`` must be woken."""
        if len(self._heap) >= self._sweep_at:
            self._sweep()
        self._last_number += 1
        heappush(self._heap, (deadline, self._last_number, sent))
        earliest = deadline < self.next_ns
        self.next_ns = self._heap[0][0]
        return earliest

    def due(self, now: int) -> list[Sent]:
        """Take out the requests whose time is over; most of them have ended long since."""
        sent: list[Sent] = []
        while self._heap and self._heap[0][0] <= now:
            sent += heappop(self._heap)[2]
        self.next_ns = self._heap[0][0] if self._heap else NEVER
        return sent

    def _sweep(self) -> None:
        """A limit of minutes must not keep a hundred thousand finished requests a second alive."""
        left = [
            (deadline, number, waiting)
            for deadline, number, sent in self._heap
            if (waiting := [one for one in sent if one.sequence == 0 and one.outcome is None])
        ]
        heapify(left)
        self._heap = left
        self._sweep_at = max(_LEAST, 2 * len(left))

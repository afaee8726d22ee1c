"""Kafka's hierarchical timing wheel: timers that cost the same however many there are.

A wheel is a ring of buckets, each one tick wide. A timer that is further away than one turn goes into a wheel
whose tick is one turn of this one; it comes back to a finer wheel when its bucket is due. Only buckets
are kept in order (a heap); starting and cancelling a timer never compares it with others.

The wheel has no thread: its owner calls ``advance`` when ``next_due`` has come, or at any later time.
Source: ``org.apache.kafka.server.util.timer.{SystemTimer,TimingWheel}``.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final, Protocol

__all__ = ["Timer", "Timers", "TimingWheel"]

_LOG = logging.getLogger(__name__)

#: Milliseconds, as Kafka's ``SystemTimer``.
_TICK: Final = 1
#: Buckets of each wheel, as Kafka's ``SystemTimer``.
_BUCKETS: Final = 20
#: Milliseconds that a float of seconds may be off after its arithmetic.
_ROUNDING: Final = 1e-4


class Timer(Protocol):
    """A started timer."""

    def cancel(self) -> None:
        """Keep the callback from being called, unless it was called or is being called."""


class Timers(Protocol):
    """Starts timers."""

    def after(self, seconds: float, callback: Callable[[], None], /) -> Timer:
        """Call `callback` once, at the earliest in `seconds`, without any lock of the timers."""


class _Timer:
    __slots__ = ("bucket", "callback", "due", "wheel")

    def __init__(self, wheel: TimingWheel, due: int, callback: Callable[[], None]) -> None:
        self.wheel = wheel
        self.due = due  # milliseconds
        self.callback = callback
        self.bucket: _Bucket | None = None

    def cancel(self) -> None:
        self.wheel.remove(self)


class _Bucket:
    """The timers of one tick. ``due``: the start of the tick in milliseconds, -1 while not in the heap."""

    __slots__ = ("due", "timers")

    def __init__(self) -> None:
        self.due = -1
        self.timers: dict[_Timer, None] = {}


class _Wheel:
    """One ring of buckets. All methods require the lock of the TimingWheel."""

    def __init__(self, tick: int, now: int, heap: list[tuple[int, int, _Bucket]]) -> None:
        self.tick = tick
        self.turn = tick * _BUCKETS
        self.now = now - now % tick
        self.buckets = [_Bucket() for _ in range(_BUCKETS)]
        self.heap = heap
        self.coarser: _Wheel | None = None

    def add(self, timer: _Timer) -> bool:
        """Put the timer into its bucket; return False when it is due."""
        if timer.due < self.now + self.tick:
            return False
        if timer.due >= self.now + self.turn:
            if self.coarser is None:
                self.coarser = _Wheel(self.turn, self.now, self.heap)
            return self.coarser.add(timer)
        tick = timer.due // self.tick
        bucket = self.buckets[tick % _BUCKETS]
        bucket.timers[timer] = None
        timer.bucket = bucket
        due = tick * self.tick
        if bucket.due != due:
            bucket.due = due
            # Of buckets with one time the coarse one comes first: it is emptied into finer ones.
            heappush(self.heap, (due, -self.tick, bucket))
        return True

    def advance(self, now: int) -> None:
        if now >= self.now + self.tick:
            self.now = now - now % self.tick
            if self.coarser is not None:
                self.coarser.advance(now)


class TimingWheel:
    """Timers on a hierarchical timing wheel with ticks of one millisecond. Any thread may call every method.

    `clock` returns seconds that never go back, such as ``time.monotonic``. A timer is never early; it is late
    by less than a tick, and by however late ``advance`` is called.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._heap: list[tuple[int, int, _Bucket]] = []
        self._wheel = _Wheel(_TICK, _milliseconds(clock()), self._heap)
        self._count = 0

    def __len__(self) -> int:
        """Return how many timers are started."""
        return self._count

    def after(self, seconds: float, callback: Callable[[], None], /) -> Timer:
        """Start a timer; one of zero or less is due within a tick."""
        due = math.ceil((self._clock() + seconds) * 1000 - _ROUNDING)
        with self._lock:
            timer = _Timer(self, max(due, self._wheel.now + _TICK), callback)
            self._wheel.add(timer)
            self._count += 1
        return timer

    def remove(self, timer: _Timer) -> bool:
        """Take the timer out of its bucket; return False when it was called or cancelled before."""
        with self._lock:
            if timer.bucket is None:
                return False
            timer.bucket.timers.pop(timer, None)
            timer.bucket = None
            self._count -= 1
            return True

    def next_due(self) -> float | None:
        """Return the clock's time at which ``advance`` has something to do, or None without timers."""
        with self._lock:
            while self._heap and not self._heap[0][2].timers:
                self._take_first_bucket()
            return self._heap[0][0] / 1000 if self._heap else None

    def advance(self, now: float) -> int:
        """Call the callbacks of all timers that are due at `now`, earliest first; return how many.

        An exception of a callback is logged, and the others are called. Callbacks may start and cancel
        timers.
        """
        until = _milliseconds(now)
        called = 0
        while (due := self._due_timers(until)) is not None:
            for timer in due:
                if self.remove(timer):  # else cancelled by a callback before it
                    called += 1
                    try:
                        timer.callback()
                    except Exception:  # noqa: BLE001 - the other timers are called
                        _LOG.exception("the callback of a timer failed")
        return called

    def _due_timers(self, until: int) -> list[_Timer] | None:
        """Empty the first bucket; return its timers that are due, or None if no bucket is due at `until`."""
        with self._lock:
            if not self._heap or self._heap[0][0] > until:
                self._wheel.advance(until)
                return None
            due, timers = self._take_first_bucket()
            self._wheel.advance(due)
            return [timer for timer in timers if not self._wheel.add(timer)]

    def _take_first_bucket(self) -> tuple[int, dict[_Timer, None]]:
        due, _, bucket = heappop(self._heap)
        bucket.due = -1
        timers, bucket.timers = bucket.timers, {}
        return due, timers


def _milliseconds(seconds: float) -> int:
    return math.floor(seconds * 1000 + _ROUNDING)

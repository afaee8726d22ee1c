"""The controller's queue of events and the one thread that processes them, in order.

The thread never waits for a broker: outcomes of the channel are events. Source:
``kafka.controller.ControllerEventManager`` (Kafka 3.9). Different on purpose: timers and waits for conditions
belong to the loop, so that the controller needs no scheduler thread.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final, Generic, Protocol, TypeVar

from ctrlchan.controller.events.event import ControllerState, Event, JointCall
from ctrlchan.errors import ControllerMovedError, IllegalStateError, NotControllerError

__all__ = ["EventLoop", "LoopMetrics", "Timer"]

_LOG: Final = logging.getLogger(__name__)

A = TypeVar("A")
C = TypeVar("C")
T = TypeVar("T")


class LoopMetrics(Protocol):
    """Receives the times of events, on the loop's thread."""

    def event_started(self, state: ControllerState, queue_time_ms: float) -> None:
        """Record that an event begins after this time in the queue (``EventQueueTimeMs``)."""
        ...

    def event_ended(self, state: ControllerState, time_ms: float) -> None:
        """Record how long an event took (``<State>RateAndTimeMs``)."""
        ...


@dataclass(order=True, slots=True)
class Timer:
    """An event that is put into the queue at ``deadline`` (seconds of the monotonic clock)."""

    deadline: float
    number: int
    event: Event = field(compare=False)
    cancelled: bool = field(default=False, compare=False)

    def cancel(self) -> None:
        """Do not put the event into the queue, if that has not happened yet."""
        self.cancelled = True


@dataclass(slots=True, eq=False)
class _Wait(Generic[C]):
    condition: Callable[[C], bool]
    deadline: float
    result: Future[bool]


class EventLoop(Generic[C]):
    """Processes events in the order in which they were put, on a thread of its own.

    ``current``: returns what the controller's handlers share (``ControllerCore``), None while this is not the
    controller. ``failed``: called on the loop's thread with an event and the exception that it raised; the
    loop goes on. ``processed``: called on the loop's thread after each event. ``put``, ``call``,
    ``wait_until``, ``schedule`` and ``clear_and_put`` are thread-safe.
    """

    def __init__(
        self,
        name: str,
        current: Callable[[], C | None],
        failed: Callable[[Event, BaseException], None],
        *,
        processed: Callable[[], None] | None = None,
        metrics: LoopMetrics | None = None,
    ) -> None:
        self._name = name
        self._current = current
        self._failed = failed
        self._processed = processed
        self._metrics = metrics
        # Guards the queue and the timers.
        self._changed = threading.Condition()
        self._queue: deque[tuple[Event, float]] = deque()
        self._timers: list[Timer] = []
        self._numbers = itertools.count()
        self._closing = False
        # Conditions are checked on the loop's thread alone; new ones arrive in the queue.
        self._waits: list[_Wait[C]] = []
        self._state = ControllerState.IDLE
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def state(self) -> ControllerState:
        """What is being processed now (the metric ``ControllerState``)."""
        return self._state

    @property
    def queue_size(self) -> int:
        """Number of events that wait (the metric ``EventQueueSize``)."""
        return len(self._queue)

    def is_current_thread(self) -> bool:
        """Return whether the caller runs on the loop's thread."""
        return threading.current_thread() is self._thread

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def put(self, event: Event) -> None:
        """Put an event at the end of the queue; after ``close`` it is preempted at once."""
        with self._changed:
            if not self._closing:
                self._queue.append((event, monotonic()))
                self._changed.notify()
                return
        event.preempt()

    def clear_and_put(self, event: Event) -> None:
        """Preempt all events that wait except elections, and put this event first. Timers stay."""
        kept, preempted = [], []
        with self._changed:
            for entry in self._queue:
                if entry[0].is_of_election and not self._closing:
                    kept.append(entry)
                else:
                    preempted.append(entry[0])
            self._queue.clear()
            if not self._closing:
                self._queue.append((event, monotonic()))
                self._queue += kept
                self._changed.notify()
        for one in preempted:
            one.preempt()

    def call(self, kind: ControllerState, function: Callable[[C], T], name: str | None = None) -> Future[T]:
        """Run ``function`` on the loop's thread, after the events that wait; return its result to come.

        The future raises NotControllerError when this is not the controller at that time, and what
        ``function`` raises. ``name``: for logs.
        """
        return self.call_jointly(kind, lambda core, _: [function(core)], None, name)

    def call_jointly(
        self,
        kind: ControllerState,
        function: Callable[[C, Sequence[A]], Sequence[T | Exception]],
        argument: A,
        name: str | None = None,
    ) -> Future[T]:
        """Do the same with ``function(core, arguments)``, for several calls in one event.

        The arguments are those of calls with this function that wait behind each other in the queue. The
        function returns a result for each of them, or the exception that its future raises; what the function
        raises, all futures raise.
        """
        call = JointCall(function, argument)

        def preempt() -> None:
            if call.result.set_running_or_notify_cancel():
                call.result.set_exception(NotControllerError())

        self.put(Event(kind, name or kind.name, lambda: self._answer([call]), preempt, call))
        return call.result

    def wait_until(self, condition: Callable[[C], bool], timeout: float) -> Future[bool]:
        """Return a future that becomes True when ``condition`` holds, False after ``timeout`` seconds.

        ``condition`` is called with the core on the loop's thread, now and after each event. What holds after
        the deadline does not count, however long an event took. The future raises NotControllerError when
        this is not, or no longer, the controller, and what ``condition`` raises.
        """
        result: Future[bool] = Future()
        wait = _Wait(condition, monotonic() + timeout, result)

        def process() -> None:
            self._waits.append(wait)

        def preempt() -> None:
            _finish(result, NotControllerError())

        self.put(Event(ControllerState.IDLE, "Wait", process, preempt))
        self.schedule(Event(ControllerState.IDLE, "WaitTimeout", _nothing), timeout)
        return result

    def schedule(self, event: Event, delay: float) -> Timer:
        """Put the event into the queue after ``delay`` seconds, unless the timer is cancelled before."""
        timer = Timer(monotonic() + delay, next(self._numbers), event)
        with self._changed:
            heapq.heappush(self._timers, timer)
            self._changed.notify()
        return timer

    def close(self, last: Event, timeout: float | None = None) -> bool:
        """Preempt all events that wait, process ``last``, and end the thread; return whether it has ended.

        ``timeout``: seconds to wait for the event that is being processed, or None for no limit. A second
        call only waits. Must not be called on the loop's thread.
        """
        with self._changed:
            first = not self._closing
            preempted = [waiting for waiting, _ in self._queue] if first else []
            if first:
                self._queue.clear()
                self._timers.clear()
                self._queue.append((last, monotonic()))
            self._closing = True
            self._changed.notify()
        for waiting in preempted:
            waiting.preempt()
        if self._thread.ident is None:
            if first:
                self._process([last], [0.0])
        else:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    # -- the thread

    def _run(self) -> None:
        while entries := self._next():
            now = monotonic()
            self._process([event for event, _ in entries], [(now - put_at) * 1_000 for _, put_at in entries])
        for wait in self._waits:
            _finish(wait.result, NotControllerError())
        self._waits.clear()

    def _next(self) -> list[tuple[Event, float]]:
        """Wait for an event; return it and the events that are processed together with it.

        Empty: the loop was closed and its last event was processed.
        """
        with self._changed:
            while True:
                now = monotonic()
                while self._timers and (self._timers[0].cancelled or self._timers[0].deadline <= now):
                    timer = heapq.heappop(self._timers)
                    if not timer.cancelled:
                        self._queue.append((timer.event, now))
                if self._queue:
                    entries = [self._queue.popleft()]
                    while self._queue and _belong_together(entries[0][0], self._queue[0][0]):
                        entries.append(self._queue.popleft())
                    return entries
                if self._closing:
                    return []
                self._changed.wait(self._timers[0].deadline - now if self._timers else None)

    def _process(self, events: list[Event], queue_times_ms: list[float]) -> None:
        first = events[0]
        self._state = first.state
        measured = self._metrics if first.state is not ControllerState.IDLE else None
        begun = monotonic()
        if measured is not None:
            measured.event_started(first.state, queue_times_ms[0])
        try:
            try:
                if len(events) == 1:
                    first.process()
                else:
                    self._answer([event.call for event in events if event.call is not None])
            except BaseException as error:  # noqa: BLE001  (one event never ends the loop)
                self._failed(first, error)
            self._check_waits()
            if self._processed is not None:
                self._processed()
        except BaseException:  # noqa: BLE001  (as above)
            _LOG.exception("[%s] Uncaught error processing event %s", self._name, first)
        finally:
            if measured is not None:
                each_ms = (monotonic() - begun) * 1_000 / len(events)
                measured.event_ended(first.state, each_ms)
                for event, queue_time_ms in zip(events[1:], queue_times_ms[1:], strict=True):
                    measured.event_started(event.state, queue_time_ms)
                    measured.event_ended(event.state, each_ms)
            self._state = ControllerState.IDLE

    def _answer(self, calls: Sequence[JointCall]) -> None:
        """Set the results of calls with one function."""
        calls = [one for one in calls if one.result.set_running_or_notify_cancel()]
        if not calls:
            return
        core = self._current()
        if core is None:
            values: Sequence[Any] = [NotControllerError() for _ in calls]
        else:
            try:
                values = calls[0].function(core, [one.argument for one in calls])
            except ControllerMovedError as error:
                for one in calls:
                    one.result.set_exception(NotControllerError(str(error)))
                raise
            except BaseException as error:
                for one in calls:
                    one.result.set_exception(error)
                # Answers with an error are ordinary; these two are not.
                if isinstance(error, IllegalStateError) or not isinstance(error, Exception):
                    raise
                _LOG.debug("%d calls: %s", len(calls), error)
                return
        for one, value in zip(calls, values, strict=True):
            _finish(one.result, value)

    def _check_waits(self) -> None:
        if not self._waits:
            return
        core = self._current()
        now = monotonic()
        self._waits = [wait for wait in self._waits if not self._ended(wait, core, now)]

    @staticmethod
    def _ended(wait: _Wait[C], core: C | None, now: float) -> bool:
        if wait.result.cancelled():
            return True
        if core is None:
            _finish(wait.result, NotControllerError())
            return True
        if now >= wait.deadline:
            _finish(wait.result, False)
            return True
        try:
            holds = wait.condition(core)
        except Exception as error:  # noqa: BLE001  (the caller gets it)
            _finish(wait.result, error)
            return True
        if holds:
            _finish(wait.result, True)
        return holds


def _belong_together(event: Event, other: Event) -> bool:
    """Return whether both events are calls with one function."""
    return event.call is not None and other.call is not None and event.call.function is other.call.function


def _nothing() -> None:
    pass


def _finish(result: Future[Any], value: object) -> None:
    """Set a result or an exception, unless the caller has cancelled the future."""
    try:
        if isinstance(value, BaseException):
            result.set_exception(value)
        else:
            result.set_result(value)
    except InvalidStateError:
        pass

"""Ctrl-C while Spark works: the job is cancelled, and the call that waits for it ends by itself.

PySpark's own handler cannot cancel anything: it uses the connection of the main thread, which waits for the
job's result. An exception in such a call makes py4j close the connections of all threads, new ones too. So a
call is interrupted only if cancelling did not end it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["cancel_when_interrupted", "restore", "was_interrupted"]

#: Set when Ctrl-C has cancelled jobs and no KeyboardInterrupt was raised for it.
_pressed: Final = threading.Event()

#: Seconds that a call may go on after its jobs were cancelled, because it waits for something else.
_PATIENCE: Final = 5.0
#: Seconds between the end of the call and the call of ``was_interrupted``.
_GRACE: Final = 0.5
_LOOK_EVERY: Final = 0.02
#: What handled SIGINT before this process had a context.
_before: Any = None


def cancel_when_interrupted(context: SparkContext, before: Any) -> None:
    """Handle SIGINT: cancel the jobs of ``context`` if the main thread waits for Spark.

    ``before``: the handler from before there was a context. It is called if the main thread does not wait for
    Spark, at a second Ctrl-C, if cancelling has not ended the wait, and if it has but no caller asked
    ``was_interrupted``, as in a loop of short calls.

    Does nothing outside the main thread, where Python handles no signals.
    """
    global _before
    main = threading.main_thread()
    if threading.current_thread() is not main or not callable(before):
        return
    canceller: threading.Thread | None = None
    given_up = False

    # Clients of Spark Connect use this module, too, and need not have it.
    from py4j.protocol import Py4JError

    def cancel(waiting: FrameType) -> None:
        nonlocal given_up
        # A stopped context, or one without its JVM, runs nothing.
        with suppress(Py4JError, OSError, AttributeError):
            context.cancelAllJobs()
        deadline = time.monotonic() + _PATIENCE
        while _is_below(waiting, sys._current_frames().get(main.ident or 0)) and time.monotonic() < deadline:
            time.sleep(_LOOK_EVERY)
        deadline = min(deadline, time.monotonic() + _GRACE)
        while _pressed.is_set() and time.monotonic() < deadline:
            time.sleep(_LOOK_EVERY)
        # It stays set: py4j may raise another error than KeyboardInterrupt.
        if _pressed.is_set():
            given_up = True
            os.kill(os.getpid(), signal.SIGINT)

    def interrupted(number: int, frame: FrameType | None) -> None:
        nonlocal canceller, given_up
        waiting = _call_of(frame)
        again = canceller is not None and canceller.is_alive()
        if waiting is None or again or given_up:
            given_up = False
            before(number, frame)
            return
        _pressed.set()
        canceller = threading.Thread(target=cancel, args=[waiting], name="ctrlchan-cancel", daemon=True)
        canceller.start()

    signal.signal(signal.SIGINT, interrupted)
    _before = before


def was_interrupted() -> bool:
    """Return whether Ctrl-C has cancelled jobs since the last call. The caller raises KeyboardInterrupt."""
    was = _pressed.is_set()
    _pressed.clear()
    return was


def restore() -> None:
    """Restore the handler from before there was a context."""
    global _before
    if _before is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, _before)
        _before = None


def _call_of(frame: FrameType | None) -> FrameType | None:
    """Return the frame of py4j that waits for the JVM, or None."""
    while frame is not None and not frame.f_globals.get("__name__", "").startswith("py4j."):
        frame = frame.f_back
    return frame


def _is_below(wanted: FrameType, frame: FrameType | None) -> bool:
    while frame is not None and frame is not wanted:
        frame = frame.f_back
    return frame is not None

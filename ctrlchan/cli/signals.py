"""The end of a command that runs until it is stopped: Ctrl-C, SIGTERM, or a closed terminal."""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

__all__ = ["StopSignals"]

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: Of a process that is ended by its second signal.
_KILLED_STATUS: Final = 130
#: So long it takes at most to see a signal that another thread has received.
_LATEST_SECONDS: Final = 0.5


class StopSignals:
    """Handles the signals that end a command: ``with StopSignals() as signals``.

    The first signal interrupts a ``startup`` block with KeyboardInterrupt and ends every later ``wait``. The
    second one ends the process at once: its owner does not want to wait for a clean end.
    """

    def __init__(self) -> None:
        self._stopped = threading.Event()
        self._starting = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopSignals:
        for number in _SIGNALS:
            # A background job of a shell ignores Ctrl-C, and so does what it starts.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextmanager
    def startup(self) -> Iterator[None]:
        """Let a signal interrupt the block with KeyboardInterrupt."""
        self._starting = True
        try:
            if self._stopped.is_set():
                raise KeyboardInterrupt
            yield
        finally:
            self._starting = False

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for a signal. Return whether there was one."""
        end = math.inf if timeout is None else time.monotonic() + timeout
        # The kernel may give the signal to another thread, which wakes nobody: Python calls the handler when
        # the main thread goes on.
        while not self._stopped.is_set() and (left := end - time.monotonic()) > 0:
            self._stopped.wait(min(left, _LATEST_SECONDS))
        return self._stopped.is_set()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._stopped.is_set():
            os._exit(_KILLED_STATUS)
        self._stopped.set()
        if self._starting:
            raise KeyboardInterrupt

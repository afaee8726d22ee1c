"""StoreWatcher: lets listeners look at the files of their key stores and trust stores again and again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

__all__ = ["StoreWatcher", "Watched"]

#: No interval is shorter, in seconds: files are read on the thread, and keys are decrypted.
_LEAST_SECONDS: Final = 0.01


class Watched(NamedTuple):
    """What is looked at every ``interval`` seconds."""

    interval: float
    refresh: Callable[[], object]


class StoreWatcher:
    """Calls ``refresh`` of each one in its interval, on a thread of its own from ``start`` until ``stop``."""

    def __init__(self, watched: Sequence[Watched]) -> None:
        self._watched = watched
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="socket-server-stores", daemon=True)

    def start(self) -> None:
        """Begin, if there is something to look at."""
        if self._watched:
            self._thread.start()

    def stop(self) -> None:
        """End the thread, and wait for it."""
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        now = time.monotonic()
        due = [now + one.interval for one in self._watched]
        while not self._stopped.wait(max(_LEAST_SECONDS, min(due) - time.monotonic())):
            now = time.monotonic()
            for number, one in enumerate(self._watched):
                if due[number] <= now:
                    one.refresh()
                    due[number] = time.monotonic() + one.interval

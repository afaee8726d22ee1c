"""The answers of brokers that are to be slow."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from queue import SimpleQueue

from ctrlchan.server.api import Buffers

__all__ = ["LateAnswers"]


class LateAnswers:
    """Gives each answer ``seconds`` after it was made, on a thread of its own, until ``close``."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        # When an answer is due, and its Future. All wait equally long, so they are due in their order.
        self._waiting: SimpleQueue[tuple[float, Future[Buffers], Buffers] | None] = SimpleQueue()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="late-answers", daemon=True)
        self._thread.start()

    def delay(self, answer: Buffers) -> Future[Buffers]:
        """Return a future that has the answer later."""
        late: Future[Buffers] = Future()
        self._waiting.put((time.monotonic() + self._seconds, late, answer))
        return late

    def close(self) -> None:
        """Give no answer any more; those that wait are dropped."""
        self._closed.set()
        self._waiting.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (one := self._waiting.get()) is not None:
            due, late, answer = one
            if self._closed.wait(max(0.0, due - time.monotonic())):
                return
            late.set_result(answer)

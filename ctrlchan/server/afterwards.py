"""Work that follows an answer, on the thread that gives the answer.

A client need not wait for what its answer does not depend on. Such work is begun with ``after_answer``: on a
thread that answers a request it runs once the answer is on its way, on any other thread at once.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

__all__ = ["Answering", "after_answer"]

_LOG = logging.getLogger(__name__)


class _Thread(threading.local):
    """What is left to do on this thread; None while it answers no request."""

    left: deque[Callable[[], None]] | None = None


_THREAD = _Thread()


def after_answer(work: Callable[[], None]) -> None:
    """Call `work` once: when this thread has given the answer that it is making, or else at once.

    What is called later holds no lock, and its exceptions are logged.
    """
    left = _THREAD.left
    if left is None:
        work()
    else:
        left.append(work)


class Answering:
    """``with Answering():`` a thread answers one request; what was left to do is done at the end.

    Also when no answer was given, as for a request that a fault has hit.
    """

    def __enter__(self) -> None:
        _THREAD.left = deque()

    def __exit__(self, *exception: object) -> None:
        left, _THREAD.left = _THREAD.left, None
        while left:
            try:
                left.popleft()()
            except Exception:  # noqa: BLE001 - the thread goes on with other requests
                _LOG.exception("work after an answer failed")

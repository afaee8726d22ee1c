"""Waits for several futures at once."""

from __future__ import annotations

import threading
from collections.abc import Collection
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any

__all__ = ["when_done"]


def when_done(futures: Collection[Future[Any]], timeout: float | None = None) -> Future[None]:
    """Return a future that ends when all of `futures` have ended, or after ``timeout`` seconds.

    It ends on the thread that ends the last of them, or on that of a timer.
    """
    done: Future[None] = Future()
    # One more, so that the last one comes after all callbacks are set.
    left, lock = len(futures) + 1, threading.Lock()

    def end() -> None:
        with suppress(InvalidStateError):
            done.set_result(None)

    timer = None
    if futures and timeout is not None:
        timer = threading.Timer(timeout, end)
        timer.daemon = True
        timer.start()

    def count(_: object) -> None:
        nonlocal left
        with lock:
            left -= 1
            if left:
                return
        if timer is not None:
            timer.cancel()
        end()

    for future in futures:
        future.add_done_callback(count)
    count(None)
    return done

"""Futures that depend on other Futures. No thread waits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from concurrent.futures import Executor, Future, InvalidStateError
from contextlib import suppress
from typing import Any, TypeVar, overload

__all__ = ["then", "when_done"]

A = TypeVar("A")
B = TypeVar("B")


@overload
def then(
    done: Future[A], function: Callable[[A], Future[B]], executor: Executor | None = None
) -> Future[B]: ...
@overload
def then(
    done: Future[A], function: Callable[[A], B | Future[B]], executor: Executor | None = None
) -> Future[B]: ...
def then(
    done: Future[A], function: Callable[[A], B | Future[B]], executor: Executor | None = None
) -> Future[B]:
    """Return the future of what `function` makes of the result of `done`; it may return a Future, too.

    `function` runs on a thread of `executor` or, without one, on the thread that ends `done`. The future
    raises what `done` or `function` raises, and the RuntimeError of an executor that has been shut down.
    Nobody can cancel it.
    """
    result: Future[B] = Future()
    result.set_running_or_notify_cancel()

    def call(ended: Future[A]) -> None:
        try:
            value = function(ended.result())
        except BaseException as error:  # noqa: BLE001  (who waits for the result gets it)
            result.set_exception(error)
            return
        if isinstance(value, Future):
            value.add_done_callback(pass_on)
        else:
            result.set_result(value)

    def pass_on(ended: Future[B]) -> None:
        try:
            result.set_result(ended.result())
        except BaseException as error:  # noqa: BLE001  (as above)
            result.set_exception(error)

    def submit(ended: Future[A]) -> None:
        if executor is None:
            call(ended)
            return
        try:
            executor.submit(call, ended)
        except RuntimeError as error:
            result.set_exception(error)

    done.add_done_callback(submit)
    return result


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

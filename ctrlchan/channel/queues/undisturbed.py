"""Runs a change of the channel's state where no signal handler interrupts it."""

from __future__ import annotations

import _thread
from collections.abc import Callable
from typing import TypeVar

__all__ = ["undisturbed"]

T = TypeVar("T")


def undisturbed(work: Callable[[], T]) -> T:
    """Run ``work`` on a thread of its own, and return its result or raise its exception.

    Python runs signal handlers on the main thread only, between any two instructions, so Ctrl-C could stop a
    change half-way. A caller that is interrupted here continues at once, and the thread finishes the work.
    """
    done = _thread.allocate_lock()
    done.acquire()
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:  # noqa: BLE001 - raised again for the caller
            errors.append(error)
        finally:
            done.release()

    try:
        _thread.start_new_thread(run, ())
    except RuntimeError:
        # The interpreter is ending, or no thread can be started.
        run()
    done.acquire()
    if errors:
        # A local name for the error would make a reference cycle with its traceback.
        raise errors.pop()
    return results.pop()

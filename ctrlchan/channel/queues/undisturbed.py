"""Running a change of the channel's state where nothing interrupts it."""

from __future__ import annotations

import _thread
from collections.abc import Callable
from typing import TypeVar

__all__ = ["undisturbed"]

T = TypeVar("T")


def undisturbed(work: Callable[[], T]) -> T:
    """Run ``work`` on a thread of its own, and return or raise what it does.

    Python runs signal handlers on the main thread only, between any two instructions: Ctrl-C in the middle of
    a change would leave half of it. A caller that is interrupted here goes on at once; the work is done all
    the same.
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
        # The interpreter ends, or has no more threads.
        run()
    done.acquire()
    if errors:
        # Without a name for it here, the traceback is part of no cycle.
        raise errors.pop()
    return results.pop()

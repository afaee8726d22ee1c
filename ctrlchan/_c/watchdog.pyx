"""A watchdog of a process: it writes the stacks of all threads when nobody can get the GIL, and ends an orphan.

A process whose threads wait for each other answers no signal and writes no log. The watchdog needs no GIL: see
watchdog.h.
"""

import atexit
import faulthandler
import os
import signal
import sys

cdef extern from "_c/watchdog.h" nogil:
    int start_watchdog(long long tick_ns, int still_ticks, int orphan_ticks, long parent, int python_signal)
    void stop_prober()

cdef bint is_started = False

#: Seconds without the GIL until the stacks are written, and without a parent until the process is killed.
STILL_SECONDS, ORPHAN_SECONDS = 10, 90


def start(*, parent=None, double tick_seconds=1.0):
    """Watch this process until it ends. The second call does nothing.

    The stacks are written to standard error when no thread has got the GIL for STILL_SECONDS; SIGUSR2 writes those of Python
    at any time. ``parent``: the process id of the parent; when it is gone and Python cannot end this process, or has not
    after ORPHAN_SECONDS, the process is killed. With None it may outlive its parent. ``tick_seconds``: what counts as a
    second. Raises OSError.
    """
    global is_started
    cdef int error
    if is_started:
        return
    number = -1
    # Somebody else may have a handler for the signal.
    if sys.stderr is not None and signal.getsignal(signal.SIGUSR2) == signal.SIG_DFL:
        faulthandler.register(signal.SIGUSR2, file=2, all_threads=True)
        number = signal.SIGUSR2
    error = start_watchdog(
        <long long>(tick_seconds * 1e9), STILL_SECONDS, ORPHAN_SECONDS, parent or 0, number
    )
    if error:
        raise OSError(error, os.strerror(error))
    is_started = True
    atexit.register(_stop, os.getpid())


def _stop(process):
    """Ask for the GIL no more, because Python ends. Orphans are still killed."""
    # A process that was forked has no prober, which may have held the mutex.
    if os.getpid() == process:
        with nogil:
            stop_prober()

"""The child process that runs a ZooKeeper server: starts its Java, and ends it.

In: one line of JSON on standard input: ``command``, ``folder`` and ``log``. Out: one line, the process id of
Java. When the input ends, which also happens when the parent is killed, Java is ended and ``folder`` removed.
The exit status is 0 then, and 1 when Java has ended by itself; ``folder`` is removed by the parent then.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
from typing import Any, Final

__all__ = ["main"]

#: A process that the parent has forked may hold the other end of the input and outlive the parent.
_CHECK_SECONDS: Final = 0.5
_STOP_SECONDS: Final = 5.0
_PR_SET_PDEATHSIG: Final = 1


def main() -> None:
    """Run one server."""
    parent = os.getppid()
    signals, written = os.pipe()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    os.set_blocking(written, False)
    signal.set_wakeup_fd(written)
    settings: dict[str, Any] = json.loads(sys.stdin.readline())
    with open(settings["log"], "ab") as log:
        java = subprocess.Popen(
            settings["command"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            # Ctrl-C in a terminal reaches all processes of its group; the parent decides when Java ends.
            process_group=0,
            preexec_fn=_end_with_parent if sys.platform == "linux" else None,
        )
    print(java.pid, flush=True)
    ended_itself = _wait(java, parent, signals)
    if not ended_itself:
        _end(java)
        shutil.rmtree(settings["folder"], ignore_errors=True)
    sys.exit(int(ended_itself))


def _wait(java: subprocess.Popen[bytes], parent: int, signals: int) -> bool:
    """Wait for the end of Java, of the input or of the parent, or a signal. Return whether Java has ended.

    ``signals``: descriptor from which the numbers of signals are read.
    """
    while os.getppid() == parent:
        ready, _, _ = select.select([sys.stdin, signals], [], [], _CHECK_SECONDS)
        if java.poll() is not None:
            return True
        if sys.stdin in ready:
            return False
        if signals in ready and set(os.read(signals, 64)) - {signal.SIGCHLD}:
            return False
    return False


def _end(java: subprocess.Popen[bytes]) -> None:
    java.terminate()
    try:
        java.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        java.kill()
        java.wait()


def _end_with_parent() -> None:
    """Let the kernel end Java when this process is killed. Linux only."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

"""The child process of one worker: a load on standard input, progress and the result on standard output.

Standard input: a line of JSON with the load and the worker's number, then the line ``start``; its end stops
the load. Standard output: lines of JSON, each with one of ``ready``, ``done``, ``result`` and ``error``.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any, Final

from ctrlchan.errors import CtrlchanError
from ctrlchan.loads.load import Load
from ctrlchan.loads.run import run_worker

__all__ = ["main"]

#: Seconds after the end of standard input within which the worker ends.
_END_SECONDS: Final = 60.0


def main() -> None:
    """Be the worker."""
    given = json.loads(sys.stdin.readline())
    started, stopped = threading.Event(), threading.Event()
    threading.Thread(target=_listen, args=(started, stopped), daemon=True).start()

    def wait_for_start() -> None:
        _say("ready", True)
        started.wait()

    try:
        result = run_worker(
            Load.decode(given["load"]),
            given["number"],
            wait_for_start=wait_for_start,
            report=lambda done: _say("done", done),
            stopped=stopped,
        )
        _say("result", result.encode())
    except BrokenPipeError:
        # The parent has gone, and nobody reads more.
        os._exit(1)
    except CtrlchanError as problem:
        _say("error", str(problem))


def _listen(started: threading.Event, stopped: threading.Event) -> None:
    for _ in sys.stdin:
        started.set()
    stopped.set()
    started.set()
    # A client that hangs must not survive the command.
    time.sleep(_END_SECONDS)
    os._exit(1)


def _say(name: str, value: Any) -> None:
    sys.stdout.write(json.dumps({name: value}) + "\n")
    sys.stdout.flush()

"""WorkerProcesses: the workers of a load in child processes of this machine."""

from __future__ import annotations

import json
import queue
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from ctrlchan.closing import Closing
from ctrlchan.errors import CtrlchanError
from ctrlchan.interpreter import child_command
from ctrlchan.loads.load import Load
from ctrlchan.loads.result import Result

__all__ = ["WorkerProcesses"]

#: Seconds until all children are ready.
_READY_SECONDS: Final = 120.0
#: Seconds between two looks at what else has happened.
_LOOK_SECONDS: Final = 0.25
#: Seconds that a child has to end.
_END_SECONDS: Final = 15.0


class WorkerProcesses(Closing):
    """Starts the workers; they wait for ``start``.

    A child ends when its standard input is closed, which also happens when this process dies.
    """

    def __init__(self, load: Load) -> None:
        self._said: queue.SimpleQueue[tuple[int, dict[str, Any]]] = queue.SimpleQueue()
        self._done: dict[int, Mapping[str, int]] = {}
        self._results: dict[int, Result] = {}
        self._children: list[subprocess.Popen[str]] = []
        try:
            for number in range(load.clients):
                self._children.append(self._new_child(load, number))
        except BaseException:
            self.close()
            raise

    def start(self, *, is_stopped: Callable[[], bool] = lambda: False) -> None:
        """Wait until all workers are ready, and start the load. Raises CtrlchanError."""
        ready: set[int] = set()
        deadline = time.monotonic() + _READY_SECONDS
        while len(ready) < len(self._children) and not is_stopped():
            if time.monotonic() > deadline:
                raise CtrlchanError(
                    f"{len(self._children) - len(ready)} clients are not ready after {_READY_SECONDS:g} s"
                )
            number, said = self._next()
            if "ready" in said:
                ready.add(number)
        for child in self._children:
            assert child.stdin is not None
            with suppress(BrokenPipeError):
                child.stdin.write("start\n")
                child.stdin.flush()

    def follow(
        self,
        show: Callable[[Mapping[str, int]], object] = lambda done: None,
        *,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> Result:
        """Wait for the end of all workers, and return the sum of their results. Raises CtrlchanError.

        ``show``: called a few times each second with the items of each operation so far. ``is_stopped``:
        whether the load ends before its time.
        """
        while len(self._results) < len(self._children):
            number, said = self._next()
            if "done" in said:
                self._done[number] = said["done"]
            elif "result" in said:
                self._results[number] = Result.decode(said["result"])
            if is_stopped():
                self.stop()
            total: Counter[str] = Counter()
            for one in self._done.values():
                total.update(one)
            show(total)
        return Result.merged(self._results[number] for number in sorted(self._results))

    def stop(self) -> None:
        """Let the workers end before their time; ``follow`` has what they have done."""
        for child in self._children:
            assert child.stdin is not None
            with suppress(BrokenPipeError):
                child.stdin.close()

    def close(self) -> None:
        """End the workers that have not ended."""
        self.stop()
        deadline = time.monotonic() + (_END_SECONDS if len(self._results) == len(self._children) else 1.0)
        for child in self._children:
            with suppress(subprocess.TimeoutExpired):
                child.wait(max(0.0, deadline - time.monotonic()))
            child.kill()
            child.wait()
            assert child.stdout is not None
            child.stdout.close()

    def _new_child(self, load: Load, number: int) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            child_command("ctrlchan.loads.child"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # Ctrl-C is this process's to handle.
            process_group=0,
        )
        assert child.stdin is not None
        child.stdin.write(json.dumps({"load": load.encode(), "number": number}) + "\n")
        child.stdin.flush()
        threading.Thread(target=self._read, args=(child, number), daemon=True).start()
        return child

    def _read(self, child: subprocess.Popen[str], number: int) -> None:
        assert child.stdout is not None
        # Closed by ``close`` at the end.
        with suppress(ValueError):
            for line in child.stdout:
                self._said.put((number, json.loads(line)))
        self._said.put((number, {"ended": True}))

    def _next(self) -> tuple[int, dict[str, Any]]:
        """Return what a child says, or nothing after a while. Raises CtrlchanError if it has failed."""
        try:
            number, said = self._said.get(timeout=_LOOK_SECONDS)
        except queue.Empty:
            return -1, {}
        if "error" in said:
            raise CtrlchanError(said["error"])
        if "ended" in said and number not in self._results:
            raise CtrlchanError(
                f"client {number} of the load has ended with status {self._children[number].wait()}"
            )
        return number, said

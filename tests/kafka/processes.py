"""Children of a test run that never outlive it.

A ``Reaper`` is a small process that has the ids of the children and holds the reading end of a pipe. When
the test run ends in any way, ``kill -9`` too, the kernel closes the writing end and the reaper kills what is
left. (The parent-death signal would do on Linux alone, and only with code between fork and exec.)
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

# Started with -S -E and this text: it needs nothing but the standard library.
_REAPER = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
children = set()
for line in sys.stdin:
    if line[0] == "+":
        children.add(int(line[1:]))
    else:
        children.discard(int(line[1:]))
for child in children:
    try:
        os.kill(child, signal.SIGKILL)
    except ProcessLookupError:
        pass
"""


class Reaper:
    """Kills the registered children when this process ends without having closed it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-E", "-c", _REAPER],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            # A Ctrl-C in the terminal goes to the group of the test run, which then ends its children itself.
            process_group=0,
        )

    def add(self, pid: int) -> None:
        self._send(f"+{pid}\n")

    def remove(self, pid: int) -> None:
        self._send(f"-{pid}\n")

    def close(self) -> None:
        """End the reaper, and with it every child that is still registered."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=10)

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line)
        self._process.stdin.flush()


class Child:
    """One process of the rig: its handle, and its standard output and error in a file."""

    def __init__(self, name: str, command: Sequence[str], output: Path, reaper: Reaper) -> None:
        self.name = name
        self.output = output
        self._reaper = reaper
        with output.open("ab") as stream:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                cwd=output.parent,
                process_group=0,
            )
        reaper.add(self._process.pid)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def status(self) -> int | None:
        """The exit status, negative for a signal; None while the process runs."""
        return self._process.poll()

    def check_alive(self) -> None:
        """Raise RuntimeError with the last lines of the output when the process has ended."""
        status = self.status
        if status is not None:
            raise RuntimeError(f"{self.name} ended with status {status}:\n{last_lines(self.output, 30)}")

    def terminate(self, timeout: float = 30) -> None:
        """SIGTERM, and wait until it is gone. Raises subprocess.TimeoutExpired after ``timeout`` seconds."""
        self._process.terminate()
        self._process.wait(timeout)
        self._reaper.remove(self._process.pid)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone. Does nothing for a process that has ended."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait(timeout=30)
        self._reaper.remove(self._process.pid)


def last_lines(path: Path, count: int) -> str:
    """The last lines of a log, or why there are none."""
    try:
        return "".join(path.read_text(errors="replace").splitlines(keepends=True)[-count:])
    except OSError as error:
        return f"({error})\n"

"""ChildProcess: a process of a measurement, which answers lines and ends with its standard input."""

from __future__ import annotations

import subprocess
from contextlib import suppress

from ctrlchan.closing import Closing
from ctrlchan.errors import CtrlchanError
from ctrlchan.interpreter import child_command

__all__ = ["ChildProcess"]

_STOP_SECONDS = 10.0


class ChildProcess(Closing):
    """Runs ``main`` of a module of this package from construction to ``close``.

    ``first_line``: what it has printed when it is ready. Raises CtrlchanError, naming ``what``, when it ends
    by itself.
    """

    def __init__(self, what: str, module: str, *arguments: str) -> None:
        self._what = what
        self._process = subprocess.Popen(
            child_command(module, *arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        try:
            self.first_line = self._read()
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    def ask(self, line: str) -> str:
        """Send a line and return the answer."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{line}\n")
        except BrokenPipeError:
            raise self._ended() from None
        return self._read()

    def close(self) -> None:
        """End the process, by its input at first. A second call does nothing."""
        process = self._process
        if process.stdin is not None:
            # A process that has ended reads no more lines.
            with suppress(BrokenPipeError):
                process.stdin.close()
        with process:
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise self._ended()
        return line

    def _ended(self) -> CtrlchanError:
        return CtrlchanError(f"{self._what} has ended")

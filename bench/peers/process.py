"""A process that reads commands as lines and answers each with a line."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

__all__ = ["ROOT", "PeerProcess"]

#: The checkout, from which ``bench`` is imported.
ROOT: Final = Path(__file__).parents[2]
_STOP_SECONDS: Final = 30.0


class PeerProcess:
    """A process that ends with its ``with`` block; it inherits our standard error.

    ``folder``: its working directory.
    """

    def __init__(self, command: Sequence[str], folder: Path = ROOT) -> None:
        self._process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin: IO[str] = self._process.stdin
        self._stdout: IO[str] = self._process.stdout

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._process.kill()
        self.stop()
        with self._process:
            pass

    def stop(self) -> None:
        """Make the process end, here by closing its input."""
        self._stdin.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, line: str) -> str:
        """Send a line and return the answer. Raises RuntimeError when the process ends instead."""
        self._stdin.write(f"{line}\n")
        return self.read_line()

    def read_line(self) -> str:
        line = self._stdout.readline()
        if not line:
            status = self._process.wait(_STOP_SECONDS)
            raise RuntimeError(f"{self._process.args!r} ended with status {status}")
        return line.rstrip("\n")

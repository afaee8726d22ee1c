"""A process that is asked in lines and answers in lines."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

__all__ = ["ROOT", "PeerProcess"]

#: The checkout: ``bench`` is imported from there.
ROOT: Final = Path(__file__).parents[2]
_STOP_SECONDS: Final = 30.0


class PeerProcess:
    """Ended when the ``with`` block ends; its standard error goes where ours goes."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
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
        """Have it end; here by the end of its input."""
        self._stdin.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, line: str) -> str:
        """Raises RuntimeError when the process ends instead of answering."""
        self._stdin.write(f"{line}\n")
        return self.read_line()

    def read_line(self) -> str:
        line = self._stdout.readline()
        if not line:
            status = self._process.wait(_STOP_SECONDS)
            raise RuntimeError(f"{self._process.args!r} ended with status {status}")
        return line.rstrip("\n")

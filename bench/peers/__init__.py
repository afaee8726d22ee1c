"""What a push is measured against: ``sink``, the cheapest broker, and ``blast``, the limit of the machine.

Both are C, compiled with ``cc`` (or ``$CC``) into ``build/peers`` when their source is newer, and talk over
127.0.0.1 only. See the header of each file for what it prints.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

__all__ = ["Blast", "Sink", "build"]

_SOURCES: Final = Path(__file__).parent
_BUILT: Final = _SOURCES.parent.parent / "build" / "peers"
_STOP_SECONDS: Final = 10.0


def build(name: str) -> Path:
    """The program ``name``, compiled if need be. Raises CalledProcessError with the compiler's words."""
    source = _SOURCES / f"{name}.c"
    program = _BUILT / name
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        _BUILT.mkdir(parents=True, exist_ok=True)
        # Compiled beside its place and moved there: two runs may build at the same time.
        fresh = program.with_suffix(f".{os.getpid()}")
        compiler = shlex.split(os.environ.get("CC", "cc"))
        options = ["-O2", "-Wall", "-Wextra", "-pthread", "-o", str(fresh), str(source)]
        subprocess.run([*compiler, *options], check=True)
        fresh.rename(program)
    return program


class _Peer:
    """A peer process, ended when the ``with`` block ends."""

    def __init__(self, name: str, *arguments: int) -> None:
        self._process = subprocess.Popen(
            [str(build(name)), *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
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
        self._process.terminate()
        self._process.communicate(timeout=_STOP_SECONDS)

    def _read_line(self) -> str:
        line = self._stdout.readline()
        if not line:
            status = self._process.wait(_STOP_SECONDS)
            raise RuntimeError(f"{self._process.args!r} ended with status {status}")
        return line


class Sink(_Peer):
    """A sink on a free ``port``: discards every frame and answers it with success."""

    def __init__(self) -> None:
        super().__init__("sink", 0)
        self.port = int(self._read_line().removeprefix("ready "))


class Blast(_Peer):
    """The limit: ``round`` sends ``body_bytes`` to each of ``brokers`` connections and awaits the replies."""

    def __init__(self, port: int, brokers: int, body_bytes: int, threads: int) -> None:
        super().__init__("blast", port, brokers, body_bytes, threads, 0)

    def round(self) -> float:
        """Milliseconds of one round."""
        self._stdin.write("\n")
        return float(self._read_line())

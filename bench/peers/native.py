"""``Sink``, the cheapest broker, and ``Blast``, the limit of what this machine can send to sinks.

Both are C, compiled with ``cc`` (or ``$CC``) into ``build/peers`` when their source is newer. The header of
each file describes its output.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path
from typing import Final

from bench.peers.process import ROOT, PeerProcess

__all__ = ["Blast", "Sink", "build"]

_SOURCES: Final = Path(__file__).parent
_BUILT: Final = ROOT / "build" / "peers"


def build(name: str) -> Path:
    """Compile the program ``name`` if its source is newer, and return its path. Raises CalledProcessError."""
    source = _SOURCES / f"{name}.c"
    program = _BUILT / name
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        _BUILT.mkdir(parents=True, exist_ok=True)
        # Compiled under another name and renamed, because two runs may compile at the same time.
        fresh = program.with_suffix(f".{os.getpid()}")
        compiler = shlex.split(os.environ.get("CC", "cc"))
        options = ["-O2", "-Wall", "-Wextra", "-pthread", "-o", str(fresh), str(source)]
        subprocess.run([*compiler, *options], check=True)
        fresh.rename(program)
    return program


def _command(name: str, *arguments: int) -> list[str]:
    return [str(build(name)), *map(str, arguments)]


class Sink(PeerProcess):
    """A sink on a free ``port``: discards every frame and answers it with success."""

    def __init__(self) -> None:
        super().__init__(_command("sink", 0))
        self.port = int(self.read_line().removeprefix("ready "))

    def stop(self) -> None:
        # The sink does not read its input.
        self._process.terminate()


class Blast(PeerProcess):
    """The limit: sends frames with a body of ``body_bytes`` to each of ``brokers`` connections."""

    def __init__(self, port: int, brokers: int, body_bytes: int, threads: int) -> None:
        super().__init__(_command("blast", port, brokers, body_bytes, threads, 0))

    def awaited(self, rounds: int) -> float:
        """Send ``rounds`` rounds of one frame to every connection; returns milliseconds."""
        return float(self.ask(f"awaited {rounds}"))

    def queued(self, rounds: int) -> float:
        """Send the same frames, but no connection waits for another; returns milliseconds."""
        return float(self.ask(f"queued {rounds}"))

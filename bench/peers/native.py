"""``Sink``, the cheapest broker, ``Blast``, the limit of what this machine can send to sinks, and ``store``.

All are C, compiled with ``cc`` (or ``$CC``) into ``build/peers`` when their source is newer. The header of
each file describes its output. ``build_go`` compiles Go.
"""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from bench.peers.place import LOCAL, LOOPBACK, Place
from bench.peers.process import ROOT, PeerProcess

__all__ = ["Blast", "PortCounts", "Sink", "SinkReport", "build", "build_go", "build_library"]

_SOURCES: Final = Path(__file__).parent
_BUILT: Final = ROOT / "build" / "peers"
#: CRC-32C in hardware, as our own extensions have it.
_MACHINE: Final = {"x86_64": ["-march=x86-64-v2"], "aarch64": ["-march=armv8-a+crc"]}


def build(name: str) -> Path:
    """Compile the program ``name`` if its source is newer, and return its path. Raises CalledProcessError."""
    source = _SOURCES / f"{name}.c"
    return _built(name, source, lambda fresh: _c_command(source, fresh))


def build_library(source: Path) -> Path:
    """As ``build``, of the shared library that a C file makes."""
    return _built(f"{source.stem}.so", source, lambda fresh: _c_command(source, fresh, "-shared", "-fPIC"))


def _c_command(source: Path, target: Path, *more: str) -> list[str]:
    compiler = shlex.split(os.environ.get("CC", "cc"))
    options = ["-O2", "-Wall", "-Wextra", "-pthread", *_MACHINE.get(platform.machine(), ()), *more]
    return [*compiler, *options, "-o", str(target), str(source)]


def build_go(name: str) -> Path:
    """As ``build``, of the module in the folder ``name``: Go fetches what it imports."""
    folder = _SOURCES / name
    return _built(
        name, folder / "main.go", lambda fresh: ["go", "build", "-C", str(folder), "-o", str(fresh), "."]
    )


def _built(name: str, source: Path, command: Callable[[Path], list[str]]) -> Path:
    program = _BUILT / name
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        _BUILT.mkdir(parents=True, exist_ok=True)
        # Compiled under another name and renamed, because two runs may compile at the same time.
        fresh = program.with_suffix(f".{os.getpid()}")
        subprocess.run(command(fresh), check=True)
        fresh.rename(program)
    return program


def _command(name: str, *arguments: int | str) -> list[str]:
    return [str(build(name)), *map(str, arguments)]


class PortCounts(NamedTuple):
    """The requests that a sink has answered on one port."""

    leader_and_isr: int
    stop_replica: int
    update_metadata: int


@dataclass(frozen=True)
class SinkReport:
    """What a sink has done until now.

    ``last_answer_ns``: ``time.monotonic_ns`` of the last answered frame, 0 when there is none.
    ``received``: bytes. ``ports``: in the order of ``Sink.ports``.
    """

    last_answer_ns: int
    received: int
    ports: tuple[PortCounts, ...]


class Sink(PeerProcess):
    """A sink on free ``ports``: discards every frame and answers it with success."""

    def __init__(self, ports: int = 1, host: str = LOOPBACK) -> None:
        super().__init__(_command("sink", 0, ports, host))
        self.ports = [int(port) for port in self.read_line().removeprefix("ready ").split()]

    @property
    def port(self) -> int:
        return self.ports[0]

    def report(self) -> SinkReport:
        last_answer, received, *ports = self.ask("report").split()
        counts = (PortCounts(*map(int, port.split("/"))) for port in ports)
        return SinkReport(int(last_answer), int(received), tuple(counts))


class Blast(PeerProcess):
    """The limit: sends frames with a body of ``body_bytes`` to each of ``brokers`` connections.

    ``host``: of the sink. ``place``: where blast runs.
    """

    def __init__(
        self,
        port: int,
        brokers: int,
        body_bytes: int,
        threads: int,
        host: str = LOOPBACK,
        place: Place = LOCAL,
    ) -> None:
        command = _command("blast", port, brokers, body_bytes, threads, 0, host)
        super().__init__([*place.prefix, *command])

    def awaited(self, rounds: int) -> float:
        """Send ``rounds`` rounds of one frame to every connection; returns milliseconds."""
        return float(self.ask(f"awaited {rounds}"))

    def queued(self, rounds: int) -> float:
        """Send the same frames, but no connection waits for another; returns milliseconds."""
        return float(self.ask(f"queued {rounds}"))

"""What processes hold at rest, early and late, and what a run leaves behind."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

__all__ = ["MARK", "Sample", "grown", "left_behind", "sample"]

#: A variable of the environment of all processes of a run.
MARK: Final = "CTRLCHAN_CHAOS_RUN"

#: How much more there may be at the end: connections of clients, and threads of pools, come and go.
_MORE: Final = {"processes": 0, "threads": 8, "descriptors": 48, "memory": 64 << 20}


@dataclass(frozen=True)
class Sample:
    """What a process and its children hold.

    ``descriptors``: without files of logs, whose number grows with the records; ``deleted``: open files that
    have no name any more; ``memory``: bytes that belong to no file.
    """

    pid: int
    processes: int
    threads: int
    descriptors: int
    deleted: tuple[str, ...]
    memory: int

    def __str__(self) -> str:
        return (
            f"{self.processes} processes, {self.threads} threads, {self.descriptors} descriptors, "
            f"{self.memory >> 20} MiB"
        )


def sample(pid: int, logs: str) -> Sample:
    """Return what the process holds. ``logs``: the folder of its log directories. Raises psutil.Error."""
    root = psutil.Process(pid)
    processes = [root, *root.children(recursive=True)]
    threads = descriptors = memory = 0
    deleted: list[str] = []
    for process in processes:
        with suppress(psutil.NoSuchProcess, FileNotFoundError):
            threads += process.num_threads()
            memory += _anonymous(process.pid)
            for target in _descriptors(process.pid):
                if target.startswith(logs) and target.endswith(" (deleted)"):
                    deleted.append(target)
                elif not target.startswith(logs):
                    descriptors += 1
    return Sample(pid, len(processes), threads, descriptors, tuple(deleted), memory)


def _descriptors(pid: int) -> Iterator[str]:
    folder = f"/proc/{pid}/fd"
    for name in os.listdir(folder):
        with suppress(FileNotFoundError):
            yield os.readlink(f"{folder}/{name}")


def _anonymous(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) << 10
    return 0


def grown(name: str, early: Sample, late: Sample) -> list[str]:
    """Return a line for each thing of which the same process holds too much more than before."""
    lines = [f"{name} has an open file without a name: {file}" for file in late.deleted[:3]]
    for what, more in _MORE.items():
        before, now = getattr(early, what), getattr(late, what)
        if now > before + more:
            lines.append(f"{name}: {what} grew from {before} to {now}")
    return lines


def left_behind(mark: str, folder: Path, mounts: Path = Path("/proc/self/mounts")) -> list[str]:
    """Return processes of the run that still live, and file systems that are still mounted in its folder."""
    lines = [f"process {pid} is left: {command}" for pid, command in _marked(mark).items()]
    for line in mounts.read_text().splitlines():
        place = line.split()[1]
        if Path(place).is_relative_to(folder):
            lines.append(f"{place} is still mounted")
    return lines


def _marked(mark: str) -> Mapping[int, str]:
    found = {}
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.pid != os.getpid() and process.environ().get(MARK) == mark:
                found[process.pid] = " ".join(process.cmdline())
    return found

"""What the processes of a run have: threads, descriptors, memory, and what they have logged."""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Final, NamedTuple

import psutil

__all__ = [
    "GROWTH",
    "MEASURES_MEMORY",
    "PATIENCE",
    "POOLED",
    "Figures",
    "figures",
    "logged_to",
    "show_log",
    "wait_for_rest",
]

#: Seconds in which a client must be served, and in which everything comes to rest.
PATIENCE: Final = 30.0
#: Bytes by which the private memory of a process may grow.
GROWTH: Final = 64 * 2**20
#: Threads of pools that start when they are first needed.
POOLED: Final = 16
#: A build with gcc's address sanitizer keeps freed memory for a while: its growth says nothing.
MEASURES_MEMORY: Final = "libasan" not in os.environ.get("LD_PRELOAD", "")


class Figures(NamedTuple):
    """What a process has."""

    threads: int
    descriptors: int
    private_bytes: int


@contextmanager
def logged_to(path: Path) -> Iterator[None]:
    """Write standard error of this process and of new child processes to a file."""
    sys.stderr.flush()
    before = os.dup(2)
    with path.open("wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)


def figures(processes: Sequence[psutil.Process]) -> list[Figures]:
    """Return what each process has now."""
    return [Figures(one.num_threads(), one.num_fds(), one.memory_full_info().uss) for one in processes]


def wait_for_rest(
    processes: Sequence[psutil.Process], before: Sequence[Figures], *, more_descriptors: int | None = None
) -> None:
    """Wait until no thread is left of a request. Raises AssertionError.

    ``more_descriptors``: so many more than before may be left; None: they are not looked at.
    """
    deadline = monotonic() + PATIENCE
    while any(
        now.threads > then.threads + POOLED
        or (more_descriptors is not None and now.descriptors > then.descriptors + more_descriptors)
        for now, then in zip(figures(processes), before or figures(processes), strict=True)
    ):
        assert monotonic() < deadline, f"{before}, then {figures(processes)}"
        sleep(0.2)


def show_log(path: Path) -> None:
    """Print how often each kind of line was logged."""
    kinds: Counter[str] = Counter()
    tracebacks = 0
    for line in path.read_text(errors="replace").splitlines():
        tracebacks += line.startswith("Traceback")
        kinds[re.sub(r"[0-9a-f]{8,}|\d+|'[^']*'|\"[^\"]*\"", "#", line)[:150]] += 1
    print(f"{sum(kinds.values())} log lines, {tracebacks} tracebacks, {path.stat().st_size} bytes")
    for text, number in kinds.most_common(25):
        print(f"{number:8d}  {text}")

"""Memory of a process and all its descendants; shared pages count once."""

from __future__ import annotations

import psutil

__all__ = ["MIB", "pss_mib"]

MIB = 2**20


def pss_mib(pid: int | None = None) -> float:
    """Return the proportional set size of a process (None: this one) and all its descendants, MiB.

    Systems other than Linux have no proportional set sizes. There, unique set sizes are added up, which
    leaves out the pages that processes share.
    """
    try:
        first = psutil.Process(pid)
        tree = [first, *first.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0.0
    return sum(_bytes_of(process) for process in tree) / MIB


def _bytes_of(process: psutil.Process) -> int:
    try:
        memory = process.memory_full_info()
    except psutil.NoSuchProcess:
        return 0
    return int(getattr(memory, "pss", memory.uss))

"""Memory of this process and everything it started, shared pages counted once."""

from __future__ import annotations

import psutil

__all__ = ["MIB", "pss_mib"]

MIB = 2**20


def pss_mib() -> float:
    """Proportional set size of this process and all its descendants, MiB.

    Where the system does not say it (it does on Linux), unique set sizes are added up instead: pages that
    processes share are then left out rather than counted twice.
    """
    this = psutil.Process()
    return sum(_bytes_of(process) for process in [this, *this.children(recursive=True)]) / MIB


def _bytes_of(process: psutil.Process) -> int:
    try:
        memory = process.memory_full_info()
    except psutil.NoSuchProcess:
        return 0
    return int(getattr(memory, "pss", memory.uss))

"""Memory of this process and all its descendants; shared pages count once."""

from __future__ import annotations

import psutil

__all__ = ["MIB", "pss_mib"]

MIB = 2**20


def pss_mib() -> float:
    """Return the proportional set size of this process and all its descendants, MiB.

    Systems other than Linux have no proportional set sizes. There, unique set sizes are added up, which
    leaves out the pages that processes share.
    """
    this = psutil.Process()
    return sum(_bytes_of(process) for process in [this, *this.children(recursive=True)]) / MIB


def _bytes_of(process: psutil.Process) -> int:
    try:
        memory = process.memory_full_info()
    except psutil.NoSuchProcess:
        return 0
    return int(getattr(memory, "pss", memory.uss))

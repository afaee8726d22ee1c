"""Memory of a process tree as Linux accounts it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["pss_mib"]


def pss_mib() -> float:
    """Proportional set size of this process and all its descendants, MiB: shared pages are counted once."""
    return sum(map(_pss_kib, _tree(os.getpid()))) / 1024


def _tree(pid: int) -> Iterator[int]:
    yield pid
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in _read(children).split():
            yield from _tree(int(child))


def _pss_kib(pid: int) -> int:
    for line in _read(Path(f"/proc/{pid}/smaps_rollup")).splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1])
    return 0


def _read(file: Path) -> str:
    """Empty when the process ended since it was listed."""
    try:
        return file.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""

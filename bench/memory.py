"""Memory and processor time of whole process trees."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from time import monotonic, sleep
from typing import Final

import psutil

__all__ = ["cpu_seconds", "peak_pss_mib", "pss_mib", "settle"]

_MIB: Final = 2**20

#: Seconds between two looks at the memory: a push is longer on either side, and there are several.
_SAMPLE_EVERY: Final = 0.01

#: A process that uses less than this share of a core while it is observed is idle.
_QUIET: Final = 0.1
_LOOK_SECONDS: Final = 0.05
_SETTLE_SECONDS: Final = 5.0


def pss_mib(pid: int) -> float:
    """Proportional set size of a process and all its descendants, MiB: pages that they share count once."""
    total = 0
    for process in _tree(pid):
        with suppress(psutil.NoSuchProcess):
            total += process.memory_full_info().pss
    return total / _MIB


def peak_pss_mib(pid: int, work: Callable[[], object]) -> float:
    """The most that ``pss_mib`` says while ``work`` runs, and right after it."""
    seen = [0.0]
    done = threading.Event()

    def watch() -> None:
        while not done.wait(_SAMPLE_EVERY):
            seen.append(pss_mib(pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        work()
    finally:
        done.set()
        watcher.join()
    return max(*seen, pss_mib(pid))


def settle(pid: int) -> None:
    """Return when the process tree is idle, after ``_SETTLE_SECONDS`` at the latest."""
    deadline = monotonic() + _SETTLE_SECONDS
    before = cpu_seconds(pid)
    while monotonic() < deadline:
        sleep(_LOOK_SECONDS)
        now = cpu_seconds(pid)
        if now - before < _QUIET * _LOOK_SECONDS:
            return
        before = now


def cpu_seconds(pid: int, *, alone: bool = False) -> float:
    """Processor time that a process, with all its descendants or ``alone``, has used."""
    total = 0.0
    for process in _tree(pid)[: 1 if alone else None]:
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system
    return total


def _tree(pid: int) -> list[psutil.Process]:
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []

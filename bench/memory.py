"""Memory and processor time of whole process trees."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Final

import psutil

__all__ = ["cpu_seconds", "fill_page_cache", "peak_pss_mib", "pss_mib", "settle"]

_MIB: Final = 2**20

#: Seconds between two samples of the memory: a push takes longer on either side, and there are several.
_SAMPLE_EVERY: Final = 0.01

#: A process that uses less than this share of a core is idle.
_IDLE: Final = 0.1
_SAMPLE_SECONDS: Final = 0.05
_SETTLE_SECONDS: Final = 5.0

#: Bytes of one read.
_READ: Final = 1 << 20


def pss_mib(pid: int) -> float:
    """Return the proportional set size of a process and all its descendants, MiB; shared pages count once."""
    total = 0
    for process in _tree(pid):
        with suppress(psutil.NoSuchProcess):
            total += process.memory_full_info().pss
    return total / _MIB


def peak_pss_mib(pid: int, work: Callable[[], object]) -> float:
    """Return the largest ``pss_mib`` while ``work`` runs and right after it."""
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
    """Wait until the process tree is idle, ``_SETTLE_SECONDS`` at most."""
    deadline = monotonic() + _SETTLE_SECONDS
    before = cpu_seconds(pid)
    while monotonic() < deadline:
        sleep(_SAMPLE_SECONDS)
        now = cpu_seconds(pid)
        if now - before < _IDLE * _SAMPLE_SECONDS:
            return
        before = now


def cpu_seconds(pid: int, *, alone: bool = False) -> float:
    """Return the processor time that a process has used: ``alone``, or with all its descendants.

    Descendants that have ended count once their parents have reaped them.
    """
    total = 0.0
    for process in _tree(pid)[: 1 if alone else None]:
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system
            if not alone:
                total += times.children_user + times.children_system
    return total


def _tree(pid: int) -> list[psutil.Process]:
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


@contextmanager
def fill_page_cache(file: Path) -> Iterator[Callable[[], None]]:
    """Yield a function that lets this file, which is made of holes, take all memory that is free.

    So is a machine that has run for some time: files that are written get pages that others had. On a
    virtual machine a page that its host has to give first costs 1 to 3 s/GB, several times the writing.
    """

    def fill() -> None:
        holes.seek(0)
        while holes.readinto(room):
            pass

    room = bytearray(_READ)
    try:
        with file.open("w+b", buffering=0) as holes:
            holes.truncate(psutil.virtual_memory().total)
            yield fill
    finally:
        file.unlink(missing_ok=True)

"""Free ports, for servers that cannot report the port that they take for 0."""

from __future__ import annotations

import atexit
import os
import tempfile
from pathlib import Path
from random import SystemRandom
from typing import Final

import psutil

from ctrlchan.launch.listeners import are_free

__all__ = ["free_port", "free_ports"]

#: Below the ports that the kernel gives to clients and to servers that ask for 0: none of them takes one.
_PORTS: Final = range(15_000, 32_000)
#: A file for each port that a test has, with its process id: suites run side by side.
_TAKEN: Final = Path(tempfile.gettempdir()) / f"ctrlchan-test-ports-{os.getuid()}"
_RANDOM: Final = SystemRandom()


def free_port() -> int:
    """Return a port that nobody has; no other test gets it while this process lives."""
    return free_ports(1)


def free_ports(count: int) -> int:
    """Return the first of so many free ports in a row. See ``free_port``."""
    while True:
        first = _RANDOM.randrange(_PORTS.start, _PORTS.stop - count)
        ports = range(first, first + count)
        taken = []
        for port in ports:
            if not _take(port):
                break
            taken.append(port)
        if len(taken) == count and are_free("0.0.0.0", ports):
            atexit.register(_give_back, taken, os.getpid())
            return first
        _give_back(taken, os.getpid())


def _take(port: int) -> bool:
    """Return whether this process has got the port."""
    file = _TAKEN / str(port)
    _TAKEN.mkdir(exist_ok=True)
    try:
        with file.open("x") as made:
            made.write(str(os.getpid()))
    except FileExistsError:
        try:
            is_left = not psutil.pid_exists(int(file.read_text()))
        except (FileNotFoundError, ValueError):
            return False
        if is_left:
            file.unlink(missing_ok=True)
        return False
    return True


def _give_back(ports: list[int], owner: int) -> None:
    # Forked processes end, too.
    if os.getpid() == owner:
        for port in ports:
            (_TAKEN / str(port)).unlink(missing_ok=True)

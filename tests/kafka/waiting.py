"""Waiting for a condition with a deadline; the only way a test waits for a process or a broker."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(condition: Callable[[], T | None], *, timeout: float = 30.0, what: str) -> T:
    """Call ``condition`` until it returns something true, and return that.

    Raises TimeoutError that names ``what`` after ``timeout`` seconds. What ``condition`` raises passes.
    """
    deadline = time.monotonic() + timeout
    pause = 0.005
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() >= deadline:
            raise TimeoutError(f"{what}: not within {timeout:g} s")
        time.sleep(pause)
        pause = min(pause * 1.5, 0.1)

"""Results: what threads of a sender have found for its event loop."""

from __future__ import annotations

import os
from collections import deque
from contextlib import suppress
from typing import Generic, TypeVar

__all__ = ["Results"]

T = TypeVar("T")


class Results(Generic[T]):
    """Results by ticket. ``fd`` is readable when ``collect`` has some. Any thread may call ``put``."""

    def __init__(self) -> None:
        self.fd, self._wake = os.pipe()
        os.set_blocking(self.fd, False)
        self._found: deque[tuple[int, T]] = deque()

    def put(self, ticket: int, result: T) -> None:
        """Have ``collect`` return a result."""
        self._found.append((ticket, result))
        os.write(self._wake, b"\0")

    def collect(self) -> list[tuple[int, T]]:
        """Return (ticket, result) of what was put since the last call."""
        with suppress(BlockingIOError):
            os.read(self.fd, 4096)
        found = []
        while self._found:
            found.append(self._found.popleft())
        return found

    def close(self) -> None:
        """Give the descriptors back. No thread puts a result any more."""
        os.close(self.fd)
        os.close(self._wake)

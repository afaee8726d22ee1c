"""Progress of long work on standard error: a spinner on a terminal, one line anywhere else."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

__all__ = ["step"]


@contextmanager
def step(title: str) -> Iterator[None]:
    """Say what is being done while it is, and how long it took when that was noticeable."""
    console = Console(stderr=True, highlight=False)
    start = time.perf_counter()
    with console.status(title):
        yield
    seconds = time.perf_counter() - start
    if console.is_terminal or seconds >= 1:
        console.print(f"{title} [dim]({seconds:.1f} s)[/dim]")

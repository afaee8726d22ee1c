"""Progress of long work on standard error: a spinner on a terminal, one line anywhere else."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.text import Text

from ctrlchan.text import printable

__all__ = ["step"]


@contextmanager
def step(title: str) -> Iterator[None]:
    """Show ``title`` while the block runs, and how long it took when that is a second or more.

    ``title`` may have text of the user's in it: it is no markup, and control characters are escaped.
    """
    console = Console(stderr=True, highlight=False)
    shown = Text(printable(title))
    start = time.perf_counter()
    with console.status(shown):
        yield
    seconds = time.perf_counter() - start
    if console.is_terminal or seconds >= 1:
        console.print(shown + Text(f" ({seconds:.1f} s)", style="dim"))

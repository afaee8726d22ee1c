"""Progress of long work on standard error: a spinner or a bar on a terminal, one line anywhere else."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.text import Text

from ctrlchan.text import printable

__all__ = ["log_progress", "step"]


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


@contextmanager
def log_progress() -> Iterator[Callable[[Path, int, int, str], None]]:
    """Yield a function that shows how many logs of a directory are loaded; any thread may call it.

    Its arguments: log directory, loaded logs, all logs, and the folder of the log that was loaded last. A
    directory's bar goes when its last log is loaded.
    """
    console = Console(stderr=True, highlight=False)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[folder]}"),
    )
    bars: dict[Path, TaskID] = {}
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:

        def show(directory: Path, loaded: int, total: int, folder: str) -> None:
            bar = bars.get(directory)
            if bar is None:
                title = f"loading logs of {printable(str(directory))}"
                bar = bars[directory] = progress.add_task(title, total=total, folder="")
            progress.update(bar, completed=loaded, folder=printable(folder), visible=loaded < total)

        yield show

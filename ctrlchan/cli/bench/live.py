"""The line that shows how a load goes, on a terminal."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.text import Text

if TYPE_CHECKING:
    from ctrlchan.loads.load import Load

__all__ = ["showing"]

#: Seconds over which a rate is shown.
_RATE_SECONDS: Final = 2.0


@contextmanager
def showing(load: Load) -> Iterator[Callable[[Mapping[str, int]], None]]:
    """Yield a function that shows the items of each operation so far, and their rates."""
    console = Console(stderr=True, highlight=False)
    begin = time.monotonic()
    seen: deque[tuple[float, dict[str, int]]] = deque([(begin, {})])
    with console.status(Text(load.kind)) as status:

        def show(done: Mapping[str, int]) -> None:
            now = time.monotonic()
            if now - seen[-1][0] < 0.2:
                return
            seen.append((now, dict(done)))
            while len(seen) > 2 and now - seen[0][0] > _RATE_SECONDS:
                seen.popleft()
            status.update(Text(_line(load, now - begin, seen[0], seen[-1])))

        yield show


def _line(
    load: Load, passed: float, before: tuple[float, dict[str, int]], now: tuple[float, dict[str, int]]
) -> str:
    phase = "warm-up, " if passed < load.warmup else ""
    seconds = max(now[0] - before[0], 1e-9)
    rates = ", ".join(
        f"{name} {count:,} ({(count - before[1].get(name, 0)) / seconds:,.0f}/s)"
        for name, count in now[1].items()
    )
    return f"{phase}{passed:.0f} of {load.warmup + load.seconds:.0f} s: {rates or 'starting'}"

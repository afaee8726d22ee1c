"""What a run prints: one line of progress, and the result."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

__all__ = ["Progress", "Result", "result_lines"]


@dataclass
class Result:
    """What a run has done, and what failed."""

    seed: int
    command: str
    seconds: float = 0.0
    rounds: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    acknowledged: int = 0
    refused: int = 0
    replaced: int = 0
    read: int = 0
    reread: int = 0
    consumed: int = 0
    commits: int = 0
    passing_topics: int = 0
    compared: int = 0
    left: int = 0
    failures: list[str] = field(default_factory=list)


def result_lines(result: Result, folder: Path | None) -> list[str]:
    """Return the report of a run. ``folder``: where its files are, None where they were removed."""
    faults = ", ".join(f"{count} × {kind}" for kind, count in sorted(result.faults.items()))
    lines = [
        f"{result.rounds} rounds in {result.seconds:.0f} s, seed {result.seed}",
        f"faults: {faults or 'none'}",
        f"records: {result.acknowledged} acknowledged, {result.refused} given up by clients "
        f"({result.replaced} producers replaced), "
        f"{result.read} read, {result.reread} read again",
        f"groups: {result.consumed} records consumed, {result.commits} commits",
        f"topics created and deleted: {result.passing_topics}; replicas compared: {result.compared}, "
        f"left by moves: {result.left}",
    ]
    if folder is not None:
        lines.append(f"files: {folder}")
    if not result.failures:
        return [
            *lines,
            "PASSED: nothing lost, doubled, disordered or changed; nothing is left",
        ]
    lines += [f"FAILED: {failure}" for failure in result.failures]
    return [*lines, f"again: {result.command}"]


class Progress:
    """One line that is written over at a terminal; elsewhere a line now and then."""

    def __init__(self, out: TextIO = sys.stdout) -> None:
        self._out = out
        self._is_terminal = out.isatty()
        self._every = 1.0 if self._is_terminal else 10.0
        self._begin = time.monotonic()
        self._next = 0.0

    def show(self, what: str, counts: Mapping[str, object] | None = None) -> None:
        """Show what is done now, unless something was shown a moment ago."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + self._every
        line = f"{now - self._begin:5.0f} s  {what}"
        if counts:
            line += "  " + ", ".join(f"{count} {name}" for name, count in counts.items())
        if self._is_terminal:
            self._out.write(f"\r\x1b[K{line[:150]}")
        else:
            self._out.write(line + "\n")
        self._out.flush()

    def say(self, lines: Sequence[str]) -> None:
        """Write lines that stay."""
        if self._is_terminal:
            self._out.write("\r\x1b[K")
        self._out.write("".join(f"{line}\n" for line in lines))
        self._out.flush()

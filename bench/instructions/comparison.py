"""Counts beside their baseline: what has grown by more than a tenth, what is new, what is missing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from bench.instructions.counts import Count

__all__ = ["LIMIT", "Row", "State", "compare", "problems", "table"]

#: Growth that is a failure.
LIMIT: Final = 1.10
#: A count that is lower by so much is worth a new baseline: nothing would notice its return.
_WORTH_KEEPING: Final = 0.95
_FUNCTIONS: Final = 8


class State(Enum):
    SAME = ""
    LESS = "less: renew the baseline"
    GROWN = "MORE"
    NEW = "NEW"
    MISSING = "MISSING"


@dataclass(frozen=True)
class Row:
    """One name beside its baseline; None: there is no such count."""

    name: str
    now: Count | None
    baseline: Count | None

    @property
    def ratio(self) -> float | None:
        if self.now is None or self.baseline is None:
            return None
        return self.now.instructions / self.baseline.instructions

    @property
    def state(self) -> State:
        if self.baseline is None:
            return State.NEW
        if self.ratio is None:
            return State.MISSING
        if self.ratio > LIMIT:
            return State.GROWN
        return State.LESS if self.ratio < _WORTH_KEEPING else State.SAME

    def grown_functions(self) -> list[tuple[str, float, float]]:
        """Return the functions that grew most: name, instructions of the baseline, and now."""
        before = {} if self.baseline is None else self.baseline.functions
        now = {} if self.now is None else self.now.functions
        changes = [(name, before.get(name, 0.0), count) for name, count in now.items()]
        grown = sorted((one for one in changes if one[2] > one[1]), key=lambda one: one[1] - one[2])
        return grown[:_FUNCTIONS]


def compare(now: Mapping[str, Count], baseline: Mapping[str, Count]) -> list[Row]:
    """Return a row for each name that either has."""
    return [Row(name, now.get(name), baseline.get(name)) for name in dict.fromkeys([*now, *baseline])]


def problems(rows: list[Row]) -> list[str]:
    """Return what must not be committed as it is, each as lines of text."""
    found = []
    for row in rows:
        if row.state is State.NEW:
            found.append(f"{row.name}: has no baseline")
        elif row.state is State.MISSING:
            found.append(f"{row.name}: is in the baseline, and was not measured")
        elif row.state is State.GROWN and row.ratio is not None:
            lines = [f"{row.name}: {(row.ratio - 1) * 100:.1f} % more instructions than the baseline"]
            lines += [
                f"    {count - before:+14,.1f}  {name}  ({before:,.1f} → {count:,.1f})"
                for name, before, count in row.grown_functions()
            ]
            found.append("\n".join(lines))
    return found


def table(rows: list[Row]) -> str:
    """Return all rows as lines of text: instructions of one repetition."""
    lines = [f"{'':38}{'now':>14}{'baseline':>14}{'ratio':>8}"]
    for row in rows:
        cells = "".join(
            f"{'-':>14}" if one is None else f"{one.instructions:>14,.1f}" for one in (row.now, row.baseline)
        )
        ratio = f"{'-':>8}" if row.ratio is None else f"{row.ratio:>8.3f}"
        lines.append(f"{row.name:38}{cells}{ratio}  {row.state.value}".rstrip())
    return "\n".join(lines)

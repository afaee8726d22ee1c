"""One measure: the samples of all sides, their medians, ratios, and slopes over sizes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import floor, log, log10
from statistics import linear_regression, median
from typing import Final, NamedTuple

from bench.alternate import OURS

__all__ = ["BOUNDS", "Line", "Measure", "Ratio", "label", "lines_of", "number", "short", "slug"]

#: What ours is compared with as a share of it: limits, and the same work without ours.
BOUNDS: Final = frozenset(
    {"limit", "memcpy", "without", "reading", "plaintext", "session", "disk", "Spark alone"}
)
_LABELS: Final = {
    "kafka": "Kafka 3.9.1",
    "limit": "limit (C)",
    "per-broker": "process per broker",
    "plaintext": "ours, plaintext",
}


def label(side: str) -> str:
    """Return the name of a side in charts and tables."""
    return _LABELS.get(side, side)


def short(side: str) -> str:
    """Return the name of a side in ratios and goals."""
    return {"kafka": "Kafka", "per-broker": "process per broker"}.get(side, side)


class Ratio(NamedTuple):
    """A ratio of two sides: of their medians, and of their best samples."""

    left: str
    right: str
    of_medians: float
    of_best: float

    @property
    def name(self) -> str:
        return f"{short(self.left)} / {short(self.right)}"


@dataclass(frozen=True, kw_only=True)
class Measure:
    """What was measured, and the samples of each side in ``unit``. ``OURS`` is compared with all others.

    ``higher``: more is better, as with rates. ``line`` and ``size``: measures of one suite with the same
    line are the points of a line over the size (its name, its value). ``gave_up``: side -> why it was not
    measured to the end.
    """

    suite: str
    what: str
    unit: str
    sides: Mapping[str, Sequence[float]]
    chart: str = ""
    higher: bool = False
    goals: Sequence[str] = ()
    line: str = ""
    size: tuple[str, float] | None = None
    gave_up: Mapping[str, str] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """Return the anchor of this measure's row."""
        return slug(f"{self.suite} {self.what}")

    def median(self, side: str = OURS) -> float:
        return median(self.sides[side])

    def best(self, side: str = OURS) -> float:
        return max(self.sides[side]) if self.higher else min(self.sides[side])

    def ratio(self, left: str, right: str) -> Ratio | None:
        """Return ``left / right``; None if a side did not run, or if the right one is 0 or less."""
        if not self.sides.get(left) or not self.sides.get(right):
            return None
        if self.median(right) <= 0 or self.best(right) <= 0:
            return None
        return Ratio(left, right, self.median(left) / self.median(right), self.best(left) / self.best(right))

    def compared_with(self, side: str) -> Ratio | None:
        """Return the ratio of ours to a bound, or else how many times ours is better than the side."""
        if side in (OURS, "no fixture") or self.unit == "×":
            return None
        if side in BOUNDS or self.higher:
            return self.ratio(OURS, side)
        return self.ratio(side, OURS)


class Line(NamedTuple):
    """The medians of one side over sizes, sorted by size."""

    name: str
    side: str
    size: str
    points: Sequence[tuple[float, float]]

    @property
    def slope(self) -> float | None:
        """Return the slope in a log-log plot: 1 where cost is linear, 0 where it is flat.

        None if a figure is 0 or less.
        """
        if any(x <= 0 or y <= 0 for x, y in self.points):
            return None
        logs = [(log(x), log(y)) for x, y in self.points]
        return linear_regression([x for x, _ in logs], [y for _, y in logs]).slope


def lines_of(measures: Iterable[Measure]) -> list[Line]:
    """Return the lines of one chart with at least two sizes, in the order of the measures."""
    found: dict[tuple[str, str, str], dict[float, float]] = {}
    for one in measures:
        if one.size:
            for side, samples in one.sides.items():
                if samples:
                    key = (one.line, side, one.size[0])
                    found.setdefault(key, {})[one.size[1]] = one.median(side)
    return [Line(*key, sorted(points.items())) for key, points in found.items() if len(points) > 1]


def number(value: float) -> str:
    """Format a figure with three significant digits, all of those before the point included."""
    if value == 0:
        return "0"
    digits = max(0, 2 - floor(log10(abs(value))))
    return f"{value:,.{min(digits, 4)}f}"


def slug(text: str) -> str:
    """Return a text as an anchor: ``push 100,000 → 30`` is ``push-100000-to-30``."""
    text = re.sub(r"(?<=\d),(?=\d)", "", text.lower().replace("→", " to ").replace("µ", "u"))
    return re.sub(r"[^a-z0-9]+", "-", text).strip("-")

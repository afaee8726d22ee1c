"""Samples by question, side and size, which are written after each question."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

#: Fewer than so many take less memory than the allocator's next step.
_LEAST_COUNTED: Final = 1_000

__all__ = ["Record", "Samples"]


@dataclass
class Samples:
    """One question. ``per``: what a size counts. ``sides``: side -> size -> samples in ``unit``.

    ``gave_up``: side -> size -> what happened at the size at which a side was not measured to the end.
    """

    question: str
    unit: str
    per: str
    sides: dict[str, dict[int, list[float]]] = field(default_factory=dict)
    gave_up: dict[str, dict[int, str]] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return what ``bench/results.json`` has of a question. Sizes are texts, as JSON wants of keys."""
        sizes = [size for of in (self.sides, self.gave_up) for by_size in of.values() for size in by_size]
        return {
            "suite": "scale",
            "question": self.question,
            "unit": self.unit,
            "per": self.per,
            "sizes": sorted(set(sizes)),
            "sides": _by_text(self.sides),
            "gave_up": _by_text(self.gave_up),
        }


class Record:
    """The samples of all questions of a run. ``write`` replaces ``file``, which later runs add to."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.all: dict[str, Samples] = {}
        if file.exists():
            for one in json.loads(file.read_text()):
                self.all[one["question"]] = Samples(
                    one["question"],
                    one["unit"],
                    one["per"],
                    _by_number(one["sides"]),
                    _by_number(one["gave_up"]),
                )

    def add(self, question: str, unit: str, per: str, side: str, size: int, *samples: float) -> None:
        one = self.all.setdefault(question, Samples(question, unit, per))
        one.gave_up.get(side, {}).pop(size, None)
        one.sides.setdefault(side, {}).setdefault(size, []).extend(samples)

    def add_each(
        self, question: str, per: str, side: str, size: int, grown: float, least: int = _LEAST_COUNTED
    ) -> None:
        """Add what one of ``size`` has added to the memory, in bytes, unless there are too few to tell."""
        if size >= least:
            self.add(question, "bytes", per, side, size, grown / size)

    def give_up(self, questions: Iterable[str], side: str, size: int, why: str) -> None:
        """Note why a side has no samples of this size in those of the questions where it has none."""
        for question in questions:
            one = self.all[question]
            if size not in one.sides.get(side, {}):
                one.gave_up.setdefault(side, {})[size] = why

    def write(self) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        fresh = self._file.with_suffix(".tmp")
        fresh.write_text(json.dumps([one.as_json() for one in self.all.values()], indent=1) + "\n")
        fresh.rename(self._file)


def _by_text(sides: Mapping[str, Mapping[int, Any]]) -> dict[str, dict[str, Any]]:
    return {side: {str(size): sizes[size] for size in sorted(sizes)} for side, sizes in sides.items()}


def _by_number(sides: dict[str, dict[str, Any]]) -> dict[str, dict[int, Any]]:
    return {side: {int(size): each for size, each in sizes.items()} for side, sizes in sides.items()}

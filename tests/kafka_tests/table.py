"""Prints what came out: a table of the classes, and the list as it would be after the run."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from tests.kafka_tests.expectations import ClassExpectation, Expectations, Outcome
from tests.kafka_tests.runs import ClassRun

__all__ = ["proposal", "table"]

_HEADER: Final = ["class", "run", "passed", "failed", "cannot", "again", "seconds"]


def table(runs: Sequence[ClassRun], expectations: Expectations) -> str:
    """Return a line for each class: methods run, passed, failed, cannot run, passed when repeated."""
    rows = [(run.name, _figures(run, expectations.classes.get(run.name, ClassExpectation()))) for run in runs]
    total = [sum(column) for column in zip(*(figures for _, figures in rows), strict=True)]
    lines = [_HEADER, *([name, *map(str, figures)] for name, figures in [*rows, ("all", total)])]
    width = max(len(line[0]) for line in lines)
    return "\n".join(
        " ".join([line[0].ljust(width), *(cell.rjust(8) for cell in line[1:])]) for line in lines
    )


def _figures(run: ClassRun, expected: ClassExpectation) -> list[int]:
    count = Counter(run.outcomes.values())
    cannot = count[Outcome.CANNOT] + len(expected.cannot.keys() - run.outcomes.keys())
    passed, failed = count[Outcome.PASSED], count[Outcome.FAILED]
    return [passed + failed, passed, failed, cannot, run.repeated, round(run.seconds)]


def proposal(runs: Iterable[ClassRun], expectations: Expectations) -> str:
    """Return the classes of the runs as TOML. Reasons of the list stay; new ones are what was thrown."""
    lines: list[str] = []
    for run in runs:
        expected = expectations.classes.get(run.name, ClassExpectation())
        lines += _toml(run, expected)
    return "\n".join(lines)


def _toml(run: ClassRun, expected: ClassExpectation) -> Iterator[str]:
    def named(*outcomes: Outcome) -> list[str]:
        return sorted(name for name, outcome in run.outcomes.items() if outcome in outcomes)

    def reason(name: str) -> str:
        return expected.cannot.get(name) or expected.fails.get(name) or run.reasons.get(name, "")

    yield f'["{run.name}"]'
    if passed := named(Outcome.PASSED):
        yield "runs = ["
        yield from (f'    "{name}",' for name in passed)
        yield "]"
    cannot = sorted({*named(Outcome.CANNOT), *(expected.cannot.keys() - run.outcomes.keys())})
    for key, names in (("cannot", cannot), ("fails", named(Outcome.FAILED, Outcome.ABORTED))):
        if names:
            yield f'["{run.name}".{key}]'
            yield from (f"{_key(name)} = {json.dumps(reason(name))}" for name in names)
    yield ""


def _key(name: str) -> str:
    return name if name.isidentifier() else json.dumps(name)

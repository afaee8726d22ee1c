"""Makes the tables of ``bench/RESULTS.md``: the answer to each question, and what falls short."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from bench.measures.answers import answers, shortfalls
from bench.measures.measure import number
from bench.measures.suites import Result, suite_of

__all__ = ["with_tables"]

#: The page, from the document's folder.
_PAGE = "../docs/benchmarks.html"


def with_tables(document: str, results: Sequence[Result]) -> str:
    """Return the document with its tables made of the results.

    A table is between ``<!-- NAME -->`` and ``<!-- end of NAME -->``. Raises ValueError if the document
    has no place for one.
    """
    for name, table in (("answers", _answers(results)), ("shortfalls", _shortfalls(results))):
        begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        place = re.compile(f"{re.escape(begin)}.*{re.escape(end)}", re.DOTALL)
        block = f"{begin}\n{table}{end}"
        document, found = place.subn(lambda _, block=block: block, document)  # type: ignore[misc]
        if not found:
            raise ValueError(f"the document has no place for the table {name!r}")
    return document


def _answers(results: Sequence[Result]) -> str:
    rows = []
    for one in answers(results):
        met = [check.met for check in one.goal_checks]
        goal = "" if not met else "met" if all(met) else f"{sum(met)} of {len(met)} met"
        run = suite_of(one.suite).runs_with or one.suite
        rows.append((f"[{one.question}]({_PAGE}#{one.id})", one.answer, goal, f"`{run}`"))
    return _markdown(("question", "ours, and ratios", "goals", "suite"), rows)


def _shortfalls(results: Sequence[Result]) -> str:
    rows = []
    for one in shortfalls(results):
        reached = [
            f"{goal}: {' to '.join(dict.fromkeys(map(number, figures)))}"
            for goal, figures in one.reached.items()
        ]
        first, *others = one.measures
        what = f"{one.suite}, {len(one.measures)} figures" if others else f"{one.suite}: {first.what}"
        rows.append((f"[{what}]({_PAGE}#{first.id})", "; ".join(reached), one.cause))
    return _markdown(("missed by", "goal: reached", "cause"), rows)


def _markdown(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)

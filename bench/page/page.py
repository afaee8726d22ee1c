"""Makes the page's HTML from the raw results. Jinja escapes all texts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from bench.measures.answers import answers, shortfalls
from bench.measures.goals import GoalCheck, goal_checks
from bench.measures.measure import Line, Measure, Ratio, label, lines_of, number
from bench.measures.suites import SUITES, Result, Suite, measures_of, suite_of
from bench.page.charts import DARK, dots, lines, ordered, script

__all__ = ["page_of"]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One side of a measure; ``ratio``: with ours, None for ours itself."""

    side: str
    median: str
    best: str
    samples: int
    ratio: Ratio | None


@dataclass(frozen=True, kw_only=True)
class Block:
    """One measure in a table."""

    id: str
    what: str
    rows: Sequence[Row]
    goal_checks: Sequence[GoalCheck]
    gave_up: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A chart, or two of the same measures, and the table of their figures. ``ids``: of the charts."""

    title: str
    unit: str
    ids: Sequence[str]
    blocks: Sequence[Block]
    lines: Sequence[Line]

    @property
    def goals(self) -> int:
        return sum(len(block.goal_checks) for block in self.blocks)

    @property
    def met(self) -> int:
        return sum(check.met for block in self.blocks for check in block.goal_checks)


@dataclass(frozen=True, kw_only=True)
class Section:
    """A suite on the page; ``trials``: what clients tried, with yes or no of each side."""

    name: str
    suite: Suite
    result: Result
    charts: Sequence[Chart]
    sides: Sequence[str]
    trials: Sequence[tuple[str, Sequence[str]]]


def page_of(results: Sequence[Result]) -> str:
    """Return the page as HTML: a section for each suite, with all its measures."""
    environment = Environment(
        loader=PackageLoader("bench.page", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": number, "label": label}
    order = {name: at for at, name in enumerate(SUITES)}
    plots: dict[str, Any] = {}
    sections = [
        _section(result, plots)
        for result in sorted(results, key=lambda result: order.get(result["name"], len(order)))
    ]
    charts = [chart for section in sections for chart in section.charts]
    return environment.get_template("page.html").render(
        sections=sections,
        answers=answers(results),
        shortfalls=shortfalls(results),
        met=sum(chart.met for chart in charts),
        goals=sum(chart.goals for chart in charts),
        bokeh=Markup(script()),
        plots=_json(plots),
        dark=_json(DARK),
        raw=_json(results),
    )


def _json(value: Any) -> Markup:
    """Return JSON that may be inside of a script element."""
    return Markup(json.dumps(value, separators=(",", ":")).replace("</", "<\\/"))


def _section(result: Result, plots: dict[str, Any]) -> Section:
    name = result["name"]
    by_chart: dict[tuple[str, str], list[Measure]] = {}
    for one in measures_of(result):
        by_chart.setdefault((one.chart or _title(one.unit), one.unit), []).append(one)
    charts = []
    for number_of_chart, ((title, unit), measures) in enumerate(by_chart.items(), 1):
        found = lines_of(measures)
        drawn = {}
        sizes = {(line.name, size) for line in found for size, _ in line.points}
        measured = any(any(one.sides.values()) for one in measures)
        if measured and any(one.size is None or (one.line, one.size[1]) not in sizes for one in measures):
            drawn[f"chart-{name}-{number_of_chart}"] = dots(measures)
        if found:
            drawn[f"chart-{name}-{number_of_chart}-slopes"] = lines(found, unit)
        plots |= drawn
        blocks = [_block(one) for one in measures]
        charts.append(Chart(title=title, unit=unit, ids=list(drawn), blocks=blocks, lines=found))
    sides, trials = _trials(result)
    return Section(name=name, suite=suite_of(name), result=result, charts=charts, sides=sides, trials=trials)


def _title(unit: str) -> str:
    """Return the title of a chart of measures that have only their unit in common."""
    if unit in ("s", "ms", "µs", "ns"):
        return f"Time, {unit}"
    if unit in ("bytes", "KiB", "MiB", "MB"):
        return f"Size, {unit}"
    return "Ratios" if unit == "×" else f"{unit[0].upper()}{unit[1:]}"


def _block(one: Measure) -> Block:
    return Block(
        id=one.id,
        what=one.what,
        goal_checks=goal_checks(one),
        gave_up=one.gave_up,
        rows=[
            Row(
                side=side,
                median=number(one.median(side)),
                best=number(one.best(side)),
                samples=len(one.sides[side]),
                ratio=one.compared_with(side),
            )
            for side in ordered(one.sides)
            if one.sides[side]
        ],
    )


def _trials(result: Result) -> tuple[list[str], list[tuple[str, list[str]]]]:
    """Return the sides, and of each trial whether it went well with each side."""
    reasons: Mapping[str, Mapping[str, str | None]] = next(
        (one["reasons"] for one in result["benchmarks"] if "reasons" in one), {}
    )
    words = {True: "yes", False: "no"}
    trials = dict.fromkeys(trial for tried in reasons.values() for trial in tried)
    return list(reasons), [
        (trial, [words[tried[trial] is None] if trial in tried else "" for tried in reasons.values()])
        for trial in trials
    ]

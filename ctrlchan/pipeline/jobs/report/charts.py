"""Draws the charts of the page with Bokeh, whose script is part of the page.

Colours are readable on light and dark backgrounds and for red-green colour blindness.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from statistics import median
from typing import Any, Final

from bokeh.embed import components
from bokeh.models import ColumnDataSource, CrosshairTool, HoverTool, LogAxis, NumeralTickFormatter
from bokeh.plotting import figure
from bokeh.resources import Resources

__all__ = ["Charts", "charts_of", "script"]

Row = Mapping[str, Any]

_GREY: Final = "#7d8590"
_GRID: Final = "rgba(125, 133, 144, 0.25)"
_P50: Final = "#56b4e9"
_P95: Final = "#0072b2"
_P99: Final = "#e69f00"
_FAILED: Final = "#d55e00"
#: Colours of single brokers.
_LINES: Final = ("#d55e00", "#e69f00", "#cc79a7", "#009e73", "#0072b2")
_MILLISECOND: Final = timedelta(milliseconds=1)
#: How many of the slowest brokers the chart of brokers shows.
_BARS: Final = 20

#: Chart name -> (script, div).
Charts = dict[str, tuple[str, str]]


def script() -> str:
    """Return the text of Bokeh's script."""
    return str(Resources(mode="inline", components=["bokeh"]).js_raw[0])


def charts_of(
    figures: Sequence[Row],
    series: Sequence[Row],
    bucket: int,
    *,
    stale: Sequence[int] = (),
    waiting: Sequence[Row] = (),
) -> Charts:
    """Return the charts; none without rows.

    ``series``: sorted by time; ``bucket``: in seconds. ``stale``: brokers to show over time, besides the
    slowest; ``waiting``: requests that have not ended.
    """
    charts: Charts = {}
    if figures:
        charts["brokers"] = components(_bars(figures))
    if len({row["at"] for row in series}) > 1:
        chosen = list(dict.fromkeys([*stale[: len(_LINES) - 1], *_slowest(figures, len(_LINES))]))
        charts["times"] = components(_times(series, waiting, chosen[: len(_LINES)]))
        charts["requests"] = components(_requests(series, bucket))
    return charts


def _slowest(figures: Sequence[Row], count: int) -> list[int]:
    """Return the brokers with the highest p95 of any API."""
    longest: dict[int, float] = {}
    for row in figures:
        longest[row["broker"]] = max(longest.get(row["broker"], 0.0), row["total_p95_ms"] or 0.0)
    return sorted(longest, key=lambda broker: (-longest[broker], broker))[:count]


def _bars(figures: Sequence[Row]) -> Any:
    """Draw p50, p95 and p99 of the slowest brokers, each by its slowest API, on a logarithmic axis."""
    chosen = _slowest(figures, _BARS)
    rows = []
    for broker in chosen:
        of_broker = [row for row in figures if row["broker"] == broker]
        rows.append(max(of_broker, key=lambda row: row["total_p95_ms"] or 0.0))
    names = [f"{row['broker']}" for row in rows]
    shares = ("p50", "p95", "p99")
    times = {share: [row[f"total_{share}_ms"] for row in rows] for share in shares}
    low = min((value for values in times.values() for value in values if value), default=0.1) / 2
    source = ColumnDataSource(
        {
            "broker": names,
            "api": [row["api_name"] for row in rows],
            **times,
            **{
                f"{part}_p95": [row[f"{part}_p95_ms"] for row in rows] for part in ("queue", "send", "remote")
            },
        }
    )
    plot = _figure(
        y_range=names[::-1], x_axis_type="log", height=80 + 26 * len(rows), x_axis_label="milliseconds"
    )
    plot.segment("p50", "broker", "p99", "broker", source=source, color=_GREY, line_width=3, line_alpha=0.5)
    marks = [("p50", _P50, "circle"), ("p95", _P95, "diamond"), ("p99", _P99, "square")]
    for share, colour, marker in marks:
        plot.scatter(share, "broker", source=source, color=colour, marker=marker, size=11, legend_label=share)
    plot.x_range.start = low
    tooltips = [("broker", "@broker, @api"), *((share, f"@{share}{{0.00}} ms") for share in shares)]
    tooltips += [(f"p95 {part}", f"@{part}_p95{{0.00}} ms") for part in ("queue", "send", "remote")]
    plot.add_tools(HoverTool(tooltips=tooltips))
    plot.yaxis.axis_label = "broker"
    _legend(plot)
    return plot


def _times(series: Sequence[Row], waiting: Sequence[Row], chosen: Sequence[int]) -> Any:
    """Draw the longest request of each bucket: a line for each chosen broker, the median of the others.

    A request that waits has no bucket: it is a ring at the time when it was queued, as high as it has waited.
    """
    plot = _figure(
        x_axis_type="datetime", y_axis_type="log", height=280, y_axis_label="longest, milliseconds"
    )
    by_broker: dict[int, tuple[list[datetime], list[float]]] = {}
    others: dict[datetime, list[float]] = {}
    for row in series:
        if row["broker"] in chosen:
            times, values = by_broker.setdefault(row["broker"], ([], []))
            times.append(_local(row["at"]))
            values.append(row["longest_ms"])
        else:
            others.setdefault(_local(row["at"]), []).append(row["longest_ms"])
    if others:
        source = _points(list(others), [median(values) for values in others.values()], "median of the others")
        _line(plot, source, _GREY, "median of the others")
    for broker, colour in zip(chosen, _LINES, strict=False):
        name = f"broker {broker}"
        times, values = by_broker.get(broker, ([], []))
        _line(plot, _points(times, values, name), colour, name)
        ages = {
            _local(row["enqueue_at"]): (row["seen_at"] - row["enqueue_at"]) / _MILLISECOND
            for row in waiting
            if row["broker"] == broker and row["seen_at"] > row["enqueue_at"]
        }
        if ages:
            source = _points(list(ages), list(ages.values()), f"{name}, waits")
            plot.scatter("at", "ms", source=source, line_color=colour, fill_color=None, size=9)
    _tooltips(plot, ("", "@who"), ("at", "@at{%F %T}"), ("longest", "@ms{0.00} ms"))
    _legend(plot)
    return plot


def _requests(series: Sequence[Row], bucket: int) -> Any:
    """Draw requests and failures of all brokers in each bucket."""
    totals: dict[datetime, list[int]] = {}
    for row in series:
        total = totals.setdefault(_local(row["at"]), [0, 0])
        total[0] += row["requests"]
        total[1] += row["failed"]
    source = ColumnDataSource(
        {
            "at": list(totals),
            "answered": [requests - failed for requests, failed in totals.values()],
            "failed": [failed for _, failed in totals.values()],
        }
    )
    plot = _figure(x_axis_type="datetime", height=220, y_axis_label="requests")
    plot.vbar_stack(
        ["answered", "failed"],
        x="at",
        width=bucket * 1_000 * 0.9,
        source=source,
        color=[_P50, _FAILED],
        legend_label=["acknowledged", "not acknowledged"],
    )
    plot.y_range.start = 0
    plot.yaxis.formatter = NumeralTickFormatter(format="0,0")
    _tooltips(plot, ("at", "@at{%F %T}"), ("acknowledged", "@answered{0,0}"), ("not", "@failed{0,0}"))
    _legend(plot)
    return plot


def _points(times: list[datetime], values: list[float], who: str) -> ColumnDataSource:
    return ColumnDataSource({"at": times, "ms": values, "who": [who] * len(times)})


def _line(plot: Any, source: ColumnDataSource, colour: str, name: str) -> None:
    plot.line("at", "ms", source=source, color=colour, line_width=2, legend_label=name)
    # A line of a single point is invisible.
    plot.scatter("at", "ms", source=source, color=colour, size=4, legend_label=name)


def _tooltips(plot: Any, *tooltips: tuple[str, str]) -> None:
    plot.add_tools(HoverTool(tooltips=list(tooltips), formatters={"@at": "datetime"}))


def _local(at: datetime) -> datetime:
    # Bokeh converts times with a zone.
    return at.replace(tzinfo=None)


def _figure(**settings: Any) -> Any:
    plot = figure(
        sizing_mode="stretch_width",
        toolbar_location=None,
        tools="",
        background_fill_color=None,
        border_fill_color=None,
        outline_line_color=None,
        **settings,
    )
    plot.add_tools(CrosshairTool(line_color=_GREY, line_alpha=0.4))
    for axis in (plot.xaxis, plot.yaxis):
        axis.axis_label_text_color = axis.major_label_text_color = _GREY
        axis.axis_line_color = axis.major_tick_line_color = axis.minor_tick_line_color = _GREY
        axis.axis_label_text_font_style = "normal"
    plot.grid.grid_line_color = _GRID
    for logarithmic in plot.select(LogAxis):
        logarithmic.update(formatter=NumeralTickFormatter(format="0,0.[000]"))
    return plot


def _legend(plot: Any) -> None:
    legend = plot.legend[0]
    plot.add_layout(legend, "above")
    legend.orientation = "horizontal"
    legend.background_fill_color = legend.border_line_color = None
    legend.label_text_color = _GREY
    legend.padding = legend.margin = 0

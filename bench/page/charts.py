"""Draws the charts of the page with Bokeh, as the report of the pipeline does.

Colours are those of a light page; the page's script replaces them where it is dark. All text is inside of the
plot, so that a phone's whole width is left to the figures.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil, floor, log, log10
from textwrap import wrap
from typing import Any, Final

from bokeh.embed import json_item
from bokeh.models import ColumnDataSource, FixedTicker, HoverTool, NumeralTickFormatter, Range1d
from bokeh.plotting import figure
from bokeh.resources import Resources

from bench.alternate import OURS
from bench.measures.measure import BOUNDS, Line, Measure, label, number

__all__ = ["DARK", "dots", "lines", "script"]

_TEXT: Final = "#59636e"
_STRONG: Final = "#1f2328"
_GRID: Final = "#d8dee4"
_OURS: Final = "#1f6fd6"
_OUR_OTHERS: Final = ("#56b4e9", "#0b8a8f", "#7c6fd6")
_BOUND: Final = "#7d8590"
_PEERS: Final = ("#d9822b", "#b5478f", "#2c9a5b", "#9a7d0a")
#: Colour on a light page -> colour on a dark one.
DARK: Final = {_TEXT: "#9198a1", _STRONG: "#e6edf3", _GRID: "#30363d", _OURS: "#58a6ff"}
#: Pixels of a line of text in a chart, and its letters on a phone.
_SLOT: Final = 18
_LETTERS: Final = 48
#: Letters that a phone shows beside each other in the width of a plot.
_LETTERS_OF_A_PLOT: Final = 46
#: A logarithmic axis where the largest figure is so many times the smallest.
_LOGARITHMIC: Final = 5.0


def script() -> str:
    """Return the text of Bokeh's script."""
    return str(Resources(mode="inline", components=["bokeh"]).js_raw[0])


def colours(sides: Iterable[str]) -> dict[str, str]:
    """Return a colour for each side: one for ours, grey for bounds, others for peers."""
    variants, peers = iter(_OUR_OTHERS * 9), iter(_PEERS * 9)
    found = {}
    for side in sides:
        if side == OURS:
            found[side] = _OURS
        elif side in BOUNDS:
            found[side] = _BOUND
        else:
            ours = side.startswith(OURS) or side == "per-broker"
            found[side] = next(variants if ours else peers)
    return found


def ordered(sides: Iterable[str]) -> list[str]:
    """Return the sides, ours first, then its variants, bounds, and peers."""
    return sorted(
        dict.fromkeys(sides),
        key=lambda side: (side != OURS, not side.startswith(OURS), side not in BOUNDS),
    )


def dots(measures: Sequence[Measure]) -> dict[str, Any]:
    """Return a chart of a dot for each side's median, with a bar from the lowest to the highest sample."""
    figures = [figure for one in measures for values in one.sides.values() for figure in values]
    low, high = min(figures), max(figures)
    logarithmic = low > 0 and high / low >= _LOGARITHMIC
    if logarithmic:
        low, high = low / 1.5, high * 1.5
    else:
        low, high = min(low, 0), (high or 1) * 1.1
    colour = colours(ordered(side for one in measures for side in one.sides))
    rows: dict[str, list[Any]] = {
        name: []
        for name in ("y", "median", "low", "high", "colour", "side", "n", "text", "x", "align", "off")
    }
    titles: list[tuple[int, str]] = []
    alone: list[tuple[int, str]] = []
    slot = 0
    for one in measures:
        for part in wrap(one.what, _LETTERS):
            titles.append((slot, part))
            slot -= 1
        for side in ordered(one.sides):
            values = one.sides[side]
            if not values:
                continue
            middle, least, most = one.median(side), min(values), max(values)
            place = log(most / low) / log(high / low) if logarithmic else (most - low) / (high - low)
            ratio = one.compared_with(side)
            times = f" ({number(ratio.of_medians)} ×)" if ratio and side not in BOUNDS else ""
            cells = (slot, middle, least, most, colour[side], label(side), len(values))
            text = f"{label(side)}: {number(middle)} {one.unit.rpartition(', ')[2]}{times}"
            start = log(least / low) / log(high / low) if logarithmic else (least - low) / (high - low)
            beside = (most, "left", 9) if 1 - place > start else (least, "right", -9)
            if len(text) > max(1 - place, start) * _LETTERS_OF_A_PLOT:
                # No room beside the mark: a line of its own above it.
                alone.append((slot, text))
                slot -= 1
                cells, text = (slot, *cells[1:]), ""
            for name, cell in zip(rows, (*cells, text, *beside), strict=True):
                rows[name].append(cell)
            slot -= 1
    plot = _figure(
        x_axis_type="log" if logarithmic else "linear",
        x_range=Range1d(start=low, end=high),
        y_range=Range1d(start=slot + 0.3, end=0.8),
        height=_SLOT * (1 - slot) + 46,
        x_axis_label=measures[0].unit,
    )
    if logarithmic:
        plot.xaxis.ticker = _ticks(low, high)
    plot.yaxis.visible = False
    plot.ygrid.visible = False
    source = ColumnDataSource(rows)
    plot.segment("low", "y", "high", "y", source=source, color="colour", line_width=3, line_alpha=0.4)
    plot.scatter("median", "y", source=source, color="colour", size=9)
    words = {"text_baseline": "middle", "text_font_size": "12px", "text_color": _TEXT}
    plot.text("x", "y", "text", source=source, text_align="align", x_offset="off", **words)
    for those, looks in (
        (titles, {"text_color": _STRONG, "text_font_style": "bold", "x_offset": 4}),
        (alone, {"x_offset": 14}),
    ):
        places, texts = [at for at, _ in those], [text for _, text in those]
        plot.text([low] * len(those), places, texts, **words | looks)
    plot.add_tools(
        HoverTool(
            tooltips=[("", "@side"), ("median", "@median{0,0.[000]}"), ("lowest", "@low{0,0.[000]}"),
                      ("highest", "@high{0,0.[000]}"), ("samples", "@n")],
        )
    )  # fmt: skip
    return _item(plot)


def lines(found: Sequence[Line], unit: str) -> dict[str, Any]:
    """Return a log-log chart of medians over a size; the legend has each line's slope."""
    colour = colours(ordered(one.side for one in found))
    names = list(dict.fromkeys(one.name for one in found))
    dashes = dict(zip(names, ("solid", "dashed", "dotted", "dotdash", "dashdot") * 9, strict=False))
    plot = _figure(
        x_axis_type="log",
        y_axis_type="log",
        height=260 + 20 * len(found),
        x_axis_label=found[0].size,
        y_axis_label=unit,
    )
    figures = [figure for one in found for _, figure in one.points]
    if min(figures) > 0:
        low, high = min(figures) / 1.3, max(figures) * 1.3
        plot.y_range = Range1d(start=low, end=high)
        plot.yaxis.ticker = _ticks(low, high)
    plot.xaxis.ticker = FixedTicker(ticks=sorted({size for one in found for size, _ in one.points}))
    for one in found:
        slope = one.slope
        name = f"{label(one.side)}, {one.name.rpartition(', ')[2]}" if len(names) > 1 else label(one.side)
        legend = name if slope is None else f"{name}: slope {slope:.2f}"
        sizes, medians = zip(*one.points, strict=True)
        source = ColumnDataSource({"x": sizes, "y": medians, "name": [name] * len(sizes)})
        plot.line(
            "x", "y", source=source, color=colour[one.side], line_width=2, line_dash=dashes[one.name],
            legend_label=legend,
        )  # fmt: skip
        plot.scatter("x", "y", source=source, color=colour[one.side], size=8, legend_label=legend)
    plot.add_tools(HoverTool(tooltips=[("", "@name"), (found[0].size, "@x{0,0}"), (unit, "@y{0,0.[000]}")]))
    legend = plot.legend[0]
    plot.add_layout(legend, "above")
    legend.background_fill_color = legend.border_line_color = None
    legend.location = "top_left"
    legend.label_text_color = _TEXT
    legend.label_text_font_size = "12px"
    legend.padding = legend.margin = legend.spacing = 0
    return _item(plot)


def _ticks(low: float, high: float) -> FixedTicker:
    """Return the powers of ten between two figures; their doubles and halves too where these are few."""
    powers = range(floor(log10(low)), ceil(log10(high)) + 1)
    mantissas = (1,) if log10(high / low) > 2 else (1, 2, 5)
    ticks = [mantissa * 10.0**power for power in powers for mantissa in mantissas]
    return FixedTicker(ticks=[tick for tick in ticks if low <= tick <= high])


def _item(plot: Any) -> dict[str, Any]:
    """Return what ``Bokeh.embed.embed_item`` takes."""
    return dict(json_item(plot))


def _figure(**settings: Any) -> Any:
    plot = figure(
        sizing_mode="stretch_width",
        toolbar_location=None,
        tools="",
        background_fill_color=None,
        border_fill_color=None,
        outline_line_color=None,
        min_border_left=12,
        min_border_right=12,
        **settings,
    )
    for axis in (plot.xaxis, plot.yaxis):
        axis.axis_label_text_color = axis.major_label_text_color = _TEXT
        axis.axis_line_color = axis.major_tick_line_color = axis.minor_tick_line_color = _GRID
        axis.axis_label_text_font_style = "normal"
        axis.formatter = NumeralTickFormatter(format="0,0.[000]")
    plot.grid.grid_line_color = _GRID
    return plot

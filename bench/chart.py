"""Draws ``docs/push.svg``, the chart of README, from ``bench/results.json``.

Command: ``python -m bench.chart``. Needs Matplotlib (``pip install -e '.[docs]'``).
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any, Final

import matplotlib
from matplotlib.figure import Figure

_RESULTS: Final = Path(__file__).parent / "results.json"
_CHART: Final = Path(__file__).parent.parent / "docs" / "push.svg"
#: Key in the results, label, colour.
_SIDES: Final = (
    ("blast", "C program, same bytes (the limit)", "#b8bec6"),
    ("ours", "ctrlchan", "#2463c4"),
    ("kafka", "Kafka 3.9.1 controller channel", "#d9822b"),
)


def main() -> None:
    """Write the chart of all push benchmarks that Kafka has run too."""
    [result] = [one for one in json.loads(_RESULTS.read_text()) if one["name"] == "push"]
    compared = [one for one in result["benchmarks"] if "kafka" in one["ms"]]
    figure = push_figure(compared, f"{result['machine']}; {result['date']}; commit {result['commit']}")
    # Text stays text, and without a date and random ids the same results give the same file.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "ctrlchan"}):
        figure.savefig(_CHART, metadata={"Date": None})
    print(f"wrote {_CHART}")


def push_figure(benchmarks: list[dict[str, Any]], source: str) -> Figure:
    """Return a figure of horizontal bars: median milliseconds of a full push, a logarithmic axis.

    ``benchmarks``: entries of the suite ``push``; ``source``: machine and date, for the caption.
    """
    figure = Figure(figsize=(8, 0.75 * len(benchmarks) + 1.4), layout="constrained")
    axes = figure.subplots()
    height = 0.8 / len(_SIDES)
    for number, (side, label, colour) in enumerate(_SIDES):
        places = [place + number * height for place in range(len(benchmarks))]
        times = [median(one["ms"][side]) for one in benchmarks]
        bars = axes.barh(places, times, height * 0.92, label=label, color=colour)
        axes.bar_label(bars, [f"{time:,.0f} ms" for time in times], padding=3, fontsize=8)
    axes.set_xscale("log")
    axes.set_xlim(right=axes.get_xlim()[1] * 1.8)
    axes.set_yticks(
        [place + height for place in range(len(benchmarks))],
        [f"{one['partitions']:,} partitions\n{one['brokers']:,} brokers" for one in benchmarks],
    )
    axes.invert_yaxis()
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title("Time until every broker has acknowledged a full UpdateMetadata", fontsize=11)
    axes.set_xlabel(f"milliseconds, median, logarithmic ({source})", fontsize=8)
    axes.legend(fontsize=8, loc="upper right", frameon=False)
    return figure


if __name__ == "__main__":
    main()

"""Makes the page of a report: one HTML file that loads nothing else.

Jinja escapes all texts of journals and snapshots; charts contain only numbers and API names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ctrlchan.errors import ErrorCode
from ctrlchan.pipeline.jobs.report.charts import charts_of, script
from ctrlchan.pipeline.jobs.report.figures import ACCURACY
from ctrlchan.pipeline.jobs.report.findings import Finding, duration
from ctrlchan.pipeline.words import counted, form

__all__ = ["PageData", "page_of"]

Row = Mapping[str, Any]

#: Rows of a table and findings of one kind that are shown; all are in the Parquet files and ``report.json``.
_MOST_ROWS: Final = 100
_MOST_FINDINGS: Final = 4

_STATUS: Final = {
    "stale": "stale",
    "waiting": "no answer",
    "unanswered": "no answer",
    "slow": "slow",
    "failing": "errors",
    "uncertain": "uncertain",
    "seldom": "few errors",
}


@dataclass(frozen=True, kw_only=True)
class PageData:
    """The rows of the tables as dicts; ``named``: broker -> its first stale partitions."""

    summary: Row
    findings: Sequence[Finding]
    figures: Sequence[Row]
    errors: Sequence[Row]
    series: Sequence[Row]
    channels: Sequence[Row]
    waiting: Sequence[Row]
    brokers: Sequence[Row]
    named: Mapping[int, Sequence[Row]]


def page_of(data: PageData) -> str:
    """Return the page as HTML."""
    environment = Environment(
        loader=PackageLoader("ctrlchan.pipeline.jobs.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "count": _count,
        "counted": counted,
        "form": form,
        "duration": duration,
        "time": _time,
        "size": _size,
        "error": lambda code: ErrorCode.name_of(code) if code else "",
    }
    shown: list[Finding] = []
    for kind in dict.fromkeys(one.kind for one in data.findings):
        shown += [one for one in data.findings if one.kind == kind][:_MOST_FINDINGS]
    # Findings are ordered: the worst brokers come first.
    stale = list(dict.fromkeys(one.broker for one in data.findings if one.kind in ("stale", "waiting")))
    charts = charts_of(data.figures, data.series, data.summary["bucket"], stale=stale, waiting=data.waiting)
    return environment.get_template("page.html").render(
        summary=data.summary,
        findings=shown,
        more_findings=len(data.findings) - len(shown),
        brokers=_first(_by_broker(data)),
        figures=_first(sorted(data.figures, key=lambda row: -(row["total_p95_ms"] or 0.0))),
        errors=_first([row for row in data.errors if row["outcome"] != "acknowledged"]),
        waiting=_first(sorted(data.waiting, key=lambda row: row["enqueue_at"])),
        channels=_first(data.channels),
        named=data.named,
        compared=bool(data.brokers),
        accuracy=ACCURACY,
        bokeh=Markup(script() if charts else ""),
        charts={name: (Markup(code), Markup(div)) for name, (code, div) in charts.items()},
    )


@dataclass(frozen=True, slots=True)
class Table:
    """The rows that are shown, and the number of all rows."""

    rows: Sequence[Any]
    total: int


def _first(rows: Sequence[Any]) -> Table:
    return Table(rows[:_MOST_ROWS], len(rows))


def _by_broker(data: PageData) -> list[dict[str, Any]]:
    """Return one row for each broker with its status and totals, ordered by status."""
    status: dict[int, str] = {}
    for finding in data.findings:
        status.setdefault(finding.broker, finding.kind)
    totals: dict[int, dict[str, Any]] = {}
    for row in data.figures:
        total = totals.setdefault(
            row["broker"],
            {"requests": 0, "failed": 0, "bytes": 0, "p95": 0.0, "p99": 0.0, "last_at": row["last_at"]},
        )
        for name in ("requests", "failed", "bytes"):
            total[name] += row[name]
        for share in ("p95", "p99"):
            total[share] = max(total[share], row[f"total_{share}_ms"] or 0.0)
        total["last_at"] = max(total["last_at"], row["last_at"])
    known = {row["broker"]: row for row in data.brokers}
    order = {kind: at for at, kind in enumerate(_STATUS)}
    ids = sorted(
        {*totals, *known}, key=lambda broker: (order.get(status.get(broker, ""), len(order)), broker)
    )
    return [
        {
            "broker": broker,
            "kind": status.get(broker, "fine"),
            "status": _STATUS.get(status.get(broker, ""), "fine"),
            "known": known.get(broker),
            **(totals.get(broker) or {"requests": 0, "failed": 0, "bytes": 0, "p95": None, "p99": None}),
        }
        for broker in ids
    ]


def _count(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def _time(value: datetime | str | None) -> str:
    if value is None:
        return "–"
    time = datetime.fromisoformat(value) if isinstance(value, str) else value
    return Markup('<time datetime="{}">{}</time>').format(time.isoformat(), f"{time:%Y-%m-%d %H:%M:%S}")


def _size(value: int) -> str:
    size = float(value)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1_000:
            return f"{size:.3g} {unit}"
        size /= 1_000
    return f"{size:.3g} TB"

"""The status of a controller as one HTML page: no script, no other file, read again by the browser."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, Final, TypeAlias

__all__ = ["REFRESH_SECONDS", "status_page"]

REFRESH_SECONDS: Final = 2
#: Requests that wait for longer than so many seconds are shown in colour.
_SLOW_SECONDS: Final = 5.0
#: Nodes that cannot be read are many when somebody has written all of them.
_LISTED: Final = 100

_CSS: Final = """\
:root { --ground: #ffffff; --raised: #f6f8fa; --text: #1f2328; --soft: #59636e; --line: #d8dee4;
  --bad: #b3261e; --warn: #8a5a00; --fine: #1a7f4b; }
@media (prefers-color-scheme: dark) {
  :root { --ground: #0d1117; --raised: #161b22; --text: #e6edf3; --soft: #9198a1; --line: #30363d;
    --bad: #ff8a80; --warn: #f0c060; --fine: #56d192; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--text);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 24px 24px 64px; }
h1 { font-size: 27px; line-height: 1.2; margin: 0 0 6px; }
h2 { font-size: 18px; margin: 32px 0 6px; }
p { margin: 4px 0; }
.soft { color: var(--soft); } .bad { color: var(--bad); } .warn { color: var(--warn); }
.fine { color: var(--fine); }
.figures { display: flex; flex-wrap: wrap; gap: 8px; margin: 18px 0 0; }
.figure { border: 1px solid var(--line); border-radius: 8px; padding: 8px 14px; min-width: 122px; }
.figure b { display: block; font-size: 22px; line-height: 1.2; font-variant-numeric: tabular-nums; }
.figure > span { color: var(--soft); font-size: 13px; }
.scroll { overflow-x: auto; border: 1px solid var(--line); border-radius: 8px; }
table { border-collapse: collapse; width: 100%; font-size: 14px; font-variant-numeric: tabular-nums; }
th { text-align: left; font-weight: 600; color: var(--soft); background: var(--raised); white-space: nowrap; }
th, td { padding: 5px 10px; border-bottom: 1px solid var(--line); vertical-align: top; }
tr:last-child td { border-bottom: 0; }
th.n, td.n { text-align: right; white-space: nowrap; }
td { overflow-wrap: anywhere; }
footer { margin-top: 36px; color: var(--soft); font-size: 13px; }
a { color: inherit; }
"""

#: (CSS class, text) of a cell, or the text alone.
_Cell: TypeAlias = "str | int | tuple[str, str | int]"

#: Figures on top: label, key, CSS class where the number is not 0.
_FIGURES: Final = (
    ("brokers", "active_brokers", ""),
    ("topics", "topics", ""),
    ("partitions", "partitions", ""),
    ("offline", "offline_partitions", "bad"),
    ("not preferred leader", "preferred_replica_imbalance", "warn"),
    ("reassigning", "reassigning_partitions", ""),
    ("topics to delete", "topics_to_delete", ""),
)


def status_page(status: Mapping[str, Any]) -> str:
    """Return the page for a status of ``ControllerStatus.describe``, with ``recent``: lines and their times.

    Every text of the status is escaped.
    """
    title = f"Controller {status['controller_id']}"
    figures = status["figures"]
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="refresh" content="{REFRESH_SECONDS}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        f"<title>{escape(title)}: {_state(status)}</title>",
        f"<style>{_CSS}</style></head><body><main>",
        f"<h1>{escape(title)} {_span(_state_class(status), _state(status))}</h1>",
        *(f"<p class=soft>{escape(line)}</p>" for line in _head(status)),
    ]
    if status.get("refusal"):
        parts.append(f"<p class=bad>This controller may not be elected: {escape(status['refusal'])}</p>")
    if status["busy"]:
        age = time.time() - status["at"]
        parts.append(f"<p class=warn>The event loop is busy: the cluster as it was {age:.0f} s ago.</p>")
    if status["active"]:
        parts.append('<div class="figures">')
        for label, key, level in _FIGURES:
            number = _span(level if figures[key] else "", f"{figures[key]:,}")
            parts.append(f'<div class="figure"><b>{number}</b><span>{label}</span></div>')
        parts.append("</div>")
        parts += _brokers(status["brokers"])
        parts += _partitions("Offline partitions", status["offline"], figures["offline_partitions"])
        parts += _partitions("Reassignments", status["reassignments"], figures["reassigning_partitions"])
        parts += _deletions(status["deletions"], figures["topics_to_delete"])
        parts += _malformed(status.get("malformed", {}))
    parts += _recent(status.get("recent", []))
    parts.append('<footer><a href="status.json">status.json</a> · <a href="metrics">metrics</a></footer>')
    parts.append("</main></body></html>\n")
    return "\n".join(parts)


def _state(status: Mapping[str, Any]) -> str:
    return "active" if status["active"] else "not the controller"


def _state_class(status: Mapping[str, Any]) -> str:
    return "fine" if status["active"] else "soft"


def _head(status: Mapping[str, Any]) -> list[str]:
    lines = []
    if status["active"]:
        since = "" if status["active_since"] is None else f" since {_at(status['active_since'])}"
        lines.append(
            f"Controller epoch {status['epoch']}{since} · cluster {status['cluster_id'] or 'unknown'}"
        )
    elif status["active_controller_id"] is not None:
        lines.append(f"The controller is {status['active_controller_id']}")
    zookeeper = status["zookeeper"]
    answered = f"answered {zookeeper['silent_for']:.1f} s ago" if zookeeper["connected"] else "not connected"
    lines.append(f"ZooKeeper {zookeeper['servers']}: {answered}")
    answers = ", ".join(status["endpoints"]) or "no listener"
    lines.append(f"{answers} · inter-broker protocol {status['inter_broker_protocol']}")
    events = status["events"]
    lines.append(f"Event loop: {events['state']}, {events['waiting']:,} events wait")
    return lines


def _brokers(brokers: Sequence[Mapping[str, Any]]) -> list[str]:
    rows: list[list[_Cell]] = []
    for broker in brokers:
        connection = str(broker["connection"])
        if broker["shutting_down"]:
            connection += ", shutting down"
        age = float(broker["oldest_age"])
        failing = broker["attempts"] or broker["connection"] == "left out"
        rows.append(
            [
                broker["id"],
                ", ".join(broker["endpoints"]),
                broker["rack"] or "",
                ("" if connection in ("connected", "idle") else "warn", connection),
                ("n", f"{broker['leads']:,}"),
                ("n", f"{broker['replicas']:,}"),
                ("n warn" if broker["out_of_sync"] else "n", f"{broker['out_of_sync']:,}"),
                ("n", f"{broker['waiting']:,}"),
                ("n warn" if age > _SLOW_SECONDS else "n", f"{age:.1f} s" if broker["waiting"] else ""),
                ("bad", broker["last_error"] if failing else ""),
            ]
        )
    headings = ("Broker", "Address", "Rack", "Connection", "Leads", "Replicas", "Not in sync")
    return _table("Brokers", (*headings, "Requests", "Oldest", "Error"), rows, len(rows), numbers=range(4, 9))


def _partitions(title: str, partitions: Sequence[Mapping[str, Any]], total: int) -> list[str]:
    rows: list[list[_Cell]] = [
        [
            f"{one['topic']}-{one['partition']}",
            *(_ids(one[key]) for key in ("replicas", "adding", "removing", "isr")),
            "none" if one["leader"] < 0 else one["leader"],
        ]
        for one in partitions
    ]
    headings = ("Partition", "Replicas", "Adding", "Removing", "In sync", "Leader")
    return _table(title, headings, rows, total) if rows else []


def _deletions(deletions: Sequence[Mapping[str, Any]], total: int) -> list[str]:
    rows: list[list[_Cell]] = [
        [
            one["topic"],
            ("warn" if one["state"] == "ineligible" else "", one["state"]),
            f"{one['deleted']:,} of {one['replicas']:,}",
        ]
        for one in deletions
    ]
    return _table("Topics to delete", ("Topic", "State", "Deleted replicas"), rows, total) if rows else []


def _malformed(malformed: Mapping[str, Mapping[str, str]]) -> list[str]:
    rows: list[list[_Cell]] = [
        [path, ("bad", reason)] for paths in malformed.values() for path, reason in paths.items()
    ]
    title = "Nodes in ZooKeeper that cannot be read"
    return _table(title, ("Path", "Reason"), rows[:_LISTED], len(rows)) if rows else []


def _recent(recent: Sequence[Mapping[str, Any]]) -> list[str]:
    rows: list[list[_Cell]] = [[_at(one["at"]), one["text"]] for one in reversed(recent)]
    return _table("Events", ("At (UTC)", "What happened"), rows, len(rows)) if rows else []


def _table(
    title: str,
    headings: Sequence[str],
    rows: Sequence[Iterable[_Cell]],
    total: int,
    *,
    numbers: Iterable[int] = (),
) -> list[str]:
    """Return a headline and a table. ``numbers``: the columns whose headings stand on the right."""
    right = set(numbers)
    parts = [f"<h2>{escape(title)}</h2>"]
    if total > len(rows):
        parts.append(f"<p class=soft>The first {len(rows):,} of {total:,}.</p>")
    cells = "".join(
        f"<th class=n>{escape(one)}</th>" if place in right else f"<th>{escape(one)}</th>"
        for place, one in enumerate(headings)
    )
    parts.append(f'<div class="scroll"><table><tr>{cells}</tr>')
    parts += [f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows]
    parts.append("</table></div>")
    return parts


def _cell(cell: _Cell) -> str:
    level, text = cell if isinstance(cell, tuple) else ("", cell)
    return f'<td class="{level}">{escape(str(text))}</td>' if level else f"<td>{escape(str(text))}</td>"


def _span(level: str, text: str) -> str:
    return f'<span class="{level}">{escape(text)}</span>' if level else escape(text)


def _ids(broker_ids: Sequence[int]) -> str:
    return ", ".join(map(str, broker_ids))


def _at(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seconds))

"""Tables of ``ctrlchan snapshot show``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ctrlchan.text import printable

__all__ = ["print_summary", "print_topic"]

#: Columns of text where the output is no terminal.
_PIPE_WIDTH = 160

_COUNTS = {
    "topics": "topics",
    "partitions": "partitions",
    "replicas": "replicas",
    "offline_partitions": "without a leader",
    "unknown_leadership_partitions": "of unknown leadership",
    "under_replicated_partitions": "under-replicated",
    "reassigning_partitions": "being reassigned",
    "offline_replicas": "offline replicas",
    "topics_queued_for_deletion": "topics queued for deletion",
}


def print_summary(summary: Mapping[str, Any]) -> None:
    """Print counts, a table of the brokers, and violations."""
    console = _console()
    cluster = summary["cluster_id"] or "(no cluster id)"
    _line(
        console,
        f"Cluster {cluster}, controller {summary['controller_id']}, epoch {summary['controller_epoch']}",
    )
    counts = Table(box=None, show_header=False)
    counts.add_column(justify="right")
    counts.add_column()
    for name, words in _COUNTS.items():
        counts.add_row(f"{summary[name]:,}", words)
    console.print(counts)
    console.print(_broker_table(summary["broker_loads"]))
    _print_violations(console, summary["violations"])


def print_topic(topic: Mapping[str, Any]) -> None:
    """Print one row for each partition."""
    console = _console()
    deletion = ", queued for deletion" if topic["queued_for_deletion"] else ""
    _line(console, f"Topic {topic['topic']}, id {topic['topic_id'] or 'unknown'}{deletion}")
    table = Table()
    for title in ("partition", "leader", "epoch", "partition epoch"):
        table.add_column(title, justify="right")
    # Columns that are nearly always empty are left out when they are.
    lists = ["replicas", "isr"] + [
        name for name in ("adding", "removing", "offline") if any(row[name] for row in topic["partitions"])
    ]
    for title in lists:
        table.add_column(title)
    for row in topic["partitions"]:
        known = row["leader_epoch"] >= 0
        leader = "unknown" if not known else "none" if row["leader"] < 0 else str(row["leader"])
        table.add_row(
            str(row["partition"]),
            leader,
            str(row["leader_epoch"]) if known else "-",
            str(row["partition_epoch"]) if known else "-",
            *(",".join(map(str, row[name])) for name in lists),
        )
    console.print(table)


def _broker_table(loads: Sequence[Mapping[str, Any]]) -> Table:
    table = Table()
    for title in ("broker", "leaders", "replicas", "offline", "epoch"):
        table.add_column(title, justify="right")
    for title in ("state", "rack", "endpoints"):
        table.add_column(title, overflow="fold")
    for load in loads:
        status = "dead" if not load["live"] else "shutting down" if load["shutting_down"] else "live"
        table.add_row(
            str(load["id"]),
            f"{load['leaders']:,}",
            f"{load['replicas']:,}",
            f"{load['offline_replicas']:,}",
            "-" if load["epoch"] is None else str(load["epoch"]),
            status,
            _text(load["rack"] or "-"),
            _text(" ".join(load["endpoints"]) or "-"),
        )
    return table


def _print_violations(console: Console, violations: Sequence[Mapping[str, Any]]) -> None:
    if not violations:
        _line(console, "No invariant is violated.")
    for one in violations:
        more = ", ..." if one["partitions"] > len(one["examples"]) else ""
        places = ", ".join(one["examples"]) + more
        _line(
            console, f"violated {one['rule']}: {one['reason']}: {one['partitions']:,} partitions ({places})"
        )


def _line(console: Console, text: str) -> None:
    console.print(_text(text), soft_wrap=True)


def _text(text: str) -> Text:
    """Text of the cluster's owner: no markup, control characters escaped."""
    return Text(printable(text))


def _console() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=_PIPE_WIDTH)

"""The status of a controller as tables on a terminal."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ctrlchan.text import printable

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

__all__ = ["status_view"]

#: Lines of a table; the page and JSON have more.
_SHOWN: Final = 12
_SHOWN_BROKERS: Final = 40


def status_view(status: Mapping[str, Any]) -> Group:
    """Return what ``ControllerStatus.describe`` has, with ``recent``, as tables."""
    from rich.console import Group
    from rich.text import Text

    parts: list[Any] = [Text(printable(line)) for line in _head(status)]
    if status["busy"]:
        parts.append(Text("the event loop is busy: these figures are older", style="yellow"))
    if status.get("refusal"):
        parts.append(Text(printable(f"may not be elected: {status['refusal']}"), style="bold red"))
    if status["active"]:
        parts.append(_figures(status["figures"]))
        parts.append(_brokers(status["brokers"]))
        for title, key in (("offline partitions", "offline"), ("reassignments", "reassignments")):
            if status[key]:
                parts.append(_partitions(title, status[key]))
        if status["deletions"]:
            parts.append(_deletions(status["deletions"]))
    recent = status.get("recent", [])
    if recent:
        parts.append(_recent(recent))
    return Group(*parts)


def _head(status: Mapping[str, Any]) -> list[str]:
    first = f"controller {status['controller_id']}"
    if status["active"]:
        first += f" is active, epoch {status['epoch']}"
        if status["active_since"] is not None:
            first += f", since {_at(status['active_since'])}"
    elif status["active_controller_id"] is not None:
        first += f" is not the controller: that is {status['active_controller_id']}"
    else:
        first += " is not the controller"
    zookeeper = status["zookeeper"]
    answered = f"answered {zookeeper['silent_for']:.1f} s ago" if zookeeper["connected"] else "not connected"
    nodes = "nodes in memory" if zookeeper.get("in_memory") else f"ZooKeeper {zookeeper['servers']}"
    events = status["events"]
    return [
        first,
        f"{nodes}: {answered}; event loop {events['state']}, {events['waiting']:,} events wait",
    ]


def _figures(figures: Mapping[str, int]) -> Any:
    from rich.text import Text

    text = Text()
    for label, key, style in (
        ("brokers", "active_brokers", ""),
        ("topics", "topics", ""),
        ("partitions", "partitions", ""),
        ("offline", "offline_partitions", "bold red"),
        ("not preferred leader", "preferred_replica_imbalance", "yellow"),
        ("reassigning", "reassigning_partitions", ""),
        ("topics to delete", "topics_to_delete", ""),
    ):
        text.append(f"{figures[key]:,} {label}   ", style=style if figures[key] else "")
    return text


def _brokers(brokers: Sequence[Mapping[str, Any]]) -> Table:
    headings = ("broker", "address", "connection", "leads", "replicas", "not in sync", "requests", "oldest")
    table = _table("", (*headings, "error"), numbers=range(3, 8))
    for broker in brokers[:_SHOWN_BROKERS]:
        connection = broker["connection"] + (", shutting down" if broker["shutting_down"] else "")
        failing = broker["attempts"] or broker["connection"] == "left out"
        table.add_row(
            *_texts(
                broker["id"],
                ", ".join(broker["endpoints"]),
                connection,
                f"{broker['leads']:,}",
                f"{broker['replicas']:,}",
                f"{broker['out_of_sync']:,}",
                f"{broker['waiting']:,}",
                f"{broker['oldest_age']:.1f} s" if broker["waiting"] else "",
                broker["last_error"] if failing else "",
            )
        )
    _count_others(table, brokers, _SHOWN_BROKERS)
    return table


def _partitions(title: str, partitions: Sequence[Mapping[str, Any]]) -> Table:
    table = _table(title, ("partition", "replicas", "adding", "removing", "in sync", "leader"))
    for one in partitions[:_SHOWN]:
        lists = (", ".join(map(str, one[key])) for key in ("replicas", "adding", "removing", "isr"))
        leader = "none" if one["leader"] < 0 else one["leader"]
        table.add_row(*_texts(f"{one['topic']}-{one['partition']}", *lists, leader))
    _count_others(table, partitions, _SHOWN)
    return table


def _deletions(deletions: Sequence[Mapping[str, Any]]) -> Table:
    table = _table("topics to delete", ("topic", "state", "deleted replicas"))
    for one in deletions[:_SHOWN]:
        table.add_row(*_texts(one["topic"], one["state"], f"{one['deleted']:,} of {one['replicas']:,}"))
    _count_others(table, deletions, _SHOWN)
    return table


def _recent(recent: Sequence[Mapping[str, Any]]) -> Table:
    table = _table("events", ("at (UTC)", "what happened"))
    for one in recent[-_SHOWN:]:
        table.add_row(*_texts(_at(one["at"]), one["text"]))
    return table


def _table(title: str, headings: Sequence[str], *, numbers: Sequence[int] = ()) -> Table:
    from rich.table import Table

    table = Table(title=title or None, title_justify="left")
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="right" if place in numbers else "left")
    return table


def _count_others(table: Table, listed: Sequence[object], shown: int) -> None:
    if len(listed) > shown:
        table.caption = f"and {len(listed) - shown:,} more"


def _texts(*cells: object) -> list[Any]:
    """Return the cells without markup; control characters are escaped."""
    from rich.text import Text

    return [Text(printable(str(cell))) for cell in cells]


def _at(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seconds))

"""The results of a load: a table for people, JSON for scripts."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer
from rich import box
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from ctrlchan.cli.bench.session import Session
    from ctrlchan.loads.load import Load
    from ctrlchan.loads.result import Result

__all__ = ["show_result"]

_MEGABYTE: Final = 1e6


def show_result(session: Session, load: Load, result: Result, output: str | None, **more: Any) -> None:
    """Print the results, and write them as JSON if the user wants it. ``more``: other facts for the JSON.

    Raises Exit with status 1 when operations have failed and none of their kind succeeded.
    """
    operations = result.describe()
    summary = {**_about(session, load), "measured_seconds": result.seconds, **more, "operations": operations}
    if output == "-":
        json.dump(summary, sys.stdout)
        print()
    else:
        _print_table(operations, more)
        if output is not None:
            Path(output).write_text(json.dumps(summary, indent=1) + "\n")
    failed = [name for name, one in operations.items() if one["errors"] and not one["count"]]
    if failed:
        typer.echo(f"error: no {failed[0]} has succeeded: {operations[failed[0]]['errors']}", err=True)
        raise typer.Exit(1)


def _about(session: Session, load: Load) -> dict[str, Any]:
    """Return what was run where; no settings of clients, among which are passwords."""
    import confluent_kafka

    import ctrlchan

    return {
        "load": load.kind,
        "run": load.run,
        "cluster_id": load.cluster_id,
        "brokers": len(session.target.brokers),
        "embedded": session.embedded is not None,
        "ctrlchan": ctrlchan.__version__,
        "librdkafka": confluent_kafka.libversion()[0],
        **load.describe(),
    }


def _print_table(operations: Mapping[str, Mapping[str, Any]], more: Mapping[str, Any]) -> None:
    """Print a line for each operation, in 80 columns, and the facts below. Latencies are in milliseconds."""
    has_items = any(one["items"] != one["count"] for one in operations.values())
    has_bytes = any(one["bytes_per_second"] for one in operations.values())
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=0)
    table.add_column("operation", no_wrap=True)
    names = ["count", "/s", *["items/s"] * has_items, *["MB/s"] * has_bytes]
    for name in [*names, "mean", "50%", "90%", "99%", "99.9%", "max"]:
        table.add_column(name, justify="right", no_wrap=True)
    for name, one in operations.items():
        latency = one["latency_ms"]
        shown = [latency[key] for key in ("mean", "p50", "p90", "p99", "p99.9", "max")]
        table.add_row(
            name,
            f"{one['count']:,}",
            _short(one["per_second"]),
            *[_short(one["items_per_second"])] * has_items,
            *[_short(one["bytes_per_second"] / _MEGABYTE) if one["bytes_per_second"] else ""] * has_bytes,
            *map(_short, shown),
        )
    Console(width=None if sys.stdout.isatty() else 160, highlight=False).print(table)
    print("mean, percentiles and maximum in milliseconds")
    for name, one in operations.items():
        for error, count in one["errors"].items():
            print(f"{name}: {count:,} failed with {error}")
    for fact, value in more.items():
        print(f"{fact.replace('_', ' ')}: {value:,}" if isinstance(value, int) else f"{fact}: {value}")


def _short(value: float) -> str:
    """Return a number with three digits or all of its whole ones."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"

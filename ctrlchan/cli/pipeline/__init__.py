"""``ctrlchan pipeline``: a file for each job, and for check, compact, demo, package and prepare."""

from __future__ import annotations

from typing import Final

import typer

from ctrlchan.cli.lazy import LazyCommand, lazy_group

__all__ = ["COMMANDS", "app"]

COMMANDS: Final = {
    "check": LazyCommand(
        "ctrlchan.cli.pipeline.check:check",
        "Start Spark, run a task on each executor, and say what is missing there.",
    ),
    "package": LazyCommand(
        "ctrlchan.cli.pipeline.package:package",
        "Make an archive of ctrlchan and what its tasks import, for executors with Python and Spark alone.",
    ),
    "prepare": LazyCommand(
        "ctrlchan.cli.pipeline.prepare:prepare",
        "Keep Spark's classes, so that jobs on small inputs take two thirds of their time.",
    ),
    "ingest": LazyCommand(
        "ctrlchan.cli.pipeline.ingest:ingest",
        "Make one snapshot of many descriptions of a cluster, and account for every row.",
    ),
    "diff": LazyCommand(
        "ctrlchan.cli.pipeline.diff:diff",
        "Find the least control requests between two snapshots of a cluster.",
    ),
    "frames": LazyCommand(
        "ctrlchan.cli.pipeline.frames:frames",
        "Encode the requests that bring every broker up to a snapshot, or from one snapshot to another.",
    ),
    "dispatch": LazyCommand(
        "ctrlchan.cli.pipeline.dispatch:dispatch",
        "Send ready frames to their brokers; run again, the command continues where it ended.",
    ),
    "merge-logs": LazyCommand(
        "ctrlchan.cli.pipeline.merge_logs:merge_logs",
        "Merge the state-change logs of many brokers into one stream, ordered by time.",
    ),
    "explain": LazyCommand(
        "ctrlchan.cli.pipeline.explain:explain",
        "Print the history of one partition from the state-change logs of controllers and brokers.",
    ),
    "report": LazyCommand(
        "ctrlchan.cli.pipeline.report:report",
        "Report which broker is stale or slow, and why: as an HTML page, and as Parquet tables.",
    ),
    "compact": LazyCommand(
        "ctrlchan.cli.pipeline.compact:compact",
        "Copy a journal of many small files into a new folder, as a journal of few large files.",
    ),
    "demo": LazyCommand(
        "ctrlchan.cli.pipeline.demo:demo",
        "Make a cluster with a slow broker and a stale one, and let the report find both.",
    ),
    "monitor": LazyCommand(
        "ctrlchan.cli.pipeline.monitor:monitor",
        "Watch a journal: rolling figures of each broker and API, and alerts.",
    ),
}

app = typer.Typer(
    cls=lazy_group(COMMANDS),
    help="PySpark jobs over snapshots, frames, journals and state-change logs.",
    epilog="Begin with: ctrlchan pipeline check",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.callback()
def _pipeline() -> None:
    """PySpark jobs over snapshots, frames, journals and state-change logs."""

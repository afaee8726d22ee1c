"""``ctrlchan pipeline JOB``: the jobs of ``ctrlchan.pipeline``, one file for each."""

from __future__ import annotations

import typer

from ctrlchan.cli.pipeline.check import check
from ctrlchan.cli.pipeline.demo import demo
from ctrlchan.cli.pipeline.diff import diff
from ctrlchan.cli.pipeline.dispatch import dispatch
from ctrlchan.cli.pipeline.explain import explain
from ctrlchan.cli.pipeline.frames import frames
from ctrlchan.cli.pipeline.ingest import ingest
from ctrlchan.cli.pipeline.merge_logs import merge_logs
from ctrlchan.cli.pipeline.monitor import monitor
from ctrlchan.cli.pipeline.report import report

__all__ = ["app"]

app = typer.Typer(
    help="PySpark jobs over snapshots, frames, journals and state-change logs.",
    epilog="Begin with: ctrlchan pipeline check",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.command()(check)
app.command()(ingest)
app.command()(diff)
app.command()(frames)
app.command()(dispatch)
app.command("merge-logs")(merge_logs)
app.command()(explain)
app.command()(report)
app.command()(demo)
app.command()(monitor)


@app.callback()
def _pipeline() -> None:
    """PySpark jobs over snapshots, frames, journals and state-change logs."""

"""``ctrlchan pipeline report``: report stale and slow brokers of a journal."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ctrlchan.cli.pipeline.common import Overwrite, RunOptions, spark_of
from ctrlchan.cli.pipeline.options import with_options
from ctrlchan.pipeline.jobs.report.config import ReportConfig
from ctrlchan.storage import PathLike

__all__ = ["report", "show"]


@with_options
def report(
    *,
    config: ReportConfig,
    output: Annotated[str, typer.Option("--output", "-o", metavar="FOLDER", help="The folder to write.")],
    overwrite: Overwrite = False,
    run: RunOptions,
) -> None:
    """Report which broker is stale or slow, and why: as an HTML page, and as Parquet tables.

    The output is a folder with report.html (which loads no other file), report.json and the tables figures,
    errors, series, channels, waiting, brokers, divergence.

    Examples:

    \b
      ctrlchan pipeline report outcomes --snapshot live -o report
      ctrlchan pipeline report outcomes --since 2026-11-21 -o today --json | jq .result
    """
    with spark_of("report", run, reads=[config.journal, config.snapshot], writes=[output]) as spark:
        from ctrlchan import pipeline

        summary = pipeline.write_report(spark, pipeline.report(spark, config), output, overwrite=overwrite)
    show(summary, output, as_json=run.as_json)


def show(summary: dict[str, Any], output: PathLike, *, as_json: bool) -> None:
    """Print the summary of a report as text or as one JSON object."""
    if as_json:
        import json

        typer.echo(json.dumps({**summary, "output": str(output)}, ensure_ascii=False))
        return
    typer.echo(summary["result"])
    for finding in summary["findings"]:
        typer.echo(f"  {finding['title']}: {finding['text']}")
    for note in summary["notes"]:
        typer.echo(f"note: {note}")
    from ctrlchan.pipeline.jobs.report.writing import page_in
    from ctrlchan.pipeline.words import counted

    requests, brokers = counted(summary["rows"], "request"), counted(summary["brokers"], "broker")
    typer.echo(f"{requests} to {brokers}; see {page_in(output)}")

"""``ctrlchan pipeline report``: report stale and slow brokers of a journal."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from ctrlchan.cli.pipeline.common import Overwrite, RunOptions, spark_of
from ctrlchan.cli.pipeline.options import with_options

__all__ = ["report", "show"]

_FORMATS = ["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S"]


@with_options
def report(
    *,
    journal: Annotated[
        Path,
        typer.Argument(
            exists=True, file_okay=False, help="A journal folder, also one that is still written."
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to write.")],
    snapshot: Annotated[
        Path | None,
        typer.Option(
            file_okay=False, help="The state that brokers should have; without it only failures are reported."
        ),
    ] = None,
    since: Annotated[
        datetime | None,
        typer.Option(formats=_FORMATS, help="Count only requests that ended from this time on (UTC)."),
    ] = None,
    until: Annotated[
        datetime | None,
        typer.Option(formats=_FORMATS, help="Count only requests that ended before this time (UTC)."),
    ] = None,
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
    with spark_of("report", run) as spark:
        from ctrlchan.pipeline import ReportConfig, write_report
        from ctrlchan.pipeline import report as job

        config = ReportConfig(journal=journal, snapshot=snapshot, since=_utc(since), until=_utc(until))
        summary = write_report(spark, job(spark, config), output, overwrite=overwrite)
    show(summary, output, as_json=run.as_json)


def show(summary: dict[str, Any], output: Path, *, as_json: bool) -> None:
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
    typer.echo(f"{summary['rows']:,} requests to {summary['brokers']} brokers; see {output / 'report.html'}")


def _utc(time: datetime | None) -> datetime | None:
    return None if time is None else time.replace(tzinfo=UTC)

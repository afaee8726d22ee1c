"""``ctrlchan pipeline merge-logs``: merge state-change logs of many brokers."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final, TextIO

import typer

from ctrlchan.cli.pipeline.common import Overwrite, RunOptions, say, spark_of
from ctrlchan.cli.pipeline.options import with_options
from ctrlchan.pipeline.jobs.merge_logs.config import MergeLogsConfig
from ctrlchan.pipeline.words import counted, form
from ctrlchan.storage import path_of, text_file

if TYPE_CHECKING:
    from ctrlchan.pipeline.jobs.merge_logs.job import MergedLogs

__all__ = ["merge_logs"]

#: Rejected lines that are shown without --rejects.
_SHOWN: Final = 5


class _Format(StrEnum):
    TEXT = "text"
    PARQUET = "parquet"


@with_options
def merge_logs(
    *,
    config: MergeLogsConfig,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="PATH",
            help="A file (text) or a folder (Parquet).",
            show_default="the screen",
        ),
    ] = None,
    output_format: Annotated[
        _Format, typer.Option("--format", help="Entries as text, or as columns.")
    ] = _Format.TEXT,
    rejects: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Write lines that belong to no entry to this file (JSON lines, with reasons).",
        ),
    ] = None,
    overwrite: Overwrite = False,
    run: RunOptions,
) -> None:
    """Merge the state-change logs of many brokers into one stream, ordered by time.

    Reads Kafka's state-change.log and ctrlchan's, with entries of several lines. Entries of the same
    millisecond are ordered by broker, those of one broker as in its log. With --json only the summary is
    printed.

    Examples:

    \b
      ctrlchan pipeline merge-logs broker-1/ broker-2/ broker-3/ --topic orders --partitions 0,3
      ctrlchan pipeline merge-logs 'logs/*/state-change.log*' --start '2026-01-31 10:00' -o merged.log
      ctrlchan pipeline merge-logs logs/ --time-zone Europe/Berlin --format parquet -o entries/
    """
    if output_format is _Format.PARQUET and output is None:
        raise typer.BadParameter("Parquet needs a folder", param_hint="--output")
    for path in (output, rejects):
        if path is not None and path_of(path).exists() and not overwrite:
            raise typer.BadParameter(f"{path}: already there (--overwrite replaces it)")
    shown = output is None and not run.as_json
    with spark_of("merge-logs", run, texts=config.paths, writes=[output, rejects]) as spark:
        from ctrlchan import pipeline

        with pipeline.merge_logs(spark, config) as merged:
            summary: dict[str, Any] = asdict(merged.counts)
            if shown:
                _write_lines(sys.stdout, merged.texts())
            elif output is not None and output_format is _Format.TEXT:
                with text_file(path_of(output)) as file:
                    _write_lines(file, merged.texts())
            elif output is not None:
                _write_parquet(merged, output, overwrite=overwrite)
            if rejects is not None:
                with text_file(path_of(rejects)) as file:
                    _write_lines(file, (json.dumps(row.asDict()) for row in merged.rejected()))
            elif summary["rejected"] and not run.as_json:
                _warn(merged, summary["rejected"])
    if not shown:
        summary |= {"output": None if output is None else str(output)}
        say({name: value for name, value in summary.items() if value is not None}, as_json=run.as_json)


def _write_lines(file: TextIO, texts: Iterator[str]) -> None:
    for text in texts:
        file.write(text)
        file.write("\n")


def _write_parquet(merged: MergedLogs, folder: str, *, overwrite: bool) -> None:
    from ctrlchan.pipeline.spark.tables import destination, new_folder, write_json

    with new_folder(path_of(folder), "merged.json", overwrite=overwrite) as made:
        merged.entries.write.parquet(destination(made / "entries"))
        merged.rejects.write.parquet(destination(made / "rejects"))
        about = {"format": "ctrlchan-log-entries", "format_version": 1, **asdict(merged.counts)}
        write_json(made / "merged.json", about)


def _warn(merged: MergedLogs, count: int) -> None:
    belong = form(count, "belongs", "belong")
    print(
        f"warning: {counted(count, 'line')} {belong} to no entry (--rejects FILE keeps all):", file=sys.stderr
    )
    for row in merged.rejects.limit(_SHOWN).collect():
        print(f"  {row['file']}:{row['line']}: {row['reason']}: {row['text'][:200]!r}", file=sys.stderr)

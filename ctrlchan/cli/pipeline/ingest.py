"""``ctrlchan pipeline ingest``: descriptions of a cluster in several forms -> one valid snapshot."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Annotated, Final

import typer

from ctrlchan.cli.pipeline.common import Overwrite, RunOptions, say, spark_of
from ctrlchan.cli.pipeline.options import with_options
from ctrlchan.pipeline.jobs.ingest.config import IngestConfig

__all__ = ["ingest"]

#: Rejects that are shown on standard error.
_SHOWN: Final = 5


@with_options
def ingest(
    *,
    out: Annotated[str, typer.Argument(help="The snapshot folder to write.")],
    config: IngestConfig,
    rejects: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            help="Folder for the rejects.",
            show_default="beside the snapshot, with .rejects",
        ),
    ] = None,
    max_rejects: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="NUMBER",
            help="Write no snapshot if there are more rejects.",
            show_default="no limit",
        ),
    ] = None,
    incomplete_topics: Annotated[
        bool, typer.Option("--incomplete-topics", help="Accept topics with missing partitions.")
    ] = False,
    brokers: Annotated[
        str | None,
        typer.Option(
            metavar="ID=[PROTOCOL://]HOST:PORT,...",
            help="The live brokers.",
            show_default="those of the inputs, else those that lead or are in sync",
        ),
    ] = None,
    overwrite: Overwrite = False,
    run: RunOptions,
) -> None:
    """Make one snapshot of many descriptions of a cluster, and account for every row.

    FILES are files, folders or patterns (quote them), plain or .gz. Inputs
    complete each other: one may have the assignment, another the leaders.
    A bad row is rejected with file, row and reason. Rows that are incomplete
    without it are rejected too: the other half of a partition, the rest of a
    topic. Of two equal descriptions the first is taken, of two different
    ones neither.

    Examples:

    \b
      kafka-topics --bootstrap-server b1:9092 --describe | gzip > topics.txt.gz
      ctrlchan pipeline ingest cluster --describe topics.txt.gz \\
        --brokers 1=b1:9092,2=b2:9092
      ctrlchan snapshot dump --zookeeper zk1:2181 > zk.tsv
      ctrlchan pipeline ingest cluster --zookeeper zk.tsv --max-rejects 0
    """
    from ctrlchan.cli.snapshot import parse_brokers

    live = None if brokers is None else parse_brokers(brokers)
    config = replace(config, brokers=live, whole_topics=not incomplete_topics)
    folder = f"{out.rstrip('/')}.rejects" if rejects is None else rejects
    texts = [*config.describe, *config.zookeeper, *config.rows, *config.reassignments]
    with spark_of("ingest", run, reads=config.snapshots, texts=texts, writes=[out, folder]) as spark:
        from ctrlchan import pipeline

        with pipeline.ingest(spark, config) as found:
            counts = pipeline.write_ingested(found, out, folder, overwrite=overwrite, max_rejects=max_rejects)
            first = found.rejects.limit(_SHOWN).collect() if counts["refused"] else []
    for row in first:
        print(f"{row['file']} {row['row']}: {row['reason']}", file=sys.stderr)
    if counts["refused"] > len(first):
        print(f"and {counts['refused'] - len(first):,} more; see {folder}", file=sys.stderr)
    say({"snapshot": out, "rejects": folder, **counts}, as_json=run.as_json)

"""``ctrlchan pipeline ingest``: descriptions of a cluster, whatever their form, into one sound snapshot."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from ctrlchan.cli.pipeline.common import Conf, Json, Master, Overwrite, say, spark_of

__all__ = ["ingest"]

#: Rejects that are shown on standard error.
_SHOWN: Final = 5


def ingest(
    out: Annotated[Path, typer.Argument(help="The snapshot folder to write.", show_default=False)],
    describe: Annotated[
        list[str] | None,
        typer.Option(metavar="FILES", help="Text of kafka-topics --describe.", show_default=False),
    ] = None,
    zookeeper: Annotated[
        list[str] | None,
        typer.Option(metavar="FILES", help="Dumps of `ctrlchan snapshot dump`.", show_default=False),
    ] = None,
    rows: Annotated[
        list[str] | None,
        typer.Option(metavar="FILES", help="JSON lines, by the snapshot's columns.", show_default=False),
    ] = None,
    reassignment: Annotated[
        list[str] | None,
        typer.Option(metavar="FILES", help="JSON of kafka-reassign-partitions.", show_default=False),
    ] = None,
    snapshot: Annotated[
        list[str] | None, typer.Option(metavar="FOLDER", help="Snapshots.", show_default=False)
    ] = None,
    rejects: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Where what is refused goes.", show_default="beside OUT, with .rejects"
        ),
    ] = None,
    max_rejects: Annotated[
        int | None,
        typer.Option(min=0, help="Write no snapshot when more is refused.", show_default="no limit"),
    ] = None,
    incomplete_topics: Annotated[
        bool, typer.Option("--incomplete-topics", help="Take topics that lack partitions, too.")
    ] = False,
    brokers: Annotated[
        str | None,
        typer.Option(
            metavar="ID=[PROTOCOL://]HOST:PORT,...",
            help="The live brokers.",
            show_default="as the inputs tell, else those that lead or are in sync",
        ),
    ] = None,
    cluster_id: Annotated[
        str | None, typer.Option(help="The cluster's id.", show_default="as the inputs tell")
    ] = None,
    controller_id: Annotated[
        int | None, typer.Option(help="The controller's id.", show_default="as the inputs tell")
    ] = None,
    controller_epoch: Annotated[
        int | None, typer.Option(min=0, help="The controller's epoch.", show_default="as the inputs tell")
    ] = None,
    master: Master = None,
    conf: Conf = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Make a snapshot of all that describes a cluster, and account for every row.

    FILES are files, folders or patterns (quote them), plain or .gz; options
    may be repeated and go together: one input may tell the assignment,
    another the leaders. What is bad is refused with file, row and reason,
    and with it everything that would not be whole without it: the other
    half of a partition, the rest of a topic. Described twice alike: the
    first is taken; differently: none.

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
    folder = out.with_name(f"{out.name}.rejects") if rejects is None else rejects
    with spark_of("ingest", master, conf, as_json=as_json) as spark:
        from ctrlchan import pipeline

        config = pipeline.IngestConfig(
            snapshots=snapshot or (),
            describe=describe or (),
            rows=rows or (),
            reassignments=reassignment or (),
            zookeeper=zookeeper or (),
            brokers=live,
            cluster_id=cluster_id,
            controller_id=controller_id,
            controller_epoch=controller_epoch,
            whole_topics=not incomplete_topics,
        )
        with pipeline.ingest(spark, config) as found:
            counts = pipeline.write_ingested(found, out, folder, overwrite=overwrite, max_rejects=max_rejects)
            first = found.rejects.limit(_SHOWN).collect() if counts["refused"] else []
    for row in first:
        print(f"{row['file']} {row['row']}: {row['reason']}", file=sys.stderr)
    if counts["refused"] > len(first):
        print(f"and {counts['refused'] - len(first):,} more; see {folder}", file=sys.stderr)
    say({"snapshot": str(out), "rejects": str(folder), **counts}, as_json=as_json)

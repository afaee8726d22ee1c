"""``ctrlchan bench topics``: floods of topics that are created and deleted."""

from __future__ import annotations

from typing import Annotated

import typer

from ctrlchan.cli.bench.options import LoadOptions, OutputOptions, SparkOptions, TargetOptions
from ctrlchan.cli.pipeline.options import with_options

__all__ = ["topics"]

_MAX_BATCH = 10_000


@with_options
def topics(
    *,
    target: TargetOptions,
    shape: LoadOptions,
    batch: Annotated[
        int, typer.Option(min=1, max=_MAX_BATCH, metavar="NUMBER", help="Topics of each request.")
    ] = 10,
    output: OutputOptions,
    spark: SparkOptions,
) -> None:
    """Create topics and delete them again: rates, and latencies of both requests.

    --rate counts topics, --partitions are those of each.

    Examples:

    \b
      ctrlchan bench topics --embedded 3 --partitions 1 --batch 100
      ctrlchan bench topics -b kafka-1:9092 --rate 20 --partitions 50 --replication 3
    """
    from ctrlchan.cli.bench.output import show_result
    from ctrlchan.cli.bench.session import open_session
    from ctrlchan.loads.kinds.topics import TopicsLoad

    with open_session(target) as session:
        load = TopicsLoad(**session.shape(shape), batch=batch)
        result = session.work(load, spark)
        show_result(session, load, result, output.json, topics_left=len(session.own.topics()))

"""``ctrlchan bench leaders``: storms of leader moves."""

from __future__ import annotations

import importlib.util
from typing import Annotated

import typer

from ctrlchan.cli.bench.options import LoadOptions, OutputOptions, SparkOptions, TargetOptions
from ctrlchan.cli.limits import MAX_INT32
from ctrlchan.cli.pipeline.options import with_options

__all__ = ["leaders"]


@with_options
def leaders(
    *,
    target: TargetOptions,
    shape: LoadOptions,
    batch: Annotated[
        int, typer.Option(min=1, max=MAX_INT32, metavar="NUMBER", help="Partitions of each request.")
    ] = 12,
    output: OutputOptions,
    spark: SparkOptions,
) -> None:
    """Move leaders: another order of the replicas by reassignment, then an election of the first of them.

    Only the partitions of this run's topic move, and no replica is copied: --replication 2 or more. --rate
    counts partitions. A move lasts from when it was due until the controller has answered the election.

    Examples:

    \b
      ctrlchan bench leaders --embedded 3 --partitions 100 --batch 100
      ctrlchan bench leaders -b kafka-1:9092 --replication 3 --rate 50
    """
    from ctrlchan.cli.bench.output import show_result
    from ctrlchan.cli.bench.session import open_session
    from ctrlchan.errors import ConfigError
    from ctrlchan.loads.kinds.leaders import LeadersLoad

    if importlib.util.find_spec("kafka") is None:
        raise ConfigError("leaders are moved by kafka-python: pip install 'ctrlchan[bench]'")
    with open_session(target) as session:
        load = LeadersLoad(**session.shape(shape), batch=batch)
        show_result(session, load, session.work(load, spark), output.json)

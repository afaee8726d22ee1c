"""``ctrlchan bench consume``: consumers that read as fast as possible, or follow producers."""

from __future__ import annotations

from typing import Annotated

import typer

from ctrlchan.cli.bench.options import ClientOptions, LoadOptions, OutputOptions, SparkOptions, TargetOptions
from ctrlchan.cli.limits import MAX_INT64
from ctrlchan.cli.pipeline.options import with_options

__all__ = ["consume"]


@with_options
def consume(
    *,
    target: TargetOptions,
    shape: LoadOptions,
    client: ClientOptions,
    records: Annotated[
        int,
        typer.Option(min=1, max=MAX_INT64, metavar="NUMBER", help="Records that are read again and again."),
    ] = 1_000_000,
    output: OutputOptions,
    spark: SparkOptions,
) -> None:
    """Consume records of a topic of this run: rates, and latencies.

    Without --rate the clients fill the topic with --records first, then read it as fast as possible, from its
    beginning again after its end; a latency is that of a call that returns up to 1,000 records. With --rate
    producers in the same processes write at that rate, and a latency lasts from when a record was due until
    its consumer has it.

    Examples:

    \b
      ctrlchan bench consume --embedded 1 --size 1024
      ctrlchan bench consume -b kafka-1:9092 --rate 1000 --acks all --linger 0
    """
    from ctrlchan.cli.bench.output import show_result
    from ctrlchan.cli.bench.session import open_session
    from ctrlchan.loads.kinds.consume import ConsumeLoad

    with open_session(target) as session:
        load = ConsumeLoad(**session.shape(shape, client.settings()), size=client.size, records=records)
        result = session.work(load, spark)
        first, last = session.own.offsets(load.topic)
        show_result(session, load, result, output.json, records_in_topic=last - first)

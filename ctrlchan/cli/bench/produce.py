"""``ctrlchan bench produce``: records as fast as possible, or at a rate."""

from __future__ import annotations

from ctrlchan.cli.bench.options import ClientOptions, LoadOptions, OutputOptions, SparkOptions, TargetOptions
from ctrlchan.cli.pipeline.options import with_options

__all__ = ["produce"]


@with_options
def produce(
    *,
    target: TargetOptions,
    shape: LoadOptions,
    client: ClientOptions,
    output: OutputOptions,
    spark: SparkOptions,
) -> None:
    """Produce records to a topic of this run: rates, and latencies until the broker's acknowledgement.

    With --rate a latency begins when the record was due, so it has what the record waited for others
    (coordinated omission). With --rate 0 it begins when the client takes the record: its queue is full then,
    and the latency says more of the queue than of the cluster.

    The cluster is asked for its id, and you whether to load it; --cluster-id answers in scripts. Topics begin
    with ctrlchan-bench- and are deleted at the end, after Ctrl-C, too.

    Examples:

    \b
      ctrlchan bench produce --embedded 3 --seconds 10
      ctrlchan bench produce -b kafka-1:9092 --rate 50000 --clients 4 --size 1024
      ctrlchan bench produce -b kafka-1:9092 --cluster-id Fm5... --json result.json
    """
    from ctrlchan.cli.bench.output import show_result
    from ctrlchan.cli.bench.session import open_session
    from ctrlchan.loads.kinds.produce import ProduceLoad

    with open_session(target) as session:
        load = ProduceLoad(**session.shape(shape, client.settings()), size=client.size)
        result = session.work(load, spark)
        first, last = session.own.offsets(load.topic)
        show_result(session, load, result, output.json, records_in_topic=last - first)

"""``ctrlchan bench transactions``: transactions of some records each."""

from __future__ import annotations

from typing import Annotated

import typer

from ctrlchan.cli.bench.options import ClientOptions, LoadOptions, OutputOptions, SparkOptions, TargetOptions
from ctrlchan.cli.limits import MAX_INT32
from ctrlchan.cli.pipeline.options import with_options

__all__ = ["transactions"]


@with_options
def transactions(
    *,
    target: TargetOptions,
    shape: LoadOptions,
    client: ClientOptions,
    records: Annotated[
        int, typer.Option(min=1, max=MAX_INT32, metavar="NUMBER", help="Records of a transaction.")
    ] = 10,
    abort_every: Annotated[
        int,
        typer.Option(min=0, max=MAX_INT32, metavar="NUMBER", help="Abort each transaction of this number."),
    ] = 0,
    output: OutputOptions,
    spark: SparkOptions,
) -> None:
    """Commit transactions: rates, and latencies of whole transactions and of their commits.

    --rate counts transactions. Each client is one transactional producer, with one transaction at a time. Its
    transactional id begins with the name of the run; brokers forget it after
    transactional.id.expiration.ms, as there is no request that deletes one.

    Examples:

    \b
      ctrlchan bench transactions --embedded 3 --clients 4
      ctrlchan bench transactions -b kafka-1:9092 --rate 200 --records 100 --abort-every 10
    """
    from ctrlchan.cli.bench.output import show_result
    from ctrlchan.cli.bench.session import open_session
    from ctrlchan.errors import ConfigError
    from ctrlchan.loads.kinds.transactions import TransactionsLoad

    if client.acks != "all":
        raise ConfigError("--acks: the records of transactions are acknowledged by all replicas in sync")
    with open_session(target) as session:
        load = TransactionsLoad(
            **session.shape(shape, client.settings()),
            size=client.size,
            records=records,
            abort_every=abort_every,
        )
        show_result(session, load, session.work(load, spark), output.json)

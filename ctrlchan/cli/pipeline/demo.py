"""``ctrlchan pipeline demo``: a cluster with a slow and a stale broker, and the report that finds both."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ctrlchan.cli.pipeline.common import Overwrite, RunOptions, spark_of
from ctrlchan.cli.pipeline.options import with_options
from ctrlchan.cli.pipeline.report import show

if TYPE_CHECKING:
    from ctrlchan.batch import ControllerBrokerRequestBatch
    from ctrlchan.channel import ControllerChannelManager, Sent
    from ctrlchan.launch.embedded import EmbeddedBroker
    from ctrlchan.state import ClusterState
    from ctrlchan.storage import AnyPath

__all__ = ["demo"]

#: Seconds that the slow broker takes for every response.
_DELAY: Final = 0.2
#: Elections that all brokers receive, and those that the stale broker misses.
_RECEIVED: Final = 40
_MISSED: Final = 12
#: Seconds for one round.
_TIMEOUT: Final = 60.0
#: Partitions of a small cluster.
_SMALL: Final = 20_000
_FLUSH: Final = 0.2


@with_options
def demo(
    *,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FOLDER", help="The folder to make.")
    ] = "pipeline-demo",
    topics: Annotated[int, typer.Option(min=2, metavar="NUMBER", help="Topics of the cluster.")] = 100,
    partitions: Annotated[int, typer.Option(min=1, metavar="NUMBER", help="Partitions of each topic.")] = 50,
    brokers: Annotated[int, typer.Option(min=4, metavar="NUMBER", help="Embedded brokers to start.")] = 6,
    overwrite: Overwrite = False,
    run: RunOptions,
) -> None:
    """Make a cluster with a slow broker and a stale one, and let the report find both.

    Starts embedded brokers, one of which is slow; pushes a generated snapshot to all of them and then one
    election after another; stops one broker, and goes on. The report is made while requests to the stopped
    broker wait. Exit status 1 unless it names these two brokers and no other.

    The output folder holds journal, snapshot and report.

    Examples:

    \b
      ctrlchan pipeline demo
      ctrlchan pipeline demo --brokers 12 -o /tmp/demo --overwrite
    """
    from ctrlchan.channel import ChannelConfig, ControllerChannelManager
    from ctrlchan.cli.progress import step
    from ctrlchan.errors import ConfigError
    from ctrlchan.journal import Journal
    from ctrlchan.launch.embedded import EmbeddedBroker
    from ctrlchan.state.importing.generate import GeneratorConfig, generate
    from ctrlchan.storage import path_of

    folder = path_of(output)
    if folder.exists() and not overwrite:
        raise ConfigError(f"{output}: already there (--overwrite replaces it)")
    slow, stale = brokers - 2, brokers - 1
    shape = GeneratorConfig(topics=topics, partitions_per_topic=partitions, brokers=brokers, replication=3)
    small = topics * partitions <= _SMALL
    with spark_of("demo", run, writes=[output], small=small) as spark, ExitStack() as stack:
        with step(f"starting {brokers} embedded brokers"):
            embedded = [
                stack.enter_context(EmbeddedBroker(number, response_delay=_DELAY if number == slow else 0.0))
                for number in range(brokers)
            ]
        state = generate(shape)
        state.set_brokers([one.broker for one in embedded])
        _clear(folder)
        journal = stack.enter_context(Journal(folder / "journal", flush_interval=_FLUSH))
        config = ChannelConfig(controller_id=state.controller_id)
        channel = stack.enter_context(
            ControllerChannelManager(config, state.controller_epoch, journal=journal)
        )
        with step(f"pushing {topics * partitions:,} partitions, then {_RECEIVED + _MISSED} elections"):
            _work(channel, state, embedded, embedded[stale])
        state.write(folder / "snapshot")
        journal.flush()
        from ctrlchan.pipeline import ReportConfig, write_report
        from ctrlchan.pipeline import report as job

        with step("reading the journal"):
            made = job(spark, ReportConfig(journal=folder / "journal", snapshot=folder / "snapshot"))
            summary = write_report(spark, made, folder / "report")
    show(summary, folder / "report", as_json=run.as_json)
    if list(summary["stale"]) != [str(stale)] or summary["slow"] != [slow]:
        typer.echo(
            f"error: broker {stale} should be the stale one and broker {slow} the slow one; "
            f"the report says {list(summary['stale'])} and {summary['slow']}",
            err=True,
        )
        raise typer.Exit(1)


def _clear(output: AnyPath) -> None:
    """Remove the output of an earlier demo."""
    from ctrlchan.storage import remove_tree

    for name in ("journal", "snapshot", "report"):
        remove_tree(output / name)


def _work(
    channel: ControllerChannelManager,
    state: ClusterState,
    brokers: list[EmbeddedBroker],
    stale: EmbeddedBroker,
) -> None:
    """Push the full state, then elections, then more elections after one broker is gone."""
    from ctrlchan.batch import ControllerBrokerRequestBatch

    ids = [one.id for one in brokers]
    channel.startup(state.brokers)
    batch = ControllerBrokerRequestBatch(channel, state)
    batch.add_update_metadata(ids, "all")
    channel.wait(batch.send_requests_to_brokers(state.controller_epoch), _TIMEOUT)
    sent: list[Sent] = []
    for number in range(_RECEIVED):
        sent = _elect(batch, state, ids, number)
        channel.wait(sent, _TIMEOUT)
    stale.close()
    for number in range(_RECEIVED, _RECEIVED + _MISSED):
        sent = _elect(batch, state, ids, number)
        channel.wait([one for one in sent if one.broker_id != stale.id], _TIMEOUT)


def _elect(
    batch: ControllerBrokerRequestBatch, state: ClusterState, ids: list[int], number: int
) -> list[Sent]:
    """Make another in-sync replica the leader of a partition, and send it to all brokers."""
    row = number * 97 % len(state.partitions)
    partitions = state.partitions
    isr = partitions.isr[row].tolist()
    leader = isr[(isr.index(partitions.leader[row]) + 1) % len(isr)]
    state.update(row, leader=leader, leader_epoch=int(partitions.leader_epoch[row]) + 1)
    batch.new_batch()
    batch.add_update_metadata(ids, row)
    return batch.send_requests_to_brokers(state.controller_epoch)

"""``ctrlchan bench``: loads on a Kafka cluster that its user names, a file for each command.

``calibrate.py`` measures this machine, ``clean.py`` deletes what killed runs have left. For the loads,
``options.py`` has what all share, ``target.py`` which cluster is meant, ``session.py`` the way of one run:
guard, topics, workers, results, and the end of all that was made.
"""

from __future__ import annotations

from typing import Final

import typer

from ctrlchan.cli.lazy import LazyCommand, lazy_group

__all__ = ["COMMANDS", "app"]

COMMANDS: Final = {
    "produce": LazyCommand("ctrlchan.cli.bench.produce:produce", "Produce records: rates and latencies."),
    "consume": LazyCommand(
        "ctrlchan.cli.bench.consume:consume", "Consume records as fast as possible, or follow producers."
    ),
    "groups": LazyCommand(
        "ctrlchan.cli.bench.groups:groups", "Let members join consumer groups, commit and leave."
    ),
    "transactions": LazyCommand(
        "ctrlchan.cli.bench.transactions:transactions", "Commit transactions, and abort some."
    ),
    "leaders": LazyCommand(
        "ctrlchan.cli.bench.leaders:leaders", "Move leaders of partitions, again and again."
    ),
    "topics": LazyCommand("ctrlchan.cli.bench.topics:topics", "Create and delete topics, many at once."),
    "restarts": LazyCommand(
        "ctrlchan.cli.bench.restarts:restarts",
        "Restart brokers of an embedded cluster in turn, while clients produce.",
    ),
    "clean": LazyCommand("ctrlchan.cli.bench.clean:clean", "Delete what runs that were killed have left."),
    "calibrate": LazyCommand(
        "ctrlchan.cli.bench.calibrate:calibrate",
        "Measure this machine for `ctrlchan plan`, in about a minute.",
    ),
}

app = typer.Typer(
    cls=lazy_group(COMMANDS),
    help="Load a Kafka cluster, yours or an embedded one; measure this machine for `plan`.",
    epilog="Begin with: ctrlchan bench produce --embedded 1",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.callback()
def _bench() -> None:
    """Load a Kafka cluster, yours or an embedded one; measure this machine for `plan`."""

"""The root of the ``ctrlchan`` command and its subcommands."""

from __future__ import annotations

import logging
from typing import Annotated, Final

import typer

from ctrlchan.cli.lazy import LazyCommand, lazy_group

__all__ = ["COMMANDS", "app"]

COMMANDS: Final = {
    "push": LazyCommand("ctrlchan.cli.push:push", "Push a snapshot's full metadata to every broker of it."),
    "broker": LazyCommand("ctrlchan.cli.broker:broker", "Run embedded brokers until Ctrl-C (or SIGTERM)."),
    "controller": LazyCommand(
        "ctrlchan.cli.controller:app",
        "Run the controller of a Kafka cluster in ZooKeeper mode until Ctrl-C (or SIGTERM).",
    ),
    "cluster": LazyCommand(
        "ctrlchan.cli.cluster:cluster",
        "Run a whole Kafka cluster on this machine until Ctrl-C: controller and brokers that store records.",
    ),
    "log": LazyCommand(
        "ctrlchan.cli.log:app", "Look into the log directories of a broker, Kafka's or an embedded one."
    ),
    "demo": LazyCommand(
        "ctrlchan.cli.demo:demo",
        "Push a whole cluster's metadata to embedded brokers and let a Kafka client read it back.",
    ),
    "decode": LazyCommand("ctrlchan.cli.codec:decode", "Wire bytes to JSON, one message a line."),
    "encode": LazyCommand(
        "ctrlchan.cli.codec:encode", "JSON to wire bytes, one message a line: the reverse of `decode`."
    ),
    "snapshot": LazyCommand(
        "ctrlchan.cli.snapshot:app", "Make a snapshot of a cluster's metadata, or look at one."
    ),
    "bench": LazyCommand(
        "ctrlchan.cli.bench:app",
        "Load a Kafka cluster, yours or an embedded one; measure this machine for `plan`.",
    ),
    "plan": LazyCommand(
        "ctrlchan.cli.plan:plan",
        "Say what a cluster's control requests cost: bytes, time, memory, and where one machine ends.",
    ),
    "pipeline": LazyCommand(
        "ctrlchan.cli.pipeline:app", "PySpark jobs over snapshots, frames, journals and state-change logs."
    ),
}

#: The log level for each ``-v``. Without it only errors are logged: a command prints what its user needs.
_LEVELS = (logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG)

app = typer.Typer(
    name="ctrlchan",
    cls=lazy_group(COMMANDS),
    help="The control plane of a ZooKeeper-mode Apache Kafka cluster.",
    epilog="Begin with: ctrlchan demo",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        import ctrlchan

        typer.echo(f"ctrlchan {ctrlchan.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and end.", callback=_version, is_eager=True)
    ] = False,
    verbose: Annotated[
        int,
        typer.Option(
            "--verbose",
            "-v",
            count=True,
            metavar="",
            help="Log to standard error: -v warnings, -vv also every request that a broker answers, "
            "-vvv everything.",
        ),
    ] = 0,
) -> None:
    """The control plane of a ZooKeeper-mode Apache Kafka cluster."""
    level = _LEVELS[min(verbose, len(_LEVELS) - 1)]
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(message)s")
    # Its lines are about sockets; those of the commands say what a lost connection means.
    logging.getLogger("kazoo").setLevel(logging.CRITICAL if level > logging.DEBUG else level)
    # What a writer that died has left in a store stays there until the user deletes it: this line says so.
    logging.getLogger("ctrlchan.storage").setLevel(min(level, logging.WARNING))

"""The root of the ``ctrlchan`` command and its subcommands."""

from __future__ import annotations

import logging
from typing import Annotated

import typer

from ctrlchan.cli.broker import broker
from ctrlchan.cli.codec import decode, encode
from ctrlchan.cli.demo import demo
from ctrlchan.cli.pipeline import app as pipeline_app
from ctrlchan.cli.push import push
from ctrlchan.cli.snapshot import app as snapshot_app

__all__ = ["app"]

#: The log level for each ``-v``. Without it only errors are logged: a command prints what its user needs.
_LEVELS = (logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG)

app = typer.Typer(
    name="ctrlchan",
    help="The control plane of a ZooKeeper-mode Apache Kafka cluster.",
    epilog="Begin with: ctrlchan demo",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(snapshot_app, name="snapshot")
app.add_typer(pipeline_app, name="pipeline")
app.command()(push)
app.command()(broker)
app.command()(demo)
app.command()(decode)
app.command()(encode)


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
    logging.basicConfig(
        level=_LEVELS[min(verbose, len(_LEVELS) - 1)], format="%(asctime)s %(levelname)s %(message)s"
    )

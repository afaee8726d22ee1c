"""``ctrlchan snapshot generate|import|dump|show``: make a snapshot folder, or look at one."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ctrlchan.cli.limits import MAX_INT32, MAX_INT64, MAX_PORT, MAX_SECONDS, not_nan
from ctrlchan.cli.listeners import Listeners, parse_listeners
from ctrlchan.text import printable, quoted

if TYPE_CHECKING:
    from ctrlchan.state import Broker, ClusterState

__all__ = ["app", "parse_brokers"]

app = typer.Typer(
    help="Make a snapshot of a cluster's metadata, or look at one.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Out = Annotated[
    str, typer.Argument(metavar="FOLDER", help="The folder to write, or a URL.", show_default=False)
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an existing snapshot.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
ConnectTimeout = Annotated[
    float,
    typer.Option(
        min=0.1,
        max=MAX_SECONDS,
        callback=not_nan,
        metavar="SECONDS",
        help="How long ZooKeeper may take to connect.",
    ),
]


def _number(help_text: str, lowest: int, highest: int, metavar: str = "NUMBER") -> Any:
    return typer.Option(min=lowest, max=highest, metavar=metavar, help=help_text)


@app.command()
def generate(
    out: Out,
    topics: Annotated[int, _number("How many topics.", 1, MAX_INT32)] = 1_000,
    partitions: Annotated[int, _number("How many partitions each has.", 1, MAX_INT32)] = 100,
    brokers: Annotated[int, _number("How many brokers; ids from 0.", 1, MAX_INT32)] = 30,
    replication: Annotated[int, _number("Replicas of each partition.", 1, MAX_INT32)] = 3,
    racks: Annotated[int, _number("Racks to spread replicas over; 0: no racks.", 0, MAX_INT32)] = 0,
    offline: Annotated[
        float, typer.Option(min=0.0, max=1.0, metavar="SHARE", help="Share of the replicas that are offline.")
    ] = 0.0,
    seed: Annotated[int, _number("The same seed gives the same cluster.", 0, MAX_INT64)] = 0,
    cluster_id: Annotated[
        str, typer.Option(metavar="ID", help="The cluster's id.")
    ] = "ctrlchan-synthetic-cluster",
    controller_id: Annotated[int, _number("The controller's id.", -1, MAX_INT32, "ID")] = 0,
    controller_epoch: Annotated[int, _number("The controller's epoch.", 0, MAX_INT32 - 1, "EPOCH")] = 1,
    address: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="One address for all brokers.", show_default=False)
    ] = None,
    host: Annotated[
        str, typer.Option(metavar="HOST", help="The host of all brokers without --address.")
    ] = "127.0.0.1",
    first_port: Annotated[
        int, _number("The first broker's port without --address; others follow.", 1, MAX_PORT, "PORT")
    ] = 19_092,
    listener: Listeners = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Make a synthetic cluster, the same for the same options on every machine.

    Without --address broker b listens on --host at --first-port + b (with
    L listeners: + b * L, and one port for each). With --address all brokers
    share it, each further listener at the next port.

    Examples:

    \b
      ctrlchan snapshot generate cluster
      ctrlchan snapshot generate big --topics 10000 --racks 3 --offline 0.01
      ctrlchan snapshot generate sink --brokers 300 --address 127.0.0.1:9092
      ctrlchan snapshot generate tls --listener INTERNAL:PLAINTEXT \\
        --listener CLIENTS:SASL_SSL
    """
    from ctrlchan.errors import InvalidStateError
    from ctrlchan.state.brokers import check_host, parse_host_port
    from ctrlchan.state.importing.generate import GeneratorConfig
    from ctrlchan.state.importing.generate import generate as generate_state

    try:
        listeners = parse_listeners(listener)
        shared = None if address is None else parse_host_port(address)
        check_host(host)
    except InvalidStateError as error:
        raise typer.BadParameter(str(error)) from None
    config = GeneratorConfig(
        topics=topics,
        partitions_per_topic=partitions,
        brokers=brokers,
        replication=replication,
        racks=racks,
        offline_share=offline,
        seed=seed,
        cluster_id=cluster_id,
        controller_id=controller_id,
        controller_epoch=controller_epoch,
        host=host,
        first_port=first_port,
        address=shared,
        listeners=listeners,
    )
    _check_writable(out, overwrite)
    with _progress("generating") as step:
        state = generate_state(config)
        step("writing", 0, None)
        state.write(out, overwrite=overwrite)
    _print_written(state, out, as_json)


@app.command("import")
def import_(
    out: Out,
    zookeeper: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT[/chroot]", help="Read a live cluster's ZooKeeper.", show_default=False
        ),
    ] = None,
    describe: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Read what kafka-topics --describe printed; - for standard input.",
            show_default=False,
        ),
    ] = None,
    brokers: Annotated[
        str | None,
        typer.Option(
            metavar="ID=[PROTOCOL://]HOST:PORT,...",
            help="The live brokers, for --describe.",
            show_default="those that lead or are in sync, without address",
        ),
    ] = None,
    cluster_id: Annotated[str, typer.Option(metavar="ID", help="The cluster's id, for --describe.")] = "",
    controller_id: Annotated[int, _number("The controller's id, for --describe.", -1, MAX_INT32, "ID")] = -1,
    controller_epoch: Annotated[
        int, _number("The controller's epoch, for --describe.", 0, MAX_INT32, "EPOCH")
    ] = 0,
    timeout: ConnectTimeout = 10.0,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Make a snapshot of a real cluster: of its ZooKeeper, or of a text.

    ZooKeeper has everything. The text of kafka-topics --describe (any
    version) has no epochs and no addresses: epochs are 0, and the brokers'
    addresses have to be given before the snapshot can be pushed.

    Examples:

    \b
      ctrlchan snapshot import cluster --zookeeper zk1:2181,zk2:2181/kafka
      kafka-topics --bootstrap-server b1:9092 --describe |
        ctrlchan snapshot import cluster --describe - \\
          --brokers 1=b1:9092,2=SSL://b2:9093
    """
    if (zookeeper is None) == (describe is None):
        raise typer.BadParameter("give one of --zookeeper and --describe")
    if zookeeper is not None and brokers is not None:
        raise typer.BadParameter("--brokers goes with --describe: ZooKeeper has the brokers")
    live = None if brokers is None else parse_brokers(brokers)
    _check_writable(out, overwrite)
    if zookeeper is not None:
        state = _from_zookeeper(zookeeper, timeout)
    else:
        assert describe is not None
        state = _from_describe(describe, live, cluster_id, controller_id, controller_epoch)
    state.write(out, overwrite=overwrite)
    _print_written(state, out, as_json)


@app.command()
def dump(
    zookeeper: Annotated[
        str,
        typer.Option(metavar="HOST:PORT[/chroot]", help="The ZooKeeper of the cluster.", show_default=False),
    ],
    timeout: ConnectTimeout = 10.0,
) -> None:
    """Print the metadata in a cluster's ZooKeeper, one line for each node.

    A line is path, data, version and czxid between tabs. `ctrlchan pipeline
    ingest --zookeeper` reads many such files at once, and reports every bad
    line; `ctrlchan snapshot import --zookeeper` makes a snapshot directly.

    Examples:

    \b
      ctrlchan snapshot dump --zookeeper zk1:2181/kafka | gzip > zk.tsv.gz
    """
    from ctrlchan.state.importing.zookeeper_dump import dump_zookeeper
    from ctrlchan.zookeeper.client import connected

    logging.getLogger("kazoo").addHandler(logging.NullHandler())
    with _progress("connecting") as step, connected(zookeeper, timeout) as client:
        for line in dump_zookeeper(client, lambda what, done, total: step(f"reading {what}", done, total)):
            typer.echo(line)


@app.command()
def show(
    snapshot: Annotated[
        str, typer.Argument(metavar="SNAPSHOT", help="A snapshot folder.", show_default=False)
    ],
    topic: Annotated[
        str | None, typer.Option(metavar="NAME", help="Show this topic's partitions.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Show what is in a snapshot, and what is wrong with it.

    Violations are broken invariants (a leader outside its ISR, a replica
    twice, gaps in the partition numbers and so on); they do not change the
    exit status.

    Examples:

    \b
      ctrlchan snapshot show cluster
      ctrlchan snapshot show cluster --topic topic-000123
      ctrlchan snapshot show cluster --json | jq .violations
    """
    from ctrlchan.cli.snapshot_tables import print_summary, print_topic
    from ctrlchan.errors import SnapshotError
    from ctrlchan.state import ClusterState
    from ctrlchan.state.summary import topic_detail

    state = ClusterState.read(snapshot)
    try:
        detail = _summary(state) if topic is None else topic_detail(state, topic)
    except KeyError:
        raise SnapshotError(f"{snapshot}: no topic {quoted(str(topic))}") from None
    if as_json:
        typer.echo(json.dumps(detail))
    elif topic is None:
        print_summary(detail)
    else:
        print_topic(detail)


# -- parts


def _summary(state: ClusterState) -> dict[str, Any]:
    from ctrlchan.state.summary import broker_loads

    violations = [
        {"rule": one.rule, "reason": one.reason, "partitions": one.count, "examples": list(one.examples)}
        for one in state.check()
    ]
    return {**state.describe(), "broker_loads": broker_loads(state), "violations": violations}


def _from_zookeeper(hosts: str, timeout: float) -> ClusterState:
    from ctrlchan.state import ClusterState

    # Without a handler kazoo's warnings about each attempt would go to standard error.
    logging.getLogger("kazoo").addHandler(logging.NullHandler())
    with _progress("connecting") as step:
        return ClusterState.from_zookeeper(
            hosts,
            timeout=timeout,
            progress=lambda what, done, total: step(f"reading {what}", done, total),
        )


def _from_describe(
    file: str, brokers: list[Broker] | None, cluster_id: str, controller_id: int, controller_epoch: int
) -> ClusterState:
    from ctrlchan.errors import SnapshotError
    from ctrlchan.state.importing.describe_text import import_describe

    name = "standard input" if file == "-" else file or "--describe ''"
    try:
        with (
            _progress("reading lines") as step,
            nullcontext(sys.stdin) if file == "-" else open(file, encoding="utf-8") as lines,
        ):
            return import_describe(
                lines,
                brokers,
                source=name,
                cluster_id=cluster_id,
                controller_id=controller_id,
                controller_epoch=controller_epoch,
                progress=lambda done: step("reading lines", done, None),
            )
    except (OSError, UnicodeDecodeError) as error:
        raise SnapshotError(f"{name}: cannot be read ({error})") from error


def parse_brokers(text: str) -> list[Broker]:
    """Return the brokers of ``1=b1:9092,2=SSL://b2:9093``. Raises BadParameter for ``--brokers``."""
    from ctrlchan.errors import InvalidStateError
    from ctrlchan.state.brokers import Broker, Endpoint, SecurityProtocol, brokers_from, parse_host_port

    brokers = []
    try:
        for one in text.split(","):
            number, _, address = one.partition("=")
            if not (number.strip().isascii() and number.strip().isdigit()):
                raise InvalidStateError(f"{one!r} is not ID=[PROTOCOL://]HOST:PORT")
            scheme, slashes, rest = address.partition("://")
            protocol = SecurityProtocol.of(scheme) if slashes else SecurityProtocol.PLAINTEXT
            endpoint = Endpoint(protocol.name, protocol, *parse_host_port(rest if slashes else address))
            brokers.append(Broker(int(number), -1, (endpoint,)))
        brokers_from(brokers)
    except InvalidStateError as error:
        raise typer.BadParameter(f"--brokers: {error}") from None
    return brokers


def _check_writable(out: str, overwrite: bool) -> None:
    """Raise SnapshotError when the snapshot cannot be written, before the work rather than after it."""
    from ctrlchan.state.storage.snapshot import check_writable
    from ctrlchan.storage import path_of

    check_writable(path_of(out), overwrite=overwrite)


def _print_written(state: ClusterState, out: str, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({"snapshot": str(out), **state.describe()}))
        return
    counts = state.describe()
    typer.echo(
        printable(f"{out}: ")
        + ", ".join(f"{counts[name]:,} {name}" for name in ("topics", "partitions", "brokers"))
    )


@contextmanager
def _progress(first: str) -> Iterator[Callable[[str, int, int | None], None]]:
    """Show progress on standard error when that is a terminal; yield (what, done, of how many) -> None."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

    console = Console(stderr=True)
    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        task = progress.add_task(first, total=None)
        yield lambda what, done, total: progress.update(task, description=what, completed=done, total=total)

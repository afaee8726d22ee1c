"""``ctrlchan plan``: bytes, times and memory of a cluster's control plane, and where one machine ends."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ctrlchan.cli.limits import MAX_INT32, MAX_SECONDS, not_nan
from ctrlchan.cli.listeners import Listeners, parse_listeners
from ctrlchan.text import printable

if TYPE_CHECKING:
    from ctrlchan.calibration.costs_file import Calibration
    from ctrlchan.planning.costs import Costs
    from ctrlchan.planning.plan import Plan
    from ctrlchan.state import ClusterState, Endpoint

__all__ = ["plan"]

#: The controller's id where the cluster has none; no broker has it.
_CONTROLLER_ID: Final = 100_000
_PORT: Final = 9_090
_MAX_GBIT: Final = 1e6
#: Value of ``--costs``.
_DEFAULTS: Final = "defaults"
_MEASURED: Final = "measured"
_NO_COSTS: Final = (
    "warning: nothing was measured on this machine; times are those of an AMD EPYC with two processors. "
    "ctrlchan bench calibrate measures it in about a minute"
)
_WIDTH: Final = 160
_UNITS: Final = ("B", "kB", "MB", "GB", "TB", "PB")
_THOUSAND: Final = 1000.0


def plan(
    partitions: Annotated[
        int | None,
        typer.Option(min=1, max=MAX_INT32, metavar="NUMBER", help="Partitions of all topics together."),
    ] = None,
    brokers: Annotated[
        int | None, typer.Option(min=1, max=MAX_INT32, metavar="NUMBER", help="Brokers.")
    ] = None,
    replication: Annotated[
        int, typer.Option(min=1, max=MAX_INT32, metavar="NUMBER", help="Replicas of each partition.")
    ] = 3,
    nic: Annotated[
        float,
        typer.Option(
            min=0.0,
            max=_MAX_GBIT,
            callback=not_nan,
            metavar="GBIT",
            help="Network card of the controller, Gbit/s; 0: the brokers are on this machine.",
        ),
    ] = 10.0,
    snapshot: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER", help="A snapshot of the cluster, in place of --partitions and --brokers."
        ),
    ] = None,
    partitions_per_topic: Annotated[
        int, typer.Option(min=1, max=MAX_INT32, metavar="NUMBER", help="Partitions of each topic.")
    ] = 100,
    topic_name_length: Annotated[
        int, typer.Option(min=1, max=249, metavar="NUMBER", help="Characters of a topic's name.")
    ] = 20,
    racks: Annotated[
        int, typer.Option(min=0, max=MAX_INT32, metavar="NUMBER", help="Racks; 0: brokers have none.")
    ] = 0,
    listener: Listeners = None,
    host: Annotated[
        str, typer.Option(metavar="NAME", help="A broker's host name: its length counts.")
    ] = "broker-0000.internal",
    inter_broker_protocol: Annotated[
        str,
        typer.Option(
            "--inter-broker-protocol", "--ibp", metavar="VERSION", help="Fixes the request versions."
        ),
    ] = "3.9",
    within: Annotated[
        float,
        typer.Option(
            min=0.001,
            max=MAX_SECONDS,
            callback=not_nan,
            metavar="SECONDS",
            help="How long a failover may take: one machine is enough up to there.",
        ),
    ] = 6.0,
    costs: Annotated[
        str,
        typer.Option(
            metavar="measured|defaults",
            help="Costs of this machine as `bench calibrate` has measured them, or those of a small one.",
        ),
    ] = _MEASURED,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON.")] = False,
) -> None:
    """Say what a cluster's control requests cost: bytes, time, memory, and where one machine ends.

    Bytes are exact: the controller's own code makes the requests and the encoder sizes them. Times are
    estimates from the costs that `ctrlchan bench calibrate` has measured on this machine. Nothing is sent.

    Examples:

    \b
      ctrlchan plan --partitions 100000 --brokers 30 --nic 25
      ctrlchan plan --partitions 1000000 --brokers 300 --nic 25 --racks 3 \\
        --listener INTERNAL:PLAINTEXT --listener CLIENTS:SASL_SSL
      ctrlchan plan --snapshot cluster/ --within 2
      ctrlchan plan --partitions 100000 --brokers 30 --json | jq .limit
    """
    from ctrlchan.channel import ChannelConfig
    from ctrlchan.cli.progress import step
    from ctrlchan.planning.plan import make_plan
    from ctrlchan.planning.times import network_rate

    chosen, calibration = _costs(costs)
    with step("making the cluster" if snapshot is None else f"reading {snapshot}"):
        if snapshot is None:
            state = _state(
                partitions,
                brokers,
                replication=replication,
                partitions_per_topic=partitions_per_topic,
                topic_name_length=topic_name_length,
                racks=racks,
                host=host,
                listener=listener,
            )
        else:
            state = _read(snapshot, partitions, brokers)
    with step("counting requests"):
        planned = make_plan(
            state,
            ChannelConfig(controller_id=_CONTROLLER_ID, inter_broker_protocol=inter_broker_protocol),
            chosen,
            network=network_rate(nic) if nic else None,
            within_seconds=within,
            controller=_controller_of(state),
            rack="rack-0" if racks else None,
        )
    if as_json:
        typer.echo(json.dumps(_described(planned, nic, chosen, calibration)))
    else:
        _show(planned, nic, calibration)


def _costs(costs: str) -> tuple[Costs, Calibration | None]:
    """Return the costs, and what is known of their measurement; warn where there was none."""
    from ctrlchan.calibration.costs_file import read_calibration
    from ctrlchan.planning.costs import DEFAULT_COSTS

    if costs not in (_MEASURED, _DEFAULTS):
        raise typer.BadParameter(f"{costs!r} is not measured or defaults", param_hint="--costs")
    if costs == _DEFAULTS:
        return DEFAULT_COSTS, None
    calibration = read_calibration()
    if calibration is None:
        typer.echo(_NO_COSTS, err=True)
        return DEFAULT_COSTS, None
    return calibration.costs, calibration


def _state(
    partitions: int | None, brokers: int | None, *, listener: list[str] | None, **shape: Any
) -> ClusterState:
    from ctrlchan.errors import InvalidStateError
    from ctrlchan.planning.shape import Shape
    from ctrlchan.state.brokers import check_host

    if partitions is None or brokers is None:
        raise typer.BadParameter("give --partitions and --brokers, or --snapshot")
    try:
        check_host(shape["host"])
        listeners = parse_listeners(listener)
    except InvalidStateError as error:
        raise typer.BadParameter(str(error)) from None
    return Shape(partitions=partitions, brokers=brokers, listeners=listeners, **shape).state()


def _read(snapshot: str, partitions: int | None, brokers: int | None) -> ClusterState:
    from ctrlchan.state import ClusterState

    if partitions is not None or brokers is not None:
        raise typer.BadParameter(
            "--snapshot has the partitions and brokers: leave --partitions and --brokers"
        )
    return ClusterState.read(snapshot)


def _controller_of(state: ClusterState) -> tuple[Endpoint, ...]:
    """Return the endpoint of a controller beside the brokers, named as one of theirs."""
    from ctrlchan.state import Endpoint

    for broker_id in state.broker_ids.tolist():
        for first in state.broker(broker_id).endpoints:
            return (Endpoint(first.listener, first.security_protocol, first.host, _PORT),)
    return ()


def _described(plan: Plan, nic: float, costs: Costs, calibration: Calibration | None) -> dict[str, Any]:
    source: dict[str, Any] = {"source": _DEFAULTS}
    if calibration is not None:
        source = {"source": _MEASURED, **asdict(calibration)}
    return {**asdict(plan), "nic_gbit": nic or None, "costs": {**source, "costs": asdict(costs)}}


# -- for people


def _show(plan: Plan, nic: float, calibration: Calibration | None) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_WIDTH)
    card = f"{nic:g} Gbit/s" if nic else "brokers on this machine"
    console.print(
        f"{plan.partitions:,} partitions in {plan.topics:,} topics on {plan.brokers:,} brokers, "
        f"{plan.replicas:,} replicas; IBP {plan.inter_broker_protocol}; {card}"
    )
    table = Table(box=box.SIMPLE)
    table.add_column("event")
    for title in ("requests", "bytes", "most to a broker", "ZooKeeper reads", "writes", "time"):
        table.add_column(title, justify="right")
    table.add_column("decided by")
    for one in plan.events:
        table.add_row(
            one.name,
            f"{one.requests:,}",
            f"{'' if one.exact else '~ '}{one.bytes:,}",
            _bytes(one.most_broker_bytes),
            f"{one.state_nodes_read:,}",
            f"{one.state_nodes_written:,}",
            _seconds(one.seconds),
            one.bound,
        )
    console.print(table)
    console.print(
        f"memory: {_bytes(plan.memory_bytes)} for the controller and {plan.sender_processes} sender processes"
    )
    for line in _advice(plan):
        console.print(line, soft_wrap=True)
    measured = "defaults of a small machine"
    if calibration is not None:
        measured = (
            f"measured on {printable(calibration.machine)}, {calibration.date}, {calibration.zookeeper}"
        )
    console.print(f"costs: {measured}")


def _advice(plan: Plan) -> list[str]:
    limit = plan.limit
    most = (
        f"up to {limit.most_partitions:,} partitions on these brokers, or {limit.most_brokers:,} brokers "
        f"with these partitions; {_LIMITED[limit.bound]}"
    )
    if limit.is_enough:
        return [f"one machine is enough: a failover within {limit.within_seconds:g} s, {most}"]
    lines = [f"one machine is not enough for a failover within {limit.within_seconds:g} s: {most}"]
    if limit.bound == "controller":
        lines.append("more machines do not help: a faster one, a faster ZooKeeper, or fewer partitions do")
    else:
        lines.append(
            f"what to do: send the full state from {max(2, limit.machines)} machines, by `ctrlchan pipeline "
            "frames` and `ctrlchan pipeline dispatch --master ...`, and differences after it"
        )
    return lines


_LIMITED: Final = {
    "network": "the network card decides",
    "processor": "the processors that send decide",
    "controller": "the controller's own work and ZooKeeper decide",
}


def _bytes(count: float) -> str:
    if not count:
        return "0 B"
    power = min(int(math.log(count, _THOUSAND)), len(_UNITS) - 1)
    value = count / _THOUSAND**power
    return f"{value:,.0f} B" if not power else f"{value:,.1f} {_UNITS[power]}"


def _seconds(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1e3:,.1f} ms"
    return f"{seconds:,.2f} s" if seconds < 60 else f"{seconds / 60:,.1f} min"

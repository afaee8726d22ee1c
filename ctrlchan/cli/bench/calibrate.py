"""``ctrlchan bench calibrate``: measures what this machine needs for control requests."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ctrlchan.text import printable

if TYPE_CHECKING:
    from pathlib import Path

    from ctrlchan.calibration.costs_file import Calibration
    from ctrlchan.planning.costs import Costs

__all__ = ["calibrate"]

#: A machine with more processes that are ready to run, for each processor, is busy.
_BUSY: Final = 0.5
_BUSY_WARNING: Final = (
    "warning: this machine is busy (load {load:.1f} on {processors} processors): the costs become too high"
)


def calibrate(
    zookeeper: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT[/chroot]",
            help="Measure with this ZooKeeper, below a new node that is deleted at the end.",
            show_default="nodes in memory",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the costs as JSON.")] = False,
) -> None:
    """Measure this machine for `ctrlchan plan`, in about a minute, and keep the costs.

    Encodes, pushes to processes of this machine that stand for brokers, and lets a controller of its own
    fail over. The machine should have nothing else to do. The file is in the user's cache (XDG_CACHE_HOME,
    else ~/.cache); it counts for this machine and this version of ctrlchan.

    Nodes in memory are answered as quickly as a ZooKeeper server on this machine, and without a disk: with
    --zookeeper the times of failovers are those of your server. No cluster in it is touched.

    Examples:

    \b
      ctrlchan bench calibrate
      ctrlchan bench calibrate --zookeeper zk1:2181,zk2:2181
      ctrlchan bench calibrate --json | jq .costs
    """
    from ctrlchan.calibration.costs_file import Calibration, costs_path, write_calibration
    from ctrlchan.calibration.measure import measure_costs

    costs_path()
    processors = os.cpu_count() or 1
    load = os.getloadavg()[0]
    if load > _BUSY * processors:
        typer.echo(_BUSY_WARNING.format(load=load, processors=processors), err=True)
    with _progress() as show:
        costs = measure_costs(zookeeper, show)
    calibration = Calibration.now(costs, with_server=zookeeper is not None)
    path = write_calibration(calibration)
    if as_json:
        typer.echo(json.dumps({"file": str(path), **asdict(calibration)}))
    else:
        _show(costs, calibration, path)


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """Show on standard error what is measured: a spinner on a terminal, a line for each elsewhere."""
    from rich.console import Console

    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield lambda what: console.print(what)
        return
    with console.status("calibrating") as status:
        yield lambda what: status.update(what)


def _show(costs: Costs, calibration: Calibration, path: Path) -> None:
    from ctrlchan.planning.times import CACHED_BYTES

    rows = (
        ("encoding a partition", costs.encode_seconds * 1e9, "ns"),
        ("sending", 1e-9 / costs.byte_seconds, "GB/s"),
        (f"sending bodies up to {CACHED_BYTES >> 20} MiB", 1e-9 / costs.cached_byte_seconds, "GB/s"),
        ("a request to a broker", costs.request_seconds * 1e6, "µs"),
        ("a push", costs.push_seconds * 1e3, "ms"),
        ("reading a state node", costs.read_seconds * 1e6, "µs"),
        ("writing a state node", costs.write_seconds * 1e6, "µs"),
        ("a failover", costs.failover_seconds * 1e3, "ms"),
        ("a failover, for each partition", costs.failover_partition_seconds * 1e6, "µs"),
        ("a failover, for each broker", costs.failover_broker_seconds * 1e3, "ms"),
        ("an event", costs.event_seconds * 1e3, "ms"),
        ("memory of a controller", costs.controller_bytes / 1e6, "MB"),
        ("memory for each partition", costs.controller_partition_bytes, "B"),
    )
    for what, value, unit in rows:
        typer.echo(f"{what + ':':32} {value:10.3g} {unit}")
    typer.echo(f"measured with {calibration.zookeeper}; kept in {printable(str(path))}")

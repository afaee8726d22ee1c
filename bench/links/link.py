"""``SlowLink``: two hosts and the link between them, whose delay, loss and rate can be changed at any time.

``near`` is the namespace of this thread while the link is open, ``far`` another one. Frames between them pass
through ``bench/peers/link.c``, which runs in a third. (Linux has qdiscs for this, netem and tbf; but few
kernels of virtual machines and containers do. One program everywhere means one link everywhere.)
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

from bench.links.namespaces import Holder, entered, run, without_segmentation_offload
from bench.peers.native import build
from bench.peers.process import PeerProcess
from tests.kafka.processes import Reaper

__all__ = ["FAR", "NEAR", "Direction", "LinkSettings", "SlowLink"]

#: Addresses in namespaces that are the run's own.
NEAR: Final = "10.214.0.1"
FAR: Final = "10.214.0.2"
_NETWORK: Final = "10.214.0.0/24"
_HARDWARE: Final = {NEAR: "02:00:00:00:00:01", FAR: "02:00:00:00:00:02"}
_SEED: Final = 27
#: Linux's own values, whatever this machine is tuned to. The congestion control is an attribute of the route:
#: some kernels allow no other default in a namespace.
_CONGESTION_CONTROL: Final = "cubic"
_TCP: Final = {
    "tcp_rmem": "4096 131072 6291456",
    "tcp_wmem": "4096 16384 4194304",
    "tcp_no_metrics_save": "1",  # a connection does not begin with what an earlier one has learned
}


@dataclass(frozen=True, kw_only=True)
class LinkSettings:
    """A link, the same in both directions.

    ``round_trip_ms``: half of it in each direction. ``loss``: the share of frames that are lost. ``gbit``:
    gigabits a second, 0 for no limit. ``queue``: frames that wait for the rate before others are dropped, as
    Linux's txqueuelen.
    """

    round_trip_ms: float = 0.0
    loss: float = 0.0
    gbit: float = 0.0
    queue: int = 1000

    def __str__(self) -> str:
        parts = [f"{self.round_trip_ms:g} ms"]
        if self.loss:
            parts.append(f"{self.loss:.0%} loss")
        if self.gbit:
            parts.append(f"{self.gbit:g} Gbit/s")
        return ", ".join(parts)


class Direction(NamedTuple):
    """What one direction has carried since it was set; ``link.c`` describes the counts."""

    frames: int
    bytes: int
    lost: int
    overflowed: int
    missed: int
    late_us: int
    worst_us: int


class SlowLink:
    """Opens in a ``with`` block, with neither delay nor loss. Raises OSError or RuntimeError."""

    def __init__(self, folder: Path, seed: int = _SEED) -> None:
        self._folder = folder
        self._seed = seed
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            program = build("link")
            reaper = Reaper()
            stack.callback(reaper.close)
            stack.enter_context(entered())
            far, wire = (Holder(name, self._folder, reaper) for name in ("far", "wire"))
            stack.callback(wire.close)
            stack.callback(far.close)
            for name, address in (("near", NEAR), ("far", FAR)):
                run("ip", "link", "add", name, "type", "veth", "peer", "name", f"{name}-wire")
                for one in (name, f"{name}-wire"):
                    without_segmentation_offload(one)
                run("ip", "link", "set", name, "address", _HARDWARE[address])
                run("ip", "link", "set", f"{name}-wire", "netns", str(wire.pid))
                wire.run("ip", "link", "set", f"{name}-wire", "addrgenmode", "none", "up")
            run("ip", "link", "set", "far", "netns", str(far.pid))
            _configure("near", (), NEAR, FAR)
            _configure("far", far.prefix, FAR, NEAR)
            command = [*wire.prefix, str(program), "near-wire", "far-wire", str(self._seed)]
            self._program = stack.enter_context(PeerProcess(command))
            self._program.read_line()
            self.far_prefix: Sequence[str] = far.prefix
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def set(self, settings: LinkSettings) -> None:
        """Change the link for all frames that come from now on, and count anew."""
        one_way_us = round(settings.round_trip_ms * 500)
        rate = round(settings.gbit * 1e9)
        self._program.ask(f"set {one_way_us} {settings.loss} {rate} {settings.queue}")

    def end_connections(self) -> None:
        """End all TCP connections over the link, which keep windows that they had on an earlier link.

        Raises RuntimeError on a kernel that cannot (CONFIG_INET_DIAG_DESTROY).
        """
        before = self._connections()
        run("ss", "--kill", "--tcp", "dst", FAR)
        if before & self._connections():
            raise RuntimeError("this kernel ends no connections (CONFIG_INET_DIAG_DESTROY)")

    @staticmethod
    def _connections() -> frozenset[str]:
        """Return the addresses of both ends of each connection."""
        command = ["ss", "--no-header", "--tcp", "--numeric", "state", "established", "dst", FAR]
        ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
        return frozenset(" ".join(line.split()[-2:]) for line in ran.stdout.splitlines())

    def report(self) -> tuple[Direction, Direction]:
        """Return what went from near to far, and from far to near."""
        counts = list(map(int, self._program.ask("report").split()))
        half = len(counts) // 2
        return Direction(*counts[:half]), Direction(*counts[half:])


def _configure(interface: str, prefix: Sequence[str], own: str, other: str) -> None:
    """Give an interface its address. Without ARP and IPv6 there are no frames but those of the programs."""
    run(*prefix, "ip", "address", "add", f"{own}/24", "dev", interface)
    run(*prefix, "ip", "link", "set", interface, "addrgenmode", "none", "up")
    neighbour = ["neighbour", "replace", other, "lladdr", _HARDWARE[other], "dev", interface]
    run(*prefix, "ip", *neighbour, "nud", "permanent")
    route = ["route", "change", _NETWORK, "dev", interface, "scope", "link", "src", own]
    run(*prefix, "ip", *route, "congctl", _CONGESTION_CONTROL)
    for name, value in _TCP.items():
        run(*prefix, "sh", "-c", f"echo '{value}' > /proc/sys/net/ipv4/{name}")

"""Where the nodes run: each in a network namespace of its own, or all on loopback behind TCP proxies.

A run enters a network and a mount namespace before anything is started (``enter``), so that the kernel
removes all interfaces and mounts with its last process, however it ends. A bridge joins the nodes. A cut link
is a neighbour entry with an address that nobody has: frames are lost without a word, as on a broken cable.
Where namespaces are not allowed, a link is cut by a proxy, which closes its connections and takes new ones
without passing anything on; and there is no disk that can be filled.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from tests.chaos.plan import BROKERS, CONTROLLERS, ZOOKEEPER
from tests.fault.proxy import FINE, Harm, Proxy
from tests.kafka.ports import free_port
from tests.kafka.processes import Child, Reaper
from tests.kafka.waiting import wait_until

__all__ = ["Address", "Hosts", "LoopbackHosts", "NamespaceHosts", "enter", "is_entered", "make_hosts"]

#: Set in a process that is in namespaces of its own, and in all that it starts.
_ENTERED: Final = "CTRLCHAN_CHAOS_NAMESPACES"
#: Nobody's hardware address: of the locally administered ones.
_NOBODY: Final = "02:00:00:00:00:ff"
_BROKER_PORT, _ZOOKEEPER_PORT = 9092, 2181
#: Bytes of a log directory: more than a run of an hour writes.
_DISK: Final = "1g"
_STALLED: Final = Harm(stall_at=0)


@dataclass(frozen=True)
class Address:
    """Where a node listens, and where others reach it."""

    host: str
    port: int
    reached_at: str


class Hosts(Protocol):
    """The machines of the nodes. ``has_disks``: ``mount_disk`` mounts one of limited size."""

    description: str
    has_disks: bool

    def address(self, name: str) -> Address:
        """Return the address of the node."""

    def zookeeper_for(self, name: str) -> str:
        """Return where the node reaches ZooKeeper."""

    def prefix(self, name: str) -> Sequence[str]:
        """Return the command that runs the command behind it on the node's machine."""

    def mount_disk(self, folder: Path) -> None:
        """Make the folder a disk of its own, where that is possible."""

    def cut(self, one: str, other: str) -> None:
        """Cut the link between two nodes."""

    def heal(self, one: str, other: str) -> None:
        """Undo ``cut``."""

    def close(self) -> None:
        """Remove everything."""


def enter() -> None:
    """Run this very command in namespaces of its own, where that is allowed; returns where it is not."""
    if is_entered() or not sys.platform.startswith("linux"):
        return
    for options in (["--net", "--mount"], ["--map-root-user", "--net", "--mount"]):
        command = ["unshare", *options]
        trial = "ip link add trial type bridge && mount -t tmpfs -o size=1m tmpfs /mnt"
        try:
            tried = subprocess.run([*command, "sh", "-c", trial], capture_output=True, timeout=60)
        except OSError:
            return
        if tried.returncode == 0:
            os.environ[_ENTERED] = "1"
            sys.stdout.flush()
            os.execvp(command[0], [*command, *sys.orig_argv])


def is_entered() -> bool:
    """Return whether this process is in namespaces of its own."""
    return _ENTERED in os.environ


def make_hosts(folder: Path, reaper: Reaper) -> Hosts:
    """Return the hosts of a run: in namespaces when ``enter`` could."""
    return NamespaceHosts(folder, reaper) if is_entered() else LoopbackHosts()


class NamespaceHosts:
    """Each node has a network namespace, which lives as long as a child process in it."""

    description = "each node in a network namespace of its own, log directories on tmpfs"
    has_disks = True

    def __init__(self, folder: Path, reaper: Reaper) -> None:
        self._numbers = {name: number for number, name in enumerate((ZOOKEEPER, *CONTROLLERS, *BROKERS), 1)}
        self._holders: dict[str, Child] = {}
        self._disks: list[Path] = []
        _run("ip", "link", "set", "lo", "up")
        _run("ip", "link", "add", "nodes", "type", "bridge")
        _run("ip", "address", "add", "10.213.0.254/24", "dev", "nodes")
        _run("ip", "link", "set", "nodes", "up")
        for name, number in self._numbers.items():
            self._add(name, number, folder, reaper)

    def _add(self, name: str, number: int, folder: Path, reaper: Reaper) -> None:
        command = ["unshare", "--net", "sleep", "infinity"]
        holder = Child(f"namespace of {name}", command, folder / "namespaces.log", reaper)
        self._holders[name] = holder
        ours = os.readlink("/proc/self/ns/net")
        wait_until(
            lambda: os.readlink(f"/proc/{holder.pid}/ns/net") != ours,
            what=f"{name} has a network namespace",
        )
        link = f"node{number}"
        _run("ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", str(holder.pid))
        _run("ip", "link", "set", link, "master", "nodes", "up")
        self._run_in(name, "ip", "address", "add", f"{self._ip(name)}/24", "dev", "eth0")
        self._run_in(name, "ip", "link", "set", "lo", "up")
        self._run_in(name, "ip", "link", "set", "eth0", "up")

    def _ip(self, name: str) -> str:
        return f"10.213.0.{self._numbers[name]}"

    def address(self, name: str) -> Address:
        port = _ZOOKEEPER_PORT if name == ZOOKEEPER else _BROKER_PORT
        return Address(self._ip(name), port, f"{self._ip(name)}:{port}")

    def zookeeper_for(self, name: str) -> str:
        return self.address(ZOOKEEPER).reached_at

    def prefix(self, name: str) -> Sequence[str]:
        return ["nsenter", f"--net=/proc/{self._holders[name].pid}/ns/net"]

    def mount_disk(self, folder: Path) -> None:
        _run("mount", "-t", "tmpfs", "-o", f"size={_DISK}", "chaos", str(folder))
        self._disks.append(folder)

    def cut(self, one: str, other: str) -> None:
        for name, peer in ((one, other), (other, one)):
            entry = ["ip", "neighbour", "replace", self._ip(peer), "lladdr", _NOBODY]
            self._run_in(name, *entry, "dev", "eth0", "nud", "permanent")

    def heal(self, one: str, other: str) -> None:
        for name, peer in ((one, other), (other, one)):
            self._run_in(name, "ip", "neighbour", "del", self._ip(peer), "dev", "eth0")

    def close(self) -> None:
        for holder in self._holders.values():
            holder.kill()
        # The bridge, and the ends of the links that are here.
        _run("ip", "link", "del", "nodes")
        for folder in self._disks:
            _run("umount", str(folder))

    def _run_in(self, name: str, *command: str) -> None:
        _run(*self.prefix(name), *command)


def _run(*command: str) -> None:
    """Run a command. Raises RuntimeError with its output where it fails."""
    ran = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60)
    if ran.returncode:
        raise RuntimeError(f"{' '.join(command)}: {ran.stderr.strip()}")


@dataclass
class LoopbackHosts:
    """All nodes on 127.0.0.1. A node is reached through its proxy, ZooKeeper through one for each node."""

    description: str = "all nodes on loopback behind TCP proxies (network namespaces are not allowed here)"
    has_disks: bool = False
    _ports: dict[str, int] = field(default_factory=dict)
    _proxies: dict[tuple[str, str], Proxy] = field(default_factory=dict)

    def address(self, name: str) -> Address:
        port = self._port(name)
        reached_at = port if name == ZOOKEEPER else self._proxy("", name).port
        return Address("127.0.0.1", port, f"127.0.0.1:{reached_at}")

    def zookeeper_for(self, name: str) -> str:
        return f"127.0.0.1:{self._proxy(name, ZOOKEEPER).port}"

    def _proxy(self, source: str, target: str) -> Proxy:
        key = source, target
        if key not in self._proxies:
            self._proxies[key] = Proxy(self._port(target))
        return self._proxies[key]

    def _port(self, name: str) -> int:
        if name not in self._ports:
            self._ports[name] = free_port()
        return self._ports[name]

    def prefix(self, name: str) -> Sequence[str]:
        return []

    def mount_disk(self, folder: Path) -> None:
        pass

    def _link(self, one: str, other: str) -> Proxy:
        # A proxy does not know who connects: the link of two brokers is all links to one of them.
        return self._proxy(one, other) if other == ZOOKEEPER else self._proxy("", other)

    def cut(self, one: str, other: str) -> None:
        self._link(one, other).plan = lambda _: (_STALLED, _STALLED)
        self._link(one, other).drop_connections()

    def heal(self, one: str, other: str) -> None:
        self._link(one, other).plan = lambda _: (FINE, FINE)
        self._link(one, other).drop_connections()

    def close(self) -> None:
        for proxy in self._proxies.values():
            proxy.close()

"""The processes of the cluster: ZooKeeper, controllers, brokers; how each is started, stopped and killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.chaos.hosts import Hosts
from tests.chaos.plan import BROKERS, CONTROLLERS, ZOOKEEPER
from tests.kafka.processes import Child, Reaper, last_lines
from tests.kafka.wire import answers_api_versions
from tests.kafka.zookeeper import ZooKeeperServer

__all__ = ["BrokerNode", "ChaosError", "Node", "ServerNode", "ZooKeeperNode", "broker_id", "make_nodes"]

#: Seconds in which a process must be ready once it may be, and in which it must end after SIGTERM.
START_SECONDS: Final = 180.0
END_SECONDS: Final = 120.0
#: Signals of a process that has a bug: it never ends by them, whatever happens to it.
_CRASHES: Final = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE)

SETTINGS: Final = {
    "inter.broker.listener.name": "PLAINTEXT",
    "zookeeper.session.timeout.ms": "4000",
    "zookeeper.connection.timeout.ms": "10000",
    "auto.create.topics.enable": "false",
    "unclean.leader.election.enable": "false",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "replica.lag.time.max.ms": "5000",
    "num.network.threads": "2",
    "num.io.threads": "4",
    # Faults meet logs that roll, flush and checkpoint.
    "log.segment.bytes": "1048576",
    "log.index.size.max.bytes": "1048576",
    "log.index.interval.bytes": "1024",
    "log.retention.ms": "-1",
    "log.segment.delete.delay.ms": "1000",
    "log.flush.offset.checkpoint.interval.ms": "2000",
    "replica.high.watermark.checkpoint.interval.ms": "1000",
}


class ChaosError(Exception):
    """The cluster did not do what it must. ``node``: whose stacks are of interest."""

    def __init__(self, text: str, node: Node | None = None) -> None:
        super().__init__(text)
        self.node = node


class Node:
    """A machine with one process. ``lock``: held by whoever does something to the process.

    ``up_since``: since when the process must answer (``time.monotonic``), None while it need not.
    """

    def __init__(self, name: str, folder: Path, reaper: Reaper) -> None:
        self.name = name
        self.folder = folder
        self.log = folder / "output.log"
        self.lock = threading.RLock()
        self.up_since: float | None = None
        #: Starts that ended before the process was ready, such as those without ZooKeeper.
        self.failed_starts = 0
        self._reaper = reaper
        self._child: Child | None = None
        folder.mkdir(parents=True)

    @property
    def pid(self) -> int | None:
        """The process id, None where nothing runs."""
        return None if self._child is None else self._child.pid

    def answers(self) -> bool:
        """Return whether the process answers a request."""
        raise NotImplementedError

    def command(self) -> list[str]:
        """Return the command of the process."""
        raise NotImplementedError

    def start(self, given_up: threading.Event) -> None:
        """Start the process and wait until it answers; where it ends before, again, as a service manager.

        Returns early when ``given_up`` is set. Raises ChaosError.
        """
        deadline = time.monotonic() + START_SECONDS
        while not given_up.is_set():
            child = self._child = Child(self.name, self.command(), self.log, self._reaper)
            while not given_up.wait(0.1):
                try:
                    child.check_alive()
                except RuntimeError:
                    self._check_status(child)
                    self.failed_starts += 1
                    break
                if self.answers():
                    self.up_since = time.monotonic()
                    return
                if time.monotonic() > deadline:
                    raise ChaosError(f"{self.name} is not ready after {START_SECONDS:g} s", self)
            self.kill()
            if time.monotonic() > deadline:
                raise ChaosError(f"{self.name} does not start:\n{last_lines(self.log, 15)}", self)
            given_up.wait(0.5)

    def kill(self) -> None:
        """SIGKILL, which loses nothing that was written: the page cache stays."""
        self.up_since = None
        if self._child is not None:
            self._child.kill()
            self._child = None

    def terminate(self) -> None:
        """SIGTERM, and wait until the process has ended by itself. Raises ChaosError."""
        self.up_since = None
        if self._child is None:
            return
        try:
            self._child.terminate(END_SECONDS)
        except subprocess.TimeoutExpired:
            raise ChaosError(f"{self.name} does not end after SIGTERM", self) from None
        status = self._child.status
        self._child = None
        if status:
            raise ChaosError(f"{self.name} ended with status {status}:\n{last_lines(self.log, 15)}")

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """SIGSTOP, and SIGCONT in the end."""
        self.up_since = None
        self.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.signal(signal.SIGCONT)
            self.up_since = time.monotonic()

    def signal(self, number: int) -> None:
        """Send a signal to the process, if it runs."""
        if self._child is not None:
            os.kill(self._child.pid, number)

    def check_alive(self) -> None:
        """Raise ChaosError where a process that must run has ended."""
        child = self._child
        if child is None or self.up_since is None:
            return
        try:
            child.check_alive()
        except RuntimeError as error:
            if self.up_since is not None and self._child is child:
                raise ChaosError(str(error)) from None

    def has_ended(self) -> bool:
        """Return whether the process has ended by itself. Raises ChaosError where it crashed."""
        if self._child is None:
            return True
        status = self._child.status
        if status is not None:
            self._check_status(self._child)
        return status is not None

    def _check_status(self, child: Child) -> None:
        if child.status is not None and -child.status in _CRASHES:
            name = signal.Signals(-child.status).name
            raise ChaosError(f"{self.name} ended by {name}:\n{last_lines(self.log, 15)}")


class ServerNode(Node):
    """A controller or a broker: a ``ctrlchan`` command with a ``server.properties``."""

    def __init__(
        self, name: str, subcommand: str, folder: Path, hosts: Hosts, reaper: Reaper, more: Mapping[str, str]
    ) -> None:
        super().__init__(name, folder, reaper)
        self._address = hosts.address(name)
        self._prefix = hosts.prefix(name)
        self._subcommand = subcommand
        properties = {
            "broker.id": str(broker_id(name)),
            "listeners": f"PLAINTEXT://{self._address.host}:{self._address.port}",
            "advertised.listeners": f"PLAINTEXT://{self._address.reached_at}",
            "zookeeper.connect": hosts.zookeeper_for(name),
            **SETTINGS,
            **more,
        }
        lines = "".join(f"{key}={value}\n" for key, value in properties.items())
        (folder / "server.properties").write_text(lines)

    @property
    def endpoint(self) -> tuple[str, int]:
        """Where the process listens."""
        return self._address.host, self._address.port

    @property
    def reached_at(self) -> str:
        """Where clients reach the process."""
        return self._address.reached_at

    def answers(self) -> bool:
        return answers_api_versions(*self.endpoint)

    def command(self) -> list[str]:
        ours = [sys.executable, "-m", "ctrlchan", self._subcommand]
        return [*self._prefix, *ours, "--config", str(self.folder / "server.properties")]


class BrokerNode(ServerNode):
    """A broker that stores records in ``disks``: folders, each a file system of its own where possible."""

    def __init__(self, name: str, folder: Path, hosts: Hosts, reaper: Reaper, disks: int) -> None:
        self.disks = [folder / f"disk-{number}" for number in range(disks)]
        folders = ",".join(str(disk / "log") for disk in self.disks)
        super().__init__(name, "broker", folder, hosts, reaper, {"log.dirs": folders})
        for disk in self.disks:
            disk.mkdir()
            hosts.mount_disk(disk)

    @property
    def log_dirs(self) -> list[Path]:
        return [disk / "log" for disk in self.disks]


class ZooKeeperNode(Node):
    """A real ZooKeeper server."""

    def __init__(self, folder: Path, hosts: Hosts, reaper: Reaper) -> None:
        super().__init__(ZOOKEEPER, folder, reaper)
        address = hosts.address(ZOOKEEPER)
        self._server = ZooKeeperServer(
            folder, host=address.host, port=address.port, prefix=hosts.prefix(ZOOKEEPER)
        )

    @property
    def address(self) -> str:
        """Where the run itself reaches it."""
        return self._server.address

    def answers(self) -> bool:
        return self._server.answers()

    def command(self) -> list[str]:
        return self._server.command()


def broker_id(name: str) -> int:
    """Return the id in the name of a controller or a broker."""
    return int(name.rpartition("-")[2])


def make_nodes(folder: Path, hosts: Hosts, reaper: Reaper) -> dict[str, Node]:
    """Return all nodes by name, of which none runs."""
    nodes: dict[str, Node] = {ZOOKEEPER: ZooKeeperNode(folder / ZOOKEEPER, hosts, reaper)}
    for name in CONTROLLERS:
        nodes[name] = ServerNode(name, "controller", folder / name, hosts, reaper, {})
    for number, name in enumerate(BROKERS):
        # A broker with one disk ends when it is full, one with two goes on with the other.
        nodes[name] = BrokerNode(name, folder / name, hosts, reaper, disks=1 + number % 2)
    return nodes

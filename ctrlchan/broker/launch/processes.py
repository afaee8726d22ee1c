"""Many embedded brokers in child processes, as many processes as there are cores.

A child is a new interpreter started by ``subprocess`` rather than by ``multiprocess``: it does not import the
caller's main module (which may be a test runner, a notebook or a script without a guard), inherits no lock of
a threaded parent, and thirty brokers listen after a second. A child ends when its standard input is closed,
which also happens when the parent dies.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, replace
from types import TracebackType
from typing import Any, Self

from ctrlchan.broker.core import DEFAULT_CLUSTER_ID
from ctrlchan.broker.launch.log_dirs import LogDir, LogFolder
from ctrlchan.broker.launch.service import BrokerConfig
from ctrlchan.errors import ConfigError, CtrlchanError
from ctrlchan.interpreter import child_command
from ctrlchan.state import Broker, Endpoint, SecurityProtocol

__all__ = ["BrokerProcesses"]

_STOP_SECONDS = 10.0
_STOP_STORING_SECONDS = 60.0  # logs are flushed


class BrokerProcesses:
    """`count` brokers with ids from `first_id` in child processes, without a controller.

    The parameters are those of ``ctrlchan.EmbeddedCluster``, which adds a controller to brokers that store
    records.
    """

    def __init__(
        self,
        count: int,
        *,
        first_id: int = 1,
        host: str = "127.0.0.1",
        listener: str = "PLAINTEXT",
        epoch: int | Mapping[int, int] = -1,
        racks: Sequence[str] = (),
        cluster_id: str = DEFAULT_CLUSTER_ID,
        processes: int | None = None,
        zookeeper: str | None = None,
        session_timeout: float = 10.0,
        log_dir: LogDir = None,
        configs: Mapping[str, str] | None = None,
        controller: str | None = None,
    ) -> None:
        if count < 1:
            raise ConfigError(f"a cluster of {count} brokers")
        processes = min(count, (os.cpu_count() or 1) if processes is None else processes)
        if processes < 1:
            raise ConfigError(f"{processes} processes cannot hold {count} brokers")
        settings = dict(configs or {})
        if log_dir is not None:
            # Kafka's own embedded clusters have these values, too.
            settings.setdefault("offsets.topic.replication.factor", str(min(3, count)))
            settings.setdefault("group.initial.rebalance.delay.ms", "0")
        self._zookeeper = zookeeper
        self._session_timeout = session_timeout
        self._children: list[_Child] = []
        self._folder = LogFolder(log_dir)
        folder = self._folder.path
        with ExitStack() as cleanup:
            cleanup.callback(self.close)
            brokers = [
                BrokerConfig(
                    id=broker_id,
                    host=host,
                    listener=listener,
                    epoch=epoch if isinstance(epoch, int) else epoch.get(broker_id, -1),
                    rack=racks[place % len(racks)] if racks else None,
                    cluster_id=cluster_id,
                    log_dirs=() if folder is None else (os.path.join(folder, f"broker-{broker_id}"),),
                    configs=settings,
                    controller=controller,
                )
                for place, broker_id in enumerate(range(first_id, first_id + count))
            ]
            # All are started before the first is waited for, so they start side by side.
            for first in range(processes):
                self._children.append(self._new_child(brokers[first::processes]))
            #: The brokers, by ascending id; also those that were killed.
            self.brokers: list[Broker] = sorted(
                (broker for child in self._children for broker in child.wait_ready()),
                key=lambda broker: broker.id,
            )
            cleanup.pop_all()

    @property
    def pids(self) -> list[int]:
        """Process ids of the children."""
        return [child.process.pid for child in self._children]

    @property
    def bootstrap_servers(self) -> str:
        """``host:port,host:port,…`` of all brokers, for Kafka's clients."""
        return ",".join(f"{endpoint.host}:{endpoint.port}" for b in self.brokers for endpoint in b.endpoints)

    def describe(self) -> list[dict[str, Any]]:
        """Return what ``EmbeddedBroker.describe`` returns of each broker, in the order of ids.

        Brokers that were killed are left out.
        """
        described = [broker for child in self._children if not child.killed for broker in child.describe()]
        return sorted(described, key=lambda broker: int(broker["id"]))

    def pid_of(self, broker_id: int) -> int:
        """Return the process id of this broker. Raises KeyError for no such broker."""
        return self._child_of(broker_id).process.pid

    def kill_broker(self, broker_id: int) -> None:
        """Kill the process of this broker with SIGKILL, as a machine that fails.

        Raises ConfigError when the process has other brokers, too, and KeyError for no such broker.
        """
        child = self._child_of(broker_id)
        if len(child.configs) > 1:
            raise ConfigError(f"broker {broker_id} shares its process: give every broker its own (processes)")
        child.kill()

    def start_broker(self, broker_id: int) -> Broker:
        """Start a killed broker again, on the same port, with a new epoch if it is registered.

        Raises CtrlchanError when it does not start, KeyError for no such broker.
        """
        child = self._child_of(broker_id)
        (before,) = (broker for broker in self.brokers if broker.id == broker_id)
        child.ask_to_stop()
        child.wait_stopped()
        (config,) = child.configs
        self._children.remove(child)
        child = self._new_child([replace(config, port=before.endpoints[0].port)])
        self._children.append(child)
        (broker,) = child.wait_ready()
        self.brokers[self.brokers.index(before)] = broker
        return broker

    def _new_child(self, configs: Sequence[BrokerConfig]) -> _Child:
        temporary = self._folder.path if self._folder.is_temporary else None
        return _Child(configs, self._zookeeper, self._session_timeout, temporary)

    def _child_of(self, broker_id: int) -> _Child:
        for child in self._children:
            if broker_id in [config.id for config in child.configs]:
                return child
        raise KeyError(broker_id)

    def close(self) -> None:
        """End the children and wait until they have ended."""
        for child in self._children:
            child.ask_to_stop()
        for child in self._children:
            child.wait_stopped()
        self._children.clear()
        self._folder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Child:
    """One child process, and the JSON lines to and from it.

    ``temporary``: a folder that is removed with this process, None: none.
    """

    def __init__(
        self,
        configs: Sequence[BrokerConfig],
        zookeeper: str | None,
        session_timeout: float,
        temporary: str | None,
    ) -> None:
        self.configs = configs
        self.killed = False
        self.process = subprocess.Popen(
            child_command("ctrlchan.broker.launch.child"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        settings = {"zookeeper": zookeeper, "session_timeout": session_timeout, "temporary": temporary}
        self._send({"brokers": [asdict(config) for config in configs], **settings})

    def wait_ready(self) -> list[Broker]:
        return [
            Broker(
                config.id,
                epoch,
                (Endpoint(config.listener, SecurityProtocol.PLAINTEXT, config.host, port),),
                config.rack,
            )
            for config, (port, epoch) in zip(self.configs, self._receive(), strict=True)
        ]

    def describe(self) -> list[dict[str, Any]]:
        described: list[dict[str, Any]] = self.call("describe")
        return described

    def call(self, message: Any) -> Any:
        """Send a line and return what the child answers. Raises CtrlchanError."""
        self._send(message)
        return self._receive()

    def kill(self) -> None:
        self.killed = True
        self.process.kill()
        self.process.wait()

    def ask_to_stop(self) -> None:
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended
            self.process.stdin.close()

    def wait_stopped(self) -> None:
        try:
            self.process.wait(_STOP_STORING_SECONDS if self.configs[0].log_dirs else _STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def _send(self, message: Any) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError as error:
            raise CtrlchanError(f"the brokers' process {self.process.pid} has ended") from error

    def _receive(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise CtrlchanError(
                f"the brokers' process {self.process.pid} has ended (exit status {self.process.wait()})"
            )
        message = json.loads(line)
        if "error" in message:
            raise CtrlchanError(message["error"])
        return message["ok"]

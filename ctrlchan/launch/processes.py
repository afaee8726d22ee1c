"""Many embedded brokers in child processes, as many processes as there are cores.

A child is a new interpreter started by ``subprocess`` rather than by ``multiprocess``: it does not import the
caller's main module (which may be a test runner, a notebook or a script without a guard), inherits no lock of
a threaded parent, and thirty brokers listen after a second. A child ends when its standard input is closed,
which also happens when the parent dies. It has a process group of its own: whoever sends SIGTERM or SIGKILL
to the group of the parent ends the parent, and the child cleans up.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict
from typing import Any

from ctrlchan.broker.config.broker_config import BrokerConfig
from ctrlchan.closing import Closing
from ctrlchan.config import table
from ctrlchan.errors import ConfigError, CtrlchanError
from ctrlchan.interpreter import child_command
from ctrlchan.launch.descriptions import BrokerDescription
from ctrlchan.state import Broker, Endpoint, SecurityProtocol
from ctrlchan.state.brokers import format_host_port

__all__ = ["BrokerProcesses", "settings_of_cluster"]

#: So many brokers that store records have a process of their own; more of them share processes.
_OWN_PROCESSES = 12
_STOP_SECONDS = 10.0
_STOP_STORING_SECONDS = 60.0  # logs are flushed
_READ_BYTES = 64 * 1024


def settings_of_cluster(count: int, configs: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of each of `count` brokers that store records: `configs`, and what is left out."""
    # Kafka's own embedded clusters have these values, too.
    small = {
        table.OFFSETS_TOPIC_REPLICATION_FACTOR.name: str(min(3, count)),
        table.TRANSACTION_STATE_LOG_REPLICATION_FACTOR.name: str(min(3, count)),
        table.TRANSACTION_STATE_LOG_MIN_ISR.name: str(min(2, count)),
        table.GROUP_INITIAL_REBALANCE_DELAY_MS.name: "0",
    }
    return small | dict(configs)


class BrokerProcesses(Closing):
    """Brokers in child processes, without a controller.

    ``processes``: how many. None stands for one for each core, or one for each broker of up to twelve that
    store records, so that it can be killed. ``zookeeper``: ``HOST:PORT[,HOST:PORT...][/chroot]`` where the
    brokers are registered; their epochs and their cluster id come from there. ``session_timeout``: seconds
    after which killed brokers are not registered any more. ``temporary``: a folder that the children make,
    and remove when this process was killed. All methods are thread-safe. Raises ConfigError, and
    CtrlchanError when a child process does not start.
    """

    def __init__(
        self,
        brokers: Sequence[BrokerConfig],
        *,
        processes: int | None = None,
        zookeeper: str | None = None,
        session_timeout: float = 10.0,
        temporary: str | None = None,
    ) -> None:
        if not brokers:
            raise ConfigError("a cluster of 0 brokers")
        if processes is None:
            own = len(brokers) <= _OWN_PROCESSES and all(config.log_dirs for config in brokers)
            processes = len(brokers) if own else os.cpu_count() or 1
        processes = min(len(brokers), processes)
        if processes < 1:
            raise ConfigError(f"{processes} processes cannot hold {len(brokers)} brokers")
        self._zookeeper = zookeeper
        self._session_timeout = session_timeout
        self._temporary = temporary
        self._children: list[_Child] = []
        # Held while children are replaced or ended.
        self._changing = threading.Lock()
        with ExitStack() as cleanup:
            cleanup.callback(self._end_children)
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
        """``host:port,host:port,…`` of all brokers, for Kafka's clients: the first listener of each."""
        return self.bootstrap_servers_of(self.brokers[0].endpoints[0].listener)

    def bootstrap_servers_of(self, listener: str) -> str:
        """Return ``host:port,host:port,…`` of a listener. Raises KeyError for no such listener."""
        found = [one for broker in self.brokers for one in broker.endpoints if one.listener == listener]
        if not found:
            raise KeyError(listener)
        return ",".join(format_host_port(one.host, one.port) for one in found)

    def describe(self) -> list[BrokerDescription]:
        """Return what each broker holds and its counters, in the order of ids.

        Brokers that were killed are left out.
        """
        described = [broker for child in self._children if not child.killed for broker in child.describe()]
        return sorted(described, key=lambda broker: broker["id"])

    def pid_of(self, broker_id: int) -> int:
        """Return the process id of this broker. Raises KeyError for no such broker."""
        return self._child_of(broker_id).process.pid

    def kill_broker(self, broker_id: int) -> None:
        """Kill the process of this broker with SIGKILL, as a machine that fails.

        Raises ConfigError when the process has other brokers, too, and KeyError for no such broker.
        """
        self._only_child_of(broker_id).kill()

    def start_broker(self, broker_id: int) -> Broker:
        """Start a killed broker again, on the same ports, with a new epoch if it is registered.

        A running broker is stopped in order before. Raises CtrlchanError when it does not start: it can be
        started again then. Raises ConfigError when the process has other brokers, too, and KeyError for no
        such broker.
        """
        with self._changing:
            before = self._only_child_of(broker_id)
            before.close()
            before.killed = True
            child = self._new_child([before.same_ports()])
            try:
                (broker,) = child.wait_ready()
            except BaseException:
                child.close()
                raise
            self._children[self._children.index(before)] = child
            (place,) = (place for place, one in enumerate(self.brokers) if one.id == broker_id)
            self.brokers[place] = broker
            return broker

    def _only_child_of(self, broker_id: int) -> _Child:
        """Return the process of a broker, which has no other one. Raises ConfigError, KeyError."""
        child = self._child_of(broker_id)
        if len(child.configs) > 1:
            raise ConfigError(f"broker {broker_id} shares its process: give every broker its own (processes)")
        return child

    def _living_brokers(self) -> list[Broker]:
        """Return the brokers that were not killed, none after ``close``."""
        ids = {one.id for child in self._children if not child.killed for one in child.configs}
        return [broker for broker in self.brokers if broker.id in ids]

    def _new_child(self, configs: Sequence[BrokerConfig]) -> _Child:
        return _Child(configs, self._zookeeper, self._session_timeout, self._temporary)

    def _child_of(self, broker_id: int) -> _Child:
        for child in self._children:
            if broker_id in [config.id for config in child.configs]:
                return child
        raise KeyError(broker_id)

    def close(self) -> None:
        """End the children and wait until they have ended."""
        self._end_children()

    def _end_children(self) -> None:
        with self._changing:
            for child in self._children:
                child.ask_to_stop()
            for child in self._children:
                child.wait_stopped()
            # The children are there until the folder is gone: they remove it when this process is killed.
            if self._temporary is not None:
                shutil.rmtree(self._temporary, ignore_errors=True)
            for child in self._children:
                child.ask_to_end()
            for child in self._children:
                child.wait_ended()
            self._children.clear()


class _Child:
    """One child process, and the JSON lines to and from it.

    ``temporary``: a folder that the child makes, and removes when this process was killed, or None.
    """

    def __init__(
        self,
        configs: Sequence[BrokerConfig],
        zookeeper: str | None,
        session_timeout: float,
        temporary: str | None,
    ) -> None:
        self.configs = configs
        #: Whether its brokers are known to have ended.
        self.killed = False
        self._calling = threading.Lock()
        # Calls without an answer so far: more than one when an exception has ended the wait for an answer.
        self._unanswered = 0
        #: Of each broker: the port of each listener.
        self._ports: list[Mapping[str, int]] = []
        self.process = subprocess.Popen(
            child_command("ctrlchan.launch.child"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=0,
        )
        settings = {
            "zookeeper": zookeeper,
            "session_timeout": session_timeout,
            "temporary": temporary,
            "parent": os.getpid(),
        }
        self._send({"brokers": [asdict(config) for config in configs], **settings})

    def wait_ready(self) -> list[Broker]:
        """Return the brokers when they listen. Raises CtrlchanError."""
        started = self._receive()
        self._ports = [one["ports"] for one in started]
        return [
            Broker(
                config.id,
                one["epoch"],
                tuple(
                    Endpoint(listener, SecurityProtocol[protocol], host, port)
                    for listener, protocol, host, port in one["endpoints"]
                ),
                config.rack,
            )
            for config, one in zip(self.configs, started, strict=True)
        ]

    def same_ports(self) -> BrokerConfig:
        """Return the settings of the only broker, with the ports that it had."""
        (config,), (ports,) = self.configs, self._ports
        return config.with_ports(ports)

    def describe(self) -> list[BrokerDescription]:
        described: list[BrokerDescription] = self.call("describe")
        return described

    def call(self, message: Any) -> Any:
        """Send a line and return what the child answers. Raises CtrlchanError."""
        with self._calling:
            self._send(message)
            self._unanswered += 1
            while True:
                answer = self._receive()
                self._unanswered -= 1
                if not self._unanswered:
                    return answer

    def kill(self) -> None:
        self.killed = True
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        """Stop the brokers and end the process, while the folder of the cluster stays."""
        self.ask_to_stop()
        self.wait_stopped()
        self.ask_to_end()
        self.wait_ended()

    def ask_to_stop(self) -> None:
        """Ask for the stop of the brokers. The process lives until ``ask_to_end``, or this one's death."""
        with suppress(CtrlchanError):  # it has ended
            self._send("stop")

    def wait_stopped(self) -> None:
        """Wait until the brokers have stopped, and kill a process whose brokers do not."""
        assert self.process.stdout is not None
        if self.process.stdout.closed:
            return
        output = self.process.stdout.fileno()
        deadline = time.monotonic() + (_STOP_STORING_SECONDS if self.configs[0].log_dirs else _STOP_SECONDS)
        poll = select.poll()
        poll.register(output, select.POLLIN)
        # What it has answered meanwhile is of no use.
        while poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            if not os.read(output, _READ_BYTES):
                return
        self.process.kill()
        self.process.wait()

    def ask_to_end(self) -> None:
        """Say that the process may end."""
        assert self.process.stdin is not None
        with suppress(CtrlchanError):  # it has ended
            self._send("end")
        with suppress(BrokenPipeError):
            self.process.stdin.close()

    def wait_ended(self) -> None:
        """Wait until the process has ended, and kill one that does not end."""
        try:
            self.process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def _send(self, message: Any) -> None:
        assert self.process.stdin is not None
        line = json.dumps(message).encode() + b"\n"
        try:
            self.process.stdin.write(line)
            self.process.stdin.flush()
        except (BrokenPipeError, ValueError) as error:  # it has ended, or was asked to
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

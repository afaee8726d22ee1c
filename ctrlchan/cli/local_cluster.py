"""Starts a whole cluster on this machine: brokers that store records, and their controller."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ctrlchan.cli.cluster_options import Topic
from ctrlchan.cli.progress import step
from ctrlchan.config import table
from ctrlchan.controller.kafka_controller import KafkaController
from ctrlchan.controller.status.metrics import ControllerMetrics
from ctrlchan.controller.status.recent import RecentNotifications
from ctrlchan.embedded import EmbeddedCluster
from ctrlchan.embedded.controller import LocalController
from ctrlchan.errors import ChannelError, ConfigError, CtrlchanError, ErrorCode, KafkaError
from ctrlchan.launch.configs import ConfigValue
from ctrlchan.launch.listeners import are_free
from ctrlchan.launch.log_dirs import TEMPORARY
from ctrlchan.peers.connection import Address
from ctrlchan.server.delegation_tokens.settings import DelegationTokenSettings
from ctrlchan.zookeeper.server import ZooKeeperServer

__all__ = ["ClusterOptions", "LocalCluster", "create_topics", "start_cluster"]

#: Seconds that the parts of the cluster have to find one another.
_START_TIMEOUT: Final = 60.0
_PAUSE: Final = 0.05
#: Kafka's port, and so many further ones that are tried if it is in use.
_FIRST_PORT: Final = 9092
_PORTS: Final = 1_000
#: How often ports are looked for that others take before the brokers do.
_ATTEMPTS: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """How a cluster is started. ``port``: None stands for 9092, or the next free ones.

    ``zookeeper``: its address; None: nodes in memory or, with ``real_zookeeper``, a server that is started.
    ``log_dir``: a folder for the brokers' records, and for the nodes if they are in memory; None: a
    temporary one. ``session_timeout``: of registrations, in seconds.
    """

    brokers: int
    controller_id: int
    session_timeout: float
    host: str = "127.0.0.1"
    port: int | None = None
    listeners: dict[str, str] = field(default_factory=dict)
    advertised: dict[str, str] = field(default_factory=dict)
    configs: dict[str, str] = field(default_factory=dict)
    log_dir: Path | None = None
    zookeeper: str | None = None
    real_zookeeper: bool = False


@dataclass(frozen=True, slots=True)
class LocalCluster:
    """The parts of a running cluster. ``zookeeper``: its address, or None."""

    zookeeper: str | None
    controller: KafkaController
    brokers: EmbeddedCluster

    def addresses(self) -> list[Address]:
        """Return where each broker listens."""
        endpoints = [broker.endpoints[0] for broker in self.brokers.brokers]
        return [(endpoint.host, endpoint.port) for endpoint in endpoints]

    def describe(self) -> dict[str, Any]:
        """Return what a client needs, in values that JSON can carry."""
        return {
            "bootstrap_servers": self.brokers.bootstrap_servers,
            **({} if self.zookeeper is None else {"zookeeper": self.zookeeper}),
            "controller_id": self.controller.controller_id,
            "controller": str(self.controller.endpoints[0]),
            "brokers": [
                {
                    "id": broker.id,
                    "address": str(broker.endpoints[0]),
                    "listeners": list(map(str, broker.endpoints)),
                    "pid": self.brokers.pid_of(broker.id),
                }
                for broker in self.brokers.brokers
            ],
        }


def start_cluster(
    stack: ExitStack,
    options: ClusterOptions,
    *,
    metrics: ControllerMetrics,
    recent: RecentNotifications,
    warn: Callable[[str], object],
) -> LocalCluster:
    """Start the parts, which end with ``stack``: first the controller, then the brokers, then ZooKeeper.

    ``warn``: called with a line for the user. Raises CtrlchanError, for example when there is no Java for a
    server.
    """
    if 1 <= options.controller_id <= options.brokers:
        raise ConfigError(f"--id {options.controller_id} is the id of a broker")
    zookeeper = options.zookeeper
    if zookeeper is None and options.real_zookeeper:
        with step("starting ZooKeeper"):
            zookeeper = stack.enter_context(ZooKeeperServer()).address
    count = "a broker and its" if options.brokers == 1 else f"{options.brokers} brokers and their"
    with step(f"starting {count} controller"):
        if zookeeper is None:
            cluster = _on_ports(stack, options, warn, metrics=metrics, recent=recent)
            return LocalCluster(None, cluster.controller, cluster)
        # It starts before the brokers, because it gives the cluster its id, is elected after them, because it
        # would find all partitions of a kept folder offline, and ends before them.
        local = LocalController(
            options.controller_id,
            zookeeper=zookeeper,
            session_timeout=options.session_timeout,
            authorizer=options.configs if table.AUTHORIZER_CLASS_NAME.of(options.configs) else None,
            policies=options.configs,
            delete_topics=table.DELETE_TOPIC_ENABLE.of(options.configs),
            delegation_tokens=DelegationTokenSettings.of(options.configs),
            metrics=metrics,
            on_notification=recent,
        )
        stack.callback(local.close)
        cluster = _on_ports(stack, options, warn, zookeeper=zookeeper)
        stack.callback(local.stop)
        local.wait_until_active()
        _wait_until_known(cluster, {options.controller_id, *(broker.id for broker in cluster.brokers)})
    return LocalCluster(zookeeper, local.controller, cluster)


def create_topics(cluster: EmbeddedCluster, topics: Sequence[Topic], warn: Callable[[str], object]) -> None:
    """Create the topics that do not exist. Raises KafkaError."""
    for topic in topics:
        try:
            cluster.create_topic(topic.name, topic.partitions, topic.replication_factor)
        except KafkaError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
            warn(f"topic {topic.name} is there already: it stays as it is")


def _on_ports(
    stack: ExitStack,
    options: ClusterOptions,
    warn: Callable[[str], object],
    *,
    zookeeper: str | None = None,
    metrics: ControllerMetrics | None = None,
    recent: RecentNotifications | None = None,
) -> EmbeddedCluster:
    """Start the brokers on the given ports or on free ones. Raises CtrlchanError."""
    configs: dict[str, ConfigValue] = {**options.configs}
    # The controller ends before the brokers: nobody could take their leaders over.
    configs.setdefault(table.CONTROLLED_SHUTDOWN_ENABLE.name, "false")
    for attempt in range(_ATTEMPTS):
        port = _first_free_port(options) if options.port is None else options.port
        try:
            cluster = stack.enter_context(
                EmbeddedCluster(
                    options.brokers,
                    host=options.host,
                    port=port,
                    more_listeners=options.listeners,
                    advertised_listeners=options.advertised,
                    log_dir=TEMPORARY if options.log_dir is None else options.log_dir,
                    configs=configs,
                    zookeeper=zookeeper,
                    session_timeout=options.session_timeout,
                    controller_id=options.controller_id,
                    controller_metrics=metrics,
                    on_notification=recent,
                )
            )
        except CtrlchanError as error:
            # Another process may have taken a port meanwhile.
            is_taken = os.strerror(errno.EADDRINUSE) in str(error)
            if options.port is not None or not is_taken or attempt + 1 == _ATTEMPTS:
                raise
            continue
        if options.port is None and port != _FIRST_PORT:
            warn(f"port {_FIRST_PORT} or one of the next is in use: the first broker listens on {port}")
        return cluster
    raise AssertionError


def _first_free_port(options: ClusterOptions) -> int:
    """Return the first port from 9092 on that is free with those behind it, one for each broker."""
    count = options.brokers
    for port in range(_FIRST_PORT, _FIRST_PORT + _PORTS):
        if are_free(options.host, range(port, port + count)):
            return port
    raise ConfigError(f"no {count} free ports from {_FIRST_PORT} on: give --port")


def _wait_until_known(brokers: EmbeddedCluster, ids: set[int]) -> None:
    """Wait until every broker has the metadata of the controller and of all brokers.

    A client that asked a broker before would not find the controller. Raises ChannelError.
    """
    deadline = time.monotonic() + _START_TIMEOUT
    while any(ids - set(one["metadata"]["live_brokers"]) for one in brokers.describe()):
        if time.monotonic() > deadline:
            raise ChannelError(
                f"the brokers have no metadata of the whole cluster after {_START_TIMEOUT:g} s"
            )
        time.sleep(_PAUSE)

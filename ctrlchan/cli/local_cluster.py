"""Starts the parts of a whole cluster on this machine: nodes in memory, a controller, embedded brokers."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from ctrlchan.broker.config.broker_config import BrokerConfig
from ctrlchan.cli.progress import step
from ctrlchan.config import table
from ctrlchan.controller.kafka_controller import KafkaController
from ctrlchan.controller.settings.config import ControllerConfig
from ctrlchan.controller.status.metrics import ControllerMetrics
from ctrlchan.controller.status.recent import RecentNotifications
from ctrlchan.errors import ChannelError, ConfigError
from ctrlchan.launch.log_dirs import TEMPORARY, LogFolder
from ctrlchan.launch.processes import BrokerProcesses, settings_of_cluster
from ctrlchan.peers.connection import Address
from ctrlchan.protocol import SecurityProtocol
from ctrlchan.state import Endpoint
from ctrlchan.zookeeper.memory.server import MemoryZooKeeper
from ctrlchan.zookeeper.server import ZooKeeperServer

__all__ = ["LocalCluster", "start_cluster"]

_HOST: Final = "127.0.0.1"
#: Seconds that the parts of the cluster have to find one another.
_START_TIMEOUT: Final = 60.0
_PAUSE: Final = 0.05


@dataclass(frozen=True, slots=True)
class LocalCluster:
    """The parts of a running cluster. ``zookeeper``: its address."""

    zookeeper: str
    controller: KafkaController
    brokers: BrokerProcesses

    def addresses(self) -> list[Address]:
        """Return where each broker listens."""
        endpoints = [broker.endpoints[0] for broker in self.brokers.brokers]
        return [(endpoint.host, endpoint.port) for endpoint in endpoints]

    def describe(self) -> dict[str, Any]:
        """Return what a client needs, in values that JSON can carry."""
        return {
            "bootstrap_servers": self.brokers.bootstrap_servers,
            "zookeeper": self.zookeeper,
            "controller_id": self.controller.controller_id,
            "controller": str(self.controller.endpoints[0]),
            "brokers": [
                {
                    "id": broker.id,
                    "address": str(broker.endpoints[0]),
                    "pid": self.brokers.pid_of(broker.id),
                }
                for broker in self.brokers.brokers
            ],
        }


def start_cluster(
    stack: ExitStack,
    brokers: int,
    *,
    zookeeper: str | None,
    controller_id: int,
    session_timeout: float,
    real_zookeeper: bool = False,
    log_dir: Path | None = None,
    metrics: ControllerMetrics | None = None,
    recent: RecentNotifications | None = None,
) -> LocalCluster:
    """Start the parts, which end with ``stack``: first the controller, then the brokers, then ZooKeeper.

    ``zookeeper``: its address; None: nodes in memory or, with ``real_zookeeper``, a server that is started.
    ``log_dir``: a folder for the brokers' records, and for the nodes if they are in memory; None: temporary
    ones. Raises CtrlchanError, for example when there is no Java for a server.
    """
    if 1 <= controller_id <= brokers:
        raise ConfigError(f"--id {controller_id} is the id of a broker")
    config = ControllerConfig(
        controller_id=controller_id,
        zookeeper=zookeeper or f"{_HOST}:0",
        listeners=(Endpoint("PLAINTEXT", SecurityProtocol.PLAINTEXT, _HOST, 0),),
        zookeeper_session_timeout=session_timeout,
    )
    if zookeeper is None:
        if real_zookeeper:
            with step("starting ZooKeeper"):
                zookeeper = stack.enter_context(ZooKeeperServer()).address
        else:
            journal = None if log_dir is None else log_dir / "zookeeper.jsonl"
            zookeeper = stack.enter_context(MemoryZooKeeper(journal)).address
        config = replace(config, zookeeper=zookeeper)
    # The controller is started first, because it gives the cluster its id; and it is closed first.
    of_brokers = stack.enter_context(ExitStack())
    with step(f"starting controller {controller_id}"):
        controller = stack.enter_context(KafkaController(config, metrics=metrics, listener=recent))
        controller.wait_until_active(_START_TIMEOUT)
    with step(f"starting {brokers} embedded brokers"):
        folder = LogFolder(TEMPORARY if log_dir is None else log_dir)
        of_brokers.callback(folder.close)
        # The controller ends before them: nobody could take their leaders over.
        configs = settings_of_cluster(brokers, {table.CONTROLLED_SHUTDOWN_ENABLE.name: "false"})
        embedded = of_brokers.enter_context(
            BrokerProcesses(
                [
                    BrokerConfig(id=one, log_dirs=(f"{folder.path}/broker-{one}",), configs=configs)
                    for one in range(1, brokers + 1)
                ],
                zookeeper=zookeeper,
                session_timeout=session_timeout,
                temporary=folder.path if folder.is_temporary else None,
            )
        )
        _wait_until_known(embedded, {controller_id, *(broker.id for broker in embedded.brokers)})
    return LocalCluster(zookeeper, controller, embedded)


def _wait_until_known(brokers: BrokerProcesses, ids: set[int]) -> None:
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

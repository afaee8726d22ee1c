"""A cluster of real brokers with controllers of the package."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ctrlchan import ChannelConfig, Endpoint, SecurityProtocol
from ctrlchan.controller.kafka_controller import KafkaController
from ctrlchan.controller.settings.config import ControllerConfig
from tests.acceptance.controller import nodes
from tests.acceptance.controller.agreement import wait_until_in_sync
from tests.kafka.ports import free_port
from tests.kafka.rig import KafkaRig
from tests.kafka.waiting import wait_until

__all__ = [
    "BROKER_PROPERTIES",
    "CONTROLLER_ID",
    "ControlledCluster",
    "controlled_cluster",
    "controller_config",
]

CONTROLLER_ID = 1000  # no broker's id
SESSION_TIMEOUT = 6.0  # s, of controllers

#: Errors that a client gets while the controller changes. The last: the former controller is no longer among
#: the brokers, and librdkafka drops the requests that it has sent there.
_TRANSIENT = {
    "NOT_CONTROLLER",
    "REQUEST_TIMED_OUT",
    "_TIMED_OUT",
    "_TRANSPORT",
    "NETWORK_EXCEPTION",
    "_DESTROY_BROKER",
}

#: Sessions as short as a busy machine allows; nothing moves by itself.
BROKER_PROPERTIES = {
    "controlled.shutdown.enable": "true",
    "controlled.shutdown.retry.backoff.ms": "200",
    "zookeeper.session.timeout.ms": "4000",
    "replica.lag.time.max.ms": "6000",
    "auto.leader.rebalance.enable": "false",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "1",
    "num.recovery.threads.per.data.dir": "2",
}


def controller_config(
    zookeeper: str,
    *,
    controller_id: int = CONTROLLER_ID,
    inter_broker_protocol: str = "3.9",
    inter_broker_listener: str = "PLAINTEXT",
    session_timeout: float = SESSION_TIMEOUT,
    port: int = 0,
) -> ControllerConfig:
    """Return the settings of a controller that listens on this port; 0 is a free one."""
    listener = Endpoint(inter_broker_listener, SecurityProtocol.PLAINTEXT, "127.0.0.1", port)
    return ControllerConfig(
        controller_id=controller_id,
        zookeeper=zookeeper,
        zookeeper_session_timeout=session_timeout,
        channel=ChannelConfig(
            inter_broker_protocol=inter_broker_protocol, inter_broker_listener=inter_broker_listener
        ),
        listeners=(listener,),
        auto_leader_rebalance=False,
        default_replication_factor=3,
    )


class ControlledCluster:
    """A rig of three brokers, and the controllers of the package that were started for it."""

    def __init__(self, rig: KafkaRig) -> None:
        self.rig = rig
        self.controllers: list[KafkaController] = []
        # Of every controller with the usual id: librdkafka keeps the address that it knows of an id.
        self.port = free_port()

    @property
    def active(self) -> KafkaController:
        """The active controller. Raises AssertionError while none of the package's is."""
        active = [controller for controller in self.controllers if controller.is_active]
        assert len(active) == 1, [c.controller_id for c in active]
        return active[0]

    def start_controller(self, config: ControllerConfig) -> KafkaController:
        """Start one more controller; ``close`` closes it."""
        controller = KafkaController(config)
        self.controllers.append(controller)
        return controller.start()

    def close_controller(self, controller: KafkaController) -> None:
        """Close a controller that was started here."""
        self.controllers.remove(controller)
        controller.close()

    def restore(self) -> None:
        """Repair what a failed test has left: start missing brokers, and make one controller active."""
        self.__dict__.pop("admin", None)
        for broker_id in self.rig.broker_ids:
            if broker_id not in self.rig.live_broker_ids:
                self.rig.restart_broker(broker_id)
        for controller in self.controllers[1:]:
            self.close_controller(controller)
        if not self.controllers:
            self.start_controller(self._config())
        self.take_over(self.controllers[0])

    def take_over(self, controller: KafkaController) -> None:
        """Make this controller the active one."""
        wait_until(controller.take_over, what=f"controller {controller.controller_id} takes over")

    def hand_to_jvm(self) -> int:
        """Close all controllers of the package; return the broker that is elected then."""
        self.close()
        return wait_until(self.rig.jvm_controller, what="a broker is elected as the controller")

    def hand_to_us(self) -> KafkaController:
        """Start a controller that takes over from the present one."""
        controller = self.start_controller(self._config())
        self.take_over(controller)
        return controller

    def close(self) -> None:
        """Close all controllers."""
        while self.controllers:
            self.controllers.pop().close()

    @cached_property
    def admin(self) -> AdminClient:
        """An admin client of the cluster. (One that nobody keeps drops the requests that it has sent.)"""
        return AdminClient({"bootstrap.servers": self.rig.bootstrap, "log_level": 2})

    def create_topic(
        self, name: str, assignment: Sequence[Sequence[int]], config: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic with these replicas by partition, and wait until it is in sync.

        One whose partitions have different numbers of replicas is created in ZooKeeper, because brokers
        refuse it.
        """
        lists = [list(replicas) for replicas in assignment]
        if len({len(replicas) for replicas in lists}) == 1:
            new = NewTopic(name, len(lists), replica_assignment=lists, config=dict(config or {}))
            self._ask(
                lambda: self.admin.create_topics([new], request_timeout=10)[name], "TOPIC_ALREADY_EXISTS"
            )
        else:
            self.rig.zookeeper.create(
                f"/config/topics/{name}", json.dumps({"version": 1, "config": dict(config or {})}).encode()
            )
            partitions = {str(partition): replicas for partition, replicas in enumerate(lists)}
            self.rig.zookeeper.create(
                f"/brokers/topics/{name}", json.dumps({"version": 2, "partitions": partitions}).encode()
            )
        wait_until_in_sync(self.rig, [name])

    def delete_topic(self, name: str) -> None:
        """Delete a topic, and wait until ZooKeeper has nothing of it."""
        self._ask(lambda: self.admin.delete_topics([name], request_timeout=10)[name], "UNKNOWN_TOPIC_OR_PART")
        self.wait_until_gone(name)

    def _config(self) -> ControllerConfig:
        return controller_config(self.rig.zookeeper_connect, port=self.port)

    def _ask(self, ask: Callable[[], Future[None]], done: str) -> None:
        """Ask until the answer is no error; ``done``: the error where an earlier request was successful.

        The client may take a former controller for the present one for a while.
        """
        asked = 0

        def successful() -> bool:
            nonlocal asked
            asked += 1
            error = ask().exception(timeout=60)
            if error is None:
                return True
            assert isinstance(error, KafkaException), error
            name = error.args[0].name()
            if name == done and asked > 1:
                return True
            if name not in _TRANSIENT:
                raise error
            del self.admin
            return False

        wait_until(successful, timeout=120, what="the controller answers an admin client")

    def wait_until_gone(self, name: str, timeout: float = 60.0) -> None:
        """Wait until ZooKeeper and every broker have nothing of this topic."""
        wait_until(lambda: not self.traces(name), timeout=timeout, what=f"nothing is left of {name}")

    def traces(self, name: str) -> list[str]:
        """Return what is left of a topic: nodes, and folders of live brokers that are not to be deleted."""
        zookeeper = self.rig.zookeeper
        parents = ("/brokers/topics", "/config/topics", "/admin/delete_topics")
        found = [f"{path}/{name}" for path in parents if name in nodes.children(zookeeper, path)]
        for broker_id in self.rig.live_broker_ids:
            found += [
                f"broker {broker_id}: {folder}"
                for folder in self.rig.data_folders(broker_id)
                if folder.rpartition("-")[0] == name and not folder.endswith("-delete")
            ]
        return found

    def wait_for_controller(self, controller_id: int, timeout: float = 60.0) -> None:
        """Wait until this is the id in ``/controller``."""

        def elected() -> bool:
            found = nodes.controller(self.rig.zookeeper)
            return found is not None and found.id == controller_id

        wait_until(elected, timeout=timeout, what=f"{controller_id} is the controller")


@contextmanager
def controlled_cluster(
    folder: Path,
    *,
    inter_broker_protocol: str = "3.9",
    inter_broker_listener: str | None = None,
    properties: Mapping[str, str] | None = None,
    configure: Callable[[KafkaRig], ControllerConfig] | None = None,
) -> Iterator[ControlledCluster]:
    """Start ZooKeeper, a controller of the package, and three brokers, which find it elected.

    ``configure``: makes the controller's settings when ZooKeeper is up.
    """
    started: list[ControlledCluster] = []

    def elect(rig: KafkaRig) -> None:
        cluster = ControlledCluster(rig)
        started.append(cluster)
        config = (
            configure(rig)
            if configure is not None
            else controller_config(
                rig.zookeeper_connect,
                inter_broker_protocol=inter_broker_protocol,
                inter_broker_listener=rig.inter_broker_listener,
                port=cluster.port,
            )
        )
        cluster.start_controller(config).wait_until_active(60)

    rig = KafkaRig(
        folder,
        brokers=3,
        inter_broker_listener=inter_broker_listener,
        properties={
            **BROKER_PROPERTIES,
            "inter.broker.protocol.version": inter_broker_protocol,
            **(properties or {}),
        },
        before_brokers=elect,
    )
    try:
        with rig:
            (cluster,) = started
            # Controllers end before ZooKeeper: their sessions would wait for it.
            try:
                yield cluster
            finally:
                cluster.close()
    finally:
        for cluster in started:
            cluster.close()

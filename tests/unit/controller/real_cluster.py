"""A cluster for tests of the controller: real ZooKeeper, embedded brokers that are registered, controllers.

Brokers and topics change by the znodes that real brokers and Kafka's tools write.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, NamedTuple, Self

from kazoo.client import KazooClient

from ctrlchan import EmbeddedBroker
from ctrlchan.broker.core import BrokerCore
from ctrlchan.channel import ChannelConfig
from ctrlchan.controller.kafka_controller import KafkaController
from ctrlchan.controller.settings.config import ControllerConfig
from ctrlchan.launch.registration import registration_json
from ctrlchan.state import Broker
from ctrlchan.zookeeper import nodes, paths
from tests.kafka.waiting import wait_until

__all__ = ["HostedPartition", "RealCluster", "SeenPartition", "StateNode"]

TIMEOUT = 30.0


class StateNode(NamedTuple):
    """A partition's state node: its data and its zkVersion."""

    leader: int
    leader_epoch: int
    isr: list[int]
    controller_epoch: int
    version: int


class SeenPartition(NamedTuple):
    """A partition in the metadata of a broker."""

    leader: int
    leader_epoch: int
    isr: list[int]
    replicas: list[int]
    offline: list[int]


class HostedPartition(NamedTuple):
    """A replica that a broker hosts, as its last LeaderAndIsr has it."""

    leader: int
    leader_epoch: int
    isr: list[int]


class RealCluster:
    """Starts and ends brokers and controllers; all that still run end with the ``with`` block."""

    def __init__(self, zookeeper: str, znodes: KazooClient) -> None:
        self.zookeeper = zookeeper
        self.znodes = znodes
        self.brokers: dict[int, EmbeddedBroker] = {}
        self._cleanup = ExitStack()
        self.controllers: list[KafkaController] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for controller in self.controllers:
            self._cleanup.callback(controller.close)
        for broker in self.brokers.values():
            self._cleanup.callback(broker.close)
        self._cleanup.close()

    # -- controllers

    def controller(self, controller_id: int = 1000, **settings: Any) -> KafkaController:
        """Start a controller; it need not be active when this returns."""
        controller = self.new_controller(controller_id, **settings)
        controller.start()
        return controller

    def new_controller(
        self, controller_id: int = 1000, *, ibp: str = "3.9", **settings: Any
    ) -> KafkaController:
        """Make a controller that is closed with this cluster."""
        listener = settings.pop("listener", None)
        config = ControllerConfig(
            controller_id=controller_id,
            zookeeper=self.zookeeper,
            channel=ChannelConfig(
                inter_broker_protocol=ibp, inter_broker_listener="PLAINTEXT", senders=1, retry_backoff=0.02
            ),
            **({"zookeeper_session_timeout": 4.0} | settings),
        )
        controller = KafkaController(config, listener=listener)
        self.controllers.append(controller)
        return controller

    def active_controller(self, controller_id: int = 1000, **settings: Any) -> KafkaController:
        """Start a controller and wait until it is active."""
        controller = self.controller(controller_id, **settings)
        controller.wait_until_active(TIMEOUT)
        return controller

    # -- brokers

    def start_brokers(self, *broker_ids: int, racks: Mapping[int, str] | None = None) -> None:
        """Start brokers and register them."""
        for broker_id in broker_ids:
            rack = (racks or {}).get(broker_id)
            self.brokers[broker_id] = EmbeddedBroker(broker_id, rack=rack)
            self.register(broker_id)

    def register(self, broker_id: int) -> int:
        """Register a broker that runs; return its new epoch."""
        broker = self.brokers[broker_id]
        _, stat = self.znodes.create(
            paths.broker(broker_id),
            registration_json(broker.broker),
            ephemeral=True,
            makepath=True,
            include_data=True,
        )
        broker.set_epoch(stat.czxid)
        return int(stat.czxid)

    def set_registration(self, broker: Broker) -> None:
        """Change the data of a registration, as a broker with other endpoints does."""
        self.znodes.set(paths.broker(broker.id), registration_json(broker))

    def unregister(self, broker_id: int) -> None:
        """Remove a registration; the broker goes on running."""
        self.znodes.delete(paths.broker(broker_id))

    def kill_brokers(self, *broker_ids: int) -> None:
        """Close brokers, and remove their registrations in one transaction."""
        for broker_id in broker_ids:
            self.brokers.pop(broker_id).close()
        transaction = self.znodes.transaction()
        for broker_id in broker_ids:
            transaction.delete(paths.broker(broker_id))
        transaction.commit()

    # -- topics, as Kafka's tools write them

    def create_topic(
        self, name: str, assignment: Mapping[int, Sequence[int]], *, topic_id: bytes | None = None
    ) -> bytes:
        """Write the nodes of a topic; return its id."""
        topic_id = topic_id or uuid.uuid4().bytes
        self.znodes.create(paths.topic_config(name), b'{"version":1,"config":{}}', makepath=True)
        self.znodes.create(paths.topic(name), nodes.encode_topic(topic_id, assignment), makepath=True)
        return topic_id

    def set_assignment(self, name: str, assignment: Mapping[int, Sequence[int]]) -> None:
        """Replace the assignment of a topic: partitions are added."""
        data, _ = self.znodes.get(paths.topic(name))
        topic_id = nodes.parse_topic(data).topic_id
        assert topic_id is not None
        self.znodes.set(paths.topic(name), nodes.encode_topic(topic_id, assignment))

    def delete_topic(self, name: str) -> None:
        """Request the deletion of a topic."""
        self.znodes.create(paths.deleted_topic(name), b"", makepath=True)

    # -- what is there

    def state_node(self, topic: str, partition: int) -> StateNode | None:
        """Return a partition's state node, None where there is none."""
        path = paths.partition_state(topic, partition)
        if self.znodes.exists(path) is None:
            return None
        data, stat = self.znodes.get(path)
        state = nodes.parse_partition_state(data)
        return StateNode(state.leader, state.leader_epoch, state.isr, state.controller_epoch, stat.version)

    def wait_state(self, topic: str, partition: int, **expected: Any) -> StateNode:
        """Wait until the fields of a state node have these values; return the node."""

        def found() -> StateNode | None:
            node = self.state_node(topic, partition)
            if node is not None and all(getattr(node, name) == value for name, value in expected.items()):
                return node
            return None

        what = f"{topic}-{partition} with {expected} (it is {self.state_node(topic, partition)})"
        return wait_until(found, timeout=TIMEOUT, what=what)

    def seen(self, broker_id: int, topic: str) -> dict[int, SeenPartition]:
        """Return the partitions of a topic in a broker's metadata."""

        def read(core: BrokerCore) -> dict[int, SeenPartition]:
            state = core.metadata.state
            try:
                rows = state.rows_of_topic(topic)
            except KeyError:
                return {}
            columns = state.partitions
            assert columns.offline is not None
            return {
                int(columns.partition[row]): SeenPartition(
                    int(columns.leader[row]),
                    int(columns.leader_epoch[row]),
                    columns.isr[row].tolist(),
                    columns.replicas[row].tolist(),
                    columns.offline[row].tolist(),
                )
                for row in range(rows.start, rows.stop)
            }

        return self.brokers[broker_id].inspect(read)

    def live_brokers(self, broker_id: int) -> dict[int, Broker]:
        """Return the live brokers in a broker's metadata."""
        return self.brokers[broker_id].inspect(
            lambda core: {
                number: core.metadata.state.broker(number)
                for number in core.metadata.state.broker_ids.tolist()
            }
        )

    def topic_id_seen(self, broker_id: int, topic: str) -> bytes:
        """Return the id of a topic in a broker's metadata."""

        def read(core: BrokerCore) -> bytes:
            state = core.metadata.state
            return bytes(state.topics.ids[state.topic_row(topic)].tobytes())

        return self.brokers[broker_id].inspect(read)

    def controller_seen(self, broker_id: int) -> int:
        """Return the id of the controller that a broker heard from last."""
        return self.brokers[broker_id].inspect(lambda core: core.metadata.state.controller_id)

    def controller_epoch_seen(self, broker_id: int) -> int:
        """Return the controller epoch that a broker heard of last."""
        return self.brokers[broker_id].inspect(lambda core: core.controller_epoch)

    def hosted(self, broker_id: int, topic: str) -> dict[int, HostedPartition]:
        """Return the replicas of a topic that a broker hosts."""

        def read(core: BrokerCore) -> dict[int, HostedPartition]:
            columns, names = core.replicas.columns, core.replicas.names
            return {
                int(columns.partition[row]): HostedPartition(
                    int(columns.leader[row]), int(columns.leader_epoch[row]), columns.isr[row].tolist()
                )
                for row in range(len(core.replicas))
                if names[columns.topic_row[row]] == topic.encode()
            }

        return self.brokers[broker_id].inspect(read)

    def wait_seen(self, topic: str, leaders: Mapping[int, int], *, on: Iterable[int] | None = None) -> None:
        """Wait until these brokers (None: all that run) have these leaders of a topic in their metadata."""
        for broker_id in list(self.brokers) if on is None else on:

            def agrees(broker_id: int = broker_id) -> bool:
                found = {number: one.leader for number, one in self.seen(broker_id, topic).items()}
                return found == dict(leaders)

            wait_until(
                agrees, timeout=TIMEOUT, what=f"broker {broker_id} has the leaders {leaders} of {topic}"
            )

    def wait_hosted(self, broker_id: int, topic: str, leaders: Mapping[int, int]) -> None:
        """Wait until a broker hosts these partitions of a topic, with these leaders."""
        wait_until(
            lambda: (
                {number: one.leader for number, one in self.hosted(broker_id, topic).items()} == dict(leaders)
            ),
            timeout=TIMEOUT,
            what=f"broker {broker_id} hosts {topic} with the leaders {leaders}",
        )

    @staticmethod
    def wait_on(broker_id: int, condition: Callable[[int], bool]) -> None:
        """Wait until a condition holds for a broker."""
        wait_until(lambda: condition(broker_id), timeout=TIMEOUT, what=f"broker {broker_id}: {condition}")

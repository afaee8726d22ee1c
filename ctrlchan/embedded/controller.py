"""LocalController: the controller of one EmbeddedCluster, and the nodes in memory of the cluster."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from ctrlchan.channel import ChannelConfig
from ctrlchan.controller.core import ControllerCore
from ctrlchan.controller.events.event import ControllerState, Event
from ctrlchan.controller.events.notifications import Listener
from ctrlchan.controller.handlers.elections import ElectionType, elect_leaders
from ctrlchan.controller.handlers.reassignment import alter
from ctrlchan.controller.kafka_controller import KafkaController
from ctrlchan.controller.settings.config import ControllerConfig
from ctrlchan.errors import ErrorCode, KafkaError
from ctrlchan.protocol import SecurityProtocol
from ctrlchan.server.delegation_tokens.settings import DelegationTokenSettings
from ctrlchan.state import Endpoint
from ctrlchan.state.brokers import format_host_port
from ctrlchan.zookeeper import paths
from ctrlchan.zookeeper.memory.server import MemoryZooKeeper

if TYPE_CHECKING:
    from ctrlchan.controller.status.metrics import ControllerMetrics

__all__ = ["LocalController"]

T = TypeVar("T")

_HOST: Final = "127.0.0.1"
#: Seconds. The server ends no session whose client is connected, so nothing waits for this.
_SESSION_TIMEOUT: Final = 60.0
_ACTIVE_SECONDS: Final = 60.0


class LocalController:
    """Runs from construction to ``close``, and takes part in elections from ``wait_until_active`` on.

    ``controller_id``: an id that no broker has. ``listener``: of the brokers, to connect to, unless
    ``control_plane_listener`` names another one of theirs.
    ``num_partitions``, ``default_replication_factor``: of topics that are created without.
    ``topic_defaults``: topic configs that the brokers' settings set. ``authorizer``: its settings.
    ``policies``: those of the brokers, which may name policies. ``delete_topics``: whether topics can be
    deleted. ``delegation_tokens``: their settings.
    ``journal``: a file that keeps the nodes for the next cluster, or None.
    ``zookeeper``: its address, or None for nodes in memory. ``session_timeout``: of that ZooKeeper.
    ``metrics``, ``on_notification``, ``cluster_id``: as for ``KafkaController``.
    With a ZooKeeper metadata show the controller, which brokers ask; else brokers stand for it.
    """

    def __init__(
        self,
        controller_id: int,
        listener: str = "PLAINTEXT",
        *,
        control_plane_listener: str | None = None,
        num_partitions: int = 1,
        default_replication_factor: int = 1,
        unclean_leader_election: bool = False,
        topic_defaults: Mapping[str, str] | None = None,
        authorizer: Mapping[str, str] | None = None,
        policies: Mapping[str, str] | None = None,
        delete_topics: bool = True,
        delegation_tokens: DelegationTokenSettings | None = None,
        journal: Path | None = None,
        zookeeper: str | None = None,
        session_timeout: float = _SESSION_TIMEOUT,
        metrics: ControllerMetrics | None = None,
        on_notification: Listener | None = None,
        cluster_id: str | None = None,
    ) -> None:
        self._parts = ExitStack()
        with ExitStack() as cleanup:
            self._nodes = None if zookeeper else cleanup.enter_context(MemoryZooKeeper(journal))
            #: ``HOST:PORT``.
            self.zookeeper = zookeeper or self._nodes_in_memory.address
            config = ControllerConfig(
                controller_id=controller_id,
                zookeeper=self.zookeeper,
                zookeeper_session_timeout=session_timeout,
                listeners=(Endpoint("PLAINTEXT", SecurityProtocol.PLAINTEXT, _HOST, 0),),
                announced=zookeeper is not None,
                channel=ChannelConfig(
                    controller_id=controller_id,
                    inter_broker_listener=listener,
                    listener_name=control_plane_listener,
                ),
                num_partitions=num_partitions,
                default_replication_factor=default_replication_factor,
                unclean_leader_election=unclean_leader_election,
                topic_defaults=topic_defaults or {},
                authorizer=authorizer or {},
                policies=policies or {},
                delete_topics=delete_topics,
                delegation_tokens=delegation_tokens or DelegationTokenSettings(),
            )
            self.controller = KafkaController(
                config, metrics=metrics, listener=on_notification, cluster_id=cluster_id
            )
            cleanup.callback(self.controller.close)
            # A controller that is elected before the brokers of a cluster that goes on are there finds all
            # partitions offline, and logs an error for each of them.
            self._may_elect = threading.Event()
            cleanup.callback(self._may_elect.set)
            self.controller.loop.put(Event(ControllerState.IDLE, "BrokersStart", self._wait_for_brokers))
            self.controller.start()
            self._parts = cleanup.pop_all()

    @property
    def address(self) -> str:
        """``127.0.0.1:PORT`` of the controller's listener."""
        endpoint = self.controller.endpoints[0]
        return format_host_port(endpoint.host, endpoint.port)

    def wait_until_active(self) -> None:
        """Wait until the controller directs the brokers, which are registered now. Raises TimeoutError."""
        self._may_elect.set()
        self.controller.wait_until_active(_ACTIVE_SECONDS)

    def broker_died(self, broker_id: int) -> None:
        """Remove the registration of a broker whose process was killed, as the end of its session would."""
        self._nodes_in_memory.end_session_of(paths.broker(broker_id))

    def call(self, kind: ControllerState, function: Callable[[ControllerCore], T]) -> T:
        """Run a function on the controller's thread, between two events, and return its result."""
        return self.controller.loop.call(kind, function).result()

    def move_leader(self, topic: str, partition: int, broker_id: int) -> None:
        """Let another in-sync replica lead a partition. Raises KafkaError when it cannot.

        The broker becomes the partition's preferred leader, and then its leader.
        """

        def move(core: ControllerCore) -> None:
            key = (topic, partition)
            try:
                row = core.state.row(*key)
            except KeyError:
                raise KafkaError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic}-{partition}"
                ) from None
            replicas = core.state.partitions.replicas.to_lists()[row]
            if broker_id not in replicas:
                raise KafkaError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"broker {broker_id} has no replica of {topic}-{partition}: they are on {replicas}",
                )
            in_sync = core.state.partitions.isr.to_lists()[row]
            if broker_id not in in_sync:
                # Before the order of the replicas changes.
                raise KafkaError(
                    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
                    f"broker {broker_id} is not in sync for {topic}-{partition}: in sync are {in_sync}",
                )
            order = [broker_id, *(one for one in replicas if one != broker_id)]
            answers = [alter(core, {key: order})[key]] if order != replicas else []
            answers.append(elect_leaders(core, [key], ElectionType.PREFERRED)[key])
            for code, message in answers:
                if code not in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED):
                    raise KafkaError(code, message or "")

        self.call(ControllerState.MANUAL_LEADER_BALANCE, move)

    def stop(self) -> None:
        """End the controller: brokers that end from now on are no event. The nodes stay until ``close``."""
        self._may_elect.set()
        self.controller.close()

    def close(self) -> None:
        """End the controller and drop the nodes. A second call does nothing."""
        self._parts.close()

    @property
    def _nodes_in_memory(self) -> MemoryZooKeeper:
        assert self._nodes is not None
        return self._nodes

    def _wait_for_brokers(self) -> None:
        self._may_elect.wait()

"""A controller without an event loop: real ZooKeeper, requests that are recorded, events that a test runs."""

from __future__ import annotations

import itertools
import json
import queue
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np
from kazoo.client import KazooClient

from ctrlchan._codec import Brokers, LeaderAndIsrRequest, StopReplicaRequest, UpdateMetadataRequest
from ctrlchan.batch import ControllerBrokerRequestBatch
from ctrlchan.channel import ChannelConfig
from ctrlchan.controller.core import ControllerCore
from ctrlchan.controller.events.event import Event
from ctrlchan.controller.events.notifications import Notification
from ctrlchan.controller.machines.context import ControllerContext
from ctrlchan.controller.machines.states import PartitionState, ReplicaState
from ctrlchan.controller.machines.topic_configs import TopicConfigs
from ctrlchan.controller.machines.topic_deletion import TopicDeletionManager
from ctrlchan.controller.settings.config import ControllerConfig
from ctrlchan.controller.term.failover import complete_core, fail_over
from ctrlchan.controller.term.outcomes import OutcomeHandlers
from ctrlchan.errors import UnknownBrokerError
from ctrlchan.state import Broker, ClusterState, Endpoint, SecurityProtocol
from ctrlchan.zookeeper import paths
from ctrlchan.zookeeper.cluster import ClusterNodes
from ctrlchan.zookeeper.nodes import (
    Listener,
    encode_partition_state,
    encode_registration,
    encode_topic,
)
from ctrlchan.zookeeper.nodes import (
    PartitionState as StateNode,
)
from ctrlchan.zookeeper.session import ZooKeeperSession
from ctrlchan.zookeeper.settings import ZooKeeperSettings
from tests.kafka.waiting import wait_until
from tests.unit.batch.recording import RecordingChannel, stops, topic_partitions

CONTROLLER_ID = 1000
#: What a request says of one partition of one broker.
Key = tuple[str, int]


class ManualLoop:
    """Keeps events and timers until the test takes them."""

    def __init__(self) -> None:
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.timers: list[tuple[Event, float]] = []

    def put(self, event: Event) -> None:
        self.events.put(event)

    def schedule(self, event: Event, delay: float) -> None:
        self.timers.append((event, delay))


class ManualController:
    """An elected controller in its term; ``core`` is what its handlers are given.

    The brokers and topics must be in ZooKeeper before. Close it, or use it in ``with``.
    """

    def __init__(self, zookeeper: str, *, ibp: str = "3.9", **settings: Any) -> None:
        config = ControllerConfig(
            controller_id=CONTROLLER_ID,
            zookeeper=zookeeper,
            channel=ChannelConfig(controller_id=CONTROLLER_ID, inter_broker_protocol=ibp),
            **settings,
        )
        self.session = ZooKeeperSession(ZooKeeperSettings(connect=zookeeper))
        self.session.start(timeout=20)
        try:
            self.nodes = ClusterNodes(self.session)
            self.loop = ManualLoop()
            self.notifications: list[Notification] = []
            self._markers = itertools.count()
            # Requests before this one have their answers.
            self._answered = 0
            self.core = self._elected(config, ibp)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> ManualController:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.session.close()

    @property
    def state(self) -> ClusterState:
        return self.core.state

    @property
    def context(self) -> ControllerContext:
        context: ControllerContext = self.core.context
        return context

    @property
    def deletion(self) -> TopicDeletionManager:
        deletion: TopicDeletionManager = self.core.deletion
        return deletion

    def fail_over(self) -> None:
        """Begin another term of this controller, as another controller would: everything is read again."""
        self.nodes.resign(self.context.epoch_zk_version)
        self.core.active = False
        self.core = self._elected(self.core.config, self.core.config.inter_broker_protocol)

    def run_until(self, condition: Callable[[], object], what: str) -> None:
        """Run events until the condition holds."""

        def step() -> bool:
            if condition():
                return True
            try:
                self.loop.events.get_nowait().process()
            except queue.Empty:
                return False
            return bool(condition())

        wait_until(step, what=what)

    def run_past_changes(self, znodes: KazooClient) -> None:
        """Run the events of all changes in ZooKeeper until now: watches fire in order."""
        marker = f"marker-{next(self._markers)}"
        znodes.create(paths.topic(marker), encode_topic(b"\7" * 16, {0: self.state.broker_ids.tolist()[:1]}))
        self.run_until(lambda: self.context.has_topic(marker), "the marker has become a topic")

    # -- brokers

    def set_live(self, *broker_ids: int) -> None:
        """Make these the live brokers, in the state alone."""
        kept = {one: self.state.broker(one) for one in self.state.broker_ids.tolist()}
        self.state.set_brokers([kept.get(one) or _broker(one, 1) for one in broker_ids])

    def stop_broker(self, znodes: KazooClient, broker_id: int) -> None:
        """Let a broker leave ZooKeeper, and process that."""
        znodes.delete(paths.broker(broker_id))
        self.run_until(lambda: broker_id not in self.state.broker_ids, "the broker has gone")

    def start_broker(self, znodes: KazooClient, broker_id: int) -> None:
        """Let a broker appear in ZooKeeper, and process that."""
        register_brokers(znodes, broker_id)
        self.run_until(lambda: broker_id in self.state.broker_ids, "the broker has come")

    def answer(self) -> None:
        """Let the live brokers answer all requests that have no answer, and process the answers."""
        live = set(self.state.broker_ids.tolist())
        while waiting := [one for one in self.channel.sent[self._answered :] if one.broker_id in live]:
            self._answered = len(self.channel.sent)
            for one in waiting:
                one.answer()
            self.run_waiting()

    def run_waiting(self) -> None:
        """Run the events that are in the queue now."""
        while not self.loop.events.empty():
            self.loop.events.get_nowait().process()

    # -- states

    def rows(self, *keys: Key) -> Any:
        return np.array([self.state.row(*key) for key in keys], np.int64)

    def replicas_in(self, state: ReplicaState) -> set[tuple[str, int, int]]:
        """Return (topic, partition, broker) of the replicas in this state."""
        rows, brokers = self.context.replicas_in(state)
        return {
            (*self.key(row), broker)
            for row, broker in zip(rows.tolist(), brokers.tolist(), strict=True)
            if row >= 0
        }

    def partitions_in(self, state: PartitionState) -> set[Key]:
        return {self.key(row) for row in self.context.rows_in(state).tolist()}

    def key(self, row: int) -> Key:
        partitions = self.state.partitions
        return self.state.topic_name(int(partitions.topic_row[row])), int(partitions.partition[row])

    def assignment(self, topic: str, partition: int) -> tuple[list[int], list[int], list[int]]:
        """Return replicas, adding and removing replicas of the state."""
        columns, row = self.state.partitions, self.state.row(topic, partition)
        assert columns.adding is not None
        assert columns.removing is not None
        return columns.replicas[row].tolist(), columns.adding[row].tolist(), columns.removing[row].tolist()

    def isr(self, topic: str, partition: int) -> list[int]:
        """Return the ISR of the state."""
        isr: list[int] = self.state.partitions.isr[self.state.row(topic, partition)].tolist()
        return isr

    # -- requests

    def forget_requests(self) -> None:
        """Forget the requests that were recorded."""
        self._answered = 0
        self.channel.sent.clear()
        self.channel.requests.clear()

    def request_order(self) -> list[str]:
        """Return the kinds of the requests in the order of sending, repetitions left out."""
        order: list[str] = []
        for one in self.channel.sent:
            name = type(one.body).__name__.removesuffix("Request")
            if isinstance(one.body, StopReplicaRequest):
                name += f"({'delete' if one.body.delete.any() else 'stop'})"
            if name not in order[-1:]:
                order.append(name)
        return order

    def stopped(self, *, delete: bool) -> set[tuple[str, int, int]]:
        """Return (topic, partition, broker) of the StopReplica requests, with or without deletion."""
        return {
            (*key, one.broker_id)
            for one in self.channel.sent
            if isinstance(one.body, StopReplicaRequest)
            for key, (_, deleted) in stops(one.body).items()
            if deleted == delete
        }

    def started(self, *, is_new: bool) -> set[tuple[str, int, int]]:
        """Return (topic, partition, broker) of the LeaderAndIsr requests with this flag."""
        found = set()
        for one in self.channel.sent:
            if isinstance(one.body, LeaderAndIsrRequest):
                flags = one.body.is_new
                for index, key in enumerate(topic_partitions(one.body)):
                    if bool(flags[index]) == is_new:
                        found.add((*key, one.broker_id))
        return found

    def last_metadata(self, key: Key) -> dict[str, Any] | None:
        """Return the last announced metadata of a partition."""
        for one in reversed(self.channel.sent):
            if isinstance(one.body, UpdateMetadataRequest) and key in topic_partitions(one.body):
                at, columns = topic_partitions(one.body).index(key), one.body.partitions
                return {
                    "leader": int(columns.leader[at]),
                    "leader_epoch": int(columns.leader_epoch[at]),
                    "isr": columns.isr[at].tolist(),
                    "replicas": columns.replicas[at].tolist(),
                }
        return None

    # -- the term

    def _elected(self, config: ControllerConfig, ibp: str) -> ControllerCore:
        elected = self.nodes.become_controller(CONTROLLER_ID, 1)
        context = ControllerContext(ClusterState.empty(), elected.epoch, elected.epoch_zk_version)
        self.channel = channel = _Channel(ibp)
        self._answered = 0
        handlers = OutcomeHandlers(lambda _: None)
        core = ControllerCore(
            config=config,
            loop=cast("Any", self.loop),
            session=self.session,
            nodes=self.nodes,
            context=context,
            channel=cast("Any", channel),
            batch=ControllerBrokerRequestBatch(
                channel,
                context.state,
                on_leader_and_isr_response=handlers.leader_and_isr,
                on_update_metadata_response=handlers.update_metadata,
                on_stop_replica_response=handlers.stop_replica,
            ),
            topic_configs=TopicConfigs(self.nodes, config),
            notifier=self.notifications.append,
        )
        complete_core(core)
        handlers.attach(core)
        fail_over(core)
        return core


class _Channel(RecordingChannel):
    """Has every broker that is live, unless a test adds it to ``given_up``."""

    def __init__(self, ibp: str) -> None:
        super().__init__(ibp)
        self.given_up: set[int] = set()
        self.left_out: dict[int, str] = {}

    def startup(self, brokers: Iterable[Broker] | Brokers) -> None:
        """Have these brokers again."""
        if not isinstance(brokers, Brokers):
            self.given_up -= {broker.id for broker in brokers}

    def remove_broker(self, broker_id: int) -> None:
        """Do nothing: there are no connections."""

    def needs_resync(self, broker_id: int) -> bool:
        if broker_id in self.given_up:
            raise UnknownBrokerError(f"broker {broker_id}")
        return False


def register_brokers(znodes: KazooClient, *broker_ids: int) -> None:
    """Register brokers, for as long as the client is connected."""
    for broker_id in broker_ids:
        listener = Listener("PLAINTEXT", "PLAINTEXT", "localhost", 9900 + broker_id)
        znodes.create(paths.broker(broker_id), encode_registration([listener]), makepath=True, ephemeral=True)


def create_topic(
    znodes: KazooClient,
    name: str,
    assignment: Mapping[int, Sequence[int]],
    *,
    isr: Mapping[int, Sequence[int]] | None = None,
    topic_id: bytes | None = None,
) -> None:
    """Write a topic whose partitions are led by the first of their ISR (None: their replicas), epochs 0."""
    identity = topic_id or name.encode().ljust(16, b"\1")[:16]
    znodes.create(paths.topic(name), encode_topic(identity, assignment), makepath=True)
    znodes.create(paths.topic_config(name), b'{"version":1,"config":{}}', makepath=True)
    for number, replicas in assignment.items():
        in_sync = list((isr or {}).get(number, replicas))
        node = StateNode(in_sync[0], 0, 0, in_sync)
        znodes.create(paths.partition_state(name, number), encode_partition_state(node), makepath=True)


def set_config(znodes: KazooClient, path: str, **config: str) -> None:
    """Write a configuration node."""
    data = json.dumps(
        {"version": 1, "config": {key.replace("_", "."): one for key, one in config.items()}}
    ).encode()
    if znodes.exists(path):
        znodes.set(path, data)
    else:
        znodes.create(path, data, makepath=True)


def read_json(znodes: KazooClient, path: str) -> Any:
    """Return the data of a node, None where there is no such node."""
    if not znodes.exists(path):
        return None
    return json.loads(znodes.get(path)[0])


def _broker(broker_id: int, epoch: int) -> Broker:
    endpoint = Endpoint("PLAINTEXT", SecurityProtocol.PLAINTEXT, "localhost", 9900 + broker_id)
    return Broker(broker_id, epoch, (endpoint,))

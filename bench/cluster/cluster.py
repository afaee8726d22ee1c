"""The measured cluster: its nodes in ZooKeeper, and sinks as its registered brokers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from hashlib import md5
from typing import Final, NamedTuple

from bench.cluster.alter_partition import Altered, encode_requests
from bench.cluster.layout import PARTITIONS_PER_TOPIC, Layout, Replicas, rack_of, replicas_of
from bench.cluster.zookeeper import Create, Delete, Node, Operation, SetData, ZooKeeperClient
from bench.peers.place import LOOPBACK
from ctrlchan.zookeeper import nodes, paths
from ctrlchan.zookeeper.nodes import Assignment, Listener, PartitionState

__all__ = ["ADDED_TOPICS", "MOVED_PARTITIONS", "Cluster"]

#: Topics that an event creates, and partitions of each.
ADDED_TOPICS: Final = 1_000
_PARTITIONS_PER_ADDED_TOPIC: Final = 10
#: Partitions that an event reassigns.
MOVED_PARTITIONS: Final = 1_000

_CONTROLLER_EPOCH: Final = 10
_LEADER_EPOCH: Final = 5
_TOPIC_CONFIG: Final = b'{"version":1,"config":{}}'
#: Parents that a controller expects; Kafka's brokers create those that are missing.
_PARENTS: Final = (
    "/admin",
    "/admin/delete_topics",
    "/brokers",
    "/brokers/ids",
    "/brokers/topics",
    "/brokers/seqid",
    "/cluster",
    "/config",
    "/config/brokers",
    "/config/changes",
    "/config/clients",
    "/config/ips",
    "/config/topics",
    "/config/users",
    "/isr_change_notification",
    "/log_dir_event_notification",
)


class _Topic:
    """The nodes of one topic with every replica in sync, led by the preferred leaders."""

    def __init__(self, name: str, replicas: Replicas) -> None:
        self.name = name
        self.id = md5(name.encode(), usedforsecurity=False).digest()
        self.replicas: list[list[int]] = replicas.tolist()
        self.data = self._data(self.replicas)
        self.states = [
            nodes.encode_partition_state(PartitionState(one[0], _LEADER_EPOCH, _CONTROLLER_EPOCH, one))
            for one in self.replicas
        ]
        self.state_paths = [paths.partition_state(name, number) for number in range(len(self.states))]

    def data_with(self, moved: dict[int, list[int]]) -> bytes:
        """Return the topic's node after a reassignment of these partitions."""
        return self._data([moved.get(number, one) for number, one in enumerate(self.replicas)])

    def create_configuration(self) -> Operation:
        return Create(paths.topic_config(self.name), _TOPIC_CONFIG)

    def create(self) -> Operation:
        """Return the creation of the topic's node, by which a controller sees the topic."""
        return Create(paths.topic(self.name), self.data)

    def create_states(self) -> Iterator[Operation]:
        """Yield the creation of the nodes that a controller creates for a new topic."""
        yield Create(paths.partitions(self.name), b"")
        for number, state in enumerate(self.states):
            yield Create(paths.partition(self.name, number), b"")
            yield Create(self.state_paths[number], state)

    def delete(self) -> Iterator[Operation]:
        for number, state in enumerate(self.state_paths):
            yield Delete(state)
            yield Delete(paths.partition(self.name, number))
        for path in (paths.partitions, paths.topic, paths.topic_config):
            yield Delete(path(self.name))

    def _data(self, replicas: Sequence[Sequence[int]]) -> bytes:
        return nodes.encode_topic(self.id, dict(enumerate(replicas)))


class _Chosen(NamedTuple):
    """A partition of the cluster."""

    topic: _Topic
    number: int

    @property
    def replicas(self) -> list[int]:
        return self.topic.replicas[self.number]

    @property
    def state_path(self) -> str:
        return self.topic.state_paths[self.number]


class Cluster:
    """The nodes of a cluster. ``ports``: of the sink at ``host``, one for each broker.

    Every method works for either controller: it writes what an administrator or a broker writes.
    """

    def __init__(
        self, client: ZooKeeperClient, layout: Layout, ports: Sequence[int], host: str = LOOPBACK
    ) -> None:
        self.layout = layout
        self._host = host
        self._client = client
        self._ports = dict(zip(layout.broker_ids, ports, strict=True))
        replicas = replicas_of(layout.partitions, layout.brokers)
        self._topics = _topics("metrics", replicas, PARTITIONS_PER_TOPIC)
        rows = ADDED_TOPICS * _PARTITIONS_PER_ADDED_TOPIC
        self._added = _topics("added", replicas_of(rows, layout.brokers), _PARTITIONS_PER_ADDED_TOPIC)
        self._moved = self._moves()
        self.registered: set[int] = set()

    def populate(self) -> None:
        """Create the cluster's nodes in an empty ZooKeeper, and register its brokers."""
        self._client.write([Create(path, b"") for path in _PARENTS])
        self._client.write([Create(paths.CONTROLLER_EPOCH, str(_CONTROLLER_EPOCH).encode())])
        self._client.write([topic.create_configuration() for topic in self._topics])
        self._client.write([topic.create() for topic in self._topics])
        self._client.write([one for topic in self._topics for one in topic.create_states()])
        self.register(self.layout.broker_ids)

    def register(self, broker_ids: Iterable[int]) -> None:
        """Create the registrations of brokers that have none, all at once."""
        new = [broker_id for broker_id in broker_ids if broker_id not in self.registered]
        self._client.write(
            [Create(paths.broker(one), self._registration(one), ephemeral=True) for one in new]
        )
        self.registered.update(new)

    def unregister(self, broker_ids: Collection[int]) -> None:
        """Delete registrations, all at once."""
        self._client.write([Delete(paths.broker(one)) for one in broker_ids])
        self.registered.difference_update(broker_ids)

    def depose(self) -> None:
        """Delete the node of the active controller."""
        self._client.write([Delete(paths.CONTROLLER)])

    def forget(self, broker_id: int) -> tuple[str, int]:
        """Delete the registration of a broker that is no sink; returns its first address."""
        (node,) = self._client.read([paths.broker(broker_id)])
        assert node is not None, f"broker {broker_id} is not registered"
        self._client.write([Delete(paths.broker(broker_id))])
        listener = nodes.parse_registration(node.data).listeners[0]
        return listener.host, listener.port

    def controller_id(self) -> int | None:
        """Return the id of the active controller, None without one."""
        (node,) = self._client.read([paths.CONTROLLER])
        return None if node is None else nodes.parse_controller(node.data)

    def controller_epoch(self) -> int:
        (node,) = self._client.read([paths.CONTROLLER_EPOCH])
        assert node is not None
        return nodes.parse_controller_epoch(node.data)

    def restore_states(self) -> None:
        """Write the first state of every partition whose state has changed."""
        self._write_changed((path, data) for topic in self._topics for path, data in _states(topic))

    def restore(self) -> None:
        """Make all nodes as they were after ``populate``. There must be no active controller."""
        names = set(self._client.children(paths.TOPICS))
        self._client.write([one for topic in self._added if topic.name in names for one in topic.delete()])
        self._write_changed((paths.topic(topic.name), topic.data) for topic in self._topics)
        self.register(self.layout.broker_ids)
        self.restore_states()

    def create_configurations(self) -> None:
        """Create the configurations of 1,000 new topics."""
        self._client.write([topic.create_configuration() for topic in self._added])

    def create_topics(self) -> None:
        """Create 1,000 topics in one transaction; their configurations have to exist."""
        self._client.write([topic.create() for topic in self._added])

    def reassign(self) -> None:
        """Request the reassignment of 1,000 partitions to all of their replicas but the leader."""
        moved = {
            (topic, number): replicas
            for topic, moves in self._moved.items()
            for number, replicas in moves.items()
        }
        self._client.write([Create(paths.REASSIGN_PARTITIONS, nodes.encode_reassignments(moved))])

    # -- what an event leaves in ZooKeeper; each returns a sentence about the first node that differs, or None

    def not_unchanged(self) -> str | None:
        """Return which partition state is not the first one."""
        wanted = [(path, data) for topic in self._topics for path, data in _states(topic)]
        found = self._client.read([path for path, _ in wanted])
        for (path, data), now in zip(wanted, found, strict=True):
            if now is None or now.data != data:
                return f"{path} is {now}, not {data!r}"
        return None

    def not_elected(self, dead: Collection[int] = ()) -> str | None:
        """Return which partition has a dead leader, or not exactly its living replicas in sync."""
        for topic in self._topics:
            for path, replicas, node in self._read_states(topic):
                state = None if node is None else nodes.parse_partition_state(node.data)
                in_sync = set(replicas).difference(dead)
                if state is None or set(state.isr) != in_sync or state.leader not in in_sync:
                    return f"{path} is {state}, and {in_sync} have to be in sync"
        return None

    def not_created(self) -> str | None:
        """Return which new partition is not led by its first replica."""
        for topic in self._added:
            for path, replicas, node in self._read_states(topic):
                if node is None or nodes.parse_partition_state(node.data).leader != replicas[0]:
                    return f"{path} is {node}"
        return None

    def not_reassigned(self) -> str | None:
        """Return which topic or partition is not reassigned."""
        (request,) = self._client.read([paths.REASSIGN_PARTITIONS])
        if request is not None:
            return f"{paths.REASSIGN_PARTITIONS} exists"
        for topic in self._topics:
            moved = self._moved.get(topic.name, {})
            if not moved:
                continue
            (node,) = self._client.read([paths.topic(topic.name)])
            if node is None or _by_partition(node.data) != _by_partition(topic.data_with(moved)):
                return f"{paths.topic(topic.name)} is {node}"
            for number, (path, _, state) in enumerate(self._read_states(topic)):
                leader = None if state is None else nodes.parse_partition_state(state.data).leader
                if number in moved and leader not in moved[number]:
                    return f"{path} is {state}"
        return None

    def leads(self, broker_id: int) -> str | None:
        """Return the path of a partition that this broker leads at first, None where it leads none."""
        for topic in self._topics:
            for path, replicas in zip(topic.state_paths, topic.replicas, strict=True):
                if replicas[0] == broker_id:
                    return path
        return None

    def leader(self, state_path: str) -> int:
        (node,) = self._client.read([state_path])
        assert node is not None, state_path
        return nodes.parse_partition_state(node.data).leader

    def rejoin_requests(self, broker_id: int) -> list[bytes]:
        """Return the AlterPartition requests by which leaders take a broker back into their ISRs."""
        return encode_requests(self._rejoining(broker_id), self._broker_epochs())

    def shrink_requests(self, requests: int, partitions: int) -> list[list[bytes]]:
        """Return AlterPartition requests of so many partitions, the queue of each leader.

        Each takes the last replica out of ISRs. Every leader sends its part of the requests.
        """
        epochs = self._broker_epochs()
        return [
            [frame for altered in queue for frame in encode_requests(self._shrinking(altered), epochs)]
            for queue in self._shrunk(requests, partitions)
        ]

    def not_shrunk(self, requests: int, partitions: int) -> str | None:
        """Return which partition of ``shrink_requests`` has its last replica in sync."""
        for queue in self._shrunk(requests, partitions):
            for altered in queue:
                for one, node in zip(altered, self._read_chosen(altered), strict=True):
                    isr = nodes.parse_partition_state(node.data).isr
                    if isr != one.replicas[:-1]:
                        return f"{one.state_path} has the ISR {isr}"
        return None

    def _broker_epochs(self) -> dict[int, int]:
        registrations = self._client.read([paths.broker(one) for one in self.layout.broker_ids])
        return {
            one: node.czxid for one, node in zip(self.layout.broker_ids, registrations, strict=True) if node
        }

    def _shrunk(self, requests: int, partitions: int) -> Iterator[list[list[_Chosen]]]:
        """Yield the partitions of each leader's requests."""
        led: dict[int, list[_Chosen]] = {one: [] for one in self.layout.broker_ids}
        for topic in self._topics:
            for number, replicas in enumerate(topic.replicas):
                led[replicas[0]].append(_Chosen(topic, number))
        for at, chosen in enumerate(led.values()):
            count = len(range(at, requests, len(led)))
            if count:
                size = min(partitions, len(chosen) // count)
                yield [chosen[number * size : (number + 1) * size] for number in range(count)]

    def _shrinking(self, altered: Sequence[_Chosen]) -> Iterator[Altered]:
        for one, node in zip(altered, self._read_chosen(altered), strict=True):
            state = nodes.parse_partition_state(node.data)
            isr = one.replicas[:-1]
            yield Altered(one.topic.id, one.number, state.leader, state.leader_epoch, node.version, isr)

    def _read_chosen(self, chosen: Sequence[_Chosen]) -> list[Node]:
        found = self._client.read([one.state_path for one in chosen])
        return [node for node in found if node is not None]

    def _rejoining(self, broker_id: int) -> Iterator[Altered]:
        following = [
            (topic, number)
            for topic in self._topics
            for number, replicas in enumerate(topic.replicas)
            if broker_id in replicas
        ]
        found = self._client.read([topic.state_paths[number] for topic, number in following])
        for (topic, number), node in zip(following, found, strict=True):
            assert node is not None, topic.state_paths[number]
            state = nodes.parse_partition_state(node.data)
            if broker_id not in state.isr:
                isr = [*state.isr, broker_id]
                yield Altered(topic.id, number, state.leader, state.leader_epoch, node.version, isr)

    def _read_states(self, topic: _Topic) -> Iterator[tuple[str, list[int], Node | None]]:
        return zip(topic.state_paths, topic.replicas, self._client.read(topic.state_paths), strict=True)

    def _write_changed(self, wanted: Iterable[tuple[str, bytes]]) -> None:
        listed = list(wanted)
        found = self._client.read([path for path, _ in listed])
        self._client.write(
            [
                SetData(path, data)
                for (path, data), node in zip(listed, found, strict=True)
                if node is None or node.data != data
            ]
        )

    def _registration(self, broker_id: int) -> bytes:
        listener = Listener("PLAINTEXT", "PLAINTEXT", self._host, self._ports[broker_id])
        return nodes.encode_registration([listener], rack_of(broker_id))

    def _moves(self) -> dict[str, dict[int, list[int]]]:
        moved: dict[str, dict[int, list[int]]] = {}
        step = self.layout.partitions // MOVED_PARTITIONS
        for row in range(0, MOVED_PARTITIONS * step, step):
            topic, number = self._topics[row // PARTITIONS_PER_TOPIC], row % PARTITIONS_PER_TOPIC
            moved.setdefault(topic.name, {})[number] = topic.replicas[number][1:]
        return moved


def _topics(prefix: str, replicas: Replicas, size: int) -> list[_Topic]:
    return [
        _Topic(f"{prefix}-topic-{number:06}", replicas[begin : begin + size])
        for number, begin in enumerate(range(0, len(replicas), size))
    ]


def _by_partition(topic: bytes) -> dict[str, Assignment]:
    return {one.key: one for one in nodes.parse_topic(topic).assignments}


def _states(topic: _Topic) -> Iterator[tuple[str, bytes]]:
    return zip(topic.state_paths, topic.states, strict=True)

"""A small cluster with both state machines. Requests are recorded, state nodes are real."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from kazoo.client import KazooClient

from ctrlchan._codec import LeaderAndIsrRequest, ListColumn, StopReplicaRequest, UpdateMetadataRequest
from ctrlchan.batch import ControllerBrokerRequestBatch
from ctrlchan.controller.machines.context import ControllerContext
from ctrlchan.controller.machines.leadership import StateNodes, create_leadership
from ctrlchan.controller.machines.partition_states import PartitionStateMachine
from ctrlchan.controller.machines.replica_states import ReplicaStateMachine
from ctrlchan.controller.machines.states import PartitionState, ReplicaState
from ctrlchan.state import ClusterState
from ctrlchan.state_change_log import StateChangeLogger
from tests.unit.batch.recording import RecordingChannel, broker, isrs, leaders, stops

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]

#: The controller of the tests; it is not among the brokers.
CONTROLLER_ID = 1000
Assignment = Mapping[int, Sequence[int]]


def pairs(*replicas: tuple[int, int]) -> tuple[Int64, Int32]:
    """Return (row, broker) pairs as columns."""
    return (
        np.array([row for row, _ in replicas], dtype=np.int64),
        np.array([one for _, one in replicas], dtype=np.int32),
    )


def rows(*numbers: int) -> Int64:
    return np.array(numbers, dtype=np.int64)


def state_path(partition: int = 0, topic: str = "t") -> str:
    return f"/brokers/topics/{topic}/partitions/{partition}/state"


class Machines:
    """``unclean_topics``: topics whose configuration allows unclean elections. ``unclean_election_error``:
    raised when it is asked for. ``configs_asked``: topics whose configuration was asked for.
    """

    def __init__(
        self,
        nodes: StateNodes,
        *,
        epoch: int = 1,
        brokers: Iterable[int] = (5,),
        recovery_supported: bool = True,
    ) -> None:
        self.nodes = nodes
        self.state = ClusterState.empty()
        self.state.set_brokers([broker(one) for one in brokers])
        self.context = ControllerContext(self.state, epoch, 0)
        self.channel = RecordingChannel()
        self.batch = ControllerBrokerRequestBatch(self.channel, self.state)
        self.unclean_topics: set[bytes] = set()
        self.configs_asked: list[bytes] = []
        self.unclean_election_error: Exception | None = None
        log = StateChangeLogger(CONTROLLER_ID, epoch)
        self.partitions = PartitionStateMachine(
            self.context,
            nodes,
            self.batch,
            log,
            controller_id=CONTROLLER_ID,
            recovery_supported=recovery_supported,
            unclean_election_enabled=self._unclean_election_enabled,
        )
        self.replicas = ReplicaStateMachine(self.context, nodes, self.batch, log, controller_id=CONTROLLER_ID)

    def _unclean_election_enabled(self, names: Sequence[bytes]) -> npt.NDArray[np.bool_]:
        self.configs_asked += names
        if self.unclean_election_error is not None:
            raise self.unclean_election_error
        return np.array([name in self.unclean_topics for name in names], dtype=bool)

    # -- what tests begin with

    def add(self, assignment: Assignment, topic: str = "t") -> Int64:
        """Add partitions without leadership."""
        numbers = sorted(assignment)
        return self.context.add_partitions(
            [topic.encode()],
            np.zeros((1, 16), np.uint8),
            np.zeros(len(numbers), np.int32),
            np.array(numbers, dtype=np.int32),
            ListColumn.from_lists([list(assignment[number]) for number in numbers]),
        )

    def lead(self, row: int, leader: int, isr: Sequence[int]) -> None:
        """Give a partition this leadership of leader epoch 0, in ZooKeeper and in the context."""
        error = create_leadership(
            self.context,
            self.nodes,
            rows(row),
            np.array([leader], dtype=np.int32),
            ListColumn.from_lists([list(isr)]),
        )
        assert error.tolist() == [0]

    def put_partition(self, row: int, state: PartitionState) -> None:
        self.context.partition_states[row] = state

    def put_replica(self, row: int, one: int, state: ReplicaState) -> None:
        self.context.put_replica_states(*pairs((row, one)), state)

    # -- what tests look at

    def partition_state(self, row: int = 0) -> PartitionState:
        return PartitionState(int(self.context.partition_states[row]))

    def replica_state(self, row: int, one: int) -> ReplicaState:
        return ReplicaState(int(self.context.replica_states(*pairs((row, one)))[0]))

    def leadership(self, row: int = 0) -> dict[str, Any]:
        """Return the leadership of a row in the context."""
        partitions = self.state.partitions
        names = ("leader", "leader_epoch", "partition_epoch", "controller_epoch", "recovery_state")
        found = {name: int(getattr(partitions, name)[row]) for name in names}
        return {**found, "isr": partitions.isr[row].tolist()}

    def leader_and_isr(self, one: int) -> list[LeaderAndIsrRequest]:
        return self.channel.bodies(one, LeaderAndIsrRequest)

    def recipients(self, kind: type[Any]) -> set[int]:
        """Return the brokers that were sent a request of this API."""
        return {recorded.broker_id for recorded in self.channel.sent if isinstance(recorded.body, kind)}

    def sent_leaders(self, one: int) -> dict[tuple[str, int], tuple[int, list[int]]]:
        """Return partition -> (leader, ISR) of all LeaderAndIsr requests to a broker."""
        found: dict[tuple[str, int], tuple[int, list[int]]] = {}
        for body in self.leader_and_isr(one):
            isr = isrs(body)
            found |= {key: (leader, isr[key]) for key, leader in leaders(body).items()}
        return found

    def sent_stops(self, one: int) -> dict[tuple[str, int], tuple[int, bool]]:
        """Return partition -> (leader epoch, delete) of all StopReplica requests to a broker."""
        found: dict[tuple[str, int], tuple[int, bool]] = {}
        for body in self.channel.bodies(one, StopReplicaRequest):
            found |= stops(body)
        return found

    def updated(self, one: int) -> set[tuple[str, int]]:
        """Return the partitions of all UpdateMetadata requests to a broker."""
        return {key for body in self.channel.bodies(one, UpdateMetadataRequest) for key in leaders(body)}


def znode(client: KazooClient, path: str) -> dict[str, Any]:
    """Return the JSON of a node, with its zkVersion as ``zk_version``."""
    data, stat = client.get(path)
    return {**json.loads(data), "zk_version": stat.version}

"""The ZooKeeper nodes that a controller writes: its own, topics, and partition states.

After the take-over every write is a multi that checks /controller_epoch, so a controller that was
replaced cannot write. Source: Kafka's KafkaZkClient and ZkData (3.9).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kazoo.client import KazooClient, TransactionRequest
from kazoo.exceptions import BadVersionError, KazooException, NodeExistsError, NoNodeError

from ctrlchan.zookeeper import nodes, paths


@dataclass(frozen=True)
class TakeOver:
    """A won election: the controller before (None: none), the epoch before, and the epoch since."""

    former_controller: int | None
    former_epoch: int
    epoch: int


@dataclass(frozen=True)
class PartitionState:
    """The ``state`` znode; ``version`` is its zkVersion, which is the partition epoch on the wire."""

    leader: int
    leader_epoch: int
    controller_epoch: int
    isr: tuple[int, ...]
    version: int = 0


class ControllerZnodes:
    """ZooKeeper as seen by the controller ``controller_id``, which need not be a broker's id."""

    def __init__(self, client: KazooClient, controller_id: int) -> None:
        self._client = client
        self.controller_id = controller_id
        self._epoch_version = -1
        self.controller_epoch = 0

    def take_over(self) -> TakeOver:
        """Become the controller in one multi; tried again while another one is faster."""
        while True:
            epoch_data, epoch_stat = self._client.get(paths.CONTROLLER_EPOCH)
            epoch = int(epoch_data)
            former, former_version = self._controller()
            multi = self._client.transaction()
            multi.set_data(paths.CONTROLLER_EPOCH, b"%d" % (epoch + 1), epoch_stat.version)
            if former is not None:
                multi.delete(paths.CONTROLLER, former_version)
            data = nodes.encode_controller(self.controller_id, time.time_ns() // 1_000_000)
            multi.create(paths.CONTROLLER, data, ephemeral=True)
            try:
                results = _commit(multi)
            except (BadVersionError, NodeExistsError, NoNodeError):
                continue
            self._epoch_version = results[0].version
            self.controller_epoch = epoch + 1
            return TakeOver(former, epoch, epoch + 1)

    def create_topic(
        self, name: str, assignment: Mapping[int, Sequence[int]], topic_id: bytes
    ) -> dict[int, PartitionState]:
        """Create the topic; every first replica leads with all replicas in sync. Returns the states."""
        multi = self._multi()
        for parent in (paths.TOPIC_CONFIGS, paths.TOPICS):
            self._client.ensure_path(parent)
        multi.create(paths.topic_config(name), b'{"version":1,"config":{}}')
        multi.create(paths.topic(name), nodes.encode_topic(topic_id, assignment))
        multi.create(paths.partitions(name), b"null")
        states = {}
        for partition, replicas in assignment.items():
            state = PartitionState(replicas[0], 0, self.controller_epoch, tuple(replicas))
            multi.create(paths.partition(name, partition), b"null")
            multi.create(paths.partition_state(name, partition), _data(state))
            states[partition] = state
        _commit(multi)
        return states

    def partition_state(self, topic: str, partition: int) -> PartitionState:
        data, stat = self._client.get(paths.partition_state(topic, partition))
        state = nodes.parse_partition_state(data)
        return PartitionState(
            state.leader, state.leader_epoch, state.controller_epoch, tuple(state.isr), stat.version
        )

    def set_partition_state(self, topic: str, partition: int, state: PartitionState) -> PartitionState:
        """Write ``state`` at its version; returns it with the new one. Raises BadVersionError."""
        state = replace(state, controller_epoch=self.controller_epoch)
        multi = self._multi()
        multi.set_data(paths.partition_state(topic, partition), _data(state), state.version)
        return replace(state, version=_commit(multi)[1].version)

    def delete_topic(self, name: str) -> None:
        """Remove the topic's znodes, as the controller does once every replica is deleted."""
        multi = self._multi()
        for partition in self._client.get_children(paths.partitions(name)):
            multi.delete(paths.partition_state(name, partition))
            multi.delete(paths.partition(name, partition))
        multi.delete(paths.partitions(name))
        multi.delete(paths.topic(name))
        multi.delete(paths.topic_config(name))
        _commit(multi)

    def _controller(self) -> tuple[int | None, int]:
        try:
            data, stat = self._client.get(paths.CONTROLLER)
        except NoNodeError:
            return None, -1
        return nodes.parse_controller(data), stat.version

    def _multi(self) -> TransactionRequest:
        multi = self._client.transaction()
        multi.check(paths.CONTROLLER_EPOCH, self._epoch_version)
        return multi


def _data(state: PartitionState) -> bytes:
    return nodes.encode_partition_state(
        nodes.PartitionState(state.leader, state.leader_epoch, state.controller_epoch, list(state.isr))
    )


def _commit(multi: TransactionRequest) -> list[Any]:
    """The results of a multi. Raises the error of the operation that was to blame, not of its neighbours."""
    results = multi.commit()
    errors = [result for result in results if isinstance(result, KazooException)]
    if errors:
        # Neighbours of the one to blame carry RuntimeInconsistency or RolledBackError.
        named = [e for e in errors if isinstance(e, (BadVersionError, NodeExistsError, NoNodeError))]
        raise (named or errors)[0]
    return list(results)

"""State nodes in ZooKeeper that are always as the controller knows them, and accept every write."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ctrlchan.state import ClusterState
from ctrlchan.state.lists import take
from ctrlchan.zookeeper.values import PartitionStateColumns, PartitionStatesRead, Written

__all__ = ["AgreeingNodes"]

Int32 = npt.NDArray[np.int32]


class AgreeingNodes:
    """Stands for ``ClusterNodes`` in the state machines; counts nodes that are ``read`` and ``written``."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self.read = 0
        self.written = 0

    def read_partition_states(
        self, names: Sequence[bytes], topic_row: Int32, partition: Int32
    ) -> PartitionStatesRead:
        """Return the state's own columns of these partitions."""
        self.read += len(partition)
        topics = np.array([self._state.topic_row(name) for name in names], dtype=np.int32)
        rows = self._state.find_rows(topics[topic_row], partition)
        columns = self._state.partitions
        return PartitionStatesRead(
            columns.leader[rows],
            columns.leader_epoch[rows],
            columns.controller_epoch[rows],
            columns.recovery_state[rows],
            take(columns.isr, rows),
            columns.partition_epoch[rows],
            {},
        )

    def update_partition_states(
        self,
        names: Sequence[bytes],
        topic_row: Int32,
        partition: Int32,
        columns: PartitionStateColumns,
        expected_version: Int32,
    ) -> Written:
        """Accept the writes: each version grows by one."""
        self.written += len(partition)
        return Written(expected_version + np.int32(1), np.zeros(len(partition), np.int32))

    def create_partition_states(
        self, names: Sequence[bytes], topic_row: Int32, partition: Int32, columns: PartitionStateColumns
    ) -> Written:
        """Accept the new nodes."""
        self.written += len(partition)
        zeros = np.zeros(len(partition), np.int32)
        return Written(zeros, zeros.copy())

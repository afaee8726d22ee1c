"""State nodes with faults that a real ZooKeeper shows only by chance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ctrlchan.controller.machines.leadership import StateNodes
from ctrlchan.errors import CtrlchanError, ZooKeeperError
from ctrlchan.zookeeper.values import PartitionStateColumns, PartitionStatesRead, Written

__all__ = ["FaultyNodes", "UnusedNodes"]

Int32 = npt.NDArray[np.int32]


class UnusedNodes:
    """Fails a test that reads or writes state nodes."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} is called")


class FaultyNodes:
    """Passes calls on.

    ``failing``: names of the calls that raise ``error``. ``before_update``: called once, before the next
    update: what a broker does between the controller's decision and its write. ``updates``, ``reads``: how
    many partitions each call had.
    """

    def __init__(self, nodes: StateNodes) -> None:
        self._nodes = nodes
        self.failing: set[str] = set()
        self.error: CtrlchanError = ZooKeeperError("the connection is lost")
        self.before_update: Callable[[], object] | None = None
        self.updates: list[int] = []
        self.reads: list[int] = []

    def _fail(self, name: str) -> None:
        if name in self.failing:
            raise self.error

    def read_partition_states(
        self, names: Sequence[bytes], topic_row: Int32, partition: Int32
    ) -> PartitionStatesRead:
        self.reads.append(len(partition))
        self._fail("read")
        return self._nodes.read_partition_states(names, topic_row, partition)

    def update_partition_states(
        self,
        names: Sequence[bytes],
        topic_row: Int32,
        partition: Int32,
        columns: PartitionStateColumns,
        expected_version: Int32,
    ) -> Written:
        self.updates.append(len(partition))
        self._fail("update")
        if self.before_update is not None:
            before, self.before_update = self.before_update, None
            before()
        return self._nodes.update_partition_states(names, topic_row, partition, columns, expected_version)

    def create_partition_states(
        self, names: Sequence[bytes], topic_row: Int32, partition: Int32, columns: PartitionStateColumns
    ) -> Written:
        self._fail("create")
        return self._nodes.create_partition_states(names, topic_row, partition, columns)

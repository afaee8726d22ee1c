"""The state nodes of partitions: leader, ISR and epochs, as columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from ctrlchan._codec import ListColumn
from ctrlchan.errors import ResultCode
from ctrlchan.zookeeper import _states, paths
from ctrlchan.zookeeper.bulk import StateRows, read_states, write_operations, write_rows
from ctrlchan.zookeeper.guarded import GuardedNodes
from ctrlchan.zookeeper.operations import Create
from ctrlchan.zookeeper.values import PartitionStateColumns, PartitionStatesRead, Written

__all__ = ["PartitionStateNodes"]

Int32 = npt.NDArray[np.int32]

#: The parts of two paths around a topic's name and a partition.
_STATE_PATH: Final = paths.partition_state("\0", "\0").split("\0")
_PARTITION_PATH: Final = paths.partition("\0", "\0").split("\0")


class PartitionStateNodes(GuardedNodes):
    """Reads, updates and creates state nodes. Rows: ``names[topic_row]`` and ``partition``, int32[n] each."""

    def read_partition_states(
        self, names: Sequence[bytes], topic_row: Int32, partition: Int32
    ) -> PartitionStatesRead:
        """Return the states of these partitions."""
        columns, malformed = read_states(self.session, self._paths(_STATE_PATH, names, topic_row, partition))
        return PartitionStatesRead(
            leader=columns.leader,
            leader_epoch=columns.leader_epoch,
            controller_epoch=columns.controller_epoch,
            recovery_state=columns.recovery_state,
            isr=ListColumn(columns.starts, columns.lengths, columns.values()),
            version=columns.version,
            malformed=malformed,
        )

    def update_partition_states(
        self,
        names: Sequence[bytes],
        topic_row: Int32,
        partition: Int32,
        columns: PartitionStateColumns,
        expected_version: Int32,
    ) -> Written:
        """Replace the states of these versions. BAD_VERSION or NO_NODE of a row does not stop the others.

        Raises ControllerMovedError. A lost answer is read back. Source: ``updateLeaderAndIsr``.
        """
        state_paths = self._paths(_STATE_PATH, names, topic_row, partition)
        versions = np.ascontiguousarray(expected_version, np.int32)
        values = _values(columns)
        return write_rows(
            self, StateRows(self.session, _states.SET_STATES, state_paths, values, versions, b"")
        )

    def create_partition_states(
        self, names: Sequence[bytes], topic_row: Int32, partition: Int32, columns: PartitionStateColumns
    ) -> Written:
        """Create state nodes and, where they are missing, the nodes above them up to the topic's.

        NODE_EXISTS of a row, or NO_NODE for a topic that is gone, does not stop the others. Raises
        ControllerMovedError. Source: ``createTopicPartitionStatesRaw``.
        """
        none = np.empty(0, np.int32)
        acl = self.session.acl(paths.TOPICS)
        topic_rows = np.flatnonzero(np.bincount(topic_row, minlength=len(names)))
        parents = [Create(paths.partitions(names[row].decode())) for row in topic_rows.tolist()]
        topics = np.zeros(len(names), np.int32)
        topics[topic_rows] = write_operations(self, parents).error
        error: Int32 = topics[topic_row]
        # Below a parent that was just made there is nothing.
        there = np.flatnonzero(error == ResultCode.NODE_EXISTS)
        error[there] = ResultCode.OK
        missing = np.ones(len(error), bool)
        missing[there] = ~self._exist(_PARTITION_PATH, names, topic_row[there], partition[there])
        there = np.flatnonzero(~missing)
        written = self._exist(_STATE_PATH, names, topic_row[there], partition[there])
        error[there[written]] = ResultCode.NODE_EXISTS

        partition_paths = self._paths(_PARTITION_PATH, names, topic_row, partition)
        nodes = StateRows(self.session, _states.CREATE_EMPTY, partition_paths, None, none, acl)
        selected = np.flatnonzero(missing & (error == ResultCode.OK))
        result = write_rows(self, nodes, selected).error[selected]
        error[selected] = np.where(result == ResultCode.NODE_EXISTS, ResultCode.OK, result)

        state_paths = self._paths(_STATE_PATH, names, topic_row, partition)
        states = StateRows(self.session, _states.CREATE_STATES, state_paths, _values(columns), none, acl)
        selected = np.flatnonzero(error == ResultCode.OK)
        error[selected] = write_rows(self, states, selected).error[selected]
        return Written(np.where(error == ResultCode.OK, 0, -1).astype(np.int32), error)

    def _exist(
        self, parts: Sequence[str], names: Sequence[bytes], topic_row: Int32, partition: Int32
    ) -> npt.NDArray[np.bool_]:
        """Return a flag for each row: whether its node is there."""
        found: npt.NDArray[np.bool_] = (
            read_states(self.session, self._paths(parts, names, topic_row, partition))[0].version >= 0
        )
        return found

    def _paths(
        self, parts: Sequence[str], names: Sequence[bytes], topic_row: Int32, partition: Int32
    ) -> _states.PartitionPaths:
        head, middle, end = (part.encode() for part in parts)
        return _states.PartitionPaths(
            self.session.chroot + head,
            middle,
            end,
            names,
            np.ascontiguousarray(topic_row, np.int32),
            np.ascontiguousarray(partition, np.int32),
        )


def _values(columns: PartitionStateColumns) -> _states.StateValues:
    isr = columns.isr
    given = (columns.leader, columns.leader_epoch, columns.controller_epoch, columns.recovery_state)
    return _states.StateValues(
        *(np.ascontiguousarray(one, np.int32) for one in (*given, isr.starts, isr.lengths, isr.values))
    )

"""Reads and writes the state nodes of rows, and keeps the context equal to them.

The state has the data and the zkVersion of each state node as they were last read or written. A write names
this zkVersion, so it fails where a broker has written the node since; then the node is read back. Without a
write that proves it, the state may be out of date: brokers below IBP 2.7-IV2 write the nodes themselves.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from ctrlchan._codec import ListColumn
from ctrlchan.controller.machines.context import ControllerContext
from ctrlchan.errors import ResultCode
from ctrlchan.state.lists import take
from ctrlchan.zookeeper.values import PartitionStateColumns, PartitionStatesRead, Written

__all__ = [
    "StateNodes",
    "StatesReadBack",
    "create_leadership",
    "read_back",
    "write_leadership",
]

Bool = npt.NDArray[np.bool_]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]

_LOG: Final = logging.getLogger(__name__)
#: Malformed nodes of one read that are logged.
_LOGGED_NODES: Final = 100


class StateNodes(Protocol):
    """The part of ``ctrlchan.zookeeper.cluster.ClusterNodes`` that writes and reads state nodes.

    ``names``: topics; ``topic_row``: for each partition the place of its topic in them. All raise
    ZooKeeperError when ZooKeeper does not answer (SessionExpiredError when the session is gone), and the
    writes ControllerMovedError.
    """

    def read_partition_states(
        self, names: Sequence[bytes], topic_row: Int32, partition: Int32
    ) -> PartitionStatesRead: ...
    def update_partition_states(
        self,
        names: Sequence[bytes],
        topic_row: Int32,
        partition: Int32,
        columns: PartitionStateColumns,
        expected_version: Int32,
    ) -> Written: ...
    def create_partition_states(
        self, names: Sequence[bytes], topic_row: Int32, partition: Int32, columns: PartitionStateColumns
    ) -> Written: ...


@dataclass(frozen=True, slots=True)
class StatesReadBack:
    """Flags of n rows whose state nodes were read. Rows without a flag are up to date in the context.

    ``missing``: there is no node, or it is malformed. ``later``: a controller of a later epoch wrote it.
    """

    missing: Bool
    later: Bool


def read_back(context: ControllerContext, nodes: StateNodes, rows: Int64) -> StatesReadBack:
    """Read the state nodes of these rows into the context. Malformed ones are logged and left out."""
    found = nodes.read_partition_states(*_addresses(context, rows))
    for place, reason in islice(found.malformed.items(), _LOGGED_NODES):
        _LOG.error("%s is left out: %s", context.partition_name(int(rows[place])), reason)
    missing = found.version < 0
    missing[list(found.malformed)] = True
    later = ~missing & (found.controller_epoch > context.epoch)
    right = np.flatnonzero(~missing & ~later)
    context.put_leadership(
        rows[right],
        leader=found.leader[right],
        leader_epoch=found.leader_epoch[right],
        partition_epoch=found.version[right],
        controller_epoch=found.controller_epoch[right],
        recovery_state=found.recovery_state[right],
        isr=take(found.isr, right),
    )
    return StatesReadBack(missing, later)


def write_leadership(
    context: ControllerContext,
    nodes: StateNodes,
    rows: Int64,
    *,
    leader: Int32,
    leader_epoch: Int32,
    recovery_state: Int32,
    isr: ListColumn,
) -> Int32:
    """Write the state nodes of these rows at the zkVersions of the state; return ZooKeeper's error of each.

    Rows that were written have the new leadership in the context.
    """
    columns = PartitionStateColumns(
        leader, leader_epoch, np.full(len(rows), context.epoch, np.int32), recovery_state, isr
    )
    versions = context.state.partitions.partition_epoch[rows]
    return _put_written(
        context,
        rows,
        columns,
        nodes.update_partition_states(*_addresses(context, rows), columns, versions),
    )


def create_leadership(
    context: ControllerContext, nodes: StateNodes, rows: Int64, leader: Int32, isr: ListColumn
) -> Int32:
    """Create the state nodes of these rows with leader epoch 0; return ZooKeeper's error of each.

    Rows that were written have the new leadership in the context.
    """
    zeros = np.zeros(len(rows), np.int32)
    columns = PartitionStateColumns(leader, zeros, np.full(len(rows), context.epoch, np.int32), zeros, isr)
    return _put_written(
        context, rows, columns, nodes.create_partition_states(*_addresses(context, rows), columns)
    )


def _addresses(context: ControllerContext, rows: Int64) -> tuple[list[bytes], Int32, Int32]:
    return *context.names_of(rows), context.state.partitions.partition[rows]


def _put_written(
    context: ControllerContext, rows: Int64, columns: PartitionStateColumns, written: Written
) -> Int32:
    done = np.flatnonzero(written.error == ResultCode.OK)
    context.put_leadership(
        rows[done],
        leader=columns.leader[done],
        leader_epoch=columns.leader_epoch[done],
        partition_epoch=written.version[done],
        controller_epoch=columns.controller_epoch[done],
        recovery_state=columns.recovery_state[done],
        isr=take(columns.isr, done),
    )
    return written.error

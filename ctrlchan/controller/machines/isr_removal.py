"""Takes replicas out of the ISR, in ZooKeeper and in the context.

Source: ``kafka.controller.ZkReplicaStateMachine.removeReplicasFromIsr`` (Kafka 3.9), which removes replicas
broker by broker. Here all replicas that leave a partition are one write of its state node.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ctrlchan._codec import ListColumn
from ctrlchan.controller.machines.context import ControllerContext
from ctrlchan.controller.machines.leadership import StateNodes, write_leadership
from ctrlchan.controller.machines.pending_rows import PendingRows
from ctrlchan.controller.machines.recipients import brokers_by_row
from ctrlchan.controller.machines.state_changes import (
    Reason,
    StateChangeLines,
    later_controller,
    no_state_node,
    refusals,
)
from ctrlchan.controller.machines.states import ReplicaState
from ctrlchan.errors import ResultCode
from ctrlchan.protocol import NO_LEADER
from ctrlchan.state.lists import contains, entries_within, entry_rows, packed_values, select, take

__all__ = ["IsrRemoval", "without_replicas"]

Bool = npt.NDArray[np.bool_]
Int8 = npt.NDArray[np.int8]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]


def without_replicas(leader: Int32, isr: ListColumn, leaving: ListColumn) -> tuple[Int32, ListColumn, Int32]:
    """Return leader, ISR, and the number of replicas of ``leaving`` that were in the ISR, for each row.

    The leader is -1 if it left. The last member stays: of an ISR that leaves as a whole the highest broker.
    """
    leaves = entries_within(isr, leaving)
    rows, brokers = entry_rows(isr), packed_values(isr)
    count = np.bincount(rows[leaves], minlength=len(isr)).astype(np.int32)
    whole = (count == isr.lengths)[rows]
    if whole.any():
        last = np.full(len(isr), NO_LEADER, np.int32)
        np.maximum.at(last, rows, brokers)
        leaves &= ~(whole & (brokers == last[rows]))
    led = contains(leaving, leader) & contains(isr, leader)
    return np.where(led, np.int32(NO_LEADER), leader), select(isr, ~leaves), count


class IsrRemoval:
    """One removal of many replicas.

    ``rows``, ``brokers``, ``states``: the replicas, ascending by row, then broker; rows with leadership.
    """

    def __init__(
        self,
        context: ControllerContext,
        nodes: StateNodes,
        lines: StateChangeLines,
        rows: Int64,
        brokers: Int32,
        states: Int8,
    ) -> None:
        self._context = context
        self._nodes = nodes
        self._lines = lines
        self._states = states
        rows, self._leaving = brokers_by_row(rows, brokers)
        self._removed = np.zeros(len(rows), dtype=bool)
        self._pending = PendingRows(rows, to_read=np.zeros(len(rows), dtype=bool))

    def run(self) -> Bool:
        """Remove the replicas; return flags of replicas that are in no ISR or the last member of one.

        A replica outside the ISR costs no write, but the row's controller epoch is this controller's then.
        Raises ControllerMovedError, SessionExpiredError.
        """
        self._pending.until_done(self._attempt, self._fail)
        return self._removed[entry_rows(self._leaving)]

    def _attempt(self) -> None:
        context, pending = self._context, self._pending
        self._read()
        at = pending.places
        partitions = context.state.partitions
        rows = pending.rows[at]
        leader, isr, count = without_replicas(
            partitions.leader[rows], take(partitions.isr, rows), take(self._leaving, at)
        )
        # The state may be out of date. Only a node that was read now shows that a replica is not in sync.
        unproved = (count < self._leaving.lengths[at]) & ~pending.was_read[at]
        pending.to_read[at[unproved]] = True
        outside = ~unproved & (count == 0)
        if outside.any():
            context.state.update(rows[outside], controller_epoch=context.epoch)
            self._end(at[outside])
        written = np.flatnonzero(~unproved & (count > 0))
        if len(written):
            self._write(at[written], leader[written], take(isr, written), count[written])

    def _read(self) -> None:
        read = self._pending.read(self._context, self._nodes)
        if read is None:
            return
        at, found = read
        # The node of a topic to delete may be gone, which is no failure, but its replica keeps its state.
        expected = found.missing & self._context.is_to_delete(self._pending.rows[at])
        self._pending.end(at[expected])
        self._fail(at[found.missing & ~expected], no_state_node)
        self._fail(at[found.later], later_controller)

    def _write(self, at: Int64, leader: Int32, isr: ListColumn, count: Int32) -> None:
        partitions, rows = self._context.state.partitions, self._pending.rows[at]
        error = write_leadership(
            self._context,
            self._nodes,
            rows,
            leader=leader,
            leader_epoch=partitions.leader_epoch[rows] + count,
            recovery_state=partitions.recovery_state[rows],
            isr=isr,
        )
        self._pending.to_read[at[error == ResultCode.BAD_VERSION]] = True
        for failed, reason in refusals("written", error, (ResultCode.OK, ResultCode.BAD_VERSION)):
            self._fail(at[failed], reason)
        self._end(at[error == ResultCode.OK])

    def _end(self, at: Int64) -> None:
        self._removed[at] = True
        self._pending.end(at)

    def _fail(self, at: Int64, reason: Reason) -> None:
        if not len(at):
            return
        every = self._pending.rows
        failed = np.zeros(len(every), dtype=bool)
        failed[at] = True
        pairs = failed[entry_rows(self._leaving)]
        rows = np.repeat(every, self._leaving.lengths)
        self._lines.replicas_failed(
            rows[pairs], self._leaving.values[pairs], self._states[pairs], ReplicaState.OFFLINE, reason
        )
        self._pending.end(at)

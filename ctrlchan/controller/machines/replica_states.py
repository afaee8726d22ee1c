"""The replica state machine: replicas are started, stopped, taken out of the ISR, and deleted.

Source: ``kafka.controller.ZkReplicaStateMachine`` (Kafka 3.9).
"""

from __future__ import annotations

import logging
from typing import Final

import numpy as np
import numpy.typing as npt

from ctrlchan._codec import ListColumn
from ctrlchan.batch import ControllerBrokerRequestBatch
from ctrlchan.controller.machines.context import ControllerContext
from ctrlchan.controller.machines.isr_removal import IsrRemoval
from ctrlchan.controller.machines.leadership import StateNodes
from ctrlchan.controller.machines.recipients import brokers_by_row, one_batch, rows_by_broker, sorted_pairs
from ctrlchan.controller.machines.replica_table import replica_keys
from ctrlchan.controller.machines.state_changes import StateChangeLines
from ctrlchan.controller.machines.states import ReplicaState, valid_changes
from ctrlchan.log_context import ContextLogger
from ctrlchan.state.lists import contains, entries_within, packed_values, select, take
from ctrlchan.state.rows import distinct
from ctrlchan.state_change_log import StateChangeLogger

__all__ = ["ReplicaStateMachine"]

_LOG: Final = logging.getLogger(__name__)

Bool = npt.NDArray[np.bool_]
Int8 = npt.NDArray[np.int8]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]


class ReplicaStateMachine:
    """Changes the states of replicas, writes ZooKeeper and sends requests.

    Its methods raise ControllerMovedError and SessionExpiredError when this term has ended, and
    IllegalStateError when something was written and perhaps not sent: the controller must resign then. The
    batch is empty after an error.
    """

    def __init__(
        self,
        context: ControllerContext,
        nodes: StateNodes,
        batch: ControllerBrokerRequestBatch,
        log: StateChangeLogger,
        *,
        controller_id: int,
    ) -> None:
        self._context = context
        self._nodes = nodes
        self._batch = batch
        self._log = ContextLogger(_LOG, f"[ReplicaStateMachine controllerId={controller_id}] ")
        self._lines = StateChangeLines(context, log, controller_id)

    def startup(self) -> None:
        """Set the state of every assigned replica from its broker, then start and stop them.

        Replicas on dead brokers begin as DELETION_INELIGIBLE, because their topic may be one to delete.
        """
        context = self._context
        rows, brokers = sorted_pairs(*context.replica_pairs(context.all_rows))
        online = context.is_online(rows, brokers)
        states = np.where(online, ReplicaState.ONLINE, ReplicaState.DELETION_INELIGIBLE).astype(np.int8)
        context.replicas.put(replica_keys(context.partition_ids[rows], brokers), states)
        self.handle_state_changes(rows[online], brokers[online], ReplicaState.ONLINE)
        self.handle_state_changes(rows[~online], brokers[~online], ReplicaState.OFFLINE)

    def handle_state_changes(self, rows: Int64, brokers: Int32, target: ReplicaState) -> None:
        """Change the state of these replicas to ``target``, and send what follows from it to the brokers.

        Each replica whose change fails is logged and keeps its state.
        """
        if not len(rows):
            return
        rows, brokers = sorted_pairs(rows, brokers)
        with one_batch(self._batch, self._context.epoch):
            self._change(rows, brokers, target)

    def _change(self, rows: Int64, brokers: Int32, target: ReplicaState) -> None:
        states = self._context.replica_states(rows, brokers)
        valid = valid_changes(states, target)
        if not valid.all():
            self._lines.replicas_invalid(rows[~valid], brokers[~valid], states[~valid], target)
            rows, brokers, states = rows[valid], brokers[valid], states[valid]
        changed: Bool | None = None
        match target:
            case ReplicaState.NEW:
                changed = self._start_new(rows, brokers, states)
            case ReplicaState.ONLINE:
                self._start(rows, brokers, states)
            case ReplicaState.OFFLINE:
                changed = self._stop(rows, brokers, states)
            case ReplicaState.DELETION_STARTED:
                for broker, chosen in rows_by_broker(rows, brokers):
                    self._batch.add_stop_replica([broker], chosen, delete=True)
            case ReplicaState.NON_EXISTENT:
                self._leave_assignment(rows, brokers)
        if changed is not None and not changed.all():
            rows, brokers, states = rows[changed], brokers[changed], states[changed]
        self._lines.replicas_changed(rows, brokers, states, target)
        self._context.put_replica_states(rows, brokers, target)

    def _start_new(self, rows: Int64, brokers: Int32, states: Int8) -> Bool:
        """Send LeaderAndIsr with the flag "new"; return flags of the replicas that do not lead already."""
        context = self._context
        known = context.has_leadership(rows)
        leads: Bool = known & (context.state.partitions.leader[rows] == brokers)
        self._lines.replicas_failed(
            rows[leads],
            brokers[leads],
            states[leads],
            ReplicaState.NEW,
            lambda name, row: f"a replica that leads {name} is not new",
        )
        follows = known & ~leads
        for broker, chosen in rows_by_broker(rows[follows], brokers[follows]):
            self._batch.add_leader_and_isr([broker], chosen, is_new=True)
        return ~leads

    def _start(self, rows: Int64, brokers: Int32, states: Int8) -> None:
        """Send LeaderAndIsr to replicas that are not new. New replicas have got it before."""
        context = self._context
        new = np.flatnonzero(states == ReplicaState.NEW)
        if len(new):
            assigned = contains(take(context.state.partitions.replicas, rows[new]), brokers[new])
            self._join_assignment(rows[new[~assigned]], brokers[new[~assigned]])
        old = (states != ReplicaState.NEW) & context.has_leadership(rows)
        for broker, chosen in rows_by_broker(rows[old], brokers[old]):
            self._batch.add_leader_and_isr([broker], chosen)

    def _stop(self, rows: Int64, brokers: Int32, states: Int8) -> Bool:
        """Send StopReplica, and take the replicas out of the ISR; return flags of those that are offline."""
        context, batch = self._context, self._batch
        # StopReplica has the leader epoch from before the ISR changes, so it is added first.
        for broker, chosen in rows_by_broker(rows, brokers):
            batch.add_stop_replica([broker], chosen)
        known = context.has_leadership(rows)
        if not known.all():
            batch.add_update_metadata(context.state.broker_ids.tolist(), distinct(rows[~known]))
        offline: Bool = ~known
        if known.any():
            removal = IsrRemoval(
                context, self._nodes, self._lines, rows[known], brokers[known], states[known]
            )
            offline[known] = removal.run()
        removed = np.flatnonzero(offline & known)
        self._lines.isr_changed(rows[removed], brokers[removed])
        informed = removed[~context.is_to_delete(rows[removed])]
        self._inform_others(rows[informed], brokers[informed])
        return offline

    def _inform_others(self, rows: Int64, brokers: Int32) -> None:
        """Send LeaderAndIsr of each row to its replicas other than the one on ``brokers``.

        UpdateMetadata of all rows goes to all brokers, also of partitions without another replica.
        """
        if len(rows):
            self._batch.add_update_metadata(self._context.state.broker_ids.tolist(), distinct(rows))
        replicas = take(self._context.state.partitions.replicas, rows)
        rows, recipients = np.repeat(rows, replicas.lengths), packed_values(replicas)
        others = recipients != np.repeat(brokers, replicas.lengths)
        # A row of which two replicas go offline is sent to each broker once.
        for broker, chosen in rows_by_broker(*sorted_pairs(rows[others], recipients[others])):
            self._batch.add_leader_and_isr([broker], chosen)

    def _join_assignment(self, rows: Int64, brokers: Int32) -> None:
        """Append replicas that became online without being assigned."""
        context = self._context
        for row, broker in zip(rows.tolist(), brokers.tolist(), strict=True):
            name = context.partition_name(row)
            self._log.error("replica %d of %s is not assigned; it is added", broker, name)
            assigned = context.state.partitions.replicas[row].tolist()
            context.state.update(row, replicas=[*assigned, broker])

    def _leave_assignment(self, rows: Int64, brokers: Int32) -> None:
        """Take deleted replicas out of the assignment of their partitions."""
        chosen, deleted = brokers_by_row(rows, brokers)
        partitions = self._context.state.partitions

        def others(column: ListColumn | None) -> ListColumn:
            assert column is not None
            lists = take(column, chosen)
            return select(lists, ~entries_within(lists, deleted))

        self._context.state.update(
            chosen,
            replicas=others(partitions.replicas),
            adding=others(partitions.adding),
            removing=others(partitions.removing),
        )

"""The partition state machine: new partitions get their first leader, others elect one.

Source: ``kafka.controller.ZkPartitionStateMachine`` (Kafka 3.9).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ctrlchan.batch import ControllerBrokerRequestBatch
from ctrlchan.controller.machines.context import ControllerContext
from ctrlchan.controller.machines.electing import Electing, ElectionRules, Elections, UncleanElectionEnabled
from ctrlchan.controller.machines.leader_election import Strategy
from ctrlchan.controller.machines.leadership import StateNodes, create_leadership
from ctrlchan.controller.machines.recipients import add_leader_and_isr, one_batch
from ctrlchan.controller.machines.state_changes import Reason, StateChangeLines, refusals
from ctrlchan.controller.machines.states import PartitionState, valid_changes
from ctrlchan.errors import ResultCode, SessionExpiredError, ZooKeeperError
from ctrlchan.state.lists import select, take
from ctrlchan.state.rows import distinct
from ctrlchan.state_change_log import StateChangeLogger

__all__ = ["Elections", "PartitionStateMachine"]

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]


class PartitionStateMachine:
    """Changes the states of partitions, writes ZooKeeper and sends requests.

    ``recovery_supported`` and ``unclean_election_enabled``: see ``ElectionRules``.

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
        recovery_supported: bool,
        unclean_election_enabled: UncleanElectionEnabled,
    ) -> None:
        self._context = context
        self._nodes = nodes
        self._batch = batch
        self._lines = StateChangeLines(context, log, controller_id)
        self._rules = ElectionRules(recovery_supported, unclean_election_enabled)

    def startup(self) -> Elections:
        """Set the state of every partition from its leadership, then elect leaders where there are none."""
        context = self._context
        rows, partitions = context.all_rows, context.state.partitions
        led = context.is_online(rows, partitions.leader)
        context.partition_states[:] = np.where(
            context.has_leadership(rows),
            np.where(led, PartitionState.ONLINE, PartitionState.OFFLINE),
            PartitionState.NEW,
        )
        return self.trigger_online()

    def trigger_online(self, rows: Int64 | None = None) -> Elections:
        """Elect leaders for new and offline partitions of ``rows``, or of all, without topics to delete."""
        context = self._context
        waiting = context.rows_in(PartitionState.NEW, PartitionState.OFFLINE)
        if rows is not None:
            waiting = waiting[np.isin(waiting, rows)]
        waiting = waiting[~context.is_to_delete(waiting)]
        return self.handle_state_changes(waiting, PartitionState.ONLINE, Strategy.OFFLINE)

    def handle_state_changes(
        self, rows: Int64, target: PartitionState, strategy: Strategy | None = None
    ) -> Elections:
        """Change the state of these rows to ``target``, and send what follows from it to the brokers.

        ``strategy`` is required for ONLINE. Each row whose change fails is logged and keeps its state. Raises
        ValueError for ONLINE without a strategy.
        """
        if target is PartitionState.ONLINE and strategy is None:
            raise ValueError("a change to OnlinePartition needs an election strategy")
        rows = distinct(rows)
        if not len(rows):
            return Elections(rows, np.zeros(0, np.int16))
        with one_batch(self._batch, self._context.epoch):
            return self._change(rows, target, strategy)

    def _change(self, rows: Int64, target: PartitionState, strategy: Strategy | None) -> Elections:
        context = self._context
        states = context.partition_states
        valid = valid_changes(states[rows], target)
        self._lines.partitions_invalid(rows[~valid], target)
        rows = rows[valid]
        if target is PartitionState.ONLINE:
            assert strategy is not None
            new = states[rows] == PartitionState.NEW
            self._initialize(rows[new])
            return Electing(
                context, self._nodes, self._batch, self._lines, self._rules, rows[~new], strategy
            ).run()
        if target is PartitionState.NEW:
            self._lines.partitions_new(rows)
        else:
            self._lines.partitions_changed(rows, target)
        states[rows] = target
        return Elections(rows[:0], np.zeros(0, np.int16))

    # -- first leaders

    def _initialize(self, rows: Int64) -> None:
        """Create the state nodes: all online replicas are in sync, the first of them leads."""
        context = self._context
        replicas = take(context.state.partitions.replicas, rows)
        isr = select(replicas, context.is_online(*context.replica_pairs(rows)))
        alive = isr.lengths > 0
        self._lines.partitions_failed(rows[~alive], PartitionState.ONLINE, self._no_live_replica())
        rows, isr = rows[alive], take(isr, np.flatnonzero(alive))
        if not len(rows):
            return
        leader = isr.values[isr.starts]
        try:
            error = create_leadership(context, self._nodes, rows, leader, isr)
        except SessionExpiredError:
            raise
        except ZooKeeperError as problem:
            self._lines.partitions_failed(rows, PartitionState.ONLINE, problem)
            return
        for failed, reason in refusals("created", error):
            self._lines.partitions_failed(rows[failed], PartitionState.ONLINE, reason)
        created = np.flatnonzero(error == ResultCode.OK)
        self._lines.partitions_online(rows[created])
        context.partition_states[rows[created]] = PartitionState.ONLINE
        add_leader_and_isr(self._batch, rows[created], take(isr, created), is_new=True)

    def _no_live_replica(self) -> Reason:
        state = self._context.state
        live = _ids(np.sort(state.online_broker_ids))
        return lambda name, row: (
            f"no assigned replica of {name} is online: "
            f"assigned [{_ids(state.partitions.replicas[row])}], live brokers [{live}]"
        )


def _ids(brokers: Int32) -> str:
    return ",".join(map(str, brokers.tolist()))

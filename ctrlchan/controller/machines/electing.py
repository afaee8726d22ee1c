"""Elects leaders and writes them to ZooKeeper, again where a broker has written a state node meanwhile.

Source: ``kafka.controller.ZkPartitionStateMachine.electLeaderForPartitions`` (Kafka 3.9).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from ctrlchan.batch import ControllerBrokerRequestBatch
from ctrlchan.controller.machines.context import ControllerContext
from ctrlchan.controller.machines.leader_election import (
    Candidates,
    ElectedLeaders,
    Strategy,
    elect_for_controlled_shutdown,
    elect_for_reassignment,
    elect_offline,
    elect_preferred,
)
from ctrlchan.controller.machines.leadership import StateNodes, write_leadership
from ctrlchan.controller.machines.pending_rows import PendingRows
from ctrlchan.controller.machines.recipients import add_leader_and_isr
from ctrlchan.controller.machines.state_changes import (
    Reason,
    StateChangeLines,
    later_controller,
    no_state_node,
    refusals,
)
from ctrlchan.controller.machines.states import PartitionState
from ctrlchan.errors import ErrorCode, ResultCode
from ctrlchan.protocol import NO_LEADER
from ctrlchan.state.lists import entry_rows, packed_values, take

__all__ = ["Electing", "ElectionRules", "Elections", "UncleanElectionEnabled"]

_LOG: Final = logging.getLogger(__name__)

Bool = npt.NDArray[np.bool_]
Int16 = npt.NDArray[np.int16]
Int64 = npt.NDArray[np.int64]


#: Topic names -> a flag for each.
UncleanElectionEnabled: TypeAlias = Callable[[Sequence[bytes]], Bool]


@dataclass(frozen=True, slots=True)
class ElectionRules:
    """Settings that elections depend on.

    ``recovery_supported``: the inter-broker protocol has the leader recovery state (from 3.2-IV0).
    ``unclean_election_enabled``: whether the configuration of a topic allows a leader outside the ISR; may
    raise ZooKeeperError.
    """

    recovery_supported: bool
    unclean_election_enabled: UncleanElectionEnabled


@dataclass(frozen=True, slots=True)
class Elections:
    """The rows for which a leader was to be elected, ascending, with Kafka's error code of each (0: elected).

    PREFERRED_LEADER_NOT_AVAILABLE or ELIGIBLE_LEADERS_NOT_AVAILABLE: no replica may lead, or the state node
    does not allow it. UNKNOWN_SERVER_ERROR: ZooKeeper failed. Rows that got their first leader are not among
    them, nor those whose state did not allow the change.
    """

    rows: Int64
    error: Int16

    @property
    def elected(self) -> Int64:
        """The rows that got a leader."""
        rows: Int64 = self.rows[self.error == 0]
        return rows


class Electing:
    """One election of leaders for many rows. Written leaders are ONLINE and in the batch."""

    def __init__(
        self,
        context: ControllerContext,
        nodes: StateNodes,
        batch: ControllerBrokerRequestBatch,
        lines: StateChangeLines,
        rules: ElectionRules,
        rows: Int64,
        strategy: Strategy,
    ) -> None:
        self._context = context
        self._nodes = nodes
        self._batch = batch
        self._lines = lines
        self._rules = rules
        self._strategy = strategy
        self._no_leader = (
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
            if strategy is Strategy.PREFERRED
            else ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        )
        self._error: Int16 = np.zeros(len(rows), np.int16)
        self._pending = PendingRows(rows, to_read=~context.has_leadership(rows))

    def run(self) -> Elections:
        """Elect until every row has a leader or an error.

        Raises ControllerMovedError, SessionExpiredError.
        """
        self._pending.until_done(
            self._attempt, lambda at, error: self._fail(at, ErrorCode.UNKNOWN_SERVER_ERROR, error)
        )
        return Elections(self._pending.rows, self._error)

    def _attempt(self) -> None:
        self._read()
        pending = self._pending
        at = pending.places
        if not len(at):
            return
        elected = self._elect(pending.rows[at])
        led = elected.leader != NO_LEADER
        without = at[~led]
        # The state may be out of date. Only a node that was read now shows that no replica may lead.
        pending.to_read[without] = ~pending.was_read[without]
        self._fail(without[pending.was_read[without]], self._no_leader, self._no_replica_may_lead)
        if led.any():
            self._write(at[led], elected, np.flatnonzero(led))

    def _read(self) -> None:
        read = self._pending.read(self._context, self._nodes)
        if read is None:
            return
        at, found = read
        self._fail(at[found.missing], self._no_leader, no_state_node)
        self._fail(at[found.later], self._no_leader, later_controller)

    def _write(self, at: Int64, elected: ElectedLeaders, led: Int64) -> None:
        """Write the leaders of the rows at places ``at``; ``led``: their places in ``elected``."""
        context, rows = self._context, self._pending.rows[at]
        error = write_leadership(
            context,
            self._nodes,
            rows,
            leader=elected.leader[led],
            leader_epoch=context.state.partitions.leader_epoch[rows] + np.int32(1),
            recovery_state=elected.recovery_state[led],
            isr=take(elected.isr, led),
        )
        again = at[error == ResultCode.BAD_VERSION]
        if len(again):
            _LOG.info(
                "a broker wrote the state nodes of %d partitions; electing their leaders again", len(again)
            )
        self._pending.to_read[again] = True
        for failed, reason in refusals("written", error, (ResultCode.OK, ResultCode.BAD_VERSION)):
            self._fail(at[failed], ErrorCode.UNKNOWN_SERVER_ERROR, reason)
        done = error == ResultCode.OK
        context.unclean_elections += int(np.count_nonzero(elected.unclean[led[done]]))
        self._lines.partitions_online(rows[done])
        context.partition_states[rows[done]] = PartitionState.ONLINE
        add_leader_and_isr(self._batch, rows[done], take(elected.recipients, led[done]), is_new=False)
        self._pending.end(at[done])

    def _fail(self, at: Int64, code: ErrorCode, reason: Reason) -> None:
        if len(at):
            self._error[at] = code
            self._lines.partitions_failed(self._pending.rows[at], PartitionState.ONLINE, reason)
            self._pending.end(at)

    def _no_replica_may_lead(self, name: str, row: int) -> str:
        return f"failed to elect leader for partition {name} under strategy {self._strategy.value}"

    # -- the strategies

    def _elect(self, rows: Int64) -> ElectedLeaders:
        candidates = self._candidates(rows)
        match self._strategy:
            case Strategy.REASSIGN:
                return elect_for_reassignment(candidates)
            case Strategy.PREFERRED:
                return elect_preferred(candidates)
            case Strategy.CONTROLLED_SHUTDOWN:
                shutting_down = np.array(sorted(self._context.state.shutting_down), dtype=np.int32)
                return elect_for_controlled_shutdown(candidates, shutting_down)
            case Strategy.OFFLINE | Strategy.OFFLINE_UNCLEAN:
                return elect_offline(
                    candidates,
                    self._allow_unclean(rows, candidates),
                    recovery_supported=self._rules.recovery_supported,
                )

    def _candidates(self, rows: Int64) -> Candidates:
        context = self._context
        partitions = context.state.partitions
        isr = take(partitions.isr, rows)
        assert partitions.removing is not None
        or_shutting_down = self._strategy is Strategy.CONTROLLED_SHUTDOWN
        return Candidates(
            replicas=take(partitions.replicas, rows),
            removing=take(partitions.removing, rows),
            isr=isr,
            recovery_state=partitions.recovery_state[rows],
            online=context.is_online(*context.replica_pairs(rows), or_shutting_down=or_shutting_down),
            isr_online=context.is_online(
                np.repeat(rows, isr.lengths), packed_values(isr), or_shutting_down=or_shutting_down
            ),
        )

    def _allow_unclean(self, rows: Int64, candidates: Candidates) -> Bool:
        """Return a flag for each row: no ISR member is online, and a leader outside the ISR is allowed."""
        allow = np.ones(len(rows), dtype=bool)
        allow[entry_rows(candidates.isr)[candidates.isr_online]] = False
        if self._strategy is Strategy.OFFLINE and allow.any():
            asked = np.flatnonzero(allow)
            names, place = self._context.names_of(rows[asked])
            allow[asked] = np.asarray(self._rules.unclean_election_enabled(names), dtype=bool)[place]
        return allow

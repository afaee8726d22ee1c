"""The four strategies of leader election, for all rows at once, as pure functions of columns.

Source: ``kafka.controller.Election``, ``kafka.controller.PartitionLeaderElectionAlgorithms`` (Kafka 3.9).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

import numpy as np
import numpy.typing as npt

from ctrlchan._codec import ListColumn
from ctrlchan.protocol import NO_LEADER
from ctrlchan.state.lists import entries_within, first_flagged, packed_values, select

__all__ = [
    "RECOVERING",
    "Candidates",
    "ElectedLeaders",
    "Strategy",
    "elect_for_controlled_shutdown",
    "elect_for_reassignment",
    "elect_offline",
    "elect_preferred",
]

Bool = npt.NDArray[np.bool_]
Int32 = npt.NDArray[np.int32]

#: ``LeaderRecoveryState.RECOVERING``: the leader was elected outside the ISR.
RECOVERING: Final = 1


class Strategy(Enum):
    """Kafka's ``PartitionLeaderElectionStrategy``; the value is its name in Kafka's log lines."""

    #: Partitions without a live leader. Outside the ISR only where the topic's configuration allows it.
    OFFLINE = "OfflinePartitionLeaderElectionStrategy(false)"
    #: The same, and outside the ISR for every partition.
    OFFLINE_UNCLEAN = "OfflinePartitionLeaderElectionStrategy(true)"
    REASSIGN = "ReassignPartitionLeaderElectionStrategy"
    PREFERRED = "PreferredReplicaPartitionLeaderElectionStrategy"
    CONTROLLED_SHUTDOWN = "ControlledShutdownPartitionLeaderElectionStrategy"


@dataclass(frozen=True, slots=True)
class Candidates:
    """The partitions that need a leader: columns of n rows.

    ``online`` and ``isr_online`` have a flag for each of ``packed_values`` of ``replicas`` and of ``isr``:
    whether the broker is live and the replica's log directory works. For a controlled shutdown, brokers that
    are shutting down count as online.
    """

    replicas: ListColumn
    removing: ListColumn
    isr: ListColumn
    recovery_state: Int32
    online: Bool
    isr_online: Bool


@dataclass(frozen=True, slots=True)
class ElectedLeaders:
    """The result: columns of n rows.

    ``leader``: int32, -1 where no replica may lead; the other columns mean nothing there. ``recipients``: the
    brokers that are sent LeaderAndIsr. ``unclean``: whether the leader was not in the ISR.
    """

    leader: Int32
    isr: ListColumn
    recovery_state: Int32
    recipients: ListColumn
    unclean: Bool


def elect_offline(candidates: Candidates, allow_unclean: Bool, *, recovery_supported: bool) -> ElectedLeaders:
    """Elect the first online replica of the ISR, else, where it is allowed, the first online replica.

    ``allow_unclean``: a flag for each row. The new ISR is the online part of the old one, or the unclean
    leader alone, which is RECOVERING when ``recovery_supported``.
    """
    replicas, isr = candidates.replicas, candidates.isr
    in_sync = entries_within(replicas, isr)
    leader = first_flagged(replicas, candidates.online & in_sync, NO_LEADER)
    outside = np.where(allow_unclean, first_flagged(replicas, candidates.online, NO_LEADER), NO_LEADER)
    unclean = (leader == NO_LEADER) & (outside != NO_LEADER)
    leader[unclean] = outside[unclean]
    recovery_state = candidates.recovery_state
    if recovery_supported:
        recovery_state = np.where(unclean, np.int32(RECOVERING), recovery_state)
    return ElectedLeaders(
        leader=leader,
        isr=_with_single(select(isr, candidates.isr_online), np.flatnonzero(unclean), leader),
        recovery_state=recovery_state,
        recipients=select(replicas, candidates.online),
        unclean=unclean,
    )


def elect_for_reassignment(candidates: Candidates) -> ElectedLeaders:
    """Elect the first online replica of the ISR among those that stay after the reassignment."""
    replicas = candidates.replicas
    stays = ~entries_within(replicas, candidates.removing)
    in_sync = entries_within(replicas, candidates.isr)
    leader = first_flagged(replicas, stays & candidates.online & in_sync, NO_LEADER)
    return _keeping_isr(candidates, leader, select(replicas, stays))


def elect_preferred(candidates: Candidates) -> ElectedLeaders:
    """Elect the first replica, if it is online and in the ISR."""
    replicas = candidates.replicas
    first = np.zeros(len(candidates.online), dtype=bool)
    ends = np.cumsum(replicas.lengths, dtype=np.int64)
    first[(ends - replicas.lengths)[replicas.lengths > 0]] = True
    in_sync = entries_within(replicas, candidates.isr)
    leader = first_flagged(replicas, first & candidates.online & in_sync, NO_LEADER)
    return _keeping_isr(candidates, leader, replicas)


def elect_for_controlled_shutdown(candidates: Candidates, shutting_down: Int32) -> ElectedLeaders:
    """Elect the first replica of the ISR that is not shutting down; brokers shutting down leave the ISR.

    ``shutting_down``: int32 broker ids.
    """
    replicas, isr = candidates.replicas, candidates.isr
    stays = ~np.isin(packed_values(replicas), shutting_down)
    in_sync = entries_within(replicas, isr)
    leader = first_flagged(replicas, stays & candidates.online & in_sync, NO_LEADER)
    return ElectedLeaders(
        leader=leader,
        isr=select(isr, ~np.isin(packed_values(isr), shutting_down)),
        recovery_state=candidates.recovery_state,
        recipients=select(replicas, candidates.online),
        unclean=np.zeros(len(leader), dtype=bool),
    )


def _keeping_isr(candidates: Candidates, leader: Int32, recipients: ListColumn) -> ElectedLeaders:
    return ElectedLeaders(
        leader, candidates.isr, candidates.recovery_state, recipients, np.zeros(len(leader), dtype=bool)
    )


def _with_single(lists: ListColumn, rows: npt.NDArray[np.int64], values: Int32) -> ListColumn:
    """Return the lists with ``[values[row]]`` in place of the list of each of ``rows``."""
    if not len(rows):
        return lists
    starts, lengths = lists.starts.copy(), lists.lengths.copy()
    starts[rows] = len(lists.values) + np.arange(len(rows), dtype=np.int32)
    lengths[rows] = 1
    return ListColumn(starts, lengths, np.concatenate((lists.values, values[rows])))

"""The states of partitions and replicas, and which state may follow which.

Source: ``kafka.controller.PartitionState``, ``kafka.controller.ReplicaState`` (Kafka 3.9).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["PartitionState", "ReplicaState", "previous_states", "valid_changes"]


class PartitionState(IntEnum):
    """The state of a partition."""

    #: Never created, or created and then deleted.
    NON_EXISTENT = 0
    #: Replicas are assigned; there is no leader yet.
    NEW = 1
    #: A leader is elected.
    ONLINE = 2
    #: The leader has died.
    OFFLINE = 3

    @property
    def kafka_name(self) -> str:
        """Kafka's name, as the state-change log has it."""
        return _PARTITION_STATE_NAMES[self.value]


class ReplicaState(IntEnum):
    """The state of a replica."""

    NON_EXISTENT = 0
    #: Just created, with its partition or by a reassignment. It may only become a follower.
    NEW = 1
    #: Assigned to its partition. It may become leader or follower.
    ONLINE = 2
    #: Its broker has died, or the replica is to be stopped.
    OFFLINE = 3
    #: The broker was sent StopReplica with deletion.
    DELETION_STARTED = 4
    #: The broker has deleted the replica.
    DELETION_SUCCESSFUL = 5
    #: The replica cannot be deleted now.
    DELETION_INELIGIBLE = 6

    @property
    def kafka_name(self) -> str:
        """Kafka's name, as the state-change log has it."""
        return _REPLICA_STATE_NAMES[self.value]


_PARTITION_STATE_NAMES: Final = (
    "NonExistentPartition",
    "NewPartition",
    "OnlinePartition",
    "OfflinePartition",
)
_REPLICA_STATE_NAMES: Final = (
    "NonExistentReplica",
    "NewReplica",
    "OnlineReplica",
    "OfflineReplica",
    "ReplicaDeletionStarted",
    "ReplicaDeletionSuccessful",
    "ReplicaDeletionIneligible",
)

_P, _R = PartitionState, ReplicaState
_PREVIOUS_PARTITION_STATES: Final[Mapping[PartitionState, tuple[PartitionState, ...]]] = {
    _P.NEW: (_P.NON_EXISTENT,),
    _P.ONLINE: (_P.NEW, _P.ONLINE, _P.OFFLINE),
    _P.OFFLINE: (_P.NEW, _P.ONLINE, _P.OFFLINE),
    _P.NON_EXISTENT: (_P.OFFLINE,),
}
_PREVIOUS_REPLICA_STATES: Final[Mapping[ReplicaState, tuple[ReplicaState, ...]]] = {
    _R.NEW: (_R.NON_EXISTENT,),
    _R.ONLINE: (_R.NEW, _R.ONLINE, _R.OFFLINE, _R.DELETION_INELIGIBLE),
    _R.OFFLINE: (_R.NEW, _R.ONLINE, _R.OFFLINE, _R.DELETION_INELIGIBLE),
    _R.DELETION_STARTED: (_R.OFFLINE,),
    _R.DELETION_SUCCESSFUL: (_R.DELETION_STARTED,),
    _R.DELETION_INELIGIBLE: (_R.OFFLINE, _R.DELETION_STARTED),
    _R.NON_EXISTENT: (_R.DELETION_SUCCESSFUL,),
}


def previous_states(target: PartitionState | ReplicaState) -> tuple[PartitionState | ReplicaState, ...]:
    """Return the states from which a partition or replica may change to ``target``."""
    if isinstance(target, PartitionState):
        return _PREVIOUS_PARTITION_STATES[target]
    return _PREVIOUS_REPLICA_STATES[target]


def valid_changes(
    states: npt.NDArray[np.integer], target: PartitionState | ReplicaState
) -> npt.NDArray[np.bool_]:
    """Return a flag for each of these states: whether it may change to ``target``."""
    allowed = np.zeros(max(len(PartitionState), len(ReplicaState)), dtype=bool)
    allowed[list(previous_states(target))] = True
    flags: npt.NDArray[np.bool_] = allowed[states]
    return flags

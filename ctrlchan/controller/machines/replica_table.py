"""The states of replicas, by partition id and broker.

A replica that has left the assignment of its partition still has a state until it is deleted, so states are
kept apart from the assignment. Source: ``ControllerContext.replicaStates``.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ctrlchan.controller.machines.states import ReplicaState

__all__ = ["ReplicaTable", "replica_keys"]

Bool = npt.NDArray[np.bool_]
Int8 = npt.NDArray[np.int8]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]


def replica_keys(partition_ids: Int32, brokers: Int32) -> Int64:
    """Return ``partition id << 32 | broker`` for each replica. Both are from 0."""
    return (partition_ids.astype(np.int64) << 32) | brokers


class ReplicaTable:
    """Ascending int64 keys (see ``replica_keys``), each with its int8 state. Other replicas do not exist."""

    __slots__ = ("_keys", "_states")

    def __init__(self) -> None:
        self._keys: Int64 = np.empty(0, np.int64)
        self._states: Int8 = np.empty(0, np.int8)

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def partition_ids(self) -> Int32:
        """The partition id of each replica, ascending."""
        return (self._keys >> 32).astype(np.int32)

    @property
    def brokers(self) -> Int32:
        """The broker of each replica."""
        return (self._keys & 0xFFFF_FFFF).astype(np.int32)

    @property
    def states(self) -> Int8:
        """The state of each replica. Valid until the next change."""
        return self._states

    def get(self, keys: Int64) -> Int8:
        """Return the state of each replica, in the order of ``keys``; NON_EXISTENT for unknown ones."""
        at, found = self._find(keys)
        states = np.full(len(keys), ReplicaState.NON_EXISTENT, np.int8)
        states[found] = self._states[at[found]]
        return states

    def put(self, keys: Int64, state: ReplicaState | Int8) -> None:
        """Set the states of these replicas: one state for all, or one for each; add unknown replicas.

        Of a key that comes twice the later state counts.
        """
        states = np.full(len(keys), state, np.int8) if isinstance(state, ReplicaState) else state
        if (keys[1:] <= keys[:-1]).any():
            order = np.argsort(keys, kind="stable")
            last = np.append(keys[order[1:]] != keys[order[:-1]], True)
            keys, states = keys[order[last]], states[order[last]]
        if not len(self._keys):
            self._keys, self._states = keys.copy(), states.copy()
            return
        at, found = self._find(keys)
        self._states[at[found]] = states[found]
        if not found.all():
            self._states = np.insert(self._states, at[~found], states[~found])
            self._keys = np.insert(self._keys, at[~found], keys[~found])

    def remove(self, keys: Int64) -> None:
        """Forget these replicas; unknown ones are ignored."""
        at, found = self._find(keys)
        kept = np.ones(len(self._keys), dtype=bool)
        kept[at[found]] = False
        self._keep(kept)

    def remove_partitions(self, partition_ids: Int32) -> None:
        """Forget all replicas of these partitions."""
        self._keep(~np.isin(self.partition_ids, partition_ids))

    def _keep(self, kept: Bool) -> None:
        self._keys, self._states = self._keys[kept], self._states[kept]

    def _find(self, keys: Int64) -> tuple[Int64, Bool]:
        """Return (the place of each key, or the place where it would be inserted; whether it is there)."""
        if len(keys) == len(self._keys) and np.array_equal(keys, self._keys):
            return np.arange(len(keys)), np.ones(len(keys), dtype=bool)
        at = np.searchsorted(self._keys, keys)
        found = at < len(self._keys)
        found[found] = self._keys[at[found]] == keys[found]
        return at, found

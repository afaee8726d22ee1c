"""Finds the partitions whose leader has changed, for the listeners of a controller."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ctrlchan.controller.events.notifications import LeaderChanges
from ctrlchan.controller.machines.context import ControllerContext

__all__ = ["LeaderComparison"]

Int32 = npt.NDArray[np.int32]

#: Leader epoch of a partition that was not there at the last comparison.
_UNKNOWN = -2


class LeaderComparison:
    """Compares the leaders of a context with those of the last comparison, by partition id."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._leader: Int32 = np.empty(0, np.int32)
        self._leader_epoch: Int32 = np.empty(0, np.int32)

    def changes(self) -> LeaderChanges | None:
        """Return the partitions with another leader or leader epoch than the last time; None without any.

        Partitions that never had a leader are left out. Costs no more than the rows that were set since.
        """
        context, partitions = self._context, self._context.state.partitions
        rows = context.take_rows_with_leadership_set()
        ids = context.partition_ids[rows]
        self._grow(int(ids.max(initial=-1)) + 1)
        changed = (self._leader_epoch[ids] != partitions.leader_epoch[rows]) | (
            self._leader[ids] != partitions.leader[rows]
        )
        rows = rows[changed & context.has_leadership(rows)]
        if not len(rows):
            return None
        ids = context.partition_ids[rows]
        self._leader[ids] = partitions.leader[rows]
        self._leader_epoch[ids] = partitions.leader_epoch[rows]
        names, topic_row = context.names_of(rows)
        return LeaderChanges(
            tuple(name.decode() for name in names),
            topic_row,
            partitions.partition[rows],
            partitions.leader[rows],
            partitions.leader_epoch[rows],
        )

    def _grow(self, count: int) -> None:
        missing = count - len(self._leader)
        if missing > 0:
            self._leader = np.concatenate((self._leader, np.full(missing, -1, np.int32)))
            self._leader_epoch = np.concatenate((self._leader_epoch, np.full(missing, _UNKNOWN, np.int32)))

"""Counts the changes of a state: the version at which each row, the live brokers and the layout last changed.

A reader that remembers a version asks later which rows have changed since; that is one comparison of a
column. The column is made by the first use of ``ClusterState.changes``, or when a snapshot is written; all
rows from before count as changed at version 0.

A snapshot keeps the versions, and a state that is read from it counts on. ``id`` identifies the counter:
versions of two states are never compared. (Two programs that both go on from one snapshot give the same
versions to different changes; only one of them can be the controller.)
"""

from __future__ import annotations

import uuid
from collections import deque
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["Changes", "RemovedPartitions"]

Bool = npt.NDArray[np.bool_]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]

#: Removed partitions that are remembered until brokers have received them; the oldest are forgotten first.
MOST_REMOVED: Final = 2**17

#: Rows that can be added at the end before the column has to move.
_SPARE: Final = 64


@dataclass(frozen=True, slots=True, eq=False)
class RemovedPartitions:
    """Partitions of one topic that were removed together."""

    topic: bytes
    partition: Int32
    #: The version at which the removal of each began: brokers that know a later one know of it.
    since: Int64


class Changes:
    """Version counters of one state, beginning with 0; each change of the state makes a new version.

    ``versions``: int64, one for each row, kept and not copied, when counting goes on from ``version``, with
    that of the live brokers from ``brokers``. With None all rows are of version 0.
    """

    def __init__(
        self,
        rows: int,
        versions: Int64 | None = None,
        *,
        id: str | None = None,
        version: int = 0,
        brokers: int = 0,
    ) -> None:
        self.id = uuid.uuid4().hex if id is None else id
        #: The last change of anything, of the live brokers, and of row numbers (rows added at the end
        #: change no other row's number).
        self.version = version
        self.brokers = brokers
        self.layout = 0
        self._buffer: Int64 = np.zeros(rows, np.int64) if versions is None else versions
        self._size = rows
        self._removed: deque[RemovedPartitions] = deque()
        self._removed_count = 0

    @property
    def rows(self) -> Int64:
        """int64, the version at which each row changed last. Valid until the next change."""
        return self._buffer[: self._size]

    def removed_after(self, version: int) -> list[RemovedPartitions]:
        """Return the removed partitions that a reader of this version does not know of, the oldest first."""
        found = []
        for removed in self._removed:
            late = removed.since > version
            if late.all():
                found.append(removed)
            elif late.any():
                found.append(RemovedPartitions(removed.topic, removed.partition[late], removed.since[late]))
        return found

    # -- for the state

    def touch(self, rows: Int64 | slice) -> None:
        """Count a change of these rows."""
        self.version += 1
        self.rows[rows] = self.version

    def touch_brokers(self) -> None:
        """Count a change of the live brokers."""
        self.version += 1
        self.brokers = self.version

    def insert(self, at: Int64) -> None:
        """Count new rows. ``at``: their row numbers after it, strictly ascending."""
        self.version += 1
        size = self._size + len(at)
        if len(at) and at[0] == self._size:
            if size > len(self._buffer):
                buffer = np.empty(size + max(size // 2, _SPARE), np.int64)
                buffer[: self._size] = self.rows
                self._buffer = buffer
        else:
            self.layout = self.version
            merged = np.empty(size, np.int64)
            old = np.ones(size, dtype=bool)
            old[at] = False
            merged[old] = self.rows
            self._buffer = merged
        self._buffer[at] = self.version
        self._size = size

    def keep(self, kept: Bool) -> None:
        """Count the removal of all other rows; call ``note_removed`` before."""
        self.version += 1
        self.layout = self.version
        self._buffer = self.rows[kept]
        self._size = len(self._buffer)

    def note_removed(self, topic: bytes, partition: Int32, since: Int64) -> None:
        """Remember partitions that are about to be removed. Both arrays are kept, not copied."""
        self._removed.append(RemovedPartitions(topic, partition, since))
        self._removed_count += len(partition)
        while self._removed_count > MOST_REMOVED:
            self._removed_count -= len(self._removed.popleft().partition)

"""When what of a state last changed: a number for each row, none of the values.

Whoever remembers how far the numbers had come at some moment can ask later what has changed since, which is
one comparison of a column. Nobody pays for it before somebody asks: the column is made by the first look at
``ClusterState.changes`` or by writing a snapshot, and what was before then counts as changed at version 0.

A snapshot keeps the numbers, and a state that is read from one goes on counting. ``id`` says whose numbers
they are: those of two states are never compared. (Two programs that both go on from one snapshot make the
same numbers for different changes; only one of them can be the controller.)
"""

from __future__ import annotations

import uuid
from collections import deque
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["Changes", "Gone"]

Bool = npt.NDArray[np.bool_]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]

#: Removed partitions that are remembered, so that brokers can be told; the oldest are forgotten first.
MOST_GONE: Final = 2**17

#: Rows that may join at the end before the column has to move.
_SPARE: Final = 64


@dataclass(frozen=True, slots=True, eq=False)
class Gone:
    """Partitions of one topic that were removed together."""

    topic: bytes
    partition: Int32
    #: The version since which each has been going: brokers told of a later one know it.
    since: Int64


class Changes:
    """Versions are counted from 0; each change of the state makes a new one.

    ``versions``: those of the rows, kept, when the counting goes on from ``version``, the live brokers' from
    ``brokers``; None: all rows are of version 0.
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
        #: The newest change; of the live brokers; of the numbers of rows (rows behind the last do not count).
        self.version = version
        self.brokers = brokers
        self.layout = 0
        self._buffer: Int64 = np.zeros(rows, np.int64) if versions is None else versions
        self._size = rows
        self._gone: deque[Gone] = deque()
        self._gone_count = 0

    @property
    def rows(self) -> Int64:
        """int64, for each row the version that changed it last. Valid until the next change."""
        return self._buffer[: self._size]

    def gone_after(self, version: int) -> list[Gone]:
        """Removed partitions that somebody who knew this version has to be told of, the oldest first."""
        found = []
        for gone in self._gone:
            late = gone.since > version
            if late.all():
                found.append(gone)
            elif late.any():
                found.append(Gone(gone.topic, gone.partition[late], gone.since[late]))
        return found

    # -- for the state

    def touch(self, rows: Int64 | slice) -> None:
        """These rows have changed."""
        self.version += 1
        self.rows[rows] = self.version

    def touch_brokers(self) -> None:
        self.version += 1
        self.brokers = self.version

    def insert(self, at: Int64) -> None:
        """Rows have joined: ``at`` are their numbers now, strictly ascending."""
        self.version += 1
        size = self._size + len(at)
        if len(at) and at[0] == self._size:
            if size > len(self._buffer):
                room = np.empty(size + max(size // 2, _SPARE), np.int64)
                room[: self._size] = self.rows
                self._buffer = room
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
        """The other rows are gone; ``remember`` comes before."""
        self.version += 1
        self.layout = self.version
        self._buffer = self.rows[kept]
        self._size = len(self._buffer)

    def remember(self, topic: bytes, partition: Int32, since: Int64) -> None:
        """These partitions are about to be removed; both arrays are kept."""
        self._gone.append(Gone(topic, partition, since))
        self._gone_count += len(partition)
        while self._gone_count > MOST_GONE:
            self._gone_count -= len(self._gone.popleft().partition)

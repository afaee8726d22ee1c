"""The rows of one change that must be written to ZooKeeper, until each of them has succeeded or failed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from ctrlchan.controller.machines.context import ControllerContext
from ctrlchan.controller.machines.leadership import StateNodes, StatesReadBack, read_back
from ctrlchan.errors import SessionExpiredError, ZooKeeperError

__all__ = ["PendingRows"]

Bool = npt.NDArray[np.bool_]
Int64 = npt.NDArray[np.int64]


class PendingRows:
    """Keeps which rows have neither succeeded nor failed, and which state nodes to read before the next try.

    ``rows``: int64 rows. A place is a position in them. ``places``: those that are pending, ascending.
    ``to_read``, ``was_read``: flags of ``rows``: read the state node before the next attempt; it was read.
    """

    def __init__(self, rows: Int64, to_read: Bool) -> None:
        self.rows = rows
        self.places: Int64 = np.arange(len(rows))
        self.to_read = to_read
        self.was_read = np.zeros(len(rows), dtype=bool)

    def until_done(self, attempt: Callable[[], None], fail: Callable[[Int64, ZooKeeperError], None]) -> None:
        """Call ``attempt`` until no row is pending. When ZooKeeper fails, ``fail`` the pending places.

        Raises SessionExpiredError, and what ``attempt`` raises.
        """
        while len(self.places):
            try:
                attempt()
            except SessionExpiredError:
                raise
            except ZooKeeperError as error:
                fail(self.places, error)

    def read(self, context: ControllerContext, nodes: StateNodes) -> tuple[Int64, StatesReadBack] | None:
        """Read the state nodes that are to be read; return their places and results, None for none."""
        at = self.places[self.to_read[self.places]]
        if not len(at):
            return None
        found = read_back(context, nodes, self.rows[at])
        self.to_read[at] = False
        self.was_read[at] = True
        return at, found

    def end(self, at: Int64) -> None:
        """These places have succeeded or failed."""
        self.places = np.setdiff1d(self.places, at, assume_unique=True)

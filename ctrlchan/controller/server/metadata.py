"""The controller's own state as the metadata that clients see."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ctrlchan.server.apis.lookups import MetadataLookups

if TYPE_CHECKING:
    from ctrlchan._codec import Int32

__all__ = ["ControllerMetadata"]


class ControllerMetadata(MetadataLookups):
    """Look-ups in the state of a controller, for one answer. The caller holds the state's lock.

    A topic is gone for clients when its deletion has begun, as in the metadata of brokers.
    """

    def topic_rows(self) -> Int32:
        """Return the rows of the topics that have partitions and are not being deleted."""
        rows = super().topic_rows()
        gone = [row for name in self.state.deletion_in_progress if (row := self.row_of(name)) is not None]
        return rows[~np.isin(rows, gone)] if gone else rows

    def topic_row(self, name: str) -> int | None:
        """Return the row of a topic that has partitions and is not being deleted, else None."""
        return None if name in self.state.deletion_in_progress else super().topic_row(name)

"""Checkpoints: how many frames of a dataset each broker has applied, read from the journal.

A journal file appears complete, and its rows have the order in which requests ended. So a checkpoint is
correct, and at most one flush interval old. A frame whose outcome was lost with its process is sent again:
at least once, never out of order.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

import numpy as np
import pyarrow.dataset as ds

from ctrlchan.channel import OutcomeKind
from ctrlchan.journal import journal_dataset, journal_files
from ctrlchan.storage import PathLike

__all__ = ["APPLIED", "Checkpoint", "checkpoints"]

#: Outcomes of applied requests; errors of single partitions are in the journal.
APPLIED: Final = (OutcomeKind.ACKNOWLEDGED, OutcomeKind.PARTITION_ERRORS)


class Checkpoint(NamedTuple):
    """Frames 0 to ``done`` - 1 were applied.

    ``controller_epoch``: highest epoch of a request that the broker has applied, of any dataset; -1: none.
    """

    done: int = 0
    controller_epoch: int = -1


def checkpoints(journal: PathLike, dataset: str, brokers: Collection[int]) -> dict[int, Checkpoint]:
    """Return a checkpoint for each of these brokers. Raises JournalError."""
    found = dict.fromkeys(brokers, Checkpoint())
    if not journal_files(journal):
        return found
    applied = ds.field("outcome").isin([kind.value for kind in APPLIED])
    table = journal_dataset(journal).to_table(
        columns=["broker", "controller_epoch", "dataset", "frame"],
        filter=applied & ds.field("broker").isin(sorted(brokers)),
    )
    broker = table.column("broker").to_numpy()
    epoch = table.column("controller_epoch").to_numpy()
    ours = table.column("dataset").combine_chunks().fill_null("").to_numpy(zero_copy_only=False) == dataset
    # Null (NaN here) for a request that was no ready frame; ``ours`` is false there.
    frame = table.column("frame").to_numpy()
    for one in brokers:
        mine = broker == one
        if mine.any():
            done = np.unique(frame[mine & ours])
            # Without a gap from 0: a frame after a gap may have been applied without the frames before it.
            gapless = int(np.count_nonzero(done == np.arange(len(done))))
            found[one] = Checkpoint(gapless, int(epoch[mine].max()))
    return found

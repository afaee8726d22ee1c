"""How far a dataset of frames has come with each broker: what the journal says.

A journal file appears whole or not at all and rows stand in it in the order of their ends, so what is read
here is true, and at most a flush interval behind. A frame whose outcome was lost with its process is sent
again: at least once, never out of order.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pyarrow.dataset as ds

from ctrlchan.channel import OutcomeKind
from ctrlchan.journal import journal_dataset, journal_files

__all__ = ["APPLIED", "Checkpoint", "checkpoints"]

#: The request was applied; what single partitions had against it stands in the journal.
APPLIED: Final = (OutcomeKind.ACKNOWLEDGED, OutcomeKind.PARTITION_ERRORS)


class Checkpoint(NamedTuple):
    """Frames 0 to ``done`` - 1 were applied. ``controller_epoch``: the highest that the broker has accepted
    anything of, of whatever dataset; -1: the journal does not know."""

    done: int = 0
    controller_epoch: int = -1


def checkpoints(journal: str | Path, dataset: str, brokers: Collection[int]) -> dict[int, Checkpoint]:
    """One for each of these brokers. Raises JournalError."""
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
    # Null (NaN here): it was no ready frame, and ``ours`` is not set.
    frame = table.column("frame").to_numpy()
    for one in brokers:
        mine = broker == one
        if mine.any():
            done = np.unique(frame[mine & ours])
            # Without a gap from 0: what stands behind one is not known to have everything before it.
            gapless = int(np.count_nonzero(done == np.arange(len(done))))
            found[one] = Checkpoint(gapless, int(epoch[mine].max()))
    return found

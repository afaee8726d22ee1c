"""The leader epochs of one partition: the first offset of each epoch, and its checkpoint.

Source: ``LeaderEpochFileCache``. An epoch changes when a leader is elected, so this is no hot path: the log
compares the epoch of a batch with ``latest`` and calls ``assign`` when they differ.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from pathlib import Path
from typing import Final, NamedTuple

from ctrlchan.broker.log.checkpoints import LEADER_EPOCH_CHECKPOINT, read_epochs, write_epochs

__all__ = ["UNDEFINED_EPOCH", "UNDEFINED_OFFSET", "EpochEnd", "LeaderEpochs"]

UNDEFINED_EPOCH: Final = -1
UNDEFINED_OFFSET: Final = -1


class EpochEnd(NamedTuple):
    """The end of a leader epoch. Both are -1 where it is not known."""

    epoch: int
    end_offset: int


class LeaderEpochs:
    """The (epoch, start offset) pairs of one partition, both ascending.

    Not thread-safe: the log's mutex guards it. The checkpoint is written at once when an epoch is assigned.
    After a truncation ``flush`` writes it: the log truncates too many entries again when it is loaded.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / LEADER_EPOCH_CHECKPOINT
        self._epochs: list[int] = []
        self._starts: list[int] = []
        read = read_epochs(self._path)
        for epoch, start in read:
            self._put(epoch, start)
        self._unsaved = self.pairs() != read

    @property
    def latest(self) -> int:
        """The latest epoch, -1 where there is none."""
        return self._epochs[-1] if self._epochs else UNDEFINED_EPOCH

    def pairs(self) -> list[tuple[int, int]]:
        """Return all (epoch, start offset) pairs."""
        return list(zip(self._epochs, self._starts, strict=True))

    def assign(self, epoch: int, start_offset: int) -> None:
        """Record that ``epoch`` begins at ``start_offset``, and write the checkpoint if that is new."""
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"leader epoch {epoch} cannot begin at offset {start_offset}")
        if self._put(epoch, start_offset):
            self._unsaved = True
            self.flush()

    def _put(self, epoch: int, start: int) -> bool:
        if self._epochs and epoch == self._epochs[-1] and start >= self._starts[-1]:
            return False
        while self._epochs and (self._epochs[-1] >= epoch or self._starts[-1] >= start):
            self._epochs.pop()
            self._starts.pop()
        self._epochs.append(epoch)
        self._starts.append(start)
        return True

    def end_of(self, epoch: int, log_end_offset: int) -> EpochEnd:
        """Return the largest epoch that is not above ``epoch``, and its end: the start of the next epoch.

        An epoch before the first one ends where the first one starts; one above the latest is not known.
        """
        if epoch == UNDEFINED_EPOCH:
            return EpochEnd(UNDEFINED_EPOCH, UNDEFINED_OFFSET)
        if epoch == self.latest:
            return EpochEnd(epoch, log_end_offset)
        above = bisect_right(self._epochs, epoch)
        if above == len(self._epochs):
            return EpochEnd(UNDEFINED_EPOCH, UNDEFINED_OFFSET)
        return EpochEnd(self._epochs[above - 1] if above else epoch, self._starts[above])

    def epoch_of(self, offset: int) -> int:
        """Return the epoch that holds the offset, -1 where it lies before the first one."""
        index = bisect_right(self._starts, offset)
        return self._epochs[index - 1] if index else UNDEFINED_EPOCH

    def earliest(self) -> tuple[int, int] | None:
        """Return the first epoch and its start offset, None where there is none."""
        return (self._epochs[0], self._starts[0]) if self._epochs else None

    def truncate_end(self, end_offset: int) -> None:
        """Remove the epochs that begin at ``end_offset`` or above."""
        keep = bisect_left(self._starts, end_offset)
        if keep < len(self._starts):
            del self._epochs[keep:], self._starts[keep:]
            self._unsaved = True

    def truncate_start(self, start_offset: int) -> None:
        """Remove the epochs before ``start_offset``; the one that holds it begins there now."""
        past = bisect_right(self._starts, start_offset)
        if past:
            if past > 1 or self._starts[0] != start_offset:
                self._unsaved = True
            del self._epochs[: past - 1], self._starts[: past - 1]
            self._starts[0] = start_offset

    def clear(self) -> None:
        """Remove all epochs and write the checkpoint."""
        self._epochs.clear()
        self._starts.clear()
        self._unsaved = True
        self.flush()

    def flush(self) -> None:
        """Write the checkpoint if it has changed."""
        if self._unsaved:
            write_epochs(self._path, self.pairs())
            self._unsaved = False

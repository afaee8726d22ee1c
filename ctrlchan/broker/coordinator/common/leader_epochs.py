"""LeaderEpochs: which change of a partition's leadership is the last one."""

from __future__ import annotations

__all__ = ["LeaderEpochs"]


class LeaderEpochs:
    """The leader epochs of the last changes that a coordinator has heard of. Its owner has a lock for it."""

    def __init__(self) -> None:
        self._epochs: dict[int, int] = {}

    def is_current(self, partition: int, epoch: int | None) -> bool:
        """Take note of a change in `epoch`; return False for an older one than the last.

        None: the replica is deleted. Leader epochs of another topic of its name begin with 0.
        """
        if epoch is None:
            self._epochs.pop(partition, None)
            return True
        if epoch < self._epochs.get(partition, epoch):
            return False
        self._epochs[partition] = epoch
        return True

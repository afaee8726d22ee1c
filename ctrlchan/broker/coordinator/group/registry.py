"""The groups of the partitions of ``__consumer_offsets`` that this broker leads, and their transactions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import NamedTuple

from ctrlchan.broker.coordinator.common.leader_epochs import LeaderEpochs
from ctrlchan.broker.coordinator.group.group import Group, GroupState
from ctrlchan.errors import ErrorCode
from ctrlchan.internal_topics import coordinator_partition

__all__ = ["GroupRegistry", "TransactionEnd"]


class TransactionEnd(NamedTuple):
    """The end of a transaction whose marker is in a partition of ``__consumer_offsets``."""

    producer_id: int
    commits: bool


class GroupRegistry:
    """Groups by name, and which partitions are led or being loaded.

    Any thread may call every method. Its own lock is taken last: no group's lock is taken while holding it.
    ``partitions``: how many ``__consumer_offsets`` has.
    """

    def __init__(self, partitions: int, now_ms: Callable[[], int]) -> None:
        self.partitions = partitions
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._groups: dict[str, Group] = {}
        # Of these groups: a hash of a long name takes longer than the rest of a heartbeat.
        self._partition_of: dict[str, int] = {}
        self._owned: set[int] = set()
        self._loading: set[int] = set()
        self._epochs = LeaderEpochs()
        # Groups with offsets of an open transaction: by producer id, and the other way round.
        self._groups_of: dict[int, set[str]] = {}
        self._producers_of: dict[str, set[int]] = {}
        # Markers that were appended while their partition was being loaded, by partition.
        self._ended: dict[int, list[TransactionEnd]] = {}

    def partition_for(self, group_id: str) -> int:
        """Return the partition that holds the group."""
        partition = self._partition_of.get(group_id)
        return coordinator_partition(group_id, self.partitions) if partition is None else partition

    def error_of(self, group_id: str) -> ErrorCode:
        """Return NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS when the group is not served here now."""
        partition = self.partition_for(group_id)
        with self._lock:
            return self._error_of(partition)

    def find(self, group_id: str) -> Group | None:
        """Return the group, or None."""
        with self._lock:
            return self._groups.get(group_id)

    def find_or_create(self, group_id: str) -> Group | None:
        """Return the group, created Empty if it does not exist, or None when it is not served here now."""
        partition = self.partition_for(group_id)
        with self._lock:
            if self._error_of(partition):
                return None
            group = self._groups.get(group_id)
            if group is None:
                group = Group(group_id, GroupState.EMPTY, self._now_ms)
                self._add(group, partition)
            return group

    def groups(self) -> list[Group]:
        """Return all groups."""
        with self._lock:
            return list(self._groups.values())

    def remove(self, group: Group) -> bool:
        """Forget the group; return whether it was known."""
        with self._lock:
            if self._groups.get(group.group_id) is not group:
                return False
            self._remove(group)
            return True

    @property
    def loading(self) -> bool:
        """Whether a partition is being loaded."""
        with self._lock:
            return bool(self._loading)

    def begin_loading(self, partition: int, epoch: int) -> bool:
        """Note that the partition is being loaded; return False if it is or was, and for an old epoch."""
        with self._lock:
            if not self._epochs.is_current(partition, epoch) or partition in self._owned | self._loading:
                return False
            self._loading.add(partition)
            return True

    def add_loaded(self, group: Group, partition: int) -> bool:
        """Add a group that was read from the partition; return False if it was taken away meanwhile."""
        with self._lock:
            if partition not in self._loading or group.group_id in self._groups:
                return False
            self._add(group, partition)
            return True

    def end_loading(self, partition: int) -> list[TransactionEnd]:
        """Note that the partition is owned, unless it was taken away while it was loaded.

        Return the transactions that have ended meanwhile, if there are any: the partition is owned after the
        caller has ended them in its groups and called this again.
        """
        with self._lock:
            if partition in self._loading:
                ended = self._ended.pop(partition, [])
                if ended:
                    return ended
                self._loading.remove(partition)
                self._owned.add(partition)
            return []

    def take_away(self, partition: int, epoch: int | None) -> list[Group]:
        """Forget the partition and return its groups. An old epoch changes nothing; None is never old."""
        with self._lock:
            if not self._epochs.is_current(partition, epoch):
                return []
            self._owned.discard(partition)
            self._loading.discard(partition)
            self._ended.pop(partition, None)
            groups = [g for g in self._groups.values() if self._partition_of[g.group_id] == partition]
            for group in groups:
                self._remove(group)
            return groups

    # Transactions

    def open_transaction(self, producer_id: int, group: Group) -> None:
        """Note that the group has offsets of an open transaction. The caller holds the lock of the group."""
        with self._lock:
            if self._groups.get(group.group_id) is group:
                self._groups_of.setdefault(producer_id, set()).add(group.group_id)
                self._producers_of.setdefault(group.group_id, set()).add(producer_id)

    def close_transaction(self, producer_id: int, group: Group) -> None:
        """Note that the group has no such offsets any more. The caller holds the lock of the group."""
        with self._lock:
            if self._groups.get(group.group_id) is group:
                self._close(producer_id, group.group_id)

    def end_transaction(self, ended: TransactionEnd, partitions: Collection[int]) -> list[Group]:
        """Return the groups of `partitions` with offsets of the transaction.

        For a partition that is being loaded the end is kept until ``end_loading``.
        """
        with self._lock:
            for partition in self._loading.intersection(partitions):
                self._ended.setdefault(partition, []).append(ended)
            return self._with_transaction(ended.producer_id, {*partitions} - self._loading)

    def groups_with_transaction(self, producer_id: int, partition: int) -> list[Group]:
        """Return the groups of a partition with offsets of the producer's transaction."""
        with self._lock:
            return self._with_transaction(producer_id, (partition,))

    def _with_transaction(self, producer_id: int, partitions: Collection[int]) -> list[Group]:
        group_ids = sorted(self._groups_of.get(producer_id, ()))
        return [self._groups[each] for each in group_ids if self._partition_of[each] in partitions]

    def _close(self, producer_id: int, group_id: str) -> None:
        groups = self._groups_of.get(producer_id)
        if groups is None or group_id not in groups:
            return
        groups.remove(group_id)
        if not groups:
            del self._groups_of[producer_id]
        producers = self._producers_of[group_id]
        producers.remove(producer_id)
        if not producers:
            del self._producers_of[group_id]

    def _add(self, group: Group, partition: int) -> None:
        self._groups[group.group_id] = group
        self._partition_of[group.group_id] = partition

    def _remove(self, group: Group) -> None:
        for producer_id in [*self._producers_of.get(group.group_id, ())]:
            self._close(producer_id, group.group_id)
        del self._groups[group.group_id]
        del self._partition_of[group.group_id]

    def _error_of(self, partition: int) -> ErrorCode:
        if partition in self._loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return ErrorCode.NONE if partition in self._owned else ErrorCode.NOT_COORDINATOR

"""The offsets of one group: committed, and those whose records are being appended."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from ctrlchan.broker.coordinator.common.partitions import TopicPartition
from ctrlchan.broker.coordinator.group.records import NO_TIMESTAMP, CommittedOffset

__all__ = ["GroupOffsets", "Offsets", "StoredOffsets"]

Offsets = dict[TopicPartition, CommittedOffset]
#: Committed offsets, each with the offset of its record's batch in ``__consumer_offsets``.
StoredOffsets = dict[TopicPartition, tuple[int, CommittedOffset]]


class GroupOffsets:
    """Committed and pending offsets of a group; the lock of the group guards them.

    The offset of the record decides which of two commits is the later one: appends may end in another order,
    and compaction keeps the last record.

    ``in_transactions``: offsets of open transactions by producer id. They come from the log only;
    TxnOffsetCommit will add to them, and the end of a transaction move them to the committed ones.
    """

    def __init__(self) -> None:
        self._committed: StoredOffsets = {}
        self._pending: Offsets = {}
        self.in_transactions: dict[int, StoredOffsets] = {}

    def __len__(self) -> int:
        """Return how many partitions have a committed offset."""
        return len(self._committed)

    @property
    def any(self) -> bool:
        """Whether there are offsets, committed or not."""
        return bool(self._committed or self._pending or self.in_transactions)

    def load(self, committed: StoredOffsets, in_transactions: dict[int, StoredOffsets]) -> None:
        """Take over what was read from the log."""
        self._committed.update(committed)
        self.in_transactions.update(in_transactions)

    def get(self, partition: TopicPartition) -> CommittedOffset | None:
        """Return the committed offset of the partition."""
        stored = self._committed.get(partition)
        return None if stored is None else stored[1]

    def partitions(self) -> list[TopicPartition]:
        """Return the partitions with a committed offset."""
        return list(self._committed)

    def is_unstable(self, partition: TopicPartition) -> bool:
        """Return whether a commit of the partition is not complete (KIP-447)."""
        return partition in self._pending or any(
            partition in offsets for offsets in self.in_transactions.values()
        )

    def prepare(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Note that the records of `offsets` are being appended."""
        self._pending.update(offsets)

    def complete(self, offsets: Mapping[TopicPartition, CommittedOffset], record_offset: int) -> None:
        """Commit prepared offsets whose records were appended at `record_offset`."""
        for partition, offset in offsets.items():
            if partition not in self._pending:
                continue  # the offset was deleted since
            current = self._committed.get(partition)
            if current is None or current[0] < record_offset:
                self._committed[partition] = record_offset, offset
            self._forget_pending(partition, offset)

    def fail(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Forget prepared offsets whose records were not appended."""
        for partition, offset in offsets.items():
            self._forget_pending(partition, offset)

    def remove(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Forget all about `partitions`; return those that had a committed offset."""
        removed = []
        for partition in partitions:
            self._pending.pop(partition, None)
            for offsets in self.in_transactions.values():
                offsets.pop(partition, None)
            if self._committed.pop(partition, None) is not None:
                removed.append(partition)
        return removed

    def expire(
        self,
        now: int,
        retention: int,
        since: Callable[[CommittedOffset], int],
        kept_topics: Collection[str] = (),
    ) -> list[TopicPartition]:
        """Remove and return the offsets whose time is over at `now`: `retention` after `since`.

        An offset with an expire timestamp of its own (OffsetCommit versions 2 to 4) goes by that.
        """
        expired = [
            partition
            for partition, (_, offset) in self._committed.items()
            if partition.topic not in kept_topics
            and partition not in self._pending
            and (
                now - since(offset) >= retention
                if offset.expire_timestamp == NO_TIMESTAMP
                else now >= offset.expire_timestamp
            )
        ]
        for partition in expired:
            del self._committed[partition]
        return expired

    def _forget_pending(self, partition: TopicPartition, offset: CommittedOffset) -> None:
        # A later commit of the partition may be pending by now.
        if self._pending.get(partition) == offset:
            del self._pending[partition]

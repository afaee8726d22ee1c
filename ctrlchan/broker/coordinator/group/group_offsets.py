"""The offsets of one group: committed, being appended, and those of open transactions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from ctrlchan.broker.coordinator.common.partitions import TopicPartition
from ctrlchan.broker.coordinator.group.records import NO_TIMESTAMP, CommittedOffset

__all__ = ["GroupOffsets", "Offsets", "StoredOffsets", "TransactionalCommit"]

Offsets = dict[TopicPartition, CommittedOffset]
#: Committed offsets, each with the offset of its record's batch in ``__consumer_offsets``.
StoredOffsets = dict[TopicPartition, tuple[int, CommittedOffset]]


@dataclass(eq=False)
class TransactionalCommit:
    """Offsets of one TxnOffsetCommit whose batch is being appended.

    ``commits``: how its transaction has ended although the end of the append is not known yet, else None.
    """

    producer_id: int
    offsets: Offsets
    commits: bool | None = None


@dataclass
class _Transaction:
    """The offsets of an open transaction: in the log, and being appended."""

    stored: StoredOffsets = field(default_factory=dict)
    appending: list[TransactionalCommit] = field(default_factory=list)

    def has(self, partition: TopicPartition) -> bool:
        return partition in self.stored or any(partition in commit.offsets for commit in self.appending)


class GroupOffsets:
    """Committed and pending offsets of a group; the lock of the group guards them.

    The offset of the record decides which of two commits is the later one: appends may end in another order,
    and compaction keeps the last record.

    Offsets of a transaction wait, by producer id, for ``end_transaction``. The marker may be known before the
    end of an append that stands before it in the log: such a commit is decided when its append ends.
    """

    def __init__(self) -> None:
        self._committed: StoredOffsets = {}
        self._pending: Offsets = {}
        self._transactions: dict[int, _Transaction] = {}
        # Their transaction has ended before their append.
        self._overtaken: list[TransactionalCommit] = []

    def __len__(self) -> int:
        """Return how many partitions have a committed offset."""
        return len(self._committed)

    @property
    def any(self) -> bool:
        """Whether there are offsets, committed or not."""
        return bool(self._committed or self._pending or self._transactions or self._overtaken)

    def load(self, committed: StoredOffsets, in_transactions: Mapping[int, StoredOffsets]) -> None:
        """Take over what was read from the log."""
        self._committed.update(committed)
        for producer_id, stored in in_transactions.items():
            self._transactions[producer_id] = _Transaction(stored)

    def get(self, partition: TopicPartition) -> CommittedOffset | None:
        """Return the committed offset of the partition."""
        stored = self._committed.get(partition)
        return None if stored is None else stored[1]

    def partitions(self) -> list[TopicPartition]:
        """Return the partitions with a committed offset."""
        return list(self._committed)

    def is_unstable(self, partition: TopicPartition) -> bool:
        """Return whether a commit of the partition is not complete (KIP-447)."""
        return (
            partition in self._pending
            or any(transaction.has(partition) for transaction in self._transactions.values())
            or any(partition in commit.offsets for commit in self._overtaken)
        )

    def prepare(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Note that the records of `offsets` are being appended."""
        self._pending.update(offsets)

    def complete(self, offsets: Mapping[TopicPartition, CommittedOffset], record_offset: int) -> None:
        """Commit prepared offsets whose records were appended at `record_offset`."""
        for partition, offset in offsets.items():
            if partition not in self._pending:
                continue  # the offset was deleted since
            _keep_later(self._committed, partition, record_offset, offset)
            self._forget_pending(partition, offset)

    def fail(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Forget prepared offsets whose records were not appended."""
        for partition, offset in offsets.items():
            self._forget_pending(partition, offset)

    @property
    def producers(self) -> list[int]:
        """The producer ids with an open transaction."""
        return list(self._transactions)

    def has_transaction(self, producer_id: int) -> bool:
        """Return whether the producer has an open transaction with offsets of this group."""
        return producer_id in self._transactions

    def prepare_in_transaction(
        self, producer_id: int, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> TransactionalCommit:
        """Note that the records of `offsets` are being appended, in the producer's transaction."""
        commit = TransactionalCommit(producer_id, dict(offsets))
        self._transactions.setdefault(producer_id, _Transaction()).appending.append(commit)
        return commit

    def complete_in_transaction(self, commit: TransactionalCommit, record_offset: int) -> None:
        """Keep offsets whose records were appended at `record_offset` until their transaction ends."""
        if commit.commits is None:
            transaction = self._transactions[commit.producer_id]
            transaction.appending.remove(commit)
            into = transaction.stored
        else:
            self._overtaken.remove(commit)
            into = self._committed if commit.commits else {}
        for partition, offset in commit.offsets.items():
            _keep_later(into, partition, record_offset, offset)

    def fail_in_transaction(self, commit: TransactionalCommit) -> None:
        """Forget prepared offsets whose records were not appended."""
        if commit.commits is not None:
            self._overtaken.remove(commit)
            return
        transaction = self._transactions[commit.producer_id]
        transaction.appending.remove(commit)
        if not transaction.appending and not transaction.stored:
            del self._transactions[commit.producer_id]

    def end_transaction(self, producer_id: int, *, commits: bool) -> None:
        """Commit or forget the offsets of the producer's transaction: its marker is in the log."""
        transaction = self._transactions.pop(producer_id, None)
        if transaction is None:
            return
        for commit in transaction.appending:
            commit.commits = commits
        self._overtaken += transaction.appending
        if commits:
            for partition, (record_offset, offset) in transaction.stored.items():
                _keep_later(self._committed, partition, record_offset, offset)

    def remove(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Forget all about `partitions`; return those that had a committed offset."""
        appending = [*self._overtaken]
        for transaction in self._transactions.values():
            appending += transaction.appending
        removed = []
        for partition in partitions:
            self._pending.pop(partition, None)
            for transaction in self._transactions.values():
                transaction.stored.pop(partition, None)
            for commit in appending:
                commit.offsets.pop(partition, None)
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


def _keep_later(
    offsets: StoredOffsets, partition: TopicPartition, record_offset: int, offset: CommittedOffset
) -> None:
    """Put the offset in unless a later record has one of the partition."""
    current = offsets.get(partition)
    if current is None or current[0] < record_offset:
        offsets[partition] = record_offset, offset

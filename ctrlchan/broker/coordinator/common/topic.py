"""The topic in which a coordinator keeps its records, as the coordinator sees it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple, Protocol

__all__ = ["Appended", "BatchProducer", "CoordinatorTopic", "Record", "StoredBatch"]


class Record(NamedTuple):
    """A record to append. A value of None is a tombstone."""

    key: bytes
    value: bytes | None


class Appended(NamedTuple):
    """The result of an append: Kafka's error code, and the offset of the batch."""

    error: int
    first_offset: int = -1


class BatchProducer(NamedTuple):
    """The producer whose transaction a batch belongs to.

    ``verification_guard``: of the log, 0 when the transaction needs no verification.
    """

    producer_id: int
    epoch: int
    verification_guard: int = 0


class StoredBatch(NamedTuple):
    """A batch that was read. ``commits``: of a control batch, whether its transaction was committed."""

    first_offset: int
    records: Sequence[tuple[bytes | None, bytes | None]]
    producer_id: int = -1
    transactional: bool = False
    commits: bool | None = None


class CoordinatorTopic(Protocol):
    """The logs of a coordinator's topic on this broker."""

    def append(
        self,
        partition: int,
        records: Sequence[Record],
        timestamp: int,
        acks: int,
        timeout_ms: int | None = None,
        producer: BatchProducer | None = None,
    ) -> Appended | Future[Appended]:
        """Append one batch; return the result, or its future when `acks` is not satisfied yet.

        With a `producer` the batch is a part of its transaction. A result with an error has an offset if the
        records are in the log all the same.

        The caller holds a lock of its coordinator: the order of appends is that of the changes. The future
        ends within `timeout_ms`, None: within that of the topic (REQUEST_TIMED_OUT), while its thread holds
        no lock that ``append`` takes. NOT_LEADER_OR_FOLLOWER when this broker does not lead the partition.
        """

    def read(self, partition: int, into: dict[str, Any] | None = None) -> Iterable[StoredBatch]:
        """Yield the batches of the partition from its start to its end at the time.

        A topic may put the records of some batches into `into` itself, and yields them without records then.
        """

"""The topic of a coordinator on the partitions of this broker."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, Protocol

from ctrlchan.broker.coordinator.common.topic import Appended, BatchProducer, Record, StoredBatch
from ctrlchan.broker.coordinator.record_batches import compressed, encode_batch, read_batches
from ctrlchan.broker.log._batches import Origin
from ctrlchan.errors import DecodeError, ErrorCode, IllegalStateError

__all__ = ["PartitionLog", "TopicLog"]

_LOG = logging.getLogger(__name__)

#: ``Log.read`` up to the end of the log, not to the high watermark.
_LOG_END: Final = 0
_ACKS: Final = (-1, 0, 1)


class LogOffsets(Protocol):
    """What is read of a ``Log``."""

    @property
    def start_offset(self) -> int: ...
    @property
    def end_offset(self) -> int: ...


class PartitionLog(Protocol):
    """What is used of a ``Partition``."""

    @property
    def log(self) -> LogOffsets | None: ...

    def append(
        self,
        data: bytes,
        *,
        origin: int,
        required_acks: int,
        timeout_ms: int,
        verification_guard: int = 0,
    ) -> Future[tuple[int, int, int]]: ...

    def read(self, offset: int, max_bytes: int, *, isolation: int) -> bytes: ...


class TopicLog:
    """Appends to and reads from the partitions of a topic (a ``CoordinatorTopic``).

    `find` returns this broker's replica of a topic's partition, or None. `timeout_ms`: of appends that have
    no timeout of their own. `read_size`: bytes to read at once. `run_later` calls its argument on a thread
    that holds no lock of the coordinator. `take` puts the batches that it can into what ``read`` was given,
    natively; otherwise as ``Take``. `codec`: by which batches are compressed, 0 for none.
    """

    def __init__(
        self,
        topic: str,
        find: Callable[[str, int], PartitionLog | None],
        timeout_ms: int,
        read_size: int,
        run_later: Callable[[Callable[[], None]], object],
        take: Callable[[dict[str, Any], bytes, int, int], tuple[int, int]] | None = None,
        *,
        codec: int = 0,
    ) -> None:
        self._topic = topic
        self._find = find
        self._timeout_ms = timeout_ms
        self._read_size = read_size
        self._run_later = run_later
        self._take = take
        self._codec = codec
        self._closed = False

    def close(self) -> None:
        """End the reads in progress: they raise IllegalStateError."""
        self._closed = True

    def append(
        self,
        partition: int,
        records: Sequence[Record],
        timestamp: int,
        acks: int,
        timeout_ms: int | None = None,
        producer: BatchProducer | None = None,
    ) -> Appended | Future[Appended]:
        """Append one batch. NOT_LEADER_OR_FOLLOWER when this broker does not have the partition."""
        found = self._find(self._topic, partition)
        if found is None:
            return Appended(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if acks not in _ACKS:
            return Appended(ErrorCode.INVALID_REQUIRED_ACKS)
        batch = encode_batch(records, timestamp, producer)
        stored = found.append(
            compressed(batch, self._codec) if self._codec else batch,
            origin=Origin.COORDINATOR,
            required_acks=acks,
            timeout_ms=self._timeout_ms if timeout_ms is None else timeout_ms,
            verification_guard=0 if producer is None else producer.verification_guard,
        )
        if stored.done():
            return Appended(*stored.result()[:2])
        appended: Future[Appended] = Future()

        def done() -> None:
            failure = stored.exception()
            if failure is not None:
                appended.set_exception(failure)
            else:
                appended.set_result(Appended(*stored.result()[:2]))

        # Another append may end this one, while its thread holds a lock of the coordinator.
        stored.add_done_callback(lambda _: self._run_later(done))
        return appended

    def read(self, partition: int, into: dict[str, Any] | None = None) -> Iterator[StoredBatch]:
        """Yield the batches of the partition from its start to its end; nothing when there is no log.

        `into`: what `take` puts batches into; empty ones stand for them.
        A batch whose records cannot be read is empty, and a line in the log names it. Raises KafkaError when
        the log cannot be read, and DecodeError for bytes that are no batch.
        """
        found = self._find(self._topic, partition)
        if found is None or found.log is None:
            _LOG.warning("partition %d of %s is not on this broker any more", partition, self._topic)
            return
        log = found.log
        skip = partial(self._log_skipped, partition)
        take = None if self._take is None or into is None else partial(self._take, into)
        offset = log.start_offset
        while offset < log.end_offset:
            if self._closed:
                raise IllegalStateError("the broker stops")
            data = found.read(offset, self._read_size, isolation=_LOG_END)
            if not data:
                return
            for offset, batch in read_batches(data, skip, take):  # noqa: B007 - the offset after the last batch is kept
                yield batch

    def _log_skipped(self, partition: int, offset: int, error: DecodeError) -> None:
        _LOG.error("%s-%d: the batch at offset %d is skipped: %s", self._topic, partition, offset, error)

"""MarkerAppends: writes the markers of transactions to partitions that this broker leads.

Source: ``KafkaApis.handleWriteTxnMarkersRequest`` of Kafka 3.9.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from concurrent.futures import Future
from typing import Any, Final, NamedTuple, Protocol

from ctrlchan.broker.coordinator.common.partitions import TopicPartition
from ctrlchan.broker.coordinator.transaction.requests import ProducerIdentity
from ctrlchan.errors import ErrorCode
from ctrlchan.internal_topics import OFFSETS_TOPIC
from ctrlchan.server.futures import when_done

__all__ = ["CompleteGroups", "Marker", "MarkerAppends", "MarkerPartition"]

logger = logging.getLogger("ctrlchan.broker")

_ALL_REPLICAS: Final = -1

#: Ends the offset commits of a producer's transaction: producer id, partitions of ``__consumer_offsets``,
#: whether it is committed.
CompleteGroups = Callable[[int, Collection[int], bool], None]


class Marker(NamedTuple):
    """What is written at the end of a transaction."""

    producer: ProducerIdentity
    commit: bool
    coordinator_epoch: int


class AppendResult(Protocol):
    """What is read of a ``ProduceResult``."""

    @property
    def error_code(self) -> int: ...


class MarkerPartition(Protocol):
    """What is used of a ``Partition``."""

    @property
    def log(self) -> object | None: ...

    @property
    def is_leader(self) -> bool: ...

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        commit: bool,
        coordinator_epoch: int,
        *,
        required_acks: int,
        timeout_ms: int,
    ) -> Future[Any]: ...


class MarkerAppends:
    """Appends markers, and has the group coordinator complete the offset commits of their transactions.

    ``find`` returns this broker's replica of a partition, or None. ``complete_groups`` is called on the
    thread of ``run_later``, which calls one function after the other without a lock: so a producer's offsets
    are visible, or gone, before the coordinator hears of the marker and the producer's next transaction
    begins. ``timeout_ms``: request.timeout.ms.
    """

    def __init__(
        self,
        find: Callable[[str, int], MarkerPartition | None],
        complete_groups: CompleteGroups,
        run_later: Callable[[Callable[[], None]], object],
        timeout_ms: int,
    ) -> None:
        self._find = find
        self._complete_groups = complete_groups
        self._run_later = run_later
        self._timeout_ms = timeout_ms

    def has(self, partition: TopicPartition) -> bool:
        """Return whether this broker has a replica with a log."""
        found = self._find(*partition)
        return found is not None and found.log is not None

    def append(
        self,
        marker: Marker,
        partitions: Collection[TopicPartition],
        then: Callable[[dict[TopicPartition, int]], None],
    ) -> None:
        """Append a marker to partitions. ``then`` gets the error code of each, once, in their order.

        It is called before this returns if no append has to wait, and else on the thread of ``run_later``.
        """
        errors: dict[TopicPartition, int] = {}
        waiting: dict[TopicPartition, Future[Any]] = {}
        for partition in dict.fromkeys(partitions):
            found = self._find(*partition)
            if found is None or found.log is None:
                errors[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                continue
            appended = found.append_marker(
                *marker.producer,
                marker.commit,
                marker.coordinator_epoch,
                required_acks=_ALL_REPLICAS,
                timeout_ms=self._timeout_ms,
            )
            if appended.done():
                errors[partition] = _error_of(partition, appended)
            else:
                errors[partition] = ErrorCode.UNKNOWN_SERVER_ERROR
                waiting[partition] = appended

        def end() -> None:
            for partition, appended in waiting.items():
                errors[partition] = _error_of(partition, appended)
            self._complete(marker, errors)
            then(errors)

        if waiting:
            # The thread that ends the last append may hold the lock of a group or of a transaction.
            when_done(waiting.values()).add_done_callback(lambda _: self._run_later(end))
        elif _offsets_partitions(errors):
            self._run_later(end)
        else:
            then(errors)

    def _complete(self, marker: Marker, errors: dict[TopicPartition, int]) -> None:
        """Complete the offset commits of partitions that have got the marker."""
        completed = _offsets_partitions(errors)
        if not completed:
            return
        try:
            self._complete_groups(
                marker.producer.producer_id, [one.partition for one in completed], marker.commit
            )
        except Exception:
            logger.exception(
                "the offset commits of producer %d in %s",
                marker.producer.producer_id,
                list(map(str, completed)),
            )
            errors.update(dict.fromkeys(completed, ErrorCode.UNKNOWN_SERVER_ERROR))


def _offsets_partitions(errors: dict[TopicPartition, int]) -> list[TopicPartition]:
    """Return the partitions of ``__consumer_offsets`` without an error."""
    return [one for one, error in errors.items() if not error and one.topic == OFFSETS_TOPIC]


def _error_of(partition: TopicPartition, appended: Future[Any]) -> int:
    failure = appended.exception()
    if failure is not None:
        logger.error("a marker for %s-%d cannot be written", *partition, exc_info=failure)
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return int(appended.result().error_code)

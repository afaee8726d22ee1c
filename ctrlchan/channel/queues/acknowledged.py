"""The metadata that each broker has acknowledged, and that it has once all requests have arrived.

A batch reports each push with the metadata that a broker has after it: any object, shared by all brokers
that have the same (``ctrlchan.batch.known_metadata.KnownMetadata``). Requests reach a broker in their order,
or end otherwise. So a push that has not failed counts as known. After a failure a broker has the metadata it
acknowledged; after one that it may have applied in part nothing is certain, and it must be sent everything.

Pushes count here in the order in which they were made. A full state in place of a backlog is made later than
pushes that wait behind it, so ``BrokerQueue`` keeps the metadata of the last full state itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from ctrlchan.channel.outcome import LISTENING, Outcome, OutcomeKind, Sent

__all__ = ["AcknowledgedMetadata", "MetadataStatus", "Push"]

T = TypeVar("T")

#: Ends of requests that were never sent.
_NEVER_SENT: Final = (OutcomeKind.CANCELLED,)


class MetadataStatus(NamedTuple):
    """After another generation or another metadata error nothing is known of a broker's metadata cache, until
    it acknowledges a full UpdateMetadata."""

    generation: int
    #: Errors that left its metadata cache uncertain: of an UpdateMetadata, or a stale broker epoch.
    metadata_errors: int


class _Record(Generic[T]):
    """One generation of a broker. Pushes are numbered in the order they were made; 0: none."""

    __slots__ = ("acknowledged", "acknowledged_at", "broken", "expected", "first", "full", "last", "status")

    def __init__(self, status: MetadataStatus, first: int) -> None:
        self.status = status
        #: Known once all requests have arrived. None if it is uncertain.
        self.expected: T | None = None
        #: Known for certain, and the push that it is of.
        self.acknowledged: T | None = None
        self.acknowledged_at = 0
        #: The first push of this generation, the last full one, and the last.
        self.first = first
        self.full = 0
        self.last = first
        #: First and last of the pushes that build on a failed one: their acknowledgements prove nothing.
        self.broken = (0, -1)


class AcknowledgedMetadata(Generic[T]):
    """The metadata known by the brokers of one channel. Thread-safe; one small record for each broker.

    ``statuses`` returns the status of these brokers, without those that the channel does not know. It takes
    the channel's lock, so it is never called while this object's lock is held.
    """

    def __init__(self, statuses: Callable[[Iterable[int]], Mapping[int, MetadataStatus]]) -> None:
        self._statuses = statuses
        self._lock = threading.Lock()
        self._records: dict[int, _Record[T]] = {}
        self._last_push = 0

    def of(self, broker_id: int) -> T | None:
        """Return what this generation of the broker has acknowledged, or None if nothing is certain."""
        status = self._statuses((broker_id,)).get(broker_id)
        with self._lock:
            record = self._records.get(broker_id)
            return None if record is None or record.status != status else record.acknowledged

    def expected(self, broker_ids: Iterable[int]) -> dict[T | None, list[int]]:
        """Group brokers, in their order, by what they know once all their requests have arrived.

        Returns None if that is uncertain.
        """
        broker_ids = list(broker_ids)
        statuses = self._statuses(broker_ids)
        groups: dict[T | None, list[int]] = {}
        with self._lock:
            for broker_id in broker_ids:
                record = self._records.get(broker_id)
                certain = record is not None and record.status == statuses.get(broker_id)
                expected = record.expected if certain and record is not None else None
                groups.setdefault(expected, []).append(broker_id)
        return groups

    def push(self, broker_ids: Sequence[int], metadata: T, *, full: bool) -> Push[T]:
        """Begin a push; call this before the request is sent to these brokers, and ``Push.watch`` after.

        The brokers know ``metadata`` after it. ``full``: whatever they know before; otherwise they all know
        the same before.
        """
        statuses = self._statuses(broker_ids)
        with self._lock:
            self._last_push += 1
            return Push(self, self._last_push, metadata, full, statuses)

    # -- for Push

    def begin(self, push: Push[T], sent: Sequence[Sent]) -> None:
        with self._lock:
            for one in sent:
                status = push.statuses.get(one.broker_id)
                if status is None:
                    self._records.pop(one.broker_id, None)
                    continue
                record = self._records.get(one.broker_id)
                if record is None or record.status.generation != status.generation:
                    record = self._records[one.broker_id] = _Record(status, push.number)
                if push.full:
                    if record.expected is None or record.status != status:
                        # Should this push fail, nothing that was acknowledged before it counts.
                        record.acknowledged, record.acknowledged_at = None, push.number - 1
                    record.status = status
                    record.full = push.number
                elif record.expected is None or record.last > push.number:
                    # Another push or a failure came after the caller asked for the metadata.
                    record.expected = None
                    record.last = max(record.last, push.number)
                    continue
                record.expected = push.metadata
                record.last = push.number

    def end(self, push: Push[T], broker_id: int, outcome: Outcome) -> None:
        with self._lock:
            record = self._records.get(broker_id)
            if record is None or push.number < record.first:
                return
            if outcome.kind is OutcomeKind.ACKNOWLEDGED:
                low, high = record.broken
                certain = push.full or not low <= push.number <= high
                if certain and push.number > record.acknowledged_at:
                    record.acknowledged, record.acknowledged_at = push.metadata, push.number
                return
            if push.number < record.full:
                # A full push behind this one contains all of it.
                return
            low, high = record.broken
            record.broken = (min(low, push.number) if high >= record.full else push.number, record.last)
            if outcome.kind not in _NEVER_SENT:
                record.acknowledged, record.acknowledged_at = None, push.number
            record.expected = record.acknowledged


class Push(Generic[T]):
    """One request, and the metadata that its brokers know once they have acknowledged it."""

    __slots__ = ("_acknowledged", "full", "metadata", "number", "statuses")

    def __init__(
        self,
        acknowledged: AcknowledgedMetadata[T],
        number: int,
        metadata: T,
        full: bool,
        statuses: Mapping[int, MetadataStatus],
    ) -> None:
        self._acknowledged = acknowledged
        self.number = number
        self.metadata = metadata
        self.full = full
        self.statuses = statuses

    def watch(self, sent: Sequence[Sent]) -> None:
        """Count the metadata of these requests as known, until one of them fails."""
        self._acknowledged.begin(self, sent)
        ended = []
        with LISTENING:
            for one in sent:
                if one.outcome is None:
                    one.listen(self)
                else:
                    ended.append(one)
        for one in ended:
            self.finished(one)

    def finished(self, sent: Sent) -> None:
        if sent.outcome is not None:
            self._acknowledged.end(self, sent.broker_id, sent.outcome)

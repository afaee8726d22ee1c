"""What each broker was told and has acknowledged, without knowing what there is to be told.

Whoever sends (a batch) says of each push what a broker knows once it has acknowledged it: any object, shared
by all brokers that know the same. Requests to a broker arrive in their order or end otherwise, so what was
told and has not failed counts as known; a failure takes a broker back to what it has acknowledged, or, when
it may have applied something else than it should have, to nothing: then it must be told everything.

A broker costs one small record here, whatever it is told.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from ctrlchan.channel.outcome import LISTENING, Outcome, OutcomeKind, Sent

__all__ = ["Acknowledged", "BrokerStatus", "Push"]

T = TypeVar("T")

#: The broker has seen nothing of the request.
_NEVER_SENT: Final = (OutcomeKind.CANCELLED,)


class BrokerStatus(NamedTuple):
    """After another generation or another metadata error nothing is known of a broker's metadata cache, until
    it acknowledges a full UpdateMetadata."""

    generation: int
    #: Errors that left its metadata cache uncertain: of an UpdateMetadata, or a stale broker epoch.
    metadata_errors: int


class _Record(Generic[T]):
    """Pushes are numbered in the order they were sent; 0: none."""

    __slots__ = ("acknowledged", "acknowledged_at", "broken", "first", "full", "last", "status", "told")

    def __init__(self, status: BrokerStatus, first: int) -> None:
        self.status = status
        self.told: T | None = None
        self.acknowledged: T | None = None
        self.acknowledged_at = 0
        #: Of this generation's pushes the first, the last full one, and the last.
        self.first = first
        self.full = 0
        self.last = first
        #: Pushes in this range build on one that has failed: their acknowledgements prove nothing.
        self.broken = (0, -1)


class Acknowledged(Generic[T]):
    """Thread-safe. ``statuses``: the status of these brokers; unknown brokers are left out."""

    def __init__(self, statuses: Callable[[Iterable[int]], Mapping[int, BrokerStatus]]) -> None:
        self._statuses = statuses
        self._lock = threading.Lock()
        self._records: dict[int, _Record[T]] = {}
        self._last_push = 0

    def of(self, broker_id: int) -> T | None:
        """What the broker's present generation has acknowledged last; None: nothing that is certain."""
        status = self._statuses((broker_id,)).get(broker_id)
        with self._lock:
            record = self._records.get(broker_id)
            return None if record is None or record.status != status else record.acknowledged

    def told(self, broker_ids: Iterable[int]) -> dict[T | None, list[int]]:
        """Broker ids in their order, grouped by what they know once all that is on its way arrives;
        None: that cannot be said."""
        broker_ids = list(broker_ids)
        statuses = self._statuses(broker_ids)
        groups: dict[T | None, list[int]] = {}
        with self._lock:
            for broker_id in broker_ids:
                record = self._records.get(broker_id)
                known = record is not None and record.status == statuses.get(broker_id)
                groups.setdefault(record.told if known and record is not None else None, []).append(broker_id)
        return groups

    def push(self, broker_ids: Sequence[int], knowledge: T, *, full: bool) -> Push[T]:
        """To be called before a request is sent to these brokers, who all know the same beforehand (or
        nothing: ``full``), and then know ``knowledge``. ``watch`` must follow."""
        statuses = self._statuses(broker_ids)
        with self._lock:
            self._last_push += 1
            return Push(self, self._last_push, knowledge, full, statuses)

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
                    if record.told is None or record.status != status:
                        # Should this one fail, there is nothing to fall back to.
                        record.acknowledged, record.acknowledged_at = None, push.number - 1
                    record.status = status
                    record.full = push.number
                elif record.told is None or record.last > push.number:
                    # Something happened between the look at what it knew and now.
                    record.told = None
                    record.last = max(record.last, push.number)
                    continue
                record.told = push.knowledge
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
                    record.acknowledged, record.acknowledged_at = push.knowledge, push.number
                return
            if push.number < record.full:
                # All of it was said again behind this one.
                return
            low, high = record.broken
            record.broken = (min(low, push.number) if high >= record.full else push.number, record.last)
            if outcome.kind not in _NEVER_SENT:
                record.acknowledged, record.acknowledged_at = None, push.number
            record.told = record.acknowledged


class Push(Generic[T]):
    """One request and what its brokers know when they have acknowledged it."""

    __slots__ = ("_acknowledged", "full", "knowledge", "number", "statuses")

    def __init__(
        self,
        acknowledged: Acknowledged[T],
        number: int,
        knowledge: T,
        full: bool,
        statuses: Mapping[int, BrokerStatus],
    ) -> None:
        self._acknowledged = acknowledged
        self.number = number
        self.knowledge = knowledge
        self.full = full
        self.statuses = statuses

    def watch(self, sent: Sequence[Sent]) -> None:
        """The request was sent so. From here on it counts as told, until one of these fails."""
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

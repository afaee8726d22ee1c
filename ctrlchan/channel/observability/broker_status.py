"""The status of the brokers of a channel, with their oldest requests, for the journal.

Called once in a flush interval. While the lock of the channel state is held, values are only copied.
"""

from __future__ import annotations

from itertools import chain, islice
from time import monotonic_ns
from typing import TYPE_CHECKING, Final, NamedTuple

from ctrlchan.channel.coalescing.internal_entries import MergedEntry, RequestPart
from ctrlchan.journal.rows import BrokerStatus, Unfinished

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ctrlchan.channel.observability.observed import ObservedChannel, ObservedQueue
    from ctrlchan.channel.outcome import Sent

__all__ = ["Generation", "broker_statuses"]

#: At most so many requests of a broker are listed; those behind them are counted.
_MOST_LISTED: Final = 16


class Generation(NamedTuple):
    """The present generation of a broker: its slot, its epoch (-1: unknown), its begin (monotonic ns)."""

    slot: int
    epoch: int
    since: int


class _QueueStatus(NamedTuple):
    """Copies of the values of one queue."""

    state: str = "gone"
    attempts: int = 0
    last_error: str = ""
    needs_resync: bool = False
    unfinished: int = 0
    unfinished_bytes: int = 0
    #: Entries that have waited for long, and how many of them a sender process has.
    late: tuple[Sent, ...] = ()
    handed: int = 0


_NO_QUEUE: Final = _QueueStatus()


def broker_statuses(
    generations: Mapping[int, Generation], channel_state: ObservedChannel | None, waited: int
) -> tuple[BrokerStatus, ...]:
    """Return the status of each broker of ``generations``, ascending.

    The first requests that have waited for more than ``waited`` nanoseconds are listed. ``channel_state``:
    None when the channel has ended.
    """
    queues: dict[int, _QueueStatus] = {}
    if channel_state is not None:
        before = monotonic_ns() - waited
        with channel_state.lock:
            queues = {one: _queue_status(queue, before) for one, queue in channel_state.by_id.items()}
    statuses = []
    for broker_id, generation in sorted(generations.items()):
        queue = queues.get(broker_id, _NO_QUEUE)
        requests: dict[Sent, Unfinished] = {}
        for position, entry in enumerate(queue.late):
            for sent in _requests_of(entry):
                # Several parts of one request follow one another.
                if sent not in requests and len(requests) < _MOST_LISTED:
                    requests[sent] = _unfinished(sent, in_flight=position < queue.handed)
        statuses.append(
            BrokerStatus(
                broker=broker_id,
                broker_epoch=None if generation.epoch < 0 else generation.epoch,
                generation=generation.slot,
                since=generation.since,
                state=queue.state,
                attempts=queue.attempts,
                last_error=queue.last_error,
                needs_resync=queue.needs_resync,
                unfinished=queue.unfinished,
                unfinished_bytes=queue.unfinished_bytes,
                requests=tuple(requests.values()),
            )
        )
    return tuple(statuses)


def _queue_status(queue: ObservedQueue, before: int) -> _QueueStatus:
    first = queue.handed[0] if queue.handed else queue.waiting[0] if queue.waiting else None
    late: tuple[Sent, ...] = ()
    if first is not None and first.enqueued_ns < before:
        listed = islice(chain(queue.handed, queue.waiting), _MOST_LISTED)
        late = tuple(sent for sent in listed if sent.enqueued_ns < before)
    return _QueueStatus(
        queue.state,
        queue.attempts,
        queue.last_problem() if queue.attempts else "",
        queue.needs_resync,
        len(queue.handed) + len(queue.waiting),
        queue.waiting_bytes + queue.handed_bytes,
        late,
        len(queue.handed),
    )


def _requests_of(entry: Sent) -> list[Sent]:
    """Return the requests of users in an entry of the queue: several of a merged one, the whole of a part."""
    if isinstance(entry, MergedEntry):
        return [sent for member in entry.members for sent in _requests_of(member)]
    return _requests_of(entry.split_request.sent) if isinstance(entry, RequestPart) else [entry]


def _unfinished(sent: Sent, *, in_flight: bool) -> Unfinished:
    request, coverage = sent.request, sent.request.coverage
    return Unfinished(
        enqueued=sent.enqueued_ns,
        api=request.api_key,
        version=sent.version,
        controller_epoch=request.controller_epoch,
        state_version=request.state_version,
        state_id=None if coverage is None else coverage.state_id,
        from_version=None if coverage is None else coverage.from_version,
        partitions=None if coverage is None else coverage.partitions,
        rows=request.rows,
        bytes=sent.bytes,
        in_flight=in_flight,
    )

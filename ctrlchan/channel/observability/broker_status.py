"""How the brokers of a channel stand, and what has waited for long: for the journal, which shows it to
others.

Called once in a flush interval. Under the channel state's lock it only takes what is there; words are made
after.
"""

from __future__ import annotations

from itertools import chain, islice
from time import monotonic_ns
from typing import TYPE_CHECKING, Final, NamedTuple

from ctrlchan.channel.coalescing.joint import Merged, Part
from ctrlchan.journal.rows import BrokerView, Unfinished

if TYPE_CHECKING:
    from ctrlchan.channel.outcome import Sent
    from ctrlchan.channel.queues.channel_state import ChannelState

__all__ = ["Generation", "views_of"]

#: Requests of a broker that are told one by one; those behind them are counted.
_TOLD: Final = 16


class Generation(NamedTuple):
    """A broker's present generation: its slot, its epoch (-1: unknown), when it began (monotonic ns)."""

    slot: int
    epoch: int
    since: int


def views_of(
    generations: dict[int, Generation], channel_state: ChannelState | None, waited: int
) -> tuple[BrokerView, ...]:
    """One for each of ``generations`` (broker id -> generation), with the first requests that have waited for
    longer than ``waited`` nanoseconds. ``channel_state``: None when there is nothing any more that could
    wait."""
    waiting: dict[int, tuple[str, int, str, bool, int, int, list[Sent], int]] = {}
    if channel_state is not None:
        before = monotonic_ns() - waited
        with channel_state.lock:
            for broker_id, queue in channel_state.by_id.items():
                first = queue.handed[0] if queue.handed else queue.waiting[0] if queue.waiting else None
                late: list[Sent] = []
                if first is not None and first.enqueued_ns < before:
                    late = [
                        sent
                        for sent in islice(chain(queue.handed, queue.waiting), _TOLD)
                        if sent.enqueued_ns < before
                    ]
                waiting[broker_id] = (
                    queue.state,
                    queue.attempts,
                    queue.last_problem() if queue.attempts else "",
                    queue.needs_resync,
                    len(queue),
                    queue.waiting_bytes + queue.handed_bytes,
                    late,
                    len(queue.handed),
                )
    views = []
    for broker_id, generation in sorted(generations.items()):
        state, attempts, error, resync, unfinished, size, late, handed = waiting.get(
            broker_id, ("gone", 0, "", False, 0, 0, [], 0)
        )
        requests: dict[Sent, Unfinished] = {}
        for place, entry in enumerate(late):
            for sent in _users(entry):
                # Parts of one come one after another.
                if sent not in requests and len(requests) < _TOLD:
                    requests[sent] = _unfinished(sent, in_flight=place < handed)
        views.append(
            BrokerView(
                broker_id,
                None if generation.epoch < 0 else generation.epoch,
                generation.slot,
                generation.since,
                state,
                attempts,
                error,
                resync,
                unfinished,
                size,
                tuple(requests.values()),
            )
        )
    return tuple(views)


def _users(entry: Sent) -> list[Sent]:
    """What users sent of an entry of the queue: a merged one is several, a part belongs to its whole."""
    if isinstance(entry, Merged):
        return [sent for member in entry.members for sent in _users(member)]
    return _users(entry.whole.sent) if isinstance(entry, Part) else [entry]


def _unfinished(sent: Sent, *, in_flight: bool) -> Unfinished:
    request, coverage = sent.request, sent.request.coverage
    return Unfinished(
        sent.enqueued_ns,
        request.api_key,
        sent.version,
        request.controller_epoch,
        request.state_version,
        None if coverage is None else coverage.state_id,
        None if coverage is None else coverage.from_version,
        None if coverage is None else coverage.partitions,
        request.rows,
        sent.bytes,
        in_flight,
    )

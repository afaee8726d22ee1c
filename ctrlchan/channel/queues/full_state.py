"""The whole state in one request, in place of a backlog that has become too long.

Whoever owns a state that UpdateMetadata requests are made of gives each of them a ``FullStateSource``. When
more than ``max_backlog_bytes`` of them wait for one broker their bodies are dropped, and when the broker has
answered all that was sent before, the source is asked once for what there is to be told *then*. Merging
keeps what was said; this says it anew, so a backlog costs no memory however long the broker is away.

The source is called on the channel's thread, as callbacks are and without the channel's lock: it takes its
own to keep the state still, and while that is held the request is encoded. What it waits for, the channel
waits for, so nobody may wait for an outcome while holding that lock.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

from ctrlchan.channel.outcome import OutcomeKind, Verdict

if TYPE_CHECKING:
    from ctrlchan._codec import Int32, SharedBody
    from ctrlchan.channel.coalescing.joint import Collapsed
    from ctrlchan.channel.queues.broker_queue import BrokerQueue
    from ctrlchan.channel.queues.channel_state import ChannelState

__all__ = ["FullState", "FullStateSource", "FullStates"]

_LOG: Final = logging.getLogger("ctrlchan.channel")


class FullState(NamedTuple):
    """What there is to be told.

    ``shared_body``: of an UpdateMetadata of the version asked for; it is written before the source is left.
    ``state_version``: equal ones of one source, asked for the same, say the same, so that brokers share the
    bytes; None: never. ``knowledge``: what a broker knows that has acknowledged this, to be given back as
    ``known``; None: nobody is told less than everything.
    """

    shared_body: SharedBody
    state_version: int | None = None
    knowledge: Hashable | None = None


class FullStateSource(Protocol):
    """Equal ones stand for the same state."""

    def __call__(
        self, version: int, known: Hashable | None, deletions: Mapping[bytes, Int32]
    ) -> AbstractContextManager[FullState]:
        """All partitions with leadership and all live brokers, in this version of UpdateMetadata.

        ``known``: the brokers this is for have acknowledged the FullState with this ``knowledge``, and were
        told nothing else since then: what has changed since, removals included, is enough. ``deletions``:
        topic -> partitions (ascending int32) that the backlog told to be deleted; those that the state does
        not tell to be there are to be told with leader -2, behind the other rows of their topic. Whatever is
        raised ends the backlog as REFUSED, with the reason in the outcomes' ``detail``.
        """
        ...


#: (source, version, known, fingerprint of the deletions) -> the entries that the answer is for.
_Wanted: TypeAlias = (
    "dict[tuple[FullStateSource, int, Hashable | None, Hashable], list[tuple[BrokerQueue, Collapsed]]]"
)


class FullStates:
    """Asks the sources for what queues wait for. Belongs to the channel's thread; takes the lock itself."""

    def __init__(self, channel_state: ChannelState, prefix: str) -> None:
        self._channel_state = channel_state
        self._prefix = prefix

    def build(self) -> None:
        """Every queue that is ready gets its request, or the reason why there is none as its end."""
        with self._channel_state.lock:
            wanted = self._wanted()
        for (source, version, known, _), entries in wanted.items():
            deletions = entries[0][1].deletions
            try:
                with source(version, known, deletions) as told, self._channel_state.lock:
                    self._channel_state.provide(entries, told, known)
            except BaseException as problem:  # noqa: BLE001 - its owner's code, which stops nothing here
                _LOG.exception("%sThe full state for %s could not be made", self._prefix, _names(entries))
                verdict = Verdict(OutcomeKind.REFUSED, detail=f"the full state could not be made: {problem}")
                with self._channel_state.lock:
                    self._channel_state.cannot_provide(entries, verdict)

    def _wanted(self) -> _Wanted:
        wanted: _Wanted = {}
        for queue, entry in self._channel_state.take_ready():
            source, version = entry.source, entry.request.version
            key = (source, version, queue.known_of(source), entry.fingerprint)
            wanted.setdefault(key, []).append((queue, entry))
        return wanted


def _names(entries: Sequence[tuple[BrokerQueue, Collapsed]]) -> str:
    return ", ".join(str(queue.target) for queue, _ in entries)

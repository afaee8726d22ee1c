"""Builds the full states that broker queues wait for."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TypeAlias

from ctrlchan.channel.coalescing.internal_entries import CollapsedEntry
from ctrlchan.channel.outcome import OutcomeKind, RequestResult
from ctrlchan.channel.queues.broker_queue import BrokerQueue
from ctrlchan.channel.queues.channel_state import ChannelState
from ctrlchan.channel.queues.full_state import FullStateSource

__all__ = ["FullStates"]

#: (source, version, known, fingerprint of the deletions) -> the entries that the answer is for.
_Wanted: TypeAlias = (
    "dict[tuple[FullStateSource, int, Hashable | None, Hashable], list[tuple[BrokerQueue, CollapsedEntry]]]"
)


class FullStates:
    """Asks the sources for full states. Used by the channel's thread only; takes the lock itself."""

    def __init__(self, channel_state: ChannelState) -> None:
        self._channel_state = channel_state

    def build(self) -> None:
        """Build a full state for every queue that is ready; if the source fails, its entry is REFUSED."""
        with self._channel_state.lock:
            wanted = self._wanted()
        for (source, version, known, _), entries in wanted.items():
            deletions = entries[0][1].deletions
            try:
                with source(version, known, deletions) as full_state, self._channel_state.lock:
                    self._channel_state.provide(entries, full_state, known)
            except BaseException as problem:
                # The source is the caller's code.
                self._channel_state.log.exception("The full state for %s could not be made", _names(entries))
                result = RequestResult(
                    OutcomeKind.REFUSED, detail=f"the full state could not be made: {problem}"
                )
                with self._channel_state.lock:
                    self._channel_state.cannot_provide(entries, result)

    def _wanted(self) -> _Wanted:
        wanted: _Wanted = {}
        for queue, entry in self._channel_state.take_ready():
            source, version = entry.source, entry.request.version
            key = (source, version, queue.known_of(source), entry.fingerprint)
            wanted.setdefault(key, []).append((queue, entry))
        return wanted


def _names(entries: Sequence[tuple[BrokerQueue, CollapsedEntry]]) -> str:
    return ", ".join(str(queue.target) for queue, _ in entries)

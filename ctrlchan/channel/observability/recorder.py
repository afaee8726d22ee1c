"""The channel's outcomes as chunks of rows, for those who asked for them: the journal, the metrics.

Without any of them there is no recorder, and the channel does nothing for it.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Sequence
from time import monotonic, monotonic_ns
from typing import TYPE_CHECKING, Final, NamedTuple

from ctrlchan.channel.observability._gather import Gatherer
from ctrlchan.channel.observability.broker_status import Generation, views_of
from ctrlchan.journal.rows import ChannelView, Chunk, OutcomeSink

if TYPE_CHECKING:
    from ctrlchan.channel.outcome import Sent
    from ctrlchan.channel.queues.channel_state import ChannelState

__all__ = ["QueueTimesSnapshot", "Recorder"]

_LOG: Final = logging.getLogger("ctrlchan.channel")

#: What cannot be recorded is said once in so many seconds.
_COMPLAIN_EVERY: Final = 60.0
#: Rows handed on at once: half a megabyte.
_CHUNK: Final = 4096
#: Generations whose broker epoch is remembered. Rows are gathered within a turn of the dispatcher.
_GENERATIONS: Final = 16_384


class QueueTimesSnapshot(NamedTuple):
    """``QueueTimes`` of one broker at one time."""

    requests: int
    total_ns: int
    histogram: list[int]


class Recorder:
    """Thread-safe; the dispatcher calls ``ended`` and ``close``, anybody ``flush`` and ``view``.

    ``channel_state``: gives what is unfinished; None before the channel has begun.
    """

    def __init__(
        self,
        sinks: Sequence[OutcomeSink],
        controller_id: int,
        channel_state: Callable[[], ChannelState | None],
    ) -> None:
        self.channel = str(uuid.uuid4())
        self._controller_id = controller_id
        self._sinks = sinks
        self._channel_state = channel_state
        self._lock = threading.Lock()
        self._epochs: dict[int, int] = {}
        # Of each broker the last, also when the channel knows it no more.
        self._generations: dict[int, Generation] = {}
        self._closed = False
        self._rows = Gatherer(_CHUNK, self._epochs)
        # Rows handed on.
        self._sequence = 0
        self._silent_until = 0.0

    def generation(self, slot: int, broker_id: int, broker_epoch: int) -> None:
        """A generation of a broker begins; reports name it by its slot."""
        with self._lock:
            self._generations[broker_id] = Generation(slot, broker_epoch, monotonic_ns())
            if len(self._epochs) >= _GENERATIONS:
                for old in sorted(self._epochs)[: _GENERATIONS // 2]:
                    del self._epochs[old]
            self._epochs[slot] = broker_epoch

    def ended(self, ended: list[Sent], called: list[int] | None = None) -> None:
        """These have their outcomes. ``called``: when the callback of each returned, monotonic nanoseconds;
        None: they have none."""
        with self._lock:
            position = 0
            while position < len(ended):
                before = self._rows.count
                try:
                    position = self._rows.extend(ended, position, called)
                except Exception:  # noqa: BLE001 - such as a state version that is no number
                    position += self._rows.count - before + 1
                    self._complain()
                if self._rows.count == _CHUNK:
                    self._hand_on()

    def flush(self) -> None:
        """Hand on the rows that do not yet fill a chunk."""
        with self._lock:
            if self._rows.count:
                self._hand_on()

    def close(self) -> None:
        """The channel has ended; nothing comes any more."""
        self.flush()
        with self._lock:
            self._closed = True

    def view(self, waited: int) -> ChannelView:
        with self._lock:
            closed, outcomes, generations = self._closed, self._sequence, dict(self._generations)
        # The channel state's lock comes before ours.
        brokers = views_of(generations, None if closed else self._channel_state(), waited)
        return ChannelView(self.channel, self._controller_id, closed, outcomes, brokers)

    def queue_times(self) -> dict[int, QueueTimesSnapshot]:
        """Broker id -> how long the requests of its present generation waited in the queue."""
        channel_state = self._channel_state()
        if channel_state is None:
            return {}
        with channel_state.lock:
            return {
                broker_id: QueueTimesSnapshot(times.count, times.total_ns, times.histogram())
                for broker_id, queue in channel_state.by_id.items()
                for times in (queue.queue_times,)
            }

    def _hand_on(self) -> None:
        rows, texts = self._rows.take()
        chunk = Chunk(rows, texts, self._sequence, self.channel, self._controller_id)
        self._sequence += len(rows)
        for sink in self._sinks:
            try:
                sink.take(chunk)
            except Exception:  # noqa: BLE001 - what is only watched does not end for its watchers
                self._complain()

    def _complain(self) -> None:
        if monotonic() >= self._silent_until:
            self._silent_until = monotonic() + _COMPLAIN_EVERY
            _LOG.exception("Outcomes of channel %s could not be recorded", self.channel)

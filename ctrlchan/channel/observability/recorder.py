"""Gathers the outcomes of a channel as chunks of rows for the journal and the metrics.

A channel without journal and metrics has no recorder, and does nothing for it.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Sequence
from time import monotonic, monotonic_ns
from typing import TYPE_CHECKING, Final, NamedTuple

from ctrlchan.channel.observability._gather import Gatherer
from ctrlchan.channel.observability.broker_status import Generation, broker_statuses
from ctrlchan.journal.rows import ChannelStatus, Chunk, OutcomeReceiver

if TYPE_CHECKING:
    from ctrlchan.channel.observability.observed import ObservedChannel
    from ctrlchan.channel.outcome import Sent

__all__ = ["QueueTimesSnapshot", "Recorder"]

_LOG: Final = logging.getLogger("ctrlchan.channel")

#: Seconds from one line about errors to the next.
_LOG_EVERY: Final = 60.0
#: Rows handed on at once: 0.7 MB.
_CHUNK: Final = 4096
#: Generations whose broker epoch is remembered. Rows are gathered within one turn of the dispatcher.
_GENERATIONS: Final = 16_384


class QueueTimesSnapshot(NamedTuple):
    """``QueueTimes`` of one broker at one time."""

    requests: int
    total_ns: int
    histogram: list[int]


class Recorder:
    """Turns outcomes into chunks of rows and hands them to ``receivers``.

    Thread-safe; the dispatcher calls ``ended`` and ``close``, any thread ``flush``, ``status`` and
    ``queue_times``. ``channel_state`` returns the channel state, None before the channel has begun.
    """

    def __init__(
        self,
        receivers: Sequence[OutcomeReceiver],
        controller_id: int,
        channel_state: Callable[[], ObservedChannel | None],
    ) -> None:
        self.channel = str(uuid.uuid4())
        self._controller_id = controller_id
        self._receivers = receivers
        self._channel_state = channel_state
        # The lock of the channel state is taken before this one, never while this one is held.
        self._lock = threading.Lock()
        self._epochs: dict[int, int] = {}
        # The last generation of each broker, also of removed ones.
        self._generations: dict[int, Generation] = {}
        self._closed = False
        self._rows = Gatherer(_CHUNK, self._epochs)
        # Rows handed on.
        self._sequence = 0
        self._silent_until = 0.0

    def generation(self, slot: int, broker_id: int, broker_epoch: int) -> None:
        """Begin a generation of a broker; reports identify it by its slot."""
        with self._lock:
            self._generations[broker_id] = Generation(slot, broker_epoch, monotonic_ns())
            if len(self._epochs) >= _GENERATIONS:
                for old in sorted(self._epochs)[: _GENERATIONS // 2]:
                    del self._epochs[old]
            self._epochs[slot] = broker_epoch

    def ended(self, ended: list[Sent], called: list[int] | None = None) -> None:
        """Record the outcomes of these requests.

        ``called``: monotonic nanoseconds when the callback of each returned, or None if they have no
        callbacks.
        """
        with self._lock:
            position = 0
            while position < len(ended):
                before = self._rows.count
                try:
                    position = self._rows.extend(ended, position, called)
                except Exception:  # noqa: BLE001 - such as a state version that is no number
                    position += self._rows.count - before + 1
                    self._log_failure()
                if self._rows.count == _CHUNK:
                    self._hand_on()

    def flush(self) -> None:
        """Hand on the rows that do not yet fill a chunk."""
        with self._lock:
            if self._rows.count:
                self._hand_on()

    def close(self) -> None:
        """Hand on the last rows; the channel has ended."""
        self.flush()
        with self._lock:
            self._closed = True

    def status(self, waited: int) -> ChannelStatus:
        """Return the status of the channel, with requests that have waited for ``waited`` nanoseconds."""
        with self._lock:
            closed, outcomes, generations = self._closed, self._sequence, dict(self._generations)
        brokers = broker_statuses(generations, None if closed else self._channel_state(), waited)
        return ChannelStatus(self.channel, self._controller_id, closed, outcomes, brokers)

    def queue_times(self) -> dict[int, QueueTimesSnapshot]:
        """Return how long the requests of each broker's present generation waited in its queue."""
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
        for receiver in self._receivers:
            try:
                receiver.take(chunk)
            except Exception:  # noqa: BLE001 - an observer's error must not end the channel
                self._log_failure()

    def _log_failure(self) -> None:
        if monotonic() >= self._silent_until:
            self._silent_until = monotonic() + _LOG_EVERY
            _LOG.exception("Outcomes of channel %s could not be recorded", self.channel)

"""The channel's outcomes as chunks of rows, for those who asked for them: the journal, the metrics.

Without any of them there is no recorder, and the channel does nothing for it.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ctrlchan.channel._gather import Gatherer
from ctrlchan.journal.rows import Chunk, Taker

if TYPE_CHECKING:
    from ctrlchan.channel.ledger import Ended

__all__ = ["Recorder"]

#: Rows handed on at once: half a megabyte.
_CHUNK: Final = 4096
#: Generations whose broker epoch is remembered. Rows are gathered within a turn of the dispatcher.
_GENERATIONS: Final = 16_384


class Recorder:
    """Thread-safe; the dispatcher calls ``ended``, anybody ``flush``."""

    def __init__(self, takers: Sequence[Taker], controller_id: int) -> None:
        self.channel = str(uuid.uuid4())
        self._controller_id = controller_id
        self._takers = takers
        self._lock = threading.Lock()
        self._epochs: dict[int, int] = {}
        self._rows = Gatherer(_CHUNK, self._epochs)
        # Rows handed on.
        self._sequence = 0

    def generation(self, slot: int, broker_epoch: int) -> None:
        """A generation of a broker begins; reports name it by its slot."""
        with self._lock:
            if len(self._epochs) >= _GENERATIONS:
                for old in sorted(self._epochs)[: _GENERATIONS // 2]:
                    del self._epochs[old]
            self._epochs[slot] = broker_epoch

    def ended(self, ended: list[Ended], called: list[int] | None = None) -> None:
        """These have their outcomes. ``called``: when the callback of each returned, monotonic nanoseconds;
        None: they have none."""
        with self._lock:
            position = 0
            while position < len(ended):
                position = self._rows.extend(ended, position, called)
                if self._rows.count == _CHUNK:
                    self._hand_on()

    def flush(self) -> None:
        """Hand on the rows that do not yet fill a chunk."""
        with self._lock:
            if self._rows.count:
                self._hand_on()

    def _hand_on(self) -> None:
        rows, texts = self._rows.take()
        chunk = Chunk(rows, texts, self._sequence, self.channel, self._controller_id)
        self._sequence += len(rows)
        for taker in self._takers:
            taker.take(chunk)

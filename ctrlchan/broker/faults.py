"""Faults: what a test wants to go wrong in a broker. A broker without faults does not look here.

A fault hits requests of one API, all of them or those that name a topic or a partition. It answers with an
error, delays the answer, or closes the connection; as often as is wanted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

__all__ = ["FOREVER", "Fault", "Faults", "NamedBy"]

#: ``times`` of a fault that never ends by itself.
FOREVER: Final = -1

#: Whether a request names a topic and a partition (None: any).
NamedBy = Callable[[str, int | None], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What happens to requests of ``api`` (Kafka's name) that name ``topic`` and ``partition``, if given.

    One of ``error`` (a code of Kafka), ``seconds`` (a delay) and ``disconnect``. ``times``: how many requests
    it hits, ``FOREVER``: every one.
    """

    api: str
    topic: str | None = None
    partition: int | None = None
    error: int = 0
    seconds: float = 0.0
    disconnect: bool = False
    times: int = 1


class Faults:
    """The faults of one broker. All methods are thread-safe.

    ``on_change``: called with the APIs that have faults when these may have changed.
    """

    def __init__(self, on_change: Callable[[frozenset[str]], object] = lambda _: None) -> None:
        self._lock = threading.Lock()
        self._faults: list[tuple[Fault, int]] = []
        self._on_change = on_change
        #: Whether there is any; read without the lock.
        self.active = False

    def add(self, fault: Fault) -> None:
        """Let a fault hit requests from now on, after those that were added before."""
        with self._lock:
            self._faults.append((fault, fault.times))
            self._changed()

    def clear(self) -> None:
        """End all faults."""
        with self._lock:
            self._faults.clear()
            self._changed()

    def take(self, api: str, names: NamedBy) -> Fault | None:
        """Return the fault that hits a request, None: no fault does.

        ``names``: asked where a fault has a topic.
        """
        with self._lock:
            for place, (fault, left) in enumerate(self._faults):
                if fault.api != api or (fault.topic is not None and not names(fault.topic, fault.partition)):
                    continue
                if left == 1:
                    del self._faults[place]
                    self._changed()
                elif left > 1:
                    self._faults[place] = (fault, left - 1)
                return fault
        return None

    def _changed(self) -> None:
        self.active = bool(self._faults)
        self._on_change(frozenset(fault.api for fault, _ in self._faults))

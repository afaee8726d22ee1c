"""Asks for replicas again that were refused for want of descriptors: ``RefusedReplicas``."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from ctrlchan.broker.log.spare_descriptors import has_spare_descriptors

__all__ = ["RefusedReplicas"]

#: Between two looks at the descriptors.
_PAUSE_SECONDS: Final = 1.0


class RefusedReplicas:
    """Lets the controller send LeaderAndIsr again when there are descriptors again.

    ``ask``: asks the controller for the state of all replicas of this broker; returns whether it was asked.
    ``run_later``: calls a function on another thread after some seconds, unless the broker has ended.
    """

    def __init__(
        self, ask: Callable[[], bool], run_later: Callable[[Callable[[], object], float], object]
    ) -> None:
        self._ask = ask
        self._run_later = run_later
        self._lock = threading.Lock()
        #: Guarded by the lock: whether ``_look`` is going to be called.
        self._is_planned = False

    def note(self) -> None:
        """Note that a replica was refused."""
        with self._lock:
            if not self._is_planned:
                self._is_planned = True
                self._run_later(self._look, _PAUSE_SECONDS)

    def _look(self) -> None:
        with self._lock:
            # A replica that is refused from now on needs another answer of the controller.
            self._is_planned = False
        if not (has_spare_descriptors() and self._ask()):
            self.note()

"""Asks for replicas again that were refused for want of descriptors: ``RefusedReplicas``."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from ctrlchan.broker.log.spare_descriptors import has_spare_descriptors

__all__ = ["RefusedReplicas"]

#: Between two looks at the descriptors.
_PAUSE_SECONDS: Final = 1.0
#: For the end of the thread. One that waits for ZooKeeper ends when the session is closed.
_STOP_SECONDS: Final = 2.0


class RefusedReplicas:
    """Lets the controller send LeaderAndIsr again when there are descriptors again.

    ``ask``: asks the controller for the state of all replicas of this broker; returns whether it was asked.
    It is called by a thread of this object, which lives from a refusal until the controller was asked.
    """

    def __init__(self, ask: Callable[[], bool]) -> None:
        self._ask = ask
        self._stopped = threading.Event()
        #: Guards what follows.
        self._lock = threading.Lock()
        self._are_refused = False
        self._thread: threading.Thread | None = None

    def note(self) -> None:
        """Note that a replica was refused."""
        with self._lock:
            self._are_refused = True
            if self._thread is None and not self._stopped.is_set():
                self._thread = threading.Thread(target=self._run, name="refused-replicas", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stopped.set()
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join(_STOP_SECONDS)

    def _run(self) -> None:
        while not self._stopped.wait(_PAUSE_SECONDS):
            if not has_spare_descriptors():
                continue
            with self._lock:
                # A replica that is refused from now on needs another answer of the controller.
                self._are_refused = False
            asked = self._ask()
            with self._lock:
                self._are_refused = self._are_refused or not asked
                if not self._are_refused:
                    self._thread = None
                    return

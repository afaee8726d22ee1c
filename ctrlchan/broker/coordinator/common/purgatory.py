"""Operations that wait for a condition or for a time limit, and are completed exactly once.

Source: ``kafka.server.{DelayedOperation,DelayedOperationPurgatory}``.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext

from ctrlchan.broker.coordinator.common.timing_wheel import Timer, Timers

__all__ = ["DelayedOperation", "Purgatory"]


class DelayedOperation(ABC):
    """An operation that waits for at most `seconds`.

    Subclasses say when it can be completed (``try_complete``), and what is done then. ``try_complete`` is
    called within ``lock()``, which must be reentrant.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.keys: Sequence[Hashable] = ()
        self.timer: Timer | None = None
        # Locked for ever by the thread that completes the operation: an atomic flag.
        self._completed = threading.Lock()

    @property
    def completed(self) -> bool:
        """Whether the operation is completed, or being completed."""
        return self._completed.locked()

    def lock(self) -> AbstractContextManager[object]:
        """Return the lock of what the operation waits for."""
        return nullcontext()

    @abstractmethod
    def try_complete(self) -> bool:
        """Call ``force_complete`` if the condition holds; return whether that completed the operation."""

    def on_complete(self) -> None:  # noqa: B027 - an operation may have work for an expiration only
        """Do the operation's work, called once: the condition holds or the time is over."""

    def on_expiration(self) -> None:  # noqa: B027
        """Do what is needed besides ``on_complete`` when the time is over."""

    def force_complete(self) -> bool:
        """Complete the operation; return False when it was completed before."""
        if not self._completed.acquire(blocking=False):
            return False
        if self.timer is not None:
            self.timer.cancel()
        self.on_complete()
        return True


class Purgatory:
    """Operations by the keys of what they wait for. Any thread may call every method.

    Its own lock is never held while an operation is called.
    """

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._lock = threading.Lock()
        self._watched: dict[Hashable, dict[DelayedOperation, None]] = {}

    def __len__(self) -> int:
        """Return how many operations wait, one for each of their keys."""
        with self._lock:
            return sum(map(len, self._watched.values()))

    def try_complete_else_watch(self, operation: DelayedOperation, *keys: Hashable) -> bool:
        """Complete the operation now, or let it wait for `keys` and its time; return whether it is done."""
        with operation.lock():
            if operation.try_complete():
                return True
            operation.keys = keys
            with self._lock:
                for key in keys:
                    self._watched.setdefault(key, {})[operation] = None
            # Again: the condition may have come true before the operation was watched.
            if operation.try_complete():
                self._forget(operation)
                return True
        if not operation.completed:
            operation.timer = self._timers.after(operation.seconds, lambda: self._expire(operation))
            if operation.completed:
                operation.timer.cancel()
        return False

    def check_and_complete(self, key: Hashable) -> int:
        """Complete the operations that wait for `key` and whose condition holds; return how many."""
        with self._lock:
            operations = tuple(self._watched.get(key, ()))
        completed = 0
        for operation in operations:
            with operation.lock():
                completed += operation.try_complete()
            if operation.completed:
                self._forget(operation)
        return completed

    def _expire(self, operation: DelayedOperation) -> None:
        if operation.force_complete():
            operation.on_expiration()
        self._forget(operation)

    def _forget(self, operation: DelayedOperation) -> None:
        with self._lock:
            for key in operation.keys:
                watched = self._watched.get(key)
                if watched is not None:
                    watched.pop(operation, None)
                    if not watched:
                        del self._watched[key]

"""Waits until the broker's own metadata shows what the controller has done."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Protocol

from ctrlchan.broker.metadata.metadata_cache import MetadataCache

__all__ = ["InformedBroker", "TopicChanges", "when_seen"]


class InformedBroker(Protocol):
    """The broker whose metadata is looked at, under ``metadata.state.lock``."""

    @property
    def metadata(self) -> MetadataCache: ...


class TopicChanges:
    """What updates of the broker's metadata have done to some topics since it was made, until ``close``.

    Another client may delete a topic before the answer of its creation is here: nobody must wait for it then.
    """

    def __init__(self, core: InformedBroker, names: Iterable[str]) -> None:
        #: Topics that have been there.
        self.shown: set[str] = set()
        #: Topics that have been deleted, whether they were ever shown or not.
        self.deleted: set[str] = set()
        self._names = tuple(names)
        self._metadata = core.metadata
        self._metadata.watchers.add(self._look)

    def _look(self) -> None:
        self.deleted.update(self._metadata.just_deleted.intersection(self._names))
        self.shown.update(name for name in self._names if self._metadata.topic_row(name) is not None)

    def close(self) -> None:
        """Look at no further update."""
        self._metadata.watchers.discard(self._look)


def when_seen(
    core: InformedBroker, condition: Callable[[MetadataCache], bool], timeout: float
) -> Future[bool]:
    """Return whether the metadata satisfied a condition in time.

    The future ends under the lock of the metadata or on a timer's thread. A client that created a topic
    through this broker finds it here with its next request, as at the controller of a cluster in ZooKeeper
    mode.
    """
    seen: Future[bool] = Future()

    def end(value: bool) -> None:
        with suppress(InvalidStateError):
            seen.set_result(value)

    timer = threading.Timer(timeout, end, [False])
    timer.daemon = True

    def look() -> bool:
        if not seen.done() and not condition(core.metadata):
            return False
        timer.cancel()
        end(True)
        return True

    with core.metadata.state.lock:
        if not look():
            timer.start()
            core.metadata.after_update.append(look)
    return seen

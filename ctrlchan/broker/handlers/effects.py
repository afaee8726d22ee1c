"""Waits until the broker's own metadata shows what the controller has done."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Protocol

from ctrlchan.broker.metadata.metadata_cache import MetadataCache

__all__ = ["InformedBroker", "when_seen"]


class InformedBroker(Protocol):
    """The broker whose metadata is looked at, under ``metadata.state.lock``."""

    @property
    def metadata(self) -> MetadataCache: ...


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

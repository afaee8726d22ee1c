"""Waits until the partitions that a request has made have leaders (Kafka's ``DelayedCreatePartitions``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from time import monotonic

from ctrlchan.controller.admin.topics import has_leaders
from ctrlchan.controller.core import ControllerCore
from ctrlchan.controller.server.core import ServerCore
from ctrlchan.server.api import Reply

__all__ = ["when_led"]


def when_led(
    core: ServerCore, counts: Mapping[str, int], deadline: float, reply: Callable[[set[str]], Reply]
) -> Reply | Future[Reply]:
    """Wait until topics have so many partitions, all with leaders, and reply.

    ``reply`` gets the names of the topics that have not. ``deadline``: monotonic seconds.
    """
    missing = dict(counts)

    def complete(controller: ControllerCore) -> bool:
        for name in [name for name, count in missing.items() if has_leaders(controller, name, count)]:
            del missing[name]
        return not missing

    left = deadline - monotonic()
    if not missing or left <= 0:
        return reply(set(missing))
    return core.wait_until(complete, left, lambda: reply(set(missing)))

"""Waits until the partitions that a request has made have leaders (Kafka's ``DelayedCreatePartitions``)."""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic

from ctrlchan.controller.admin.topics import has_leaders
from ctrlchan.controller.core import ControllerCore
from ctrlchan.controller.server.core import ServerCore

__all__ = ["topics_without_leaders"]


async def topics_without_leaders(core: ServerCore, counts: Mapping[str, int], deadline: float) -> set[str]:
    """Wait until topics have so many partitions, all with leaders; return the names of those that have not.

    ``deadline``: monotonic seconds.
    """
    missing = dict(counts)

    def complete(controller: ControllerCore) -> bool:
        for name in [name for name, count in missing.items() if has_leaders(controller, name, count)]:
            del missing[name]
        return not missing

    left = deadline - monotonic()
    if missing and left > 0:
        await core.wait_until(complete, left)
    return set(missing)

"""The descriptors that new replicas leave for connections, and for segments of replicas that are there."""

from __future__ import annotations

import os
import resource
import sys
from typing import Final

from ctrlchan.errors import ErrorCode, KafkaError

__all__ = ["TooFewDescriptorsError", "demand_spare_descriptors", "has_spare_descriptors"]

#: One descriptor in twenty stays free, and so many at least.
_SHARE: Final = 20
_LEAST: Final = 32


class TooFewDescriptorsError(KafkaError):
    """A new log would take a descriptor that the logs and connections that are there may need."""

    def __init__(self, what: str, opened: int, limit: int) -> None:
        super().__init__(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"{what}: {opened} of {limit} descriptors are open, the rest is for the replicas that are there; "
            "raise the limit (ulimit -n)",
        )


def demand_spare_descriptors(what: str) -> None:
    """Raise TooFewDescriptorsError for ``what`` where nearly all descriptors are open.

    Each log has a descriptor. Without this check a new log would take the last one, and the next segment of
    any other log would take its log directory offline.
    """
    opened, limit = _opened()
    if opened >= limit - _kept(limit):
        raise TooFewDescriptorsError(what, opened, limit)


def has_spare_descriptors() -> bool:
    """Return whether new logs would get descriptors: as many again as are kept for those that are there."""
    opened, limit = _opened()
    return opened < limit - 2 * _kept(limit)


def _kept(limit: int) -> int:
    return max(_LEAST, limit // _SHARE)


def _opened() -> tuple[int, int]:
    """Return how many descriptors are open, as far as the kernel says without a list, and how many may be."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return 0, sys.maxsize
    try:
        # It is the lowest number that is free: all below are open.
        lowest = os.open(os.devnull, os.O_RDONLY)
    except OSError:
        return limit, limit
    os.close(lowest)
    return lowest, limit

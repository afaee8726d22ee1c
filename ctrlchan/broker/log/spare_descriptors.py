"""The descriptors that new replicas leave for connections, and for segments of replicas that are there."""

from __future__ import annotations

import os
import resource
from typing import Final

from ctrlchan.errors import ErrorCode, KafkaError

__all__ = ["demand_spare_descriptors"]

#: One descriptor in twenty stays free, and so many at least.
_SHARE: Final = 20
_LEAST: Final = 32


def demand_spare_descriptors(what: str) -> None:
    """Raise KafkaError (KAFKA_STORAGE_ERROR) for ``what`` where nearly all descriptors are open.

    Each log has a descriptor. Without this check a new log would take the last one, and the next segment of
    any other log would take its log directory offline.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return
    try:
        # It is the lowest number that is free: all below are open.
        lowest = os.open(os.devnull, os.O_RDONLY)
    except OSError as error:
        raise _refusal(what, limit, limit) from error
    os.close(lowest)
    if lowest >= limit - max(_LEAST, limit // _SHARE):
        raise _refusal(what, lowest, limit)


def _refusal(what: str, opened: int, limit: int) -> KafkaError:
    return KafkaError(
        ErrorCode.KAFKA_STORAGE_ERROR,
        f"{what}: {opened} of {limit} descriptors are open, the rest is for the replicas that are there; "
        "raise the limit (ulimit -n)",
    )

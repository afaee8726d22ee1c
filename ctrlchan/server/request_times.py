"""The times of requests: their parts, and buckets for percentiles. Source: ``RequestMetrics``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

__all__ = ["BOUNDS_MS", "TIME_PARTS", "PartTimes", "RequestTimes"]

#: The most milliseconds of each bucket; one more bucket has all that took longer.
BOUNDS_MS: Final = (
    0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1_000.0, 2_500.0, 5_000.0,
    10_000.0, 30_000.0,
)  # fmt: skip

#: Kafka's names of the parts, in their order, and of the whole.
TIME_PARTS: Final = (
    "RequestQueueTimeMs",
    "LocalTimeMs",
    "RemoteTimeMs",
    "ResponseQueueTimeMs",
    "ResponseSendTimeMs",
    "TotalTimeMs",
)


class PartTimes(NamedTuple):
    """How many requests were in each bucket, and the sum of their times."""

    numbers: Sequence[int]
    total_ns: int


class RequestTimes(NamedTuple):
    """The times of the requests of one API whose answers are sent. ``parts``: as in ``TIME_PARTS``."""

    requests: int
    parts: tuple[PartTimes, ...]

"""Buckets of the times of requests: how many took how long, for percentiles (``RequestMetrics`` of Kafka)."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

__all__ = ["BOUNDS_MS", "bucket_of", "no_times"]

#: The most milliseconds of each bucket; one more bucket has all that took longer.
BOUNDS_MS: Final = (
    0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1_000.0, 2_500.0, 5_000.0,
    10_000.0, 30_000.0,
)  # fmt: skip


def bucket_of(milliseconds: float) -> int:
    """Return the number of the bucket of a time."""
    return bisect_left(BOUNDS_MS, milliseconds)


def no_times() -> list[int]:
    """Return the counts of all buckets before the first request."""
    return [0] * (len(BOUNDS_MS) + 1)

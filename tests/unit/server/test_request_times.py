"""The buckets of the times of requests."""

from __future__ import annotations

import pytest

from ctrlchan.server.api import Reply
from ctrlchan.server.request_handler import ApiCounters
from ctrlchan.server.request_times import BOUNDS_MS, bucket_of, no_times


def test_a_bucket_has_its_bound_and_all_down_to_the_one_before() -> None:
    assert sorted(BOUNDS_MS) == list(BOUNDS_MS)
    for bucket, bound in enumerate(BOUNDS_MS):
        assert bucket_of(bound) == bucket
        assert bucket_of(bound * 1.001) == bucket + 1
    assert len(no_times()) == bucket_of(float("inf")) + 1


@pytest.mark.parametrize(("seconds", "bound"), [(0.0, 0.05), (0.0004, 0.5), (2, 2_500)])
def test_requests_of_handler_threads_are_counted_by_their_time(seconds: float, bound: float) -> None:
    counters = ApiCounters()
    counters.count(Reply(b""), 10, 20, seconds)
    assert counters.times[BOUNDS_MS.index(bound)] == 1
    assert sum(counters.times) == 1

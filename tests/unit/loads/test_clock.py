"""When operations are due: a stall of the cluster is in the latencies of all that it has delayed."""

from __future__ import annotations

import numpy as np
import pytest
from hdrh.histogram import HdrHistogram

from ctrlchan.loads.clock import due_times
from ctrlchan.loads.latencies import Latencies


class Time:
    """A clock that only waiting and working move."""

    def __init__(self) -> None:
        self.now = 100.0
        self.idled = 0

    def clock(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.idled += 1
        # A client that waits for whole milliseconds, and ends its wait early.
        self.now += min(seconds, 0.004)


def due(time: Time, rate: float, seconds: float, stop_at: float = np.inf) -> list[tuple[float, float]]:
    """Return (due, begun) of each operation; one takes 0.1 ms, the tenth 2 s."""
    found = []
    for number, one in enumerate(
        due_times(
            100.0,
            100.0 + seconds,
            rate,
            time.wait,
            lambda: time.now >= stop_at,
            clock=time.clock,
            sleep=time.wait,
        )
    ):
        found.append((one, time.now))
        time.now += 2.0 if number == 9 else 0.0001
    return found


def test_operations_are_due_at_the_rate_whatever_the_cluster_does() -> None:
    found = due(Time(), 100, 5)
    assert [one for one, _ in found] == pytest.approx([100 + n / 100 for n in range(500)])
    assert all(begun >= one - 1e-9 for one, begun in found)


def test_a_stall_counts_for_all_that_it_has_delayed() -> None:
    found = due(Time(), 100, 5)
    corrected, plain = Latencies(), Latencies()
    for number, (one, begun) in enumerate(found):
        end = begun + (2.0 if number == 9 else 0.0001)
        corrected.record(end - one)
        plain.record(end - begun)
    # From its beginning only one operation of 500 is slow; from when they were due 200 are, of up to 2 s.
    assert plain.milliseconds([99.0]) == pytest.approx([0.1], rel=1e-2)
    assert corrected.milliseconds([99.0])[0] > 1900
    # HdrHistogram's own correction agrees, which guesses what a client that waits for each answer leaves out:
    # in the same 5 s it would do 200 operations less.
    guessed = HdrHistogram(1, 3_600_000_000, 3)
    for number in range(len(found) - 200):
        guessed.record_corrected_value(2_000_000 if number == 9 else 100, 10_000)
    for percentile in (50.0, 75.0, 90.0, 99.0):
        ours = corrected.milliseconds([percentile])[0]
        assert ours == pytest.approx(guessed.get_value_at_percentile(percentile) / 1e3, rel=0.05)


def test_without_a_rate_an_operation_is_due_when_it_begins() -> None:
    time = Time()
    found = due(time, 0, 5)
    assert all(one == begun for one, begun in found)
    assert len(found) == 9 + 1 + 29_991
    assert time.idled == 0


def test_a_stop_ends_the_wait_for_the_next_operation() -> None:
    assert len(due(Time(), 1, 1000, stop_at=102.5)) == 3
    assert len(due(Time(), 0, 1000, stop_at=100.00045)) == 5

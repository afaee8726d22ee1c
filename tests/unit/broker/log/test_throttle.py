"""The rate of the cleaner's threads, on a clock that moves when somebody sleeps."""

from __future__ import annotations

import math

from ctrlchan.broker.log.throttle import Throttle


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert 0 < seconds <= 0.3
        self.now += seconds


def test_the_rate_holds() -> None:
    clock = Clock()
    throttle = Throttle(1_000, clock, clock.sleep)
    for _ in range(100):
        throttle.take(100)
    # What was not used just before the begin counts.
    assert 9.6 <= clock.now - 100 <= 10


def test_without_a_limit_nobody_sleeps() -> None:
    clock = Clock()
    for rate in (math.inf, 1.7976931348623157e308):
        Throttle(rate, clock, clock.sleep).take(10**12)
    assert clock.now == 100


def test_another_rate_counts_at_once() -> None:
    clock = Clock()
    throttle = Throttle(1, clock, clock.sleep)
    throttle.take(10)
    assert clock.now > 109
    throttle.use(1_000_000)
    throttle.take(1_000)
    assert clock.now < 111


def test_who_is_stopped_does_not_wait_for_the_rate() -> None:
    clock = Clock()
    throttle = Throttle(1, clock, clock.sleep)
    throttle.take(1_000_000, lambda: clock.now > 101)
    assert clock.now < 102

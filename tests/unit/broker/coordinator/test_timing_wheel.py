"""The timing wheel calls every timer once, in order, never early: it behaves as a sorted list."""

from __future__ import annotations

import math
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from ctrlchan.broker.coordinator.common.timing_wheel import Timer, TimingWheel


class _Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


_DELAYS = st.one_of(
    st.integers(-5, 500),
    st.integers(0, 200_000_000),
    st.sampled_from([0, 1, 19, 20, 21, 399, 400, 401, 7_999, 8_000, 8_001, 160_000]),
)
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("start"), _DELAYS),
        st.tuples(st.just("cancel"), st.integers(0, 100)),
        st.tuples(st.just("advance"), st.one_of(st.integers(0, 450), st.integers(0, 50_000_000))),
    ),
    max_size=60,
)


@given(_STEPS, st.integers(0, 10_000_000_000))
def test_timers_are_called_as_from_a_sorted_list(steps: list[tuple[str, int]], start: int) -> None:
    clock = _Clock()
    clock.now = start / 1000
    wheel = TimingWheel(clock)
    timers: dict[int, tuple[int, Timer]] = {}
    called: list[int] = []
    now = start
    advanced = start

    def check() -> None:
        nonlocal advanced
        called.clear()
        due_before = wheel.next_due()
        assert wheel.advance(clock.now) == len(called)
        # One that was due at once has the tick after that of the last advance.
        due = [number for number, (at, _) in timers.items() if max(at, 0) <= now]
        assert sorted(called) == sorted(due)
        times = [timers[number][0] for number in called]
        assert times == sorted(times)
        if called:
            assert due_before is not None
            assert due_before <= clock.now
        for number in called:
            del timers[number]
        assert len(wheel) == len(timers)
        advanced = now

    for number, (step, value) in enumerate(steps):
        if step == "start":
            at = max(now + value, advanced + 1)
            timers[number] = at, wheel.after(value / 1000, _calls(called, number))
        elif step == "cancel" and timers:
            chosen = sorted(timers)[value % len(timers)]
            timers.pop(chosen)[1].cancel()
            assert len(wheel) == len(timers)
        elif step == "advance":
            now += value
            clock.now = now / 1000
            check()
    now += 300_000_000
    clock.now = now / 1000
    check()
    assert not timers
    assert wheel.next_due() is None


def _calls(called: list[int], number: int) -> Callable[[], None]:
    return lambda: called.append(number)


def test_next_due_leads_to_every_timer_without_waiting_longer_than_needed() -> None:
    clock = _Clock()
    wheel = TimingWheel(clock)
    called: list[float] = []
    for milliseconds in (3, 59, 7_777, 123_456_789):
        wheel.after(milliseconds / 1000, lambda: called.append(clock.now))
    turns = 0
    while (due := wheel.next_due()) is not None:
        clock.now = due
        wheel.advance(due)
        turns += 1
    assert [round(at * 1000) for at in called] == [3, 59, 7_777, 123_456_789]
    assert turns < 20  # one for each wheel that a timer goes through


def test_a_callback_may_start_and_cancel_timers_and_fail() -> None:
    clock = _Clock()
    wheel = TimingWheel(clock)
    called: list[str] = []

    def first() -> None:
        called.append("first")
        later.cancel()
        wheel.after(0.001, lambda: called.append("started in a callback"))
        raise RuntimeError("a mistake of a callback")

    wheel.after(0.005, first)
    later = wheel.after(0.006, lambda: called.append("cancelled"))
    clock.now = 0.1
    wheel.advance(clock.now)
    clock.now = 0.2
    wheel.advance(clock.now)
    assert called == ["first", "started in a callback"]
    later.cancel()  # again, after the end
    assert len(wheel) == 0


def test_a_cancelled_timer_of_the_same_tick_is_not_called() -> None:
    clock = _Clock()
    wheel = TimingWheel(clock)
    called: list[str] = []
    timers: list[Timer] = []

    def call(name: str) -> Callable[[], None]:
        def callback() -> None:
            called.append(name)
            for timer in timers:
                timer.cancel()

        return callback

    timers += [wheel.after(0.005, call(name)) for name in "ab"]
    clock.now = 0.005
    assert wheel.advance(clock.now) == 1
    assert len(called) == 1


def test_a_fraction_of_a_tick_is_never_early() -> None:
    clock = _Clock()
    clock.now = math.pi
    wheel = TimingWheel(clock)
    called: list[int] = []
    wheel.after(0.0101, lambda: called.append(1))
    wheel.advance(math.pi + 0.0100)
    assert not called
    wheel.advance(math.pi + 0.0112)
    assert called

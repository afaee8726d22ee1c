"""The timing wheel beside a plain list of deadlines."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ctrlchan.server._processor import PlainTimingWheel

DISTANCES = st.one_of(
    st.integers(-5, 200), st.integers(0, 2**31), st.sampled_from([63, 64, 65, 4095, 4096, 4097])
)
STEPS = st.lists(st.tuples(st.sampled_from(["start", "stop", "advance", "next"]), DISTANCES), max_size=60)


@given(begin=st.integers(0, 2**45), steps=STEPS)
def test_timers_expire_once_and_in_order(begin: int, steps: list[tuple[str, int]]) -> None:
    wheel = PlainTimingWheel(begin)
    now = begin
    running: dict[int, int] = {}
    started = 0
    for step, number in steps:
        if step == "start":
            timer = wheel.start(now + number)
            assert timer == started
            started += 1
            running[timer] = max(now + number, now + 1)
        elif step == "stop" and started:
            timer = number % started
            assert wheel.stop(timer) == (running.pop(timer, None) is not None)
        elif step == "advance":
            now += max(number, 0)
            expired = wheel.advance(now)
            assert sorted(expired) == sorted(timer for timer, deadline in running.items() if deadline <= now)
            assert [running[timer] for timer in expired] == sorted(running[timer] for timer in expired)
            for timer in expired:
                del running[timer]
        elif running:
            # The wheel may ask to be looked at early, never late.
            assert now <= wheel.next_at() <= min(running.values())
        else:
            assert wheel.next_at() == -1
    wheel.advance(now + 2**40)
    assert wheel.next_at() == -1


def test_waiting_by_the_wheel_takes_few_steps() -> None:
    wheel = PlainTimingWheel(0)
    wheel.start(30_000_000)
    looks = 0
    while (at := wheel.next_at()) >= 0:
        wheel.advance(at)
        looks += 1
    assert looks <= 8

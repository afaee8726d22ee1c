"""Timers on a thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from ctrlchan.broker.coordinator.timer_thread import TimerThread

DEADLINE = 60.0


@pytest.fixture
def timers() -> Iterator[TimerThread]:
    thread = TimerThread("timers-of-a-test")
    thread.start()
    yield thread
    thread.stop()


def test_a_timer_is_called_on_the_thread_and_not_early(timers: TimerThread) -> None:
    called = threading.Event()
    names: list[tuple[str, float]] = []

    def note() -> None:
        names.append((threading.current_thread().name, time.monotonic()))
        called.set()

    began = time.monotonic()
    timers.after(0.05, note)
    assert called.wait(DEADLINE)
    [(name, at)] = names
    assert name == "timers-of-a-test"
    assert at >= began + 0.05 - 0.001


def test_a_nearer_timer_wakes_the_thread(timers: TimerThread) -> None:
    timers.after(3600, lambda: None)
    called = threading.Event()
    timers.after(0.01, called.set)
    assert called.wait(DEADLINE)
    assert len(timers) == 1


def test_timers_started_by_many_threads_are_all_called(timers: TimerThread) -> None:
    called = threading.Semaphore(0)
    threads = [
        threading.Thread(target=lambda: [timers.after(i % 7 / 1000, called.release) for i in range(200)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for _ in range(800):
        assert called.acquire(timeout=DEADLINE)
    for thread in threads:
        thread.join()


def test_a_cancelled_timer_is_not_called(timers: TimerThread) -> None:
    called: list[int] = []
    timers.after(0.03, lambda: called.append(1)).cancel()
    done = threading.Event()
    timers.after(0.05, done.set)
    assert done.wait(DEADLINE)
    assert not called


def test_stop_ends_the_thread_also_from_a_callback() -> None:
    thread = TimerThread("timers-of-a-test")
    stopped = threading.Event()

    def stop() -> None:
        thread.stop()
        stopped.set()

    thread.after(0, stop)
    thread.start()
    assert stopped.wait(DEADLINE)
    thread.stop()
    thread.after(0, pytest.fail)
    assert len(thread) == 1

"""Operations are completed once: by their condition, or by their time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from ctrlchan.broker.coordinator.common.purgatory import DelayedOperation, Purgatory
from ctrlchan.broker.coordinator.common.timing_wheel import TimingWheel


class _Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class _Operation(DelayedOperation):
    def __init__(self, seconds: float = 1.0) -> None:
        super().__init__(seconds)
        self.ready = False
        self.events: list[str] = []

    def try_complete(self) -> bool:
        return self.ready and self.force_complete()

    def on_complete(self) -> None:
        self.events.append("complete")

    def on_expiration(self) -> None:
        self.events.append("expired")


class _Rig:
    def __init__(self) -> None:
        self.clock = _Clock()
        self.timers = TimingWheel(self.clock)
        self.purgatory = Purgatory(self.timers)

    def advance(self, seconds: float) -> None:
        self.clock.now += seconds
        self.timers.advance(self.clock.now)


def test_an_operation_that_is_ready_does_not_wait() -> None:
    rig = _Rig()
    operation = _Operation()
    operation.ready = True
    assert rig.purgatory.try_complete_else_watch(operation, "a")
    assert operation.events == ["complete"]
    assert len(rig.purgatory) == len(rig.timers) == 0


def test_an_operation_is_completed_by_any_of_its_keys() -> None:
    rig = _Rig()
    operation, other = _Operation(), _Operation()
    assert not rig.purgatory.try_complete_else_watch(operation, "a", "b")
    assert not rig.purgatory.try_complete_else_watch(other, "b")
    assert len(rig.purgatory) == 3
    assert rig.purgatory.check_and_complete("b") == 0
    operation.ready = True
    assert rig.purgatory.check_and_complete("c") == 0
    assert rig.purgatory.check_and_complete("b") == 1
    assert rig.purgatory.check_and_complete("a") == 0
    assert operation.events == ["complete"]
    assert len(rig.purgatory) == len(rig.timers) == 1
    rig.advance(2)
    assert operation.events == ["complete"]


def test_an_operation_ends_with_its_time() -> None:
    rig = _Rig()
    operation = _Operation()
    rig.purgatory.try_complete_else_watch(operation, "a")
    rig.advance(0.999)
    assert not operation.completed
    rig.advance(0.001)
    assert operation.events == ["complete", "expired"]
    operation.ready = True
    assert rig.purgatory.check_and_complete("a") == 0
    assert len(rig.purgatory) == len(rig.timers) == 0


def test_a_condition_that_comes_true_while_the_operation_is_watched_is_seen() -> None:
    class _Late(_Operation):
        def try_complete(self) -> bool:
            ready, self.ready = self.ready, True
            return ready and self.force_complete()

    rig = _Rig()
    operation = _Late()
    assert rig.purgatory.try_complete_else_watch(operation, "a")
    assert operation.events == ["complete"]
    assert len(rig.purgatory) == len(rig.timers) == 0


def test_many_threads_complete_an_operation_once() -> None:
    rig = _Rig()
    for _ in range(50):
        operation = _Operation()
        rig.purgatory.try_complete_else_watch(operation, "a")
        operation.ready = True
        with ThreadPoolExecutor(4) as threads:
            calls = [threads.submit(rig.purgatory.check_and_complete, "a") for _ in range(4)]
            rig.advance(1)
        assert operation.events.count("complete") == 1
        assert sum(call.result() for call in calls) + operation.events.count("expired") == 1
        assert len(rig.purgatory) == len(rig.timers) == 0

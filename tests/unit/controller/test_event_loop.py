"""The controller's queue of events: order, failures, futures, timers, waits, the end.

Twins of Kafka's ``ControllerEventManagerTest``, and what is different on purpose.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace

import pytest

from ctrlchan.controller.events.event import ControllerState, Event
from ctrlchan.controller.events.event_loop import EventLoop
from ctrlchan.errors import ControllerMovedError, ErrorCode, IllegalStateError, KafkaError, NotControllerError
from tests.kafka.waiting import wait_until

TIMEOUT = 30.0


class Core:
    """What handlers share, as far as these tests need it."""

    def __init__(self) -> None:
        self.count = 0


class Recorded:
    """An event loop whose core, failures and metrics the test can look at."""

    def __init__(self) -> None:
        self.core: Core | None = Core()
        self.failures: list[tuple[str, BaseException]] = []
        self.started: list[tuple[ControllerState, float]] = []
        self.ended: list[tuple[ControllerState, float]] = []
        self.processed = 0
        self.loop: EventLoop[Core] = EventLoop(
            "test-events",
            lambda: self.core,
            lambda event, error: self.failures.append((event.name, error)),
            processed=self._count,
            metrics=self,
        )

    def event_started(self, state: ControllerState, queue_time_ms: float) -> None:
        self.started.append((state, queue_time_ms))

    def event_ended(self, state: ControllerState, time_ms: float) -> None:
        self.ended.append((state, time_ms))

    def _count(self) -> None:
        self.processed += 1

    def flush(self) -> None:
        """Wait until all events that were put before have been processed."""
        done = threading.Event()
        self.loop.put(Event(ControllerState.IDLE, "Flush", done.set, done.set))
        assert done.wait(TIMEOUT)


@pytest.fixture
def recorded() -> Iterator[Recorded]:
    recorded = Recorded()
    recorded.loop.start()
    yield recorded
    recorded.loop.close(nothing("Shutdown"))


def nothing(name: str, state: ControllerState = ControllerState.CONTROLLER_CHANGE) -> Event:
    return Event(state, name, lambda: None)


def appending(seen: list[str], name: str) -> Event:
    return Event(
        ControllerState.TOPIC_CHANGE, name, lambda: seen.append(name), lambda: seen.append(f"no {name}")
    )


class Blocked:
    """Holds the loop in one event until the end of the ``with`` block."""

    def __init__(self, recorded: Recorded) -> None:
        self._begun, self._go_on = threading.Event(), threading.Event()
        self._recorded = recorded

    def __enter__(self) -> None:
        def wait() -> None:
            self._begun.set()
            assert self._go_on.wait(TIMEOUT)

        self._recorded.loop.put(Event(ControllerState.BROKER_CHANGE, "Blocked", wait))
        assert self._begun.wait(TIMEOUT)

    def __exit__(self, *_: object) -> None:
        self._go_on.set()


# -- twins of ControllerEventManagerTest


def test_successful_event(recorded: Recorded) -> None:
    recorded.loop.put(nothing("BrokerChange", ControllerState.BROKER_CHANGE))
    recorded.flush()
    assert recorded.failures == []
    assert [state for state, _ in recorded.ended] == [ControllerState.BROKER_CHANGE]


def test_event_that_raises(recorded: Recorded) -> None:
    """An exception is given to ``failed``, its event is measured, and the loop goes on."""
    error = RuntimeError("broken")

    def fail() -> None:
        raise error

    seen: list[str] = []
    recorded.loop.put(Event(ControllerState.BROKER_CHANGE, "BrokerChange", fail))
    recorded.loop.put(appending(seen, "next"))
    recorded.flush()
    assert recorded.failures == [("BrokerChange", error)]
    assert seen == ["next"]
    assert [state for state, _ in recorded.ended] == [
        ControllerState.BROKER_CHANGE,
        ControllerState.TOPIC_CHANGE,
    ]


def test_events_without_a_metric_have_no_name() -> None:
    assert ControllerState.IDLE.rate_and_time_metric is None
    assert ControllerState.UPDATE_METADATA_RESPONSE_RECEIVED.rate_and_time_metric is None


def test_names_of_metrics_are_kafkas() -> None:
    names = {state.rate_and_time_metric for state in ControllerState}
    assert names >= {
        "ControllerChangeRateAndTimeMs",
        "LeaderElectionRateAndTimeMs",
        "PartitionReassignmentRateAndTimeMs",
        "TopicUncleanLeaderElectionEnableRateAndTimeMs",
        "LeaderAndIsrResponseReceivedRateAndTimeMs",
        "IsrChangeRateAndTimeMs",
    }


def test_queue_time_is_measured(recorded: Recorded) -> None:
    with Blocked(recorded):
        recorded.loop.put(nothing("TopicChange", ControllerState.TOPIC_CHANGE))
        recorded.loop.put(nothing("TopicChange", ControllerState.TOPIC_CHANGE))
        assert recorded.loop.queue_size == 2
        assert recorded.loop.state is ControllerState.BROKER_CHANGE
    recorded.flush()
    assert [state for state, _ in recorded.started] == [
        ControllerState.BROKER_CHANGE,
        ControllerState.TOPIC_CHANGE,
        ControllerState.TOPIC_CHANGE,
    ]
    assert all(milliseconds >= 0 for _, milliseconds in recorded.started)


# -- order, clearing, the end


def test_events_are_processed_in_the_order_in_which_they_were_put(recorded: Recorded) -> None:
    seen: list[str] = []
    names = [str(number) for number in range(1_000)]
    for name in names:
        recorded.loop.put(appending(seen, name))
    recorded.flush()
    assert seen == names
    assert recorded.processed == len(names) + 1


def test_clearing_preempts_what_waits(recorded: Recorded) -> None:
    seen: list[str] = []
    with Blocked(recorded):
        recorded.loop.put(appending(seen, "first"))
        answer = recorded.loop.call(ControllerState.ISR_CHANGE, lambda core: core.count)
        recorded.loop.clear_and_put(appending(seen, "expired"))
        assert seen == ["no first"]
        with pytest.raises(NotControllerError):
            answer.result(TIMEOUT)
    recorded.flush()
    assert seen == ["no first", "expired"]


def test_clearing_keeps_the_events_of_elections(recorded: Recorded) -> None:
    seen: list[str] = []
    with Blocked(recorded):
        for name in ("connected", "controller change"):
            recorded.loop.put(replace(appending(seen, name), is_of_election=True))
            recorded.loop.put(appending(seen, "of the term"))
        recorded.loop.clear_and_put(appending(seen, "silence"))
        assert seen == ["no of the term", "no of the term"]
    recorded.flush()
    assert seen[2:] == ["silence", "connected", "controller change"]


def test_close_processes_one_last_event() -> None:
    recorded, seen = Recorded(), list[str]()
    recorded.loop.start()
    blocked = Blocked(recorded)
    with blocked:
        recorded.loop.put(appending(seen, "waiting"))
        closing = threading.Thread(target=recorded.loop.close, args=(appending(seen, "last"),))
        closing.start()
        wait_until(lambda: "no waiting" in seen, what="the event that waits is preempted")
    closing.join(TIMEOUT)
    assert seen == ["no waiting", "last"]
    recorded.loop.put(appending(seen, "late"))
    assert seen == ["no waiting", "last", "no late"]
    recorded.loop.close(nothing("again"))


def test_close_without_start_processes_the_last_event() -> None:
    seen: list[str] = []
    Recorded().loop.close(appending(seen, "last"))
    assert seen == ["last"]


# -- calls


def test_a_call_returns_the_result(recorded: Recorded) -> None:
    def count(core: Core) -> int:
        core.count += 1
        return core.count

    assert recorded.loop.call(ControllerState.ISR_CHANGE, count).result(TIMEOUT) == 1
    assert recorded.loop.call(ControllerState.ISR_CHANGE, count).result(TIMEOUT) == 2


def test_a_call_fails_when_this_is_not_the_controller(recorded: Recorded) -> None:
    recorded.core = None
    answer = recorded.loop.call(ControllerState.ISR_CHANGE, lambda core: core.count)
    with pytest.raises(NotControllerError) as raised:
        answer.result(TIMEOUT)
    assert raised.value.code == ErrorCode.NOT_CONTROLLER
    assert recorded.failures == []


def test_an_error_that_is_an_answer_is_no_failure(recorded: Recorded) -> None:
    def refuse(_: Core) -> None:
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, "old")

    with pytest.raises(KafkaError, match="old"):
        recorded.loop.call(ControllerState.CONTROLLED_SHUTDOWN, refuse).result(TIMEOUT)
    recorded.flush()
    assert recorded.failures == []


@pytest.mark.parametrize(
    ("error", "answer"),
    [(ControllerMovedError("moved"), NotControllerError), (IllegalStateError("batch"), IllegalStateError)],
)
def test_errors_that_end_the_term_are_given_to_the_controller_too(
    recorded: Recorded, error: Exception, answer: type[Exception]
) -> None:
    def fail(_: Core) -> None:
        raise error

    with pytest.raises(answer):
        recorded.loop.call(ControllerState.ISR_CHANGE, fail, "AlterPartition").result(TIMEOUT)
    recorded.flush()
    assert recorded.failures == [("AlterPartition", error)]


def test_a_cancelled_call_does_not_run(recorded: Recorded) -> None:
    seen: list[int] = []
    with Blocked(recorded):
        answer: Future[None] = recorded.loop.call(
            ControllerState.ISR_CHANGE, lambda core: seen.append(core.count)
        )
        assert answer.cancel()
    recorded.flush()
    assert seen == []


# -- calls that are answered together


def named(seen: list[list[str]]) -> Callable[[Core, Sequence[str]], list[str | Exception]]:
    """Return a function that keeps the arguments of each of its runs, and answers ``bad`` with an error."""

    def answer(core: Core, arguments: Sequence[str]) -> list[str | Exception]:
        seen.append(list(arguments))
        bad = KafkaError(ErrorCode.INVALID_REQUEST, "bad")
        return [bad if one == "bad" else f"{one} is done" for one in arguments]

    return answer


def test_calls_of_a_function_that_follow_each_other_are_answered_together(recorded: Recorded) -> None:
    seen: list[list[str]] = []
    function, other = named(seen), named(seen)
    with Blocked(recorded):
        first = [recorded.loop.call_jointly(ControllerState.ISR_CHANGE, function, one) for one in "ab"]
        recorded.loop.put(nothing("BrokerChange"))
        then = [recorded.loop.call_jointly(ControllerState.ISR_CHANGE, function, one) for one in "cd"]
        then.append(recorded.loop.call_jointly(ControllerState.ISR_CHANGE, other, "e"))
        then.append(recorded.loop.call_jointly(ControllerState.ISR_CHANGE, other, "f"))
    assert [one.result(TIMEOUT) for one in first + then] == [f"{one} is done" for one in "abcdef"]
    assert seen == [["a", "b"], ["c", "d"], ["e", "f"]]
    recorded.flush()
    # Each of them is an event in the metrics.
    kinds = [state for state, _ in recorded.ended]
    assert [state for state, _ in recorded.started] == kinds
    assert kinds.count(ControllerState.ISR_CHANGE) == 6


def test_each_of_the_calls_has_its_own_error(recorded: Recorded) -> None:
    seen: list[list[str]] = []
    function = named(seen)
    with Blocked(recorded):
        answers = [
            recorded.loop.call_jointly(ControllerState.ISR_CHANGE, function, one)
            for one in ("good", "bad", "cancelled", "last")
        ]
        assert answers[2].cancel()
    assert (answers[0].result(TIMEOUT), answers[3].result(TIMEOUT)) == ("good is done", "last is done")
    with pytest.raises(KafkaError, match="bad"):
        answers[1].result(TIMEOUT)
    assert seen == [["good", "bad", "last"]]
    assert recorded.failures == []


@pytest.mark.parametrize(
    ("error", "answer", "fails"),
    [
        (ControllerMovedError("moved"), NotControllerError, True),
        (IllegalStateError("batch"), IllegalStateError, True),
        (KafkaError(ErrorCode.INVALID_REQUEST, "all"), KafkaError, False),
    ],
)
def test_an_error_of_the_function_is_that_of_all_calls(
    recorded: Recorded, error: Exception, answer: type[Exception], fails: bool
) -> None:
    def fail(core: Core, arguments: Sequence[str]) -> list[str | Exception]:
        raise error

    with Blocked(recorded):
        answers = [
            recorded.loop.call_jointly(ControllerState.ISR_CHANGE, fail, one, "AlterPartition")
            for one in "ab"
        ]
    for one in answers:
        with pytest.raises(answer):
            one.result(TIMEOUT)
    recorded.flush()
    assert recorded.failures == ([("AlterPartition", error)] if fails else [])


def test_calls_that_wait_end_with_the_term(recorded: Recorded) -> None:
    seen: list[list[str]] = []
    function = named(seen)
    with Blocked(recorded):
        cleared = [recorded.loop.call_jointly(ControllerState.ISR_CHANGE, function, one) for one in "ab"]
        recorded.loop.clear_and_put(nothing("Expire"))
        recorded.core = None
        late = [recorded.loop.call_jointly(ControllerState.ISR_CHANGE, function, one) for one in "cd"]
    for one in cleared + late:
        with pytest.raises(NotControllerError):
            one.result(TIMEOUT)
    assert seen == []


# -- waits and timers


def test_a_wait_ends_when_its_condition_holds(recorded: Recorded) -> None:
    reached = recorded.loop.wait_until(lambda core: core.count >= 2, TIMEOUT)

    def count(core: Core) -> None:
        core.count += 1

    recorded.loop.call(ControllerState.TOPIC_CHANGE, count).result(TIMEOUT)
    recorded.flush()
    assert not reached.done()
    recorded.loop.call(ControllerState.TOPIC_CHANGE, count).result(TIMEOUT)
    assert reached.result(TIMEOUT) is True


def test_a_condition_that_holds_already_ends_the_wait_at_once(recorded: Recorded) -> None:
    assert recorded.loop.wait_until(lambda core: core.count == 0, TIMEOUT).result(TIMEOUT) is True


def test_a_wait_ends_at_its_deadline(recorded: Recorded) -> None:
    assert recorded.loop.wait_until(lambda core: core.count > 0, 0.0).result(TIMEOUT) is False


def test_what_holds_after_the_deadline_does_not_count(recorded: Recorded) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def busy(core: Core) -> None:
        entered.set()
        assert go_on.wait(TIMEOUT)
        core.count += 1

    call = recorded.loop.call(ControllerState.TOPIC_CHANGE, busy)
    assert entered.wait(TIMEOUT)
    late = recorded.loop.wait_until(lambda core: core.count > 0, 0.001)
    in_time = recorded.loop.wait_until(lambda core: core.count > 0, TIMEOUT)
    # The event ends after the first deadline.
    deadline = time.monotonic() + 0.001
    wait_until(lambda: time.monotonic() > deadline, what="the first wait is over")
    go_on.set()
    call.result(TIMEOUT)
    assert (late.result(TIMEOUT), in_time.result(TIMEOUT)) == (False, True)


def test_a_wait_fails_when_the_term_ends(recorded: Recorded) -> None:
    wait = recorded.loop.wait_until(lambda core: core.count > 0, TIMEOUT)
    recorded.flush()

    def resign() -> None:
        recorded.core = None

    recorded.loop.put(Event(ControllerState.CONTROLLER_CHANGE, "Resign", resign))
    with pytest.raises(NotControllerError):
        wait.result(TIMEOUT)


def test_a_wait_fails_with_what_its_condition_raises(recorded: Recorded) -> None:
    def condition(_: Core) -> bool:
        raise KeyError("gone")

    with pytest.raises(KeyError):
        recorded.loop.wait_until(condition, TIMEOUT).result(TIMEOUT)
    recorded.flush()
    assert recorded.failures == []


def test_a_wait_fails_when_the_loop_is_closed() -> None:
    recorded = Recorded()
    recorded.loop.start()
    wait = recorded.loop.wait_until(lambda core: core.count > 0, TIMEOUT)
    recorded.flush()
    recorded.loop.close(nothing("Shutdown"))
    with pytest.raises(NotControllerError):
        wait.result(TIMEOUT)


def test_timers_put_their_events_in_the_order_of_their_times(recorded: Recorded) -> None:
    seen: list[str] = []
    with Blocked(recorded):
        recorded.loop.schedule(appending(seen, "second"), 0.02)
        recorded.loop.schedule(appending(seen, "first"), 0.01)
        recorded.loop.schedule(appending(seen, "cancelled"), 0.01).cancel()
    last = threading.Event()
    recorded.loop.schedule(Event(ControllerState.IDLE, "Last", last.set), 0.05)
    assert last.wait(TIMEOUT)
    assert seen == ["first", "second"]

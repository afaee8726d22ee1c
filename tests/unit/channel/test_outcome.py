"""Sent, Outcome, futures and listeners."""

from __future__ import annotations

import gc
import weakref
from concurrent.futures import CancelledError, wait

import numpy as np
import pytest

from ctrlchan.channel.outcome import (
    Countdown,
    Outcome,
    OutcomeKind,
    RequestResult,
    Sent,
    partition_errors_text,
    publish,
)
from ctrlchan.channel.wire.records import REPORT, Report
from tests.fault.requests import update


def end(sent: Sent, result: RequestResult, report: Report | None = None) -> Outcome:
    """End a request, publish its outcome and call its listeners."""
    outcome = Outcome(sent, result, report, 900)
    sent.end(outcome)
    assert sent.outcome is None
    for listener, one in publish([sent]):
        listener.finished(one)
    assert sent.outcome is outcome
    return outcome


def test_an_outcome_has_the_fields_of_the_report() -> None:
    sent = Sent(3, update(5), None, 100)
    sent.sender_deaths = 2
    report = Report._make(REPORT.unpack(REPORT.pack(1, 0, 2, 8, 1, 4, 17, 200, 300, 400, 0, 0, b"ab")))
    outcome = end(sent, RequestResult(OutcomeKind.REFUSED, 31, None, "CLUSTER_AUTHORIZATION_FAILED"), report)
    assert outcome.kind is OutcomeKind.REFUSED
    assert outcome.error_code == 31
    assert (outcome.broker_id, outcome.api_key, outcome.version, outcome.rows) == (3, 6, 8, 1)
    assert outcome.attempts == 6
    assert outcome.correlation_id == 17
    times = [
        outcome.enqueued_ns,
        outcome.first_byte_ns,
        outcome.last_byte_ns,
        outcome.response_ns,
        outcome.completed_ns,
    ]
    assert times == [100, 200, 300, 400, 900]
    assert "broker 3: refused error_code=31 (CLUSTER_AUTHORIZATION_FAILED)" in repr(outcome)


def test_an_outcome_without_a_response_has_no_attempts_and_no_times() -> None:
    outcome = end(Sent(3, update(), None, 100), RequestResult(OutcomeKind.BROKER_GONE))
    assert outcome.attempts == 0
    assert outcome.correlation_id == -1
    assert outcome.first_byte_ns == outcome.last_byte_ns == outcome.response_ns == 0
    assert outcome.response is None


def test_a_future_made_before_and_one_made_after_the_end() -> None:
    early, late = Sent(1, update(), None, 0), Sent(2, update(), None, 0)
    future = early.future
    assert future is early.future
    assert not future.done()
    for sent in (early, late):
        end(sent, RequestResult(OutcomeKind.ACKNOWLEDGED))
        assert sent.done
    assert future.result(0) is early.outcome
    assert late.future.result(0) is late.outcome
    assert wait([early.future, late.future], 0).not_done == set()


def test_a_future_cannot_be_cancelled() -> None:
    sent = Sent(1, update(), None, 0)
    assert not sent.future.cancel()
    end(sent, RequestResult(OutcomeKind.ACKNOWLEDGED))
    try:
        sent.future.result(0)
    except CancelledError:
        pytest.fail("cancelled")


def test_repr_of_sent_shows_its_state() -> None:
    sent = Sent(4, update(), None, 0)
    assert "broker 4: unfinished" in repr(sent)
    end(sent, RequestResult(OutcomeKind.TOO_LARGE))
    assert "broker 4: too large" in repr(sent)


class Hearer:
    """Counts the requests that have ended."""

    def __init__(self) -> None:
        self.heard: list[Sent] = []

    def finished(self, sent: Sent) -> None:
        self.heard.append(sent)


def test_a_countdown_ends_with_the_last_of_its_requests_beside_other_listeners() -> None:
    first, second, third = (Sent(broker_id, update(), None, 0) for broker_id in (1, 2, 3))
    end(first, RequestResult(OutcomeKind.ACKNOWLEDGED))
    opened: list[str] = []
    hearer = Hearer()
    countdowns = [Countdown([first, second, third], lambda: opened.append("all")), Countdown([first], list)]
    assert [one.missing for one in countdowns] == [2, 0]
    second.listen(hearer)
    assert second.listeners == (countdowns[0], hearer)
    end(second, RequestResult(OutcomeKind.ACKNOWLEDGED))
    assert hearer.heard == [second]
    assert len(opened) == len(second.listeners) == 0
    end(third, RequestResult(OutcomeKind.ACKNOWLEDGED))
    assert (countdowns[0].missing, opened) == (0, ["all"])


def test_a_countdown_that_has_stopped_leaves_the_others() -> None:
    sent = Sent(1, update(), None, 0)
    hearer = Hearer()
    opened: list[str] = []
    countdowns = [Countdown([sent], lambda: opened.append("heard")) for _ in range(2)]
    sent.listen(hearer)
    countdowns[0].stop()
    assert sent.listeners == (countdowns[1], hearer)
    end(sent, RequestResult(OutcomeKind.ACKNOWLEDGED))
    assert (opened, hearer.heard) == (["heard"], [sent])


def test_ended_requests_are_freed_without_the_garbage_collector() -> None:
    class Owner:
        """Refers to the requests whose callback it is, and to their futures."""

        def __init__(self) -> None:
            self.request = update()
            self.sent = [Sent(broker_id, self.request, self.callback, 0) for broker_id in (1, 2)]
            self.futures = [one.future for one in self.sent]
            for future in self.futures:
                future.add_done_callback(self.callback)

        def callback(self, _: object) -> None:
            pass

    owner = Owner()
    for one in owner.sent:
        end(one, RequestResult(OutcomeKind.ACKNOWLEDGED))
        assert not gc.is_tracked(one)
        assert not gc.is_tracked(one.outcome)
    gone = weakref.ref(owner), weakref.ref(owner.request)
    del owner, one
    gc.collect()
    assert [reference() for reference in gone] == [None, None]


def test_a_future_is_the_same_while_it_is_referenced() -> None:
    sent = Sent(1, update(), None, 0)
    gone = weakref.ref(sent.future)
    # Until the future is resolved, the request refers to it.
    assert gone() is sent.future
    end(sent, RequestResult(OutcomeKind.ACKNOWLEDGED))
    gc.collect()
    assert gone() is None
    assert sent.future.result(0) is sent.outcome


def test_an_outcome_names_its_partition_errors() -> None:
    errors = np.array([11] * 34 + [0] * 3 + [9999], dtype=np.int16)
    result = RequestResult(OutcomeKind.PARTITION_ERRORS, detail=partition_errors_text(errors))
    outcome = end(Sent(3, update(), None, 100), result)
    assert "broker 3: partition errors (34 × STALE_CONTROLLER_EPOCH, 1 × error 9999)" in repr(outcome)

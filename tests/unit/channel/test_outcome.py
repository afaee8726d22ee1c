"""Sent, Outcome, and who is told of them."""

from __future__ import annotations

from concurrent.futures import CancelledError, wait

import pytest

from ctrlchan.channel.outcome import LISTENING, Outcome, OutcomeKind, Sent, Verdict
from ctrlchan.channel.records import REPORT, Report
from tests.fault.requests import update


def ended(sent: Sent, verdict: Verdict, report: Report | None = None) -> Outcome:
    return Outcome(sent.broker_id, sent.request, verdict, report, sent.enqueued_ns, 900, sent.sender_deaths)


def publish(sent: Sent, outcome: Outcome) -> None:
    with LISTENING:
        sent.outcome = outcome
    for listener in sent.listeners or ():
        listener.finished(sent)


def test_an_outcome_tells_what_the_sender_reported() -> None:
    sent = Sent(3, update(5), None, 100)
    sent.sender_deaths = 2
    report: Report = REPORT.unpack(REPORT.pack(1, 0, 2, 8, 1, 4, 17, 200, 300, 400, 0, 0, b"ab"))
    outcome = ended(sent, Verdict(OutcomeKind.REFUSED, 31, None, "CLUSTER_AUTHORIZATION_FAILED"), report)
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
    outcome = ended(Sent(3, update(), None, 100), Verdict(OutcomeKind.BROKER_GONE))
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
        publish(sent, ended(sent, Verdict(OutcomeKind.ACKNOWLEDGED)))
        assert sent.done
    assert future.result(0) is early.outcome
    assert late.future.result(0) is late.outcome
    assert wait([early.future, late.future], 0).not_done == set()


def test_a_future_cannot_be_cancelled() -> None:
    sent = Sent(1, update(), None, 0)
    assert not sent.future.cancel()
    publish(sent, ended(sent, Verdict(OutcomeKind.ACKNOWLEDGED)))
    try:
        sent.future.result(0)
    except CancelledError:
        pytest.fail("cancelled")


def test_sent_says_how_far_it_is() -> None:
    sent = Sent(4, update(), None, 0)
    assert "broker 4: unfinished" in repr(sent)
    publish(sent, ended(sent, Verdict(OutcomeKind.TOO_LARGE)))
    assert "broker 4: too large" in repr(sent)

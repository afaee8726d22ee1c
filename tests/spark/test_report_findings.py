"""Tests of the sentences of a report, from rows of small tables, without Spark."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from ctrlchan.pipeline.jobs.report.findings import Row, findings_of, notes_of, result_of
from ctrlchan.pipeline.words import counted, form, of_brokers, with_article

_AT = datetime(2026, 1, 31, 10)
_PARTS = ("queue", "send", "remote", "total", "unanswered")


def _broker(broker: int, **values: Any) -> Row:
    nothing = {"stale": 0, "uncertain": 0, "oldest_at": None, "unfinished": 0, "last_error": ""}
    return {"broker": broker, **nothing, **values}


def _figures(broker: int, requests: int = 300, without_response: int = 0, **p95: float | None) -> Row:
    times = {f"{name}_p95_ms": p95.get(name, 1.0) for name in _PARTS}
    api = {"api": 6, "api_name": "UpdateMetadata"}
    return {"broker": broker, **api, "requests": requests, "without_response": without_response, **times}


def _error(broker: int, requests: int, outcome: str = "refused", detail: str = "", code: int = 0) -> Row:
    api = {"api": 6, "api_name": "UpdateMetadata", "last_at": _AT}
    return {
        "broker": broker,
        **api,
        "outcome": outcome,
        "error_code": code,
        "requests": requests,
        "detail": detail,
    }


def test_refused_connections_are_no_slow_answers() -> None:
    """25.8 s of its p95 are requests that it never saw; its few answers took 4.18 ms."""
    figures = [
        _figures(1),
        _figures(2),
        _figures(3, 300, 30, total=25_800.0, remote=4.18, unanswered=25_900.0),
    ]
    errors = [_error(3, 30, "broker gone", "ConnectionRefusedError: [Errno 111] Connection refused")]
    found = findings_of([_broker(one) for one in (1, 2, 3)], figures, errors, None)
    assert [(one.kind, one.broker, one.title) for one in found] == [
        ("unanswered", 3, "Broker 3 did not answer")
    ]
    assert found[0].text == (
        "UpdateMetadata: 30 of 300 requests had no answer; p95 25.9 s until they were given up. The last "
        "ended as “broker gone” (ConnectionRefusedError: [Errno 111] Connection refused)."
    )
    assert result_of(found, 3, compared=True) == "Broker 3 did not answer."


def test_slow_answers_are_named_although_some_requests_had_none() -> None:
    figures = [_figures(1), _figures(2), _figures(3, 300, 1, total=900.0, remote=890.0, unanswered=25_900.0)]
    found = findings_of([], figures, [], None)
    assert [(one.kind, one.broker) for one in found] == [("slow", 3)]
    assert "It takes long to answer: p95 890 ms" in found[0].text


@pytest.mark.parametrize(
    ("failed", "requests", "kind", "result"),
    [
        (1, 307, "seldom", "All 2 brokers answer in time, and have current metadata."),
        (4, 307, "failing", "Broker 2 answers with errors."),
        (1, 2, "failing", "Broker 2 answers with errors."),
    ],
)
def test_a_single_error_is_no_headline(failed: int, requests: int, kind: str, result: str) -> None:
    figures = [_figures(1), _figures(2, requests)]
    found = findings_of([_broker(1), _broker(2)], figures, [_error(2, failed, code=31)], None)
    assert [one.kind for one in found] == [kind]
    assert result_of(found, 2, compared=True) == result
    was = (
        "1 of {} requests was not acknowledged; it"
        if failed == 1
        else "4 of {} requests were not acknowledged; the last"
    )
    assert found[0].text.startswith(was.format(requests))
    assert "was an UpdateMetadata that ended as “refused” (CLUSTER_AUTHORIZATION_FAILED)" in found[0].text


def test_one_thing_is_singular() -> None:
    waiting = _broker(4, oldest_at=_AT, unfinished=1)
    [found] = findings_of([waiting], [], [], None)
    assert found.text.startswith("1 request waits, the oldest since")
    about = {"not_compared": "", "snapshot": "s", "newest_version": 1, "state_version": 1}
    channels = [{"lost": 1, "closed": True}]
    brokers = [{**_broker(3), "live_brokers_stale": True}]
    assert notes_of(about, channels, brokers) == [
        "1 outcome is not in the journal (a crash, or a full disk): results for their brokers are uncertain.",
        "Broker 3 has an older list of live brokers.",
    ]
    brokers.append({**_broker(5), "live_brokers_stale": True})
    assert notes_of(about, [{"lost": 2_000, "closed": True}], brokers) == [
        "2,000 outcomes are not in the journal (a crash, or a full disk): results for their brokers are "
        "uncertain.",
        "Brokers 3, 5 have an older list of live brokers.",
    ]


def test_words() -> None:
    assert [counted(count, "request") for count in (0, 1, 2_000)] == [
        "0 requests",
        "1 request",
        "2,000 requests",
    ]
    assert (form(1, "has", "have"), form(0, "has", "have")) == ("has", "have")
    assert [with_article(name) for name in ("UpdateMetadata", "LeaderAndIsr")] == [
        "an UpdateMetadata",
        "a LeaderAndIsr",
    ]
    assert of_brokers(range(22)).endswith("18, 19 and 2 more")

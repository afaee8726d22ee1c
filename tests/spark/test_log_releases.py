"""Tests that the logs of every release of Kafka from 0.10 to 3.9 are understood, without Spark."""

from __future__ import annotations

from collections.abc import Iterable
from zoneinfo import ZoneInfo

import pytest

from ctrlchan.errors import ErrorCode
from ctrlchan.pipeline.jobs.explain.epochs import incarnations_of
from ctrlchan.pipeline.jobs.explain.findings import findings_of
from ctrlchan.pipeline.jobs.explain.model import Context, LocatedEntry, LogCoverage, PartitionHistory
from ctrlchan.pipeline.jobs.merge_logs.entries import OTHER, Entry, parse
from ctrlchan.pipeline.jobs.merge_logs.messages import EVENTS_SINCE_APPLIED, MESSAGES
from ctrlchan.pipeline.jobs.merge_logs.values import Answer, answers_of, error_code_of
from tests.spark.release_logs import (
    APPLIED_AT_INFO,
    BROKERS,
    RELEASES,
    TOPIC_ID,
    Line,
    Release,
    applied,
    controller,
    creation,
    failed,
    name_of,
    of_broker,
    received,
    requests,
    response,
)

_each_release = pytest.mark.parametrize("release", RELEASES, ids=name_of)


def _entries(lines: Iterable[Line]) -> list[LocatedEntry]:
    """Return the entries of the lines, one each second."""
    entries = []
    for second, line in enumerate(lines):
        text = f"[2026-01-31 10:{second // 60:02d}:{second % 60:02d},000] {line.level} {line.message} (x)"
        entry = parse(text, ZoneInfo("UTC"))
        assert (entry.event, entry.broker) != (OTHER, None)
        values = {name: getattr(entry, name) for name in Entry.__slots__}
        entries.append(LocatedEntry(**values, text=text, file="f", line=second + 1))
    return entries


def _history(
    lines: list[Line], *, levels: tuple[str, ...] = ("TRACE", "INFO", "WARN", "ERROR")
) -> PartitionHistory:
    """Return the history from the lines of these levels of brokers; the controller logs everything."""
    everything = _entries(lines)
    entries = [one for one in everything if one.role == "controller" or one.level in levels]
    coverage = tuple(
        LogCoverage(
            broker,
            everything[0].time,
            everything[-1].time + 1_000_000,
            len(entries),
            sum(one.role == "broker" and one.level == "TRACE" for one in entries if one.broker == broker),
            sum(one.event in EVENTS_SINCE_APPLIED for one in entries if one.broker == broker),
        )
        for broker in BROKERS
    )
    context = Context(coverage=coverage)
    incarnations = incarnations_of(entries)
    return PartitionHistory("t", 0, incarnations, context, findings_of(incarnations, context))


def _healthy(release: Release) -> list[Line]:
    return [*creation(release), *requests(release, 0, 1), *requests(release, 1, 2)]


@_each_release
def test_every_line_is_known(release: Release) -> None:
    entries = _entries(_healthy(release))
    assert [one.text for one in entries if one.event == OTHER] == []
    # Responses name their topic by its id since 3.0.
    assert {one.topic for one in entries if one.event != "response"} == {"t"}
    assert {one.partition for one in entries if one.event != "response"} == {0}


@_each_release
def test_a_healthy_partition_has_no_faults(release: Release) -> None:
    history = _history(_healthy(release))
    assert history.findings == []
    assert [(step.leader_epoch, step.leader, step.isr) for step in history.steps] == [
        (0, 1, [1, 2]),
        (1, 2, [1, 2]),
    ]
    for step in history.steps:
        for broker in BROKERS:
            progress = step.brokers[broker]
            assert None not in (progress.sent, progress.received, progress.applied, progress.metadata)
            assert progress.applied_as == ("leader" if broker == step.leader else "follower")


@_each_release
def test_an_error_of_a_partition_is_reported(release: Release) -> None:
    history = _history([*creation(release), *requests(release, 0, 1, error=56)])
    assert [(one.kind, one.broker) for one in history.faults] == [("error_answer", 2)]
    assert "KAFKA_STORAGE_ERROR" in history.faults[0].text
    assert ("LEADER_AND_ISR" in history.faults[0].text) == (release >= (1, 1))


@_each_release
def test_a_broker_that_did_not_receive_a_request_is_reported(release: Release) -> None:
    """Broker 2 goes on logging and does not log the last request."""
    lines = _healthy(release)
    lost = [*received(release, 1, 2, 2), *applied(release, 1, 2, 2)]
    history = _history([line for line in lines if line not in lost])
    assert [(one.kind, one.broker, one.leader_epoch) for one in history.faults] == [("not_received", 2, 1)]


@_each_release
def test_a_log_without_traces(release: Release) -> None:
    """What such a log cannot tell is a note and no fault."""
    history = _history(_healthy(release), levels=("INFO", "ERROR"))
    assert history.faults == []
    if release >= APPLIED_AT_INFO:
        assert history.findings == []
        lost = [line for line in _healthy(release) if line not in applied(release, 1, 2, 2)]
        assert [one.kind for one in _history(lost, levels=("INFO",)).faults] == ["not_applied"]
    else:
        assert [(one.kind, one.broker, one.leader_epoch) for one in history.findings] == [
            ("not_known", 1, 0),
            ("not_known", 2, 0),
            ("not_known", 1, 1),
            ("not_known", 2, 1),
        ]
        assert "not known to have been applied by broker 1: before Kafka 2.6" in history.findings[0].text


@pytest.mark.parametrize("release", [one for one in RELEASES if one >= (1, 0)], ids=name_of)
def test_a_failed_transition_that_is_logged_as_completed(release: Release) -> None:
    lines = [line for line in _healthy(release) if line not in applied(release, 1, 2, 2)]
    history = _history([*lines, *failed(release, 1, 2, 2)])
    progress = history.steps[-1].brokers[2]
    assert progress.applied is None
    assert progress.reason is not None
    assert "java.io.IOException: gone" in progress.reason
    assert [one.kind for one in history.faults] == ["failed"]


@pytest.mark.parametrize("release", [one for one in RELEASES if one < (2, 3)], ids=name_of)
def test_an_epoch_that_is_not_higher(release: Release) -> None:
    """Kafka before 2.3 has one message for an equal and for an older leader epoch."""

    def ignored(epoch: int, current: int) -> Line:
        why = "old. Current" if release < (0, 10, 1) else "not higher than the current"
        return of_broker(
            release,
            2,
            f"Ignoring LeaderAndIsr request from controller 1 with correlation id 9 epoch 1 for partition t-0 since "
            f"its associated leader epoch {epoch} is {why} leader epoch "
            f"{'is ' if release < (0, 10, 1) else ''}{current}",
            level="WARN",
        )

    again = [*_healthy(release), ignored(1, 1), response(release, 2, 4, 11)]
    assert [one.kind for one in _history(again).findings] == ["error_answer"]
    assert _history(again).faults == []
    older = [*_healthy(release), ignored(0, 1)]
    assert [one.kind for one in _history(older).faults] == ["stale_leader_epoch"]


@pytest.mark.parametrize("release", [one for one in RELEASES if one < (2, 6)], ids=name_of)
def test_a_deleted_partition_of_old_releases(release: Release) -> None:
    tp = "[t,0]" if release < (0, 10, 2) else "t-0"
    deleted = [
        of_broker(release, broker, f"{what} stop replica (delete=true) for partition {tp}")
        for broker in BROKERS
        for what in ("Handling", "Finished handling")
    ]
    history = _history([*_healthy(release), *deleted])
    assert history.findings == []
    assert [history.steps[-1].brokers[broker].stop_received is not None for broker in BROKERS] == [True, True]
    refused = of_broker(
        release, 2, f"Ignoring stop replica (delete=true) for partition {tp} due to storage exception"
    )
    assert [one.kind for one in _history([*_healthy(release), refused]).faults] == ["failed"]
    stale = "Received stop replica request from an old controller epoch 1. Latest known controller epoch is 2"
    (entry,) = _entries([of_broker(release, 2, stale)])
    assert (entry.event, entry.controller_epoch, entry.known_epoch) == ("stale_controller", 1, 2)


@pytest.mark.parametrize(
    ("text", "error_code", "answers"),
    [
        ("{error_code=0}", 0, []),
        ("{error_code=11,partitions=[]}", 11, []),
        (
            "{error_code=0,partitions=[{topic=a-b.c,partition=7,error_code=56},"
            "{topic=t,partition=0,error_code=0}]}",
            0,
            [Answer("a-b.c", None, 7, 56), Answer("t", None, 0, 0)],
        ),
        (
            "{error_code=0,partition_errors=[{topic_name=t,partition_index=3,error_code=-1,_tagged_fields={}}],"
            "_tagged_fields={}}",
            0,
            [Answer("t", None, 3, -1)],
        ),
        (
            "LeaderAndIsrResponse(responses={t-0=NONE, a-b-1=KAFKA_STORAGE_ERROR}, error=STALE_BROKER_EPOCH)",
            77,
            [Answer("t", None, 0, 0), Answer("a-b", None, 1, 56)],
        ),
        ("LeaderAndIsrResponse(responses={}, error=SOMETHING_LATER)", ErrorCode.UNKNOWN_SERVER_ERROR, []),
        (
            "StopReplicaResponseData(errorCode=0, partitionErrors=[StopReplicaPartitionError(topicName='t', "
            "partitionIndex=2, errorCode=56)])",
            0,
            [Answer("t", None, 2, 56)],
        ),
        (
            f"LeaderAndIsrResponseData(errorCode=0, partitionErrors=[], topics=[LeaderAndIsrTopicError(topicId="
            f"{TOPIC_ID}, partitionErrors=[LeaderAndIsrPartitionError(topicName='', partitionIndex=2, "
            "errorCode=56)])])",
            0,
            [Answer(None, TOPIC_ID, 2, 56)],
        ),
        ("org.apache.kafka.common.requests.LeaderAndIsrResponse@1f", None, []),
    ],
)
def test_each_printing_style_of_responses(text: str, error_code: int | None, answers: list[Answer]) -> None:
    assert error_code_of(text) == error_code
    assert answers_of(text) == answers
    sent = f"Received response {text} for request LEADER_AND_ISR with correlation id 7 sent to broker (id: 2 rack: null)"
    (entry,) = _entries([controller((2, 3), sent)])
    assert (entry.event, entry.to, entry.error_code, entry.partitions) == (
        "response",
        [2],
        error_code,
        answers,
    )


def test_the_table_has_releases_in_order() -> None:
    for message in MESSAGES:
        assert (0, 10, 0) <= message.first <= message.last <= (3, 9), message.text

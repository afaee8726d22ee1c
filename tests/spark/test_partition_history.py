"""Tests of the history of a partition and its findings, from plain entries, without Spark."""

from __future__ import annotations

import json
from collections.abc import Sequence
from zoneinfo import ZoneInfo

import pytest

from ctrlchan.errors import ConfigError
from ctrlchan.pipeline import TopicPartition
from ctrlchan.pipeline.jobs.explain.epochs import incarnations_of
from ctrlchan.pipeline.jobs.explain.findings import findings_of
from ctrlchan.pipeline.jobs.explain.model import (
    Context,
    ControllerTerm,
    JournalRequest,
    LocatedEntry,
    LogCoverage,
    PartitionHistory,
    Refusals,
    SnapshotRow,
)
from ctrlchan.pipeline.jobs.explain.text import history_lines
from ctrlchan.pipeline.jobs.merge_logs.entries import Entry, parse

_MADE = (
    "[Controller id=1 epoch=1] Changed partition t-0 state from NonExistentPartition to NewPartition with assigned "
    "replicas 1,2"
)
_ZERO = 1_769_853_600_000_000  # 2026-01-31T10:00:00Z
_ALL_LOGS = tuple(LogCoverage(broker, _ZERO, _ZERO + 60_000_000, 100, 50) for broker in (1, 2, 3))


def _state(epoch: int, leader: int = 1, isr: str = "1, 2") -> str:
    return (
        f"SomePartitionState(topicName='t', partitionIndex=0, leader={leader}, leaderEpoch={epoch}, isr=[{isr}], "
        f"partitionEpoch={epoch}, replicas=[1, 2])"
    )


def _sent(broker: int, epoch: int, leader: int = 1, controller: str = "1 epoch=1") -> str:
    becomes = "leader" if broker == leader else "follower"
    return (
        f"[Controller id={controller}] Sending become-{becomes} LeaderAndIsr request {_state(epoch, leader)} to "
        f"broker {broker} for partition t-0"
    )


def _received(broker: int, epoch: int, correlation: int = 5) -> str:
    return (
        f"[Broker id={broker}] Received LeaderAndIsr request {_state(epoch)} correlation id {correlation} from "
        "controller 1 epoch 1"
    )


def _applied(broker: int, epoch: int, leader: int = 1) -> str:
    if broker == leader:
        return (
            f"[Broker id={broker}] Leader t-0 with topic id None starts at leader epoch {epoch} from offset 0 with "
            f"partition epoch {epoch}, high watermark 0, ISR [1,2], adding replicas [] and removing replicas [] ."
        )
    return (
        f"[Broker id={broker}] Follower t-0 starts at leader epoch {epoch} from offset 0 with partition epoch "
        f"{epoch} and high watermark 0. Current leader is {leader}. Previous leader Some(1)."
    )


def _cached(broker: int, epoch: int, leader: int = 1) -> str:
    return (
        f"[Broker id={broker}] Cached leader info {_state(epoch, leader)} for partition t-0 in response to "
        "UpdateMetadata request sent by controller 1 epoch 1 with correlation id 6"
    )


def _stop(broker: int, *, received: bool) -> str:
    state = "StopReplicaPartitionState(partitionIndex=0, leaderEpoch=-2, deletePartition=true)"
    if received:
        return (
            f"[Broker id={broker}] Received StopReplica request {state} correlation id 9 from controller 1 epoch 1 "
            "for partition t-0"
        )
    return (
        f"[Controller id=1 epoch=1] Sending StopReplica request {state} to broker {broker} for partition t-0"
    )


def _fully(epoch: int, leader: int = 1) -> list[str]:
    """Return the entries of an epoch that all brokers were sent, applied and cached."""
    return [
        *(_sent(broker, epoch, leader) for broker in (1, 2)),
        *(_received(broker, epoch) for broker in (1, 2)),
        *(_applied(broker, epoch, leader) for broker in (1, 2)),
        *(_cached(broker, epoch, leader) for broker in (1, 2, 3)),
    ]


def _entries(messages: Sequence[str]) -> list[LocatedEntry]:
    """Return one entry for each second."""
    entries = []
    for second, message in enumerate(messages):
        text = f"[2026-01-31 10:00:{second:02d},000] TRACE {message} (state.change.logger)"
        entry = parse(text, ZoneInfo("UTC"))
        values = {name: getattr(entry, name) for name in Entry.__slots__}
        entries.append(LocatedEntry(**values, text=text, file="f", line=second + 1))
    return entries


def _history(messages: Sequence[str], context: Context | None = None) -> PartitionHistory:
    context = context or Context(coverage=_ALL_LOGS)
    incarnations = incarnations_of(_entries(messages))
    return PartitionHistory("t", 0, incarnations, context, findings_of(incarnations, context))


def _kinds(history: PartitionHistory) -> list[tuple[str, int | None, int | None]]:
    return [(one.kind, one.broker, one.leader_epoch) for one in history.faults]


def test_a_history_without_faults() -> None:
    history = _history([_MADE, *_fully(0), *_fully(1, leader=2)])
    assert history.findings == []
    first, second = history.steps
    assert (first.leader, first.isr, first.replicas, first.controller_epoch) == (1, [1, 2], [1, 2], 1)
    assert second.leader == 2
    sent_to = first.brokers[2]
    assert sent_to.sent is not None
    assert sent_to.received == sent_to.sent + 2_000_000
    assert (sent_to.applied, sent_to.applied_as) == (sent_to.sent + 4_000_000, "follower")
    assert first.brokers[1].applied_as == "leader"
    assert first.brokers[3].metadata is not None
    assert first.brokers[3].sent is None


def test_a_broker_that_did_not_apply_an_epoch() -> None:
    received = _history([_MADE, _sent(1, 0), _sent(2, 0), _received(1, 0), _applied(1, 0), _received(2, 0)])
    assert _kinds(received) == [("not_applied", 2, 0)]
    lost = _history([_MADE, _sent(1, 0), _sent(2, 0), _received(1, 0), _applied(1, 0)])
    assert _kinds(lost) == [("not_received", 2, 0)]


def test_an_epoch_that_a_newer_one_overtook_is_no_fault() -> None:
    history = _history([_MADE, _sent(2, 0), *_fully(1)])
    assert history.faults == []


def test_a_broker_without_a_log_is_no_fault() -> None:
    ends_early = LogCoverage(2, _ZERO, _ZERO, 5, 5)
    for coverage in ((_ALL_LOGS[0],), (_ALL_LOGS[0], ends_early)):
        history = _history(
            [_MADE, _sent(1, 0), _received(1, 0), _applied(1, 0), _sent(2, 0)], Context(coverage=coverage)
        )
        assert history.faults == []
        assert [(one.kind, one.broker) for one in history.findings] == [("no_log", 2)]


def test_without_traces_the_isr_is_expected_to_apply() -> None:
    decided = (
        "[Controller id=1 epoch=1] Changed partition t-0 from NewPartition to OnlinePartition with state "
        "LeaderAndIsr(leader=1, leaderEpoch=0, isr=List(1, 2), partitionEpoch=0)"
    )
    untraced = tuple(LogCoverage(broker, _ZERO, _ZERO + 60_000_000, 9, 0, 4) for broker in (1, 2))
    history = _history([_MADE, decided, _applied(1, 0)], Context(coverage=untraced))
    assert _kinds(history) == [("not_applied", 2, 0)]
    assert _history([_MADE, decided, _applied(1, 0), _applied(2, 0)], Context(coverage=untraced)).faults == []


def test_a_log_that_shows_no_epochs_is_a_note() -> None:
    """Kafka before 2.6 logs below level TRACE nothing about leader epochs."""
    silent = tuple(LogCoverage(broker, _ZERO, _ZERO + 60_000_000, 9, 0) for broker in (1, 2))
    history = _history([_MADE, _sent(1, 0), _sent(2, 0)], Context(coverage=silent))
    assert history.faults == []
    assert [(one.kind, one.broker, one.leader_epoch) for one in history.findings] == [
        ("not_known", 1, 0),
        ("not_known", 2, 0),
    ]


def test_an_older_epoch_is_applied_later() -> None:
    history = _history([_MADE, *_fully(1), _applied(2, 0)])
    assert _kinds(history) == [("older_epoch_applied", 2, 0)]
    history = _history([_MADE, *_fully(1), _cached(3, 0)])
    assert _kinds(history) == [("older_metadata", 3, 0)]


def test_one_broker_has_stale_metadata() -> None:
    history = _history([_MADE, *_fully(0), *_fully(1)[:-1]])
    assert _kinds(history) == [("metadata_stale", 3, 1)]


def test_a_partition_is_created_again_after_its_deletion() -> None:
    """Leader epochs start again from 0; that is no fault."""
    deleted = [
        *(_stop(broker, received=False) for broker in (1, 2)),
        *(_stop(broker, received=True) for broker in (1, 2)),
        *(
            f"[Broker id={broker}] Deleted partition t-0 from metadata cache in response to UpdateMetadata request "
            "sent by controller 1 epoch 1 with correlation id 8"
            for broker in (1, 2, 3)
        ),
    ]
    history = _history([_MADE, *_fully(4), *deleted, _MADE, *_fully(0)])
    assert history.faults == []
    assert [(step.incarnation, step.leader_epoch) for step in history.steps] == [(0, 4), (1, 0)]

    lost = _history([_MADE, *_fully(0), *deleted[:3], *deleted[4:]])
    assert _kinds(lost) == [("delete_not_received", 2, None)]


def test_errors_in_responses_and_refusals() -> None:
    answer = (
        "[Controller id=1 epoch=1] Received response LeaderAndIsrResponseData(errorCode=0, partitionErrors=["
        "LeaderAndIsrPartitionError(topicName='t', partitionIndex=0, errorCode={code})], topics=[]) for request "
        "LEADER_AND_ISR with correlation id 5 sent to broker h:1 (id: 2 rack: null)"
    )
    known = (
        "[Broker id=2] Ignoring LeaderAndIsr request from controller 1 with correlation id 5 epoch 1 for partition "
        "t-0 since its associated leader epoch 0 matches the current leader epoch"
    )
    history = _history([_MADE, *_fully(0), answer.format(code=56)])
    assert _kinds(history) == [("error_answer", 2, None)]
    assert "KAFKA_STORAGE_ERROR" in history.faults[0].text
    # Harmless: the broker was in that leader epoch already.
    history = _history([_MADE, *_fully(0), known, answer.format(code=11)])
    assert history.faults == []
    assert [one.kind for one in history.findings] == ["error_answer"]

    stale = (
        "[Broker id=2] Ignoring LeaderAndIsr request from controller 1 with correlation id 5 epoch 1 for partition "
        "t-0 since its associated leader epoch 0 is smaller than the current leader epoch 1"
    )
    assert _kinds(_history([_MADE, *_fully(1), stale])) == [("stale_leader_epoch", 2, 0)]
    failed = (
        "[Controller id=1 epoch=1] Controller 1 epoch 1 failed to change state for partition t-0 from NewPartition "
        "to OnlinePartition"
    )
    assert _kinds(_history([_MADE, failed])) == [("failed", 1, None)]


def test_a_partition_has_no_leader() -> None:
    shrunk = (
        "[Controller id=1 epoch=1] Partition t-0 state changed to (Leader:-1,ISR:2,LeaderRecoveryState:RECOVERED,"
        "LeaderEpoch:1,ZkVersion:1,ControllerEpoch:1) after removing replica 1 from the ISR as part of transition "
        "to OfflineReplica"
    )
    history = _history([_MADE, *_fully(0), shrunk, *_fully(2, leader=2)])
    assert _kinds(history) == [("no_leader", None, 1)]
    assert "for 1.000 s" in history.faults[0].text
    assert _kinds(_history([_MADE, *_fully(0), shrunk])) == [("no_leader", None, 1)]
    # A partition that is deleted loses its leader first.
    gone = (
        "[Broker id=1] Deleted partition t-0 from metadata cache in response to UpdateMetadata request sent by controller "
        "1 epoch 1 with correlation id 8"
    )
    assert _history([_MADE, *_fully(0), gone, shrunk]).faults == []


def test_the_controller_changes() -> None:
    terms = (
        ControllerTerm(1, 1, _ZERO, _ZERO + 30_000_000),
        ControllerTerm(2, 2, _ZERO + 5_000_000, _ZERO + 50_000_000),
    )
    refused = (Refusals(3, "UPDATE_METADATA", 1, 1, 2, 7, _ZERO, _ZERO),)
    context = Context(coverage=_ALL_LOGS, terms=terms, refusals=refused)
    history = _history([_MADE, *_fully(0), _sent(1, 0)], context)
    assert _kinds(history) == [("old_controller_sent", 1, None)]
    assert [one.kind for one in history.findings[1:]] == ["controller_change", "requests_refused"]
    twice = Context(coverage=_ALL_LOGS, terms=(terms[0], ControllerTerm(3, 1, _ZERO + 1, _ZERO + 2)))
    assert _kinds(_history([_MADE, *_fully(0)], twice)) == [("two_controllers", 3, None)]


def test_findings_from_the_journal() -> None:
    requests = (
        JournalRequest(2, "LEADER_AND_ISR", 1, 5, "acknowledged", 0, 3, 1500.0, _ZERO),
        JournalRequest(3, "UPDATE_METADATA", 1, None, "broker gone", 0, 1, None, _ZERO),
    )
    history = _history([_MADE, *_fully(0)], Context(coverage=_ALL_LOGS, requests=requests))
    assert [(one.kind, one.broker, one.severity) for one in history.findings] == [
        ("request_failed", 3, "fault"),
        ("request_repeated", 2, "note"),
    ]


@pytest.mark.parametrize(
    ("row", "differs"),
    [
        (SnapshotRow(True, 1, 0, 0, (1, 2), (1, 2)), []),
        (SnapshotRow(True, 2, 1, 0, (1, 2), (1, 2)), ["leader epoch: 0", "leader: 1 in the logs, 2"]),
        (SnapshotRow(False), ["no such partition"]),
    ],
)
def test_the_last_epoch_is_compared_with_a_snapshot(row: SnapshotRow, differs: list[str]) -> None:
    history = _history([_MADE, *_fully(0)], Context(coverage=_ALL_LOGS, snapshot=row))
    assert len(history.faults) == len(differs)
    assert all(words in fault.text for words, fault in zip(differs, history.faults, strict=True))


def test_text_and_json() -> None:
    history = _history([_MADE, *_fully(0), _sent(2, 1)])
    text = "\n".join(history_lines(history, entries=True))
    assert "0: leader 1, ISR 1,2, replicas 1,2" in text
    assert "broker 2 was sent leader epoch 1 and never received it" in text
    assert "1 fault, 0 notes" in text
    assert "2026-01-31T10:00:00.000Z controller 1: Changed partition t-0" in text
    found = json.loads(json.dumps(history.as_json()))
    assert found["findings"][0]["kind"] == "not_received"
    assert found["epochs"][0]["brokers"]["2"]["sent"] == "2026-01-31T10:00:02.000Z"
    assert found["entries"][0]["to_state"] == "NewPartition"
    assert next(history_lines(_history([]))) == "t-0: no entry names it"


@pytest.mark.parametrize(
    ("name", "topic", "partition"),
    [("orders-0", "orders", 0), ("a-b.c-1-22", "a-b.c-1", 22), ("--3", "-", 3)],
)
def test_names_of_partitions_are_parsed(name: str, topic: str, partition: int) -> None:
    assert TopicPartition.of(name) == TopicPartition(topic, partition)
    assert str(TopicPartition.of(name)) == name


@pytest.mark.parametrize("name", ["orders", "orders-", "-0", "orders-x", "orders-99999999999", "orders-²"])
def test_names_that_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="TOPIC-PARTITION"):
        TopicPartition.of(name)

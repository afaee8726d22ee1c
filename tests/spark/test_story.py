"""The story of a partition: who was told, who applied it, what is missing. Plain entries, no Spark."""

from __future__ import annotations

import json
from collections.abc import Sequence
from zoneinfo import ZoneInfo

import pytest

from ctrlchan.errors import ConfigError
from ctrlchan.pipeline import TopicPartition
from ctrlchan.pipeline.jobs.explain.findings import findings_of
from ctrlchan.pipeline.jobs.explain.model import (
    Context,
    ControllerReign,
    JournalRequest,
    LogCoverage,
    PlacedEntry,
    Refusals,
    SnapshotRow,
    Story,
)
from ctrlchan.pipeline.jobs.explain.steps import lives_of
from ctrlchan.pipeline.jobs.explain.text import story_lines
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


def _told(broker: int, epoch: int, leader: int = 1, controller: str = "1 epoch=1") -> str:
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


def _stop(broker: int, *, heard: bool) -> str:
    state = "StopReplicaPartitionState(partitionIndex=0, leaderEpoch=-2, deletePartition=true)"
    if heard:
        return (
            f"[Broker id={broker}] Received StopReplica request {state} correlation id 9 from controller 1 epoch 1 "
            "for partition t-0"
        )
    return (
        f"[Controller id=1 epoch=1] Sending StopReplica request {state} to broker {broker} for partition t-0"
    )


def _fully(epoch: int, leader: int = 1) -> list[str]:
    """An epoch that everybody was told, applied and cached."""
    return [
        *(_told(broker, epoch, leader) for broker in (1, 2)),
        *(_received(broker, epoch) for broker in (1, 2)),
        *(_applied(broker, epoch, leader) for broker in (1, 2)),
        *(_cached(broker, epoch, leader) for broker in (1, 2, 3)),
    ]


def _entries(messages: Sequence[str]) -> list[PlacedEntry]:
    """One a second."""
    entries = []
    for second, message in enumerate(messages):
        text = f"[2026-01-31 10:00:{second:02d},000] TRACE {message} (state.change.logger)"
        entry = parse(text, ZoneInfo("UTC"))
        values = {name: getattr(entry, name) for name in Entry.__slots__}
        entries.append(PlacedEntry(**values, text=text, file="f", line=second + 1))
    return entries


def _story(messages: Sequence[str], context: Context | None = None) -> Story:
    context = context or Context(coverage=_ALL_LOGS)
    lives = lives_of(_entries(messages))
    return Story("t", 0, lives, context, findings_of(lives, context))


def _kinds(story: Story) -> list[tuple[str, int | None, int | None]]:
    return [(one.kind, one.broker, one.leader_epoch) for one in story.faults]


def test_a_life_without_faults() -> None:
    story = _story([_MADE, *_fully(0), *_fully(1, leader=2)])
    assert story.findings == []
    first, second = story.steps
    assert (first.leader, first.isr, first.replicas, first.controller_epoch) == (1, [1, 2], [1, 2], 1)
    assert second.leader == 2
    told = first.brokers[2]
    assert told.told is not None
    assert told.received == told.told + 2_000_000
    assert (told.applied, told.applied_as) == (told.told + 4_000_000, "follower")
    assert first.brokers[1].applied_as == "leader"
    assert first.brokers[3].metadata is not None
    assert first.brokers[3].told is None


def test_a_broker_that_never_said_so() -> None:
    received = _story([_MADE, _told(1, 0), _told(2, 0), _received(1, 0), _applied(1, 0), _received(2, 0)])
    assert _kinds(received) == [("not_applied", 2, 0)]
    lost = _story([_MADE, _told(1, 0), _told(2, 0), _received(1, 0), _applied(1, 0)])
    assert _kinds(lost) == [("not_received", 2, 0)]


def test_an_epoch_that_a_newer_one_overtook_is_no_fault() -> None:
    story = _story([_MADE, _told(2, 0), *_fully(1)])
    assert story.faults == []


def test_what_nobody_can_know_is_no_fault() -> None:
    ends_early = LogCoverage(2, _ZERO, _ZERO, 5, 5)
    for coverage in ((_ALL_LOGS[0],), (_ALL_LOGS[0], ends_early)):
        story = _story(
            [_MADE, _told(1, 0), _received(1, 0), _applied(1, 0), _told(2, 0)], Context(coverage=coverage)
        )
        assert story.faults == []
        assert [(one.kind, one.broker) for one in story.findings] == [("no_log", 2)]


def test_without_traces_the_decisions_count() -> None:
    decided = (
        "[Controller id=1 epoch=1] Changed partition t-0 from NewPartition to OnlinePartition with state "
        "LeaderAndIsr(leader=1, leaderEpoch=0, isr=List(1, 2), partitionEpoch=0)"
    )
    quiet = tuple(LogCoverage(broker, _ZERO, _ZERO + 60_000_000, 9, 0) for broker in (1, 2))
    story = _story([_MADE, decided, _applied(1, 0)], Context(coverage=quiet))
    assert _kinds(story) == [("not_applied", 2, 0)]
    assert _story([_MADE, decided, _applied(1, 0), _applied(2, 0)], Context(coverage=quiet)).faults == []


def test_an_older_epoch_is_applied() -> None:
    story = _story([_MADE, *_fully(1), _applied(2, 0)])
    assert _kinds(story) == [("older_epoch_applied", 2, 0)]
    story = _story([_MADE, *_fully(1), _cached(3, 0)])
    assert _kinds(story) == [("older_metadata", 3, 0)]


def test_metadata_that_one_broker_lacks() -> None:
    story = _story([_MADE, *_fully(0), *_fully(1)[:-1]])
    assert _kinds(story) == [("metadata_stale", 3, 1)]


def test_made_again_after_deletion() -> None:
    """Epochs begin anew; the old life's are no standard for the new one's."""
    deleted = [
        *(_stop(broker, heard=False) for broker in (1, 2)),
        *(_stop(broker, heard=True) for broker in (1, 2)),
        *(
            f"[Broker id={broker}] Deleted partition t-0 from metadata cache in response to UpdateMetadata request "
            "sent by controller 1 epoch 1 with correlation id 8"
            for broker in (1, 2, 3)
        ),
    ]
    story = _story([_MADE, *_fully(4), *deleted, _MADE, *_fully(0)])
    assert story.faults == []
    assert [(step.life, step.leader_epoch) for step in story.steps] == [(0, 4), (1, 0)]

    lost = _story([_MADE, *_fully(0), *deleted[:3], *deleted[4:]])
    assert _kinds(lost) == [("delete_not_received", 2, None)]


def test_errors_and_refusals() -> None:
    answer = (
        "[Controller id=1 epoch=1] Received response LeaderAndIsrResponseData(errorCode=0, partitionErrors=["
        "LeaderAndIsrPartitionError(topicName='t', partitionIndex=0, errorCode={code})], topics=[]) for request "
        "LEADER_AND_ISR with correlation id 5 sent to broker h:1 (id: 2 rack: null)"
    )
    known = (
        "[Broker id=2] Ignoring LeaderAndIsr request from controller 1 with correlation id 5 epoch 1 for partition "
        "t-0 since its associated leader epoch 0 matches the current leader epoch"
    )
    story = _story([_MADE, *_fully(0), answer.format(code=56)])
    assert _kinds(story) == [("error_answer", 2, None)]
    assert "KAFKA_STORAGE_ERROR" in story.faults[0].says
    # Harmless: it was there already.
    story = _story([_MADE, *_fully(0), known, answer.format(code=11)])
    assert story.faults == []
    assert [one.kind for one in story.findings] == ["error_answer"]

    stale = (
        "[Broker id=2] Ignoring LeaderAndIsr request from controller 1 with correlation id 5 epoch 1 for partition "
        "t-0 since its associated leader epoch 0 is smaller than the current leader epoch 1"
    )
    assert _kinds(_story([_MADE, *_fully(1), stale])) == [("stale_leader_epoch", 2, 0)]
    failed = (
        "[Controller id=1 epoch=1] Controller 1 epoch 1 failed to change state for partition t-0 from NewPartition "
        "to OnlinePartition"
    )
    assert _kinds(_story([_MADE, failed])) == [("failed", 1, None)]


def test_no_leader() -> None:
    shrunk = (
        "[Controller id=1 epoch=1] Partition t-0 state changed to (Leader:-1,ISR:2,LeaderRecoveryState:RECOVERED,"
        "LeaderEpoch:1,ZkVersion:1,ControllerEpoch:1) after removing replica 1 from the ISR as part of transition "
        "to OfflineReplica"
    )
    story = _story([_MADE, *_fully(0), shrunk, *_fully(2, leader=2)])
    assert _kinds(story) == [("no_leader", None, 1)]
    assert "for 1.000 s" in story.faults[0].says
    assert _kinds(_story([_MADE, *_fully(0), shrunk])) == [("no_leader", None, 1)]
    # A partition that is deleted loses its leader first.
    gone = (
        "[Broker id=1] Deleted partition t-0 from metadata cache in response to UpdateMetadata request sent by controller "
        "1 epoch 1 with correlation id 8"
    )
    assert _story([_MADE, *_fully(0), gone, shrunk]).faults == []


def test_controllers_that_change() -> None:
    reigns = (
        ControllerReign(1, 1, _ZERO, _ZERO + 30_000_000),
        ControllerReign(2, 2, _ZERO + 5_000_000, _ZERO + 50_000_000),
    )
    refused = (Refusals(3, "UPDATE_METADATA", 1, 1, 2, 7, _ZERO, _ZERO),)
    context = Context(coverage=_ALL_LOGS, reigns=reigns, refusals=refused)
    story = _story([_MADE, *_fully(0), _told(1, 0)], context)
    assert _kinds(story) == [("old_controller_spoke", 1, None)]
    assert [one.kind for one in story.findings[1:]] == ["controller_change", "requests_refused"]
    twice = Context(coverage=_ALL_LOGS, reigns=(reigns[0], ControllerReign(3, 1, _ZERO + 1, _ZERO + 2)))
    assert _kinds(_story([_MADE, *_fully(0)], twice)) == [("two_controllers", 3, None)]


def test_what_the_journal_adds() -> None:
    requests = (
        JournalRequest(2, "LEADER_AND_ISR", 1, 5, "acknowledged", 0, 3, 1500.0, _ZERO),
        JournalRequest(3, "UPDATE_METADATA", 1, None, "broker gone", 0, 1, None, _ZERO),
    )
    story = _story([_MADE, *_fully(0)], Context(coverage=_ALL_LOGS, requests=requests))
    assert [(one.kind, one.broker, one.severity) for one in story.findings] == [
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
def test_the_end_against_a_snapshot(row: SnapshotRow, differs: list[str]) -> None:
    story = _story([_MADE, *_fully(0)], Context(coverage=_ALL_LOGS, snapshot=row))
    assert len(story.faults) == len(differs)
    assert all(words in fault.says for words, fault in zip(differs, story.faults, strict=True))


def test_text_and_json() -> None:
    story = _story([_MADE, *_fully(0), _told(2, 1)])
    text = "\n".join(story_lines(story, entries=True))
    assert "0: leader 1, ISR 1,2, replicas 1,2" in text
    assert "broker 2 was told of leader epoch 1 and never received it" in text
    assert "1 faults, 0 notes" in text
    assert "2026-01-31T10:00:00.000Z controller 1: Changed partition t-0" in text
    told = json.loads(json.dumps(story.as_json()))
    assert told["findings"][0]["kind"] == "not_received"
    assert told["epochs"][0]["brokers"]["2"]["told"] == "2026-01-31T10:00:02.000Z"
    assert told["entries"][0]["to_state"] == "NewPartition"
    assert next(story_lines(_story([]))) == "t-0: no entry speaks of it"


@pytest.mark.parametrize(
    ("name", "topic", "partition"),
    [("orders-0", "orders", 0), ("a-b.c-1-22", "a-b.c-1", 22), ("--3", "-", 3)],
)
def test_names_of_partitions(name: str, topic: str, partition: int) -> None:
    assert TopicPartition.of(name) == TopicPartition(topic, partition)
    assert str(TopicPartition.of(name)) == name


@pytest.mark.parametrize("name", ["orders", "orders-", "-0", "orders-x", "orders-99999999999", "orders-²"])
def test_names_of_none(name: str) -> None:
    with pytest.raises(ConfigError, match="TOPIC-PARTITION"):
        TopicPartition.of(name)

"""Tests of parsing log entries: Kafka's messages, ours, unknown ones and garbage."""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ctrlchan import ClusterState
from ctrlchan.batch.log_lines import log_leader_and_isr, log_stop_replica, log_update_metadata
from ctrlchan.batch.stop_replica import stop_epochs, stop_replicas
from ctrlchan.controller.machines.context import ControllerContext
from ctrlchan.controller.machines.state_changes import StateChangeLines
from ctrlchan.pipeline.jobs.merge_logs import messages
from ctrlchan.pipeline.jobs.merge_logs.entries import OTHER, BadLineError, Entry, begins_entry, parse
from ctrlchan.pipeline.jobs.merge_logs.values import Answer
from ctrlchan.state_change_log import LAYOUT, TRACE, StateChangeLogger

_UTC = ZoneInfo("UTC")
_AT = "[2026-01-31 23:59:59,123]"
_ANSWER = (
    "LeaderAndIsrResponseData(errorCode=0, partitionErrors=[], topics=[LeaderAndIsrTopicError("
    "topicId=rF41Lbl0Tk-lREojfrGsiA, partitionErrors=[LeaderAndIsrPartitionError(topicName='', "
    "partitionIndex=2, errorCode=11), LeaderAndIsrPartitionError(topicName='', partitionIndex=0, errorCode=0)])])"
)


def _values(text: str) -> dict[str, object]:
    """Return the fields that the message of an entry sets."""
    entry = parse(text, _UTC)
    values = {name: getattr(entry, name) for name in Entry.__slots__}
    return {name: value for name, value in values.items() if value not in (None, []) and name not in _HEAD}


_HEAD = {"time", "level"}
_STATE = (
    "topicName='a-b.c-1', partitionIndex=7, controllerEpoch=1, leader=1, leaderEpoch=3, isr=[1, 22], "
    "{epoch}=4, replicas=[1, 22, 3], addingReplicas=[3], removingReplicas=[], isNew=true, leaderRecoveryState=0"
)
_PARTITION = {"topic": "a-b.c-1", "partition": 7}
_STATE_VALUES = _PARTITION | {
    "leader": 1,
    "leader_epoch": 3,
    "partition_epoch": 4,
    "isr": [1, 22],
    "replicas": [1, 22, 3],
}


@pytest.mark.parametrize(
    ("message", "values"),
    [
        (
            "[Controller id=3 epoch=9] Sending become-follower LeaderAndIsr request LeaderAndIsrPartitionState("
            + _STATE.format(epoch="partitionEpoch")
            + ") to broker 22 for partition a-b.c-1-7",
            {
                "event": "send_become_follower",
                "api": "LEADER_AND_ISR",
                "broker": 3,
                "role": "controller",
                "controller_id": 3,
                "controller_epoch": 9,
                "to": [22],
                **_STATE_VALUES,
            },
        ),
        (
            "[Broker id=22] Received LeaderAndIsr request LeaderAndIsrPartitionState("
            + _STATE.format(epoch="zkVersion")
            + ") correlation id 5 from controller 3 epoch 9",
            {
                "event": "receive_leader_and_isr",
                "api": "LEADER_AND_ISR",
                "broker": 22,
                "role": "broker",
                "controller_id": 3,
                "controller_epoch": 9,
                "correlation_id": 5,
                **_STATE_VALUES,
            },
        ),
        # Kafka 2.3: the state does not name its partition, lists have no brackets.
        (
            "[Broker id=2] Received LeaderAndIsr request PartitionState(controllerEpoch=1, leader=1, leaderEpoch=0, "
            "isr=1,2, zkVersion=0, replicas=1,2, isNew=true) correlation id 5 from controller 3 epoch 9 for "
            "partition t-0",
            {
                "event": "receive_leader_and_isr",
                "api": "LEADER_AND_ISR",
                "broker": 2,
                "role": "broker",
                "controller_id": 3,
                "controller_epoch": 9,
                "correlation_id": 5,
                "topic": "t",
                "partition": 0,
                "leader": 1,
                "leader_epoch": 0,
                "partition_epoch": 0,
                "isr": [1, 2],
                "replicas": [1, 2],
            },
        ),
        (
            "[Controller id=3 epoch=1] Changed partition t-0 from NewPartition to OnlinePartition with state "
            "LeaderAndIsr(leader=1, leaderEpoch=0, isrWithBrokerEpoch=List(BrokerState(brokerId=1, "
            "brokerEpoch=-1), BrokerState(brokerId=2, brokerEpoch=-1)), leaderRecoveryState=RECOVERED, "
            "partitionEpoch=0)",
            {
                "event": "partition_state",
                "broker": 3,
                "role": "controller",
                "controller_id": 3,
                "controller_epoch": 1,
                "topic": "t",
                "partition": 0,
                "from_state": "NewPartition",
                "to_state": "OnlinePartition",
                "leader": 1,
                "leader_epoch": 0,
                "partition_epoch": 0,
                "isr": [1, 2],
            },
        ),
        (
            "[Controller id=3 epoch=1] Partition t-0 state changed to (Leader:-1,ISR:2,3,LeaderRecoveryState:"
            "RECOVERED,LeaderEpoch:3,ZkVersion:4,ControllerEpoch:1) after removing replica 1 from the ISR as part "
            "of transition to OfflineReplica",
            {
                "event": "isr_shrunk",
                "broker": 3,
                "role": "controller",
                "controller_id": 3,
                "controller_epoch": 1,
                "topic": "t",
                "partition": 0,
                "replica": 1,
                "to_state": "OfflineReplica",
                "leader": -1,
                "leader_epoch": 3,
                "partition_epoch": 4,
                "isr": [2, 3],
            },
        ),
        (
            f"[Controller id=2 epoch=2] Received response {_ANSWER} for request LEADER_AND_ISR with correlation id "
            "1 sent to broker kafka-1:44727 (id: 1 rack: null)",
            {
                "event": "response",
                "api": "LEADER_AND_ISR",
                "broker": 2,
                "role": "controller",
                "controller_id": 2,
                "controller_epoch": 2,
                "correlation_id": 1,
                "to": [1],
                "error_code": 0,
                "partitions": [
                    Answer(None, "rF41Lbl0Tk-lREojfrGsiA", 2, 11),
                    Answer(None, "rF41Lbl0Tk-lREojfrGsiA", 0, 0),
                ],
            },
        ),
        (
            "[Controller id=2 epoch=2] Received response StopReplicaResponseData(errorCode=0, partitionErrors=["
            "StopReplicaPartitionError(topicName='t', partitionIndex=2, errorCode=56)]) for request STOP_REPLICA "
            "with correlation id 1 sent to broker (id: 1 rack: null)",
            {
                "event": "response",
                "api": "STOP_REPLICA",
                "broker": 2,
                "role": "controller",
                "controller_id": 2,
                "controller_epoch": 2,
                "correlation_id": 1,
                "to": [1],
                "error_code": 0,
                "partitions": [Answer("t", None, 2, 56)],
            },
        ),
        (
            "[Controller id=2] Mark replicas a-0,b-1-22 on broker 4 as offline",
            {
                "event": "replicas_offline",
                "broker": 2,
                "role": "controller",
                "controller_id": 2,
                "replica": 4,
                "partitions": [Answer("a", None, 0, 0), Answer("b-1", None, 22, 0)],
            },
        ),
        (
            "[Broker id=1] Leader t-0 with topic id None starts at leader epoch 4 from offset 12 with partition "
            "epoch 5, high watermark 3, ISR [1,2], adding replicas [] and removing replicas [] . Previous leader "
            "None and previous leader epoch was -1.",
            {
                "event": "became_leader",
                "api": "LEADER_AND_ISR",
                "broker": 1,
                "role": "broker",
                "topic": "t",
                "partition": 0,
                "leader_epoch": 4,
                "partition_epoch": 5,
                "isr": [1, 2],
            },
        ),
        # Kafka 0.10.
        (
            "Broker 1 received LeaderAndIsr request PartitionState(controllerEpoch=1, leader=1, leaderEpoch=0, "
            "isr=[1, 2], zkVersion=0, replicas=[1, 2]) correlation id 4 from controller 2 epoch 3 for partition "
            "[a-b,7]",
            {
                "event": "receive_leader_and_isr",
                "api": "LEADER_AND_ISR",
                "broker": 1,
                "role": "broker",
                "controller_id": 2,
                "controller_epoch": 3,
                "correlation_id": 4,
                "topic": "a-b",
                "partition": 7,
                "leader": 1,
                "leader_epoch": 0,
                "partition_epoch": 0,
                "isr": [1, 2],
                "replicas": [1, 2],
            },
        ),
        (
            "Error on broker 4 while processing LeaderAndIsr request correlationId 5 received from controller 1 "
            "epoch 2 for partition [t,0]",
            {
                "event": "failed",
                "api": "LEADER_AND_ISR",
                "broker": 4,
                "role": "broker",
                "controller_id": 1,
                "controller_epoch": 2,
                "correlation_id": 5,
                "topic": "t",
                "partition": 0,
            },
        ),
        (
            "Controller 1 epoch 2 sent LeaderAndIsr request (Leader:1,ISR:1,LeaderEpoch:2,ControllerEpoch:1) with new "
            "assigned replica list 1,2 to leader 1 for partition being reassigned [t,0]",
            {
                "event": "reassigned",
                "api": "LEADER_AND_ISR",
                "broker": 1,
                "role": "controller",
                "controller_id": 1,
                "controller_epoch": 2,
                "to": [1],
                "topic": "t",
                "partition": 0,
                "leader": 1,
                "leader_epoch": 2,
                "isr": [1],
                "replicas": [1, 2],
            },
        ),
        # Of a later version.
        (
            "[Broker id=1] Reticulating partition a-b-7 with correlation id 4",
            {
                "event": OTHER,
                "broker": 1,
                "role": "broker",
                "correlation_id": 4,
                "topic": "a-b",
                "partition": 7,
            },
        ),
        # A number beyond int32.
        (
            "[Broker id=1] Handling StopReplica request correlationId 99999999999 from controller 4 for 2 partitions",
            {
                "event": "request_received",
                "api": "STOP_REPLICA",
                "broker": 1,
                "role": "broker",
                "controller_id": 4,
                "count": 2,
            },
        ),
    ],
)
def test_messages_are_parsed(message: str, values: dict[str, object]) -> None:
    assert _values(f"{_AT} TRACE {message} (state.change.logger)") == values


_IDS = st.integers(-1, 2**31 - 1)
_LISTS = st.lists(st.integers(0, 2**31 - 1), max_size=4)
_TOPICS = st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True)
_WORDS = st.from_regex(r"[A-Za-z]{1,9}", fullmatch=True)
_TOPIC_IDS = st.from_regex(r"[A-Za-z0-9_-]{22}", fullmatch=True)


@pytest.mark.parametrize(("event", "text"), [(one.event, one.text) for one in messages.MESSAGES])
@settings(max_examples=15)
@given(data=st.data())
def test_every_message_of_the_table_is_parsed(event: str, text: str, data: st.DataObject) -> None:
    """Fill the placeholders with random values: the entry has the event and these values."""
    filled: dict[str, Any] = {}

    def fill(placeholder: re.Match[str]) -> str:
        name = placeholder[1]
        if name == "tp":
            filled["topic"], filled["partition"] = data.draw(_TOPICS), data.draw(st.integers(0, 2**31 - 1))
            return f"{filled['topic']}-{filled['partition']}"
        if name in ("isr", "replicas", "tos"):
            filled[{"tos": "to"}.get(name, name)] = ids = data.draw(_LISTS)
            listed = ", ".join(map(str, ids))
            return {"isr": f"[{listed}]", "replicas": listed, "tos": f"HashSet({listed})"}[name]
        if name in ("topic_id", "maybe_topic_id"):
            filled["topic_id"] = data.draw(_TOPIC_IDS)
            return f"Some({filled['topic_id']})" if name == "maybe_topic_id" else str(filled["topic_id"])
        columns = {
            "controller": "controller_id",
            "epoch": "controller_epoch",
            "correlation": "correlation_id",
            "from": "from_state",
            "target": "to_state",
        }
        if name in ("from", "target", "word", "any"):
            value: object = data.draw(_WORDS)
        elif name == "api":
            value = data.draw(st.sampled_from(["LEADER_AND_ISR", "STOP_REPLICA", "UPDATE_METADATA"]))
        elif name == "count":
            value = data.draw(st.integers(0, 2**31 - 1))
        elif name == "error":
            value = data.draw(_WORDS)
        elif name == "delete":
            filled["delete"] = data.draw(st.booleans())
            return "true" if filled["delete"] else "false"
        elif name == "address":
            filled["to"] = [data.draw(_IDS)]
            return f"{data.draw(_WORDS)}:9092 (id: {filled['to'][0]} rack: null)"
        elif name == "assignment":
            filled["replicas"] = data.draw(_LISTS)
            return f"ReplicaAssignment(replicas={','.join(map(str, filled['replicas']))}, addingReplicas=)"
        elif name == "state":
            return "SomePartitionState(isNew=true)"
        elif name == "answer":
            return "SomeResponseData(errorCode=0)"
        elif name == "offline":
            return "a-0,b-1"
        else:
            value = data.draw(_IDS)
            if name == "to":
                value = [value]
        filled[columns.get(name, name)] = value
        return str(value[0] if isinstance(value, list) else value)

    message = re.sub(r"\{(\w+)\}", fill, text)
    found = parse(f"{_AT} INFO [Broker id=8] {message} (state.change.logger)", _UTC)
    if event == "stale_leader_epoch" and filled["leader_epoch"] == filled["known_epoch"]:
        event = "already_known"
    assert found.event == event
    values = {name: getattr(found, name) for name in filled if name in Entry.__slots__}
    assert values == {name: value for name, value in filled.items() if name in Entry.__slots__}


@given(st.text())
@example(f"{_AT} INFO ")
@example(f"{_AT} INFO [Broker id={'9' * 5000}] Leader t-0")
@example(f"{_AT} INFO [Broker id=1] Received response X({'(' * 99}")
def test_anything_is_an_entry_or_a_bad_line(text: str) -> None:
    for candidate in (text, f"{_AT} WARN {text}", f"{_AT} {text}"):
        with suppress(BadLineError):
            begins_entry(candidate)
            entry = parse(candidate, _UTC)
            assert entry.level in ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL")


def test_an_entry_of_several_lines() -> None:
    """Parse a message of several lines, and a stack trace, which log4j appends after the logger's name."""
    entry = parse(
        f"{_AT} ERROR [Controller id=1 epoch=2] Controller 1 epoch 2 failed to change state for partition t-0 "
        "from NewPartition to OnlinePartition (state.change.logger)\n"
        "kafka.common.StateChangeFailedException: no live replicas\n"
        "\tat kafka.controller.ZkPartitionStateMachine.run(PartitionStateMachine.scala:289)",
        _UTC,
    )
    assert (entry.event, entry.topic, entry.partition) == ("partition_state_failed", "t", 0)
    assert entry.error == "kafka.common.StateChangeFailedException: no live replicas"

    several = parse(
        f"{_AT} WARN [Broker id=1] Ignoring StopReplica request (delete=true) from controller 1 with correlation "
        "id 7 epoch 2 for partition t-0 due to an unexpected java.io.IOException exception: first\nsecond "
        "(state.change.logger)",
        _UTC,
    )
    assert several.event == "refused"
    assert several.error == "an unexpected java.io.IOException exception: first\nsecond"


@pytest.mark.parametrize(
    ("head", "zone", "time"),
    [
        ("[2026-01-31 23:59:59,123] INFO ", "UTC", datetime(2026, 1, 31, 23, 59, 59, 123_000, UTC)),
        ("2026-01-31 23:59:59,123 WARNING ", "UTC", datetime(2026, 1, 31, 23, 59, 59, 123_000, UTC)),
        ("[2026-01-31T23:59:59.123] INFO ", "UTC", datetime(2026, 1, 31, 23, 59, 59, 123_000, UTC)),
        ("[2026-07-01 12:00:00,000] INFO ", "Europe/Berlin", datetime(2026, 7, 1, 10, tzinfo=UTC)),
        ("[2026-07-01 12:00:00,000] INFO ", "Asia/Kolkata", datetime(2026, 7, 1, 6, 30, tzinfo=UTC)),
        # The clock goes back at three: the first of the two hours counts.
        ("[2026-10-25 02:30:00,000] INFO ", "Europe/Berlin", datetime(2026, 10, 25, 0, 30, tzinfo=UTC)),
    ],
)
def test_times_are_parsed(head: str, zone: str, time: datetime) -> None:
    assert begins_entry(head)
    entry = parse(head + "x", ZoneInfo(zone))
    assert entry.time == round(time.timestamp() * 1_000_000)
    assert entry.level in ("INFO", "WARN")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("[2026-02-30 10:00:00,000] INFO x", "there is no such time: 2026-02-30 10:00:00,000"),
        ("[2026-01-31 24:00:00,000] INFO x", "there is no such time"),
        ("[2026-01-31 10:60:00,000] INFO x", "there is no such time"),
        ("[2026-01-31 10:00:00,000] NOISE x", "no level follows"),
        ("[2026-01-31 10:00:00,0", "no level follows"),
    ],
)
def test_invalid_heads_are_refused(line: str, reason: str) -> None:
    def read() -> None:
        begins_entry(line)
        parse(line, _UTC)

    with pytest.raises(BadLineError, match=reason):
        read()


@pytest.fixture
def ours() -> Iterator[io.StringIO]:
    """Captures the lines that ctrlchan's own logger writes in Kafka's layout."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter(LAYOUT))
    logger = logging.getLogger("state.change.logger")
    logger.addHandler(handler)
    before = logger.level
    logger.setLevel(TRACE)
    yield stream
    logger.setLevel(before)
    logger.removeHandler(handler)


def test_lines_of_our_own_logger(ours: io.StringIO) -> None:
    state = ClusterState.empty(controller_id=4, controller_epoch=7)
    state.add_topic("or-ders", {0: [1, 2], 1: [2, 1]})
    state.update(state.rows_of_topic("or-ders"), leader=[1, 2], leader_epoch=3, isr=[[1, 2], [2]])
    log = StateChangeLogger(4, 7)
    log_leader_and_isr(log, state, [1], None, None)
    log_update_metadata(log, [1, 2], 2)
    for version in (2, 4):
        rows = np.array([0])
        for stops in stop_replicas(state, version, rows, np.zeros(1, np.uint8), stop_epochs(state, rows)):
            log_stop_replica(log, state, [2], stops)
    entries = [parse(line, _UTC) for line in ours.getvalue().splitlines()]
    assert [(one.event, one.to, one.partition, one.leader, one.isr) for one in entries] == [
        ("send_become_leader", [1], 0, 1, [1, 2]),
        ("send_become_follower", [1], 1, 2, [2]),
        ("request_sent", [1], None, None, None),
        ("request_sent", [1, 2], None, None, None),
        *[("send_stop_replica", [2], 0, None, None), ("request_sent", [2], None, None, None)] * 2,
    ]
    assert {(one.broker, one.controller_epoch, one.role) for one in entries} == {(4, 7, "controller")}
    assert {one.topic for one in entries} == {"or-ders", None}


def test_lines_of_our_own_controller(ours: io.StringIO) -> None:
    state = ClusterState.empty(controller_id=4, controller_epoch=7)
    state.add_topic("or-ders", {0: [1, 2], 1: [2, 1]})
    state.update(state.rows_of_topic("or-ders"), leader=[1, 2], leader_epoch=3, isr=[[1, 2], [2]])
    lines = StateChangeLines(ControllerContext(state, 7, 0), StateChangeLogger(4, 7), 4)
    lines.reassignments_sent(np.array([1]))
    lines.reassignments_failed(np.array([0]))
    lines.replicas_offline(np.array([0, 1]), 2)
    lines.error_response("UpdateMetadata", 11, "UpdateMetadataResponseData(errorCode=11)", 2)
    entries = [parse(line, _UTC) for line in ours.getvalue().splitlines()]
    assert [(one.event, one.partition, one.to, one.controller_epoch) for one in entries] == [
        ("reassigned", 1, [2], 7),
        ("reassignment_failed", 0, None, 7),
        ("replicas_offline", None, None, None),
        ("error_response", None, [2], None),
    ]
    assert {(one.broker, one.role) for one in entries} == {(4, "controller")}

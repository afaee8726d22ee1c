"""Tests of the explain job in Spark: data from logs, a journal and a snapshot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession

from ctrlchan import ClusterState
from ctrlchan.pipeline import ExplainConfig, MergeLogsConfig, TopicPartition, explain
from ctrlchan.pipeline.jobs.explain import job
from tests.spark.conftest import Command
from tests.spark.journals import NOW, row, write_file

_AT = "2026-02-02 02:40:00"  # NOW
_STATE = (
    "LeaderAndIsrPartitionState(topicName='t-x', partitionIndex=0, leader=1, leaderEpoch=4, isr=[1, 2], "
    "partitionEpoch=4, replicas=[1, 2])"
)
_LINES = {
    "broker-1": [
        f"TRACE [Controller id=1 epoch=3] Sending become-leader LeaderAndIsr request {_STATE} to broker 1 for "
        "partition t-x-0",
        f"TRACE [Controller id=1 epoch=3] Sending become-follower LeaderAndIsr request {_STATE} to broker 2 for "
        "partition t-x-0",
        f"TRACE [Broker id=1] Received LeaderAndIsr request {_STATE} correlation id 8 from controller 1 epoch 3",
        "INFO [Broker id=1] Leader t-x-0 with topic id None starts at leader epoch 4 from offset 0 with partition "
        "epoch 4, high watermark 0, ISR [1,2], adding replicas [] and removing replicas [] .",
        # Of others.
        "INFO [Broker id=1] Creating new partition t-0 with topic id None.",
        "INFO [Broker id=1] Creating new partition t-x-10 with topic id None.",
    ],
    "broker-2": [
        f"TRACE [Broker id=2] Received LeaderAndIsr request {_STATE} correlation id 8 from controller 1 epoch 3",
        "WARN [Broker id=2] Ignoring LeaderAndIsr request from controller 7 with correlation id 3 since its "
        "controller epoch 2 is old. Latest known controller epoch is 3",
        "INFO [Broker id=2] Add 0 partitions and deleted 0 partitions from metadata cache in response to "
        "UpdateMetadata request sent by controller 1 epoch 3 with correlation id 9",
    ],
}


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    for broker, lines in _LINES.items():
        (tmp_path / "logs" / broker).mkdir(parents=True)
        text = "".join(f"[{_AT},{at:03d}] {line} (x)\n" for at, line in enumerate(lines))
        (tmp_path / "logs" / broker / "state-change.log").write_text(text)
    return tmp_path / "logs"


def _config(logs: Path, **settings: Any) -> ExplainConfig:
    return ExplainConfig(partition=TopicPartition("t-x", 0), logs=MergeLogsConfig(logs=logs), **settings)


def test_entries_and_context_from_logs(spark: SparkSession, logs: Path) -> None:
    history = explain(spark, _config(logs))
    assert len(history.entries) == 5
    assert [(one.kind, one.broker) for one in history.faults] == [("not_applied", 2)]
    coverage = {one.broker: (one.entries, one.traces, one.epochs) for one in history.context.coverage}
    # Entries that broker 1 wrote as controller do not count as its traces. Kafka 2.6 and later say that a leader
    # starts, that a partition is created, and how many partitions were cached.
    assert coverage == {1: (6, 1, 3), 2: (3, 1, 1)}
    assert [(one.controller_id, one.controller_epoch) for one in history.context.terms] == [(1, 3)]
    (refused,) = history.context.refusals
    assert (refused.broker, refused.controller_id, refused.count, refused.known_epoch) == (2, 7, 1, 3)
    assert "requests_refused" in {one.kind for one in history.findings}


def test_too_many_entries_are_truncated(
    spark: SparkSession, logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "MOST_ENTRIES", 2)
    history = explain(spark, _config(logs))
    assert len(history.entries) == 2
    assert "truncated" in {one.kind for one in history.findings}


def test_requests_from_the_journal(spark: SparkSession, logs: Path, tmp_path: Path) -> None:
    """Requests that brokers logged, found by their correlation id near that time, and those that name it."""
    mine: dict[str, Any] = {"api": 4, "controller_id": 1, "correlation_id": 8}
    rows = [
        row(2, **mine, attempts=3, took=1.5),
        # The same correlation id, on another connection, long before; of another controller; of another API.
        row(2, **mine, ended=5_000, outcome="refused", error_code=31),
        row(2, **(mine | {"controller_id": 5}), outcome="refused"),
        row(2, **(mine | {"api": 6}), outcome="refused"),
        row(
            2, api=6, controller_id=1, outcome="broker gone", partitions=["t-x-0", "a-1"], correlation_id=None
        ),
        row(2, api=6, controller_id=1, outcome="broker gone", partitions=["t-x-1"], correlation_id=None),
    ]
    write_file(tmp_path / "journal", rows)
    history = explain(spark, _config(logs, journal=tmp_path / "journal"))
    found = {(one.api, one.outcome, one.attempts): one.milliseconds for one in history.context.requests}
    assert found == {
        ("LEADER_AND_ISR", "acknowledged", 3): pytest.approx(1500),
        ("UPDATE_METADATA", "broker gone", 1): pytest.approx(2),
    }
    assert len(history.context.requests) == 2
    assert all(abs(one.time - NOW * 10**6) < 10**6 for one in history.context.requests)
    kinds = [(one.kind, one.severity) for one in history.findings if one.kind.startswith("request_")]
    assert kinds == [("request_failed", "fault"), ("request_repeated", "note")]


@pytest.mark.parametrize(("leader_epoch", "differs"), [(4, False), (5, True)])
def test_a_row_from_a_snapshot(
    spark: SparkSession, logs: Path, tmp_path: Path, leader_epoch: int, differs: bool
) -> None:
    state = ClusterState.empty(controller_id=1, controller_epoch=3)
    state.add_topic("t-x", {0: [1, 2], 1: [2, 1]})
    state.update(np.arange(2), leader=1, leader_epoch=leader_epoch, isr=[[1, 2], [1, 2]])
    state.write(tmp_path / "snapshot")
    history = explain(spark, _config(logs, snapshot=tmp_path / "snapshot"))
    assert ("snapshot_differs" in {one.kind for one in history.faults}) == differs
    assert history.context.snapshot is not None
    assert history.context.snapshot.isr == (1, 2)


def test_the_command(command: Command, logs: Path) -> None:
    done = command("explain", "t-x-0", logs, "--json")
    assert done.returncode == 0, done.stderr
    history = json.loads(done.stdout)
    assert history["findings"][0]["kind"] == "not_applied"
    assert history["findings"][0]["time"] == "2026-02-02T02:40:00.001Z"
    wrong = command("explain", "t-x", logs)
    assert wrong.returncode == 1
    assert "error: 't-x' is not TOPIC-PARTITION" in wrong.stderr

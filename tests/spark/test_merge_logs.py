"""Tests of merge-logs: order, filters and rejects; as a function, as a command, and on a cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from ctrlchan.errors import ConfigError, PipelineError
from ctrlchan.pipeline import MergeLogsConfig, merge_logs
from ctrlchan.pipeline.jobs.merge_logs import job
from tests.spark.conftest import Command
from tests.spark.log_files import START, LogFolder, Written, random_logs
from tests.spark.standalone import StandaloneCluster


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> LogFolder:
    return random_logs(tmp_path_factory.mktemp("logs"), seed=11, entries=60)


@pytest.fixture(
    params=[
        pytest.param("128m", marks=pytest.mark.long, id="whole files"),
        pytest.param("5000", id="small pieces"),
    ]
)
def piece(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[None]:
    for name, value in (("maxPartitionBytes", request.param), ("openCostInBytes", "0")):
        spark.conf.set(f"spark.sql.files.{name}", value)
    yield
    for name in ("maxPartitionBytes", "openCostInBytes"):
        spark.conf.unset(f"spark.sql.files.{name}")


@pytest.mark.usefixtures("piece")
def test_entries_are_ordered_as_in_plain_python(
    spark: SparkSession, logs: LogFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "STREAMED_BYTES", 20_000)
    with merge_logs(spark, MergeLogsConfig(logs=logs.folder)) as merged:
        assert merged.counts == job.LogCounts(
            lines=logs.lines,
            entries=len(logs.entries),
            entry_lines=logs.lines - len(logs.rejects),
            rejected=len(logs.rejects),
        )
        rows = merged.entries.select("time", "broker", "file", "line", "text", "topic", "partition").collect()
        assert [tuple(row)[1:] for row in rows] == [
            (one.broker, one.file, one.line, one.text, one.topic, one.partition) for one in logs.in_order
        ]
        assert [row["time"].astimezone(UTC) for row in rows] == [one.time for one in logs.in_order]
        assert list(merged.texts()) == [one.text for one in logs.in_order]
        rejected = [(row["file"], row["line"], row["text"]) for row in merged.rejected()]
        assert rejected == sorted(logs.rejects)
        assert all(row["reason"] for row in merged.rejects.collect())


def _of(topics: set[str], partitions: set[int]) -> Callable[[Written], bool]:
    return lambda one: one.topic in topics and one.partition in partitions


@pytest.mark.parametrize(
    ("filters", "kept"),
    [
        ({"topics": ["a-1"]}, _of({"a-1"}, {0, 1, 2})),
        ({"topics": ["a-1", "a"], "partitions": [0, 2]}, _of({"a-1", "a"}, {0, 2})),
        ({"topic_pattern": "a[-.].*"}, _of({"a-1", "a.b"}, {0, 1, 2})),
        ({"topic_pattern": "a|b", "partitions": [1]}, _of({"a"}, {1})),
        ({"topics": ["nothing"]}, lambda one: False),
        (
            {"start": START + timedelta(milliseconds=100), "end": datetime(2026, 1, 31, 10, 0, 1)},
            lambda one: START + timedelta(milliseconds=100) <= one.time <= START + timedelta(seconds=1),
        ),
    ],
)
def test_entries_are_filtered(
    spark: SparkSession, logs: LogFolder, filters: dict[str, Any], kept: Callable[[Written], bool]
) -> None:
    with merge_logs(spark, MergeLogsConfig(logs=logs.folder, **filters)) as merged:
        assert list(merged.texts()) == [one.text for one in logs.in_order if kept(one)]
        # Filters apply to entries, not to rejects.
        assert merged.rejects.count() == len(logs.rejects)


def test_responses_with_topic_ids_belong_to_the_topic(spark: SparkSession, tmp_path: Path) -> None:
    topic_id = "rF41Lbl0Tk-lREojfrGsiA"
    answer = (
        "Received response LeaderAndIsrResponseData(errorCode=0, partitionErrors=[], topics=["
        f"LeaderAndIsrTopicError(topicId={topic_id}, partitionErrors=[LeaderAndIsrPartitionError(topicName="
        "'', partitionIndex=2, errorCode=11)])]) for request LEADER_AND_ISR with correlation id 1 sent to "
        "broker h:1 (id: 1 rack: null)"
    )
    made = f"Creating new partition t-2 with topic id {topic_id}."
    (tmp_path / "state-change.log").write_text(
        f"[2026-01-31 10:00:00,000] INFO [Broker id=1] {made} (x)\n"
        f"[2026-01-31 10:00:00,001] TRACE [Controller id=2 epoch=2] {answer} (x)\n"
    )
    for partitions, events in (((), 2), ((2,), 2), ((3,), 0)):
        config = MergeLogsConfig(logs=tmp_path, topics=["t"], partitions=partitions)
        with merge_logs(spark, config) as merged:
            assert merged.entries.count() == events
    with merge_logs(spark, MergeLogsConfig(logs=tmp_path, topics=["other"])) as merged:
        assert merged.entries.count() == 0


def test_time_zones_and_brokers_of_files(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("east/state-change.log", "broker-7/state-change.log", "west/state-change.log"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("2026-07-01 12:00:00,000 INFO an entry without a broker\n")
    config = MergeLogsConfig(
        logs=tmp_path, time_zone="Europe/Berlin", time_zones={"east/*": "Asia/Tokyo"}, brokers={"west/*": 9}
    )
    with merge_logs(spark, config) as merged:
        rows = [(row["time"].astimezone(UTC).hour, row["broker"]) for row in merged.entries.collect()]
    assert rows == [(3, None), (10, 7), (10, 9)]


@pytest.mark.parametrize(
    "wrong",
    [
        {"partitions": [1]},
        {"topic_pattern": "("},
        {"time_zone": "Mars/Olympus"},
        {"start": START, "end": datetime(2026, 1, 31, 9)},
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        MergeLogsConfig(logs="x", **wrong)


def test_missing_logs_are_an_error(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"state-change\.log"):
        merge_logs(spark, MergeLogsConfig(logs=tmp_path))


def _run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ctrlchan", "pipeline", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, env=dict(os.environ))


def test_the_command(command: Command, logs: LogFolder, tmp_path: Path) -> None:
    merged, rejects = tmp_path / "merged.log", tmp_path / "rejects.jsonl"
    options = ("--topic", "a-1", "--partitions", "0,1")
    ran = command("merge-logs", logs.folder, *options, "-o", merged, "--rejects", rejects, "--json")
    assert ran.returncode == 0, ran.stderr
    kept = [one for one in logs.in_order if _of({"a-1"}, {0, 1})(one)]
    assert merged.read_text() == "".join(f"{one.text}\n" for one in kept)
    rejected = [json.loads(line) for line in rejects.read_text().splitlines()]
    assert [(one["file"], one["line"], one["text"]) for one in rejected] == sorted(logs.rejects)
    assert json.loads(ran.stdout)["lines"] == logs.lines

    again = command("merge-logs", logs.folder, "-o", merged)
    assert again.returncode == 2
    assert "--overwrite" in again.stderr


@pytest.mark.long
def test_on_a_cluster(logs: LogFolder, tmp_path: Path, cluster: StandaloneCluster) -> None:
    output = tmp_path / "entries"
    options = ("-o", output, "--format", "parquet", "--json", *cluster.arguments())
    ran = _run("merge-logs", logs.folder, *options)
    assert ran.returncode == 0, ran.stderr
    found = pq.read_table(output / "entries")
    assert sorted(map(str, found["text"].to_pylist())) == sorted(one.text for one in logs.entries)
    assert pq.read_table(output / "rejects").num_rows == len(logs.rejects)
    assert json.loads((output / "merged.json").read_text())["rejected"] == len(logs.rejects)

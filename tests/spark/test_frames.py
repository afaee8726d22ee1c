"""Frames made on executors are, byte for byte, what the controller's own batch and channel send."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ctrlchan
from ctrlchan._codec import (
    LEADER_AND_ISR,
    STOP_REPLICA,
    UPDATE_METADATA,
    ControlRequestBody,
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from ctrlchan.channel.coalescing.bodies import decode_frame_body
from ctrlchan.errors import ConfigError
from ctrlchan.pipeline import FramesConfig, frames, read_frames, read_snapshot, write_frames
from ctrlchan.pipeline.spark.tables import of_arrow
from ctrlchan.state.importing.generate import GeneratorConfig, generate
from ctrlchan.state.storage.schemas import PARTITIONS
from tests.spark.cores import Cores
from tests.spark.events import Controller, some_state
from tests.spark.reference import full_push, shuffled
from tests.spark.standalone import StandaloneCluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: The newest versions of all, the first flexible ones, and the oldest.
PROTOCOLS = ("3.9", "2.4", "0.9.0")


def a_state(**settings: Any) -> ctrlchan.ClusterState:
    """Return a state with different epochs and racks, deletions, and partitions without a leader."""
    config = GeneratorConfig(
        **({"topics": 40, "partitions_per_topic": 25, "brokers": 7, "racks": 3} | settings)
    )
    state = generate(config)
    state.set_brokers(
        ctrlchan.Broker(broker.id, 100 + broker.id, broker.endpoints, broker.rack)
        for broker in (state.broker(broker_id) for broker_id in state.broker_ids.tolist())
    )
    rows = len(state.partitions)
    some = np.random.default_rng(1).permutation(rows)
    state.update(some[: rows // 50], leader_epoch=-1)
    state.update(some[rows // 50 : rows // 25], leader=-1, isr=[])
    state.update(some[rows // 4 : rows // 2], partition_epoch=9, leader_epoch=4, adding=[5, 6], removing=[1])
    state.mark_topics_deleting([state.topic_name(3), state.topic_name(17)])
    return state


def made(dataframe: DataFrame) -> dict[int, list[bytes]]:
    """Broker id -> its frames in order, which the other columns must describe."""
    found: dict[int, list[bytes]] = {}
    for row in dataframe.orderBy("broker", "sequence").toArrow().to_pylist():
        of_broker = found.setdefault(row["broker"], [])
        assert row["sequence"] == len(of_broker)
        body = decode_frame_body(row["frame"])
        assert (
            row["api"]
            == {
                LeaderAndIsrRequest: LEADER_AND_ISR,
                StopReplicaRequest: STOP_REPLICA,
                UpdateMetadataRequest: UPDATE_METADATA,
            }[type(body)]
        )
        assert row["bytes"] == len(row["frame"])
        assert (row["version"], row["controller_epoch"]) == (body.version, body.controller_epoch)
        assert row["rows"] == body.topic_starts[-1]
        of_broker.append(row["frame"])
    return found


def bodies(dataframe: DataFrame) -> dict[int, list[ControlRequestBody]]:
    return {broker: [decode_frame_body(one) for one in of] for broker, of in made(dataframe).items()}


@pytest.mark.parametrize(
    ("topics", "ibp"),
    [(100, PROTOCOLS[0]), *(pytest.param(1_000, ibp, marks=pytest.mark.long) for ibp in PROTOCOLS)],
)
def test_topics_of_a_hundred_partitions_for_thirty_brokers(
    spark: SparkSession, tmp_path: Path, topics: int, ibp: str
) -> None:
    state = a_state(topics=topics, partitions_per_topic=100, brokers=30)
    state.write(tmp_path / "snapshot")
    config = FramesConfig(inter_broker_protocol=ibp, max_request_bytes=100 * 2**20)
    write_frames(frames(spark, read_snapshot(spark, tmp_path / "snapshot"), config), tmp_path / "frames")
    read = read_frames(spark, tmp_path / "frames")
    assert read.frames.count() == 3 * 30
    assert made(read.frames) == full_push(state, config.channel(state.controller_id))
    assert read.about["controller_epoch"] == state.controller_epoch


@pytest.mark.parametrize("ibp", PROTOCOLS)
@pytest.mark.parametrize("limit", [pytest.param(20_000, marks=pytest.mark.long), 3_000])
def test_frames_under_a_limit_are_cut_where_the_channel_cuts(
    spark: SparkSession, tmp_path: Path, ibp: str, limit: int
) -> None:
    state = a_state()
    state.write(tmp_path / "snapshot")
    config = FramesConfig(inter_broker_protocol=ibp, max_request_bytes=limit, tasks=3)
    found = made(frames(spark, read_snapshot(spark, tmp_path / "snapshot"), config).frames)
    assert found == full_push(state, config.channel(state.controller_id))
    assert all(len(one) <= limit + 4 for of in found.values() for one in of)
    assert all(len(of) > 3 for of in found.values())


def test_the_order_of_rows_and_files_of_a_snapshot_does_not_matter(
    spark: SparkSession, tmp_path: Path
) -> None:
    state = a_state()
    state.write(tmp_path / "snapshot")
    shuffled(tmp_path / "snapshot", 5)
    config = FramesConfig(max_request_bytes=9_000, tasks=2)
    found = made(frames(spark, read_snapshot(spark, tmp_path / "snapshot"), config).frames)
    assert found == full_push(state, config.channel(state.controller_id))


def test_a_broker_may_have_a_protocol_of_its_own(spark: SparkSession, tmp_path: Path) -> None:
    state = a_state()
    state.write(tmp_path / "snapshot")
    protocols = {2: "2.8", 5: "1.0", 6: "2.8"}
    config = FramesConfig(broker_protocols=protocols, controller_id=77, client_id="somebody")
    found = made(frames(spark, read_snapshot(spark, tmp_path / "snapshot"), config).frames)
    assert found == full_push(state, config.channel(0), protocols=protocols)


def test_only_the_chosen_apis(spark: SparkSession, tmp_path: Path) -> None:
    state = a_state()
    state.write(tmp_path / "snapshot")
    source = read_snapshot(spark, tmp_path / "snapshot")
    config = FramesConfig(apis=["UpdateMetadata"], controller_epoch=state.controller_epoch)
    expected = full_push(state, config.channel(state.controller_id))
    metadata = {broker: of[-1:] for broker, of in expected.items()}
    assert made(frames(spark, source, config).frames) == metadata
    leaders = {broker: of[1:2] for broker, of in expected.items()}
    assert made(frames(spark, source, FramesConfig(apis=["LeaderAndIsr"])).frames) == leaders


def test_fresh_brokers_lead_and_follow_all_their_replicas(spark: SparkSession, tmp_path: Path) -> None:
    """A broker takes no LeaderAndIsr for a leader that is not live to it; it acknowledges the request."""
    state = generate(GeneratorConfig(topics=100, partitions_per_topic=10, brokers=10, replication=3))
    state.write(tmp_path / "snapshot")
    fresh = Cores(state)
    made_frames = frames(spark, read_snapshot(spark, tmp_path / "snapshot"), FramesConfig()).frames
    fresh.handle(made_frames.orderBy("broker", "sequence").collect())
    counts = [core.describe()["replicas"] for core in fresh.cores.values()]
    assert sum(one["led"] for one in counts) == 1_000
    assert sum(one["followed"] for one in counts) == 2_000


def test_fresh_brokers_get_the_replicas_that_a_history_has_given_to_others(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Also while topics are being deleted: their replicas are gone, and must not be made again."""
    history = Controller(some_state(topics=40), random.Random(0))
    for _ in range(55):
        history.step()
    assert history.state.deletion_in_progress
    history.state.write(tmp_path / "snapshot")
    fresh = Cores(history.state)
    made_frames = frames(spark, read_snapshot(spark, tmp_path / "snapshot"), FramesConfig()).frames
    fresh.handle(made_frames.orderBy("broker", "sequence").collect())
    assert {broker: core.describe()["replicas"] for broker, core in fresh.cores.items()} == {
        broker: core.describe()["replicas"] for broker, core in history.cores.cores.items()
    }


def test_the_last_frame_completes_the_metadata_of_a_broker(spark: SparkSession, tmp_path: Path) -> None:
    state = a_state()
    state.write(tmp_path / "snapshot")
    result = frames(spark, read_snapshot(spark, tmp_path / "snapshot"), FramesConfig(max_request_bytes=9_000))
    assert (result.about["state_id"], result.about["state_version"]) == (
        state.changes.id,
        state.changes.version,
    )
    for broker in state.broker_ids.tolist():
        rows = result.frames.where(f"broker = {broker}").orderBy("sequence").collect()
        assert [row["from_version"] for row in rows] == [None] * (len(rows) - 1) + [-1]
        assert {row["state_version"] for row in rows} == {state.changes.version}


def test_a_cluster_without_partitions_gets_its_brokers(spark: SparkSession, tmp_path: Path) -> None:
    state = ctrlchan.ClusterState.empty("nothing yet", 3, 8)
    state.set_brokers(generate(GeneratorConfig(topics=0, brokers=3)).brokers)
    state.write(tmp_path / "snapshot")
    found = made(frames(spark, read_snapshot(spark, tmp_path / "snapshot")).frames)
    assert found == full_push(state, FramesConfig().channel(3))


def test_a_reader_never_holds_more_than_a_few_frames_at_once(spark: SparkSession, tmp_path: Path) -> None:
    a_state().write(tmp_path / "snapshot")
    source = read_snapshot(spark, tmp_path / "snapshot")
    write_frames(frames(spark, source, FramesConfig(max_request_bytes=3_000, tasks=1)), tmp_path / "frames")
    [file] = (tmp_path / "frames" / "frames").glob("*.parquet")
    groups = pq.read_metadata(file)
    sizes = [groups.row_group(number).num_rows for number in range(groups.num_row_groups)]
    assert sum(sizes) > 100
    assert max(sizes) <= 16


def test_each_file_is_in_order_and_brokers_are_not_divided(spark: SparkSession, tmp_path: Path) -> None:
    state = a_state()
    state.write(tmp_path / "snapshot")
    source = read_snapshot(spark, tmp_path / "snapshot")
    write_frames(frames(spark, source, FramesConfig(max_request_bytes=9_000, tasks=3)), tmp_path / "frames")
    files = [pq.read_table(file) for file in sorted((tmp_path / "frames" / "frames").glob("*.parquet"))]
    keys = [list(zip(t["broker"].to_pylist(), t["sequence"].to_pylist(), strict=True)) for t in files]
    assert len(keys) == 3
    assert list(chain(*keys)) == sorted(chain(*keys))
    assert len({broker for of_file in keys for broker, _ in of_file}) == sum(len(dict(one)) for one in keys)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda table: pa.concat_tables([table, table.slice(5, 2)]), "2 partitions occur more than once"),
        (
            lambda table: table.set_column(3, "controller_epoch", pa.array([None] * len(table), pa.int32())),
            "controller_epoch of topic-.* is null",
        ),
    ],
)
def test_invalid_rows_are_named(spark: SparkSession, tmp_path: Path, change: Any, words: str) -> None:
    a_state().write(tmp_path / "snapshot")
    file = tmp_path / "snapshot" / "partitions.parquet"
    pq.write_table(change(pq.read_table(file)), file)
    result = frames(spark, read_snapshot(spark, tmp_path / "snapshot"))
    with pytest.raises(Exception, match=words):
        result.frames.count() if "null" not in words else result.frames.toArrow()


def test_invalid_settings() -> None:
    with pytest.raises(ConfigError, match="apis: StopReplica"):
        FramesConfig(apis=["StopReplica"])
    with pytest.raises(ConfigError, match="inter_broker_protocol"):
        FramesConfig(broker_protocols={1: "4.0"})
    with pytest.raises(ConfigError, match="tasks"):
        FramesConfig(tasks=0)


# -- differences


class _Difference:
    def __init__(self, spark: SparkSession, state: ctrlchan.ClusterState, rows: list[dict[str, Any]]) -> None:
        plain = {
            "topic_id": bytes(16),
            "controller_epoch": 5,
            "leader": 1,
            "leader_epoch": 3,
            "partition_epoch": 2,
            "recovery_state": 0,
            "isr": [1, 2],
            "replicas": [1, 2],
            "adding_replicas": [],
            "removing_replicas": [],
            "offline_replicas": [],
            "changed": True,
            "gone": False,
            "is_new": False,
            "delete": False,
            "broker": None,
        }
        schema = PARTITIONS
        for name, kind in (("step", pa.int32()), ("api", pa.int16()), ("broker", pa.int32())):
            schema = schema.append(pa.field(name, kind))
        for name in ("changed", "gone", "is_new", "delete"):
            schema = schema.append(pa.field(name, pa.bool_()))
        schema = pa.schema([field.with_nullable(True) for field in schema])
        self.rows = of_arrow(
            spark, pa.Table.from_pylist([plain | row for row in rows], schema=schema), schema
        )
        _, brokers = state.to_arrow()
        scopes = pa.array(["all", "brokers", "rows"][: len(brokers)])
        self.brokers = spark.createDataFrame(brokers.append_column("update_metadata", scopes))
        self.cluster: dict[str, Any] = {
            "cluster_id": "c",
            "controller_id": 4,
            "controller_epoch": 5,
            "state_id": "s",
            "state_version": 12,
            "from_version": 10,
        }


def _row(step: int, broker: int | None, topic: str, partition: int, **values: Any) -> dict[str, Any]:
    api = {0: STOP_REPLICA, 1: LEADER_AND_ISR, 2: UPDATE_METADATA, 3: STOP_REPLICA}[step]
    return {"step": step, "api": api, "broker": broker, "topic": topic, "partition": partition, **values}


def _names(body: ControlRequestBody) -> list[tuple[str | None, int]]:
    starts, names = body.topic_starts, body.topics.names.to_list()
    numbers = body.partition if isinstance(body, StopReplicaRequest) else body.partitions.partition
    return [
        (name, int(number))
        for name, start, end in zip(names, starts[:-1], starts[1:], strict=True)
        for number in numbers[start:end]
    ]


@pytest.mark.parametrize("ibp", ["3.9", "2.2"])
def test_a_difference_gives_each_broker_its_steps_in_order(spark: SparkSession, ibp: str) -> None:
    state = generate(GeneratorConfig(topics=1, brokers=3))
    rows = [
        _row(0, 1, "again", 0, delete=True, leader_epoch=-2),
        _row(1, 1, "again", 0, is_new=True),
        _row(1, 1, "a", 2, leader=2),
        _row(1, 2, "a", 2, leader=2),
        _row(2, None, "again", 0),
        _row(2, None, "a", 2, leader=2),
        _row(2, None, "a", 1, changed=False),
        _row(2, None, "a", 0, gone=True, leader=-2, leader_epoch=0),
        _row(3, 2, "b", 1, delete=True, leader_epoch=7),
        _row(3, 2, "b", 0, leader_epoch=6),
    ]
    difference = _Difference(spark, state, rows)
    result = frames(spark, difference, FramesConfig(inter_broker_protocol=ibp, tasks=2))
    found = bodies(result.frames)
    # Broker 0: everything. Broker 1: the live brokers before LeaderAndIsr, then the changes. Broker 2: the
    # changes.
    everything = [("a", 1), ("a", 2), ("a", 0), ("again", 0)]
    [update] = found[0]
    assert isinstance(update, UpdateMetadataRequest)
    assert _names(update) == everything
    assert update.partitions.leader.tolist() == [1, 2, -2, 1]
    stop, live, leaders, update = found[1]
    assert isinstance(stop, StopReplicaRequest)
    assert isinstance(leaders, LeaderAndIsrRequest)
    assert isinstance(update, UpdateMetadataRequest)
    assert isinstance(live, UpdateMetadataRequest)
    assert (len(live.partitions), len(live.live_brokers)) == (0, 3)
    assert _names(stop) == [("again", 0)]
    assert stop.delete.tolist() == [1]
    assert _names(leaders) == [("a", 2), ("again", 0)]
    assert leaders.is_new.tolist() == [0, 1]
    assert sorted(leaders.live_leaders.ids.tolist()) == [1, 2]
    assert _names(update) == [("a", 2), ("a", 0), ("again", 0)]
    assert len(update.live_brokers) == 3
    leaders, same, *stops = found[2]
    assert isinstance(leaders, LeaderAndIsrRequest)
    assert isinstance(same, UpdateMetadataRequest)
    assert _names(same) == _names(update)
    assert leaders.live_leaders.ids.tolist() == [2]
    assert all(isinstance(stop, StopReplicaRequest) for stop in stops)
    if ibp == "3.9":
        [stop] = stops
        assert isinstance(stop, StopReplicaRequest)
        assert _names(stop) == [("b", 0), ("b", 1)]
        assert (stop.delete.tolist(), stop.leader_epoch.tolist()) == ([0, 1], [6, 7])
    else:
        assert [_names(stop) for stop in stops] == [[("b", 1)], [("b", 0)]]
    versions = {(row["broker"], row["api"]): row["from_version"] for row in result.frames.collect()}
    assert versions[0, UPDATE_METADATA] == -1
    assert versions[1, UPDATE_METADATA] == 10
    assert versions[1, LEADER_AND_ISR] is None


def test_a_difference_without_partitions_has_the_live_brokers(spark: SparkSession) -> None:
    state = generate(GeneratorConfig(topics=1, brokers=3))
    found = bodies(frames(spark, _Difference(spark, state, [])).frames)
    assert set(found) == {0, 1}
    for [body] in found.values():
        assert isinstance(body, UpdateMetadataRequest)
        assert len(body.partitions) == 0
        assert len(body.live_brokers) == 3


# -- the command, and a cluster that loses an executor


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_command_on_a_cluster_whose_executor_is_killed(
    cluster: StandaloneCluster, tmp_path: Path
) -> None:
    state = a_state(topics=400, partitions_per_topic=100, brokers=12)
    state.write(tmp_path / "snapshot")
    output = tmp_path / "frames"
    arguments = [
        "pipeline",
        "frames",
        str(tmp_path / "snapshot"),
        "-o",
        str(output),
        "--json",
        "--tasks",
        "12",
    ]
    with subprocess.Popen(
        [sys.executable, "-m", "ctrlchan", *arguments, *cluster.arguments()],
        stdout=subprocess.PIPE,
        env=dict(os.environ),
    ) as job:
        watcher = _kill_one_with_work(cluster, job)
        printed, _ = job.communicate(timeout=240)
        watcher.join()
    assert job.returncode == 0
    assert watcher.killed
    summary = json.loads(printed)
    read = pq.read_table(output / "frames")
    expected = full_push(state, FramesConfig().channel(state.controller_id))
    assert summary["frames"] == len(read) == sum(map(len, expected.values()))
    found: dict[int, list[bytes]] = {}
    for row in sorted(read.to_pylist(), key=lambda row: (row["broker"], row["sequence"])):
        found.setdefault(row["broker"], []).append(row["frame"])
    assert found == expected


class _Killer(threading.Thread):
    """Kills an executor while it makes frames: as soon as it runs Python."""

    def __init__(self, cluster: StandaloneCluster, job: subprocess.Popen[bytes]) -> None:
        super().__init__()
        self._cluster = cluster
        self._job = job
        self.killed = 0

    def run(self) -> None:
        while self._job.poll() is None and not self.killed:
            for executor in self._cluster.executors():
                try:
                    workers = executor.children(recursive=True)
                    if len(workers) >= 2:  # the daemon, and a worker that it has forked
                        executor.kill()
                        self.killed = executor.pid
                        return
                except psutil.NoSuchProcess:
                    continue


def _kill_one_with_work(cluster: StandaloneCluster, job: subprocess.Popen[bytes]) -> _Killer:
    killer = _Killer(cluster, job)
    killer.start()
    return killer

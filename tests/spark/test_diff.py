"""ctrlchan pipeline diff: brokers with the old snapshot that get the diff then have the new snapshot."""

from __future__ import annotations

import json
import random
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ctrlchan.errors import PipelineError
from ctrlchan.state import ClusterState
from tests.spark.conftest import Command, large_inputs
from tests.spark.cores import replicas_of
from tests.spark.events import Controller, some_state
from tests.unit.batch.manual_channel import broker, metadata_of

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession


class Pair:
    """Two snapshots on disk and the diff between them."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder

    def diff(self, old: ClusterState, new: ClusterState) -> tuple[list[Row], dict[int, str]]:
        """Return (rows for each broker, rows that each gets by UpdateMetadata), written and read again."""
        from ctrlchan.pipeline import DiffConfig, diff, read_diff, write_diff

        old.write(self.folder / "old", overwrite=True)
        new.write(self.folder / "new", overwrite=True)
        found = diff(self.spark, DiffConfig(old=str(self.folder / "old"), new=str(self.folder / "new")))
        write_diff(found, self.folder / "diff", overwrite=True)
        read = read_diff(self.spark, self.folder / "diff")
        rows = read.per_broker().collect()
        return rows, {row["id"]: row["update_metadata"] for row in read.brokers.collect()}

    def frames(self) -> list[Row]:
        """Frames of the diff on the disk, in the order of each broker."""
        from ctrlchan.pipeline import frames, read_diff

        made = frames(self.spark, read_diff(self.spark, self.folder / "diff")).frames
        return made.orderBy("broker", "sequence").collect()


@pytest.fixture
def pair(spark: SparkSession, tmp_path: Path) -> Pair:
    return Pair(spark, tmp_path)


def summaries(rows: list[Row]) -> list[tuple[Any, ...]]:
    """(broker, api, topic-partition with its marks), sorted."""
    names = {4: "LeaderAndIsr", 5: "StopReplica", 6: "UpdateMetadata"}
    return sorted(
        (
            row["broker"],
            names[row["api"]],
            f"{row['topic']}-{row['partition']}"
            + ("!" if row["is_new"] else "")
            + ("x" if row["delete"] else "")
            + (" gone" if row["leader"] == -2 else ""),
        )
        for row in rows
    )


def small_state() -> ClusterState:
    """t-0 on 1, 2; t-1 on 2, 3."""
    state = ClusterState.empty(cluster_id="c", controller_id=1, controller_epoch=5)
    state.set_brokers([broker(one, 100) for one in (1, 2, 3)])
    state.add_topic("t", {0: [1, 2], 1: [2, 3]}, topic_id=b"t" * 16)
    state.update(0, leader=1, leader_epoch=3, isr=[1, 2])
    state.update(1, leader=2, leader_epoch=3, isr=[2, 3])
    return state


# An odd seed applies the rows of the diff, which large queries have found; an even one its frames.
@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 6))]
)
def test_a_broker_with_the_old_snapshot_and_the_diff_has_the_new_one(pair: Pair, seed: int) -> None:
    rng = random.Random(seed)
    state = some_state(topics=40)
    before = Controller(state, rng)
    for _ in range(15):
        before.step()
    state.write(pair.folder / "start")
    old = ClusterState.read(pair.folder / "start")
    # Brokers that know the old snapshot, by the driver's own batch.
    brokers = Controller(old, rng).cores

    happened = [before.step() for _ in range(40)]
    with large_inputs(pair.spark) if seed % 2 else nullcontext():
        rows, receivers = pair.diff(old, state)
    brokers.follow(state)
    if seed % 2:
        brokers.apply(rows, receivers, state)
    else:
        brokers.handle(pair.frames())

    assert brokers.cores.keys() == before.cores.cores.keys() == receivers.keys()
    for broker_id, core in brokers.cores.items():
        twin = before.cores.cores[broker_id]
        assert metadata_of(core.metadata.state) == metadata_of(twin.metadata.state) == metadata_of(state), (
            happened
        )
        assert replicas_of(core) == replicas_of(twin), (broker_id, happened)
    if seed > 1:
        # Another diff is empty.
        assert pair.diff(state, state) == ([], dict.fromkeys(receivers, "rows"))


def test_a_new_leader(pair: Pair) -> None:
    old, new = small_state(), small_state()
    new.update(0, leader=2, leader_epoch=4, partition_epoch=1)
    rows, receivers = pair.diff(old, new)
    assert summaries(rows) == [
        (1, "LeaderAndIsr", "t-0"), (1, "UpdateMetadata", "t-0"),
        (2, "LeaderAndIsr", "t-0"), (2, "UpdateMetadata", "t-0"),
        (3, "UpdateMetadata", "t-0"),
    ]  # fmt: skip
    assert receivers == dict.fromkeys((1, 2, 3), "rows")


def test_a_smaller_isr_is_for_metadata_alone(pair: Pair) -> None:
    old, new = small_state(), small_state()
    new.update(0, isr=[1], partition_epoch=1)
    rows, _ = pair.diff(old, new)
    assert summaries(rows) == [(one, "UpdateMetadata", "t-0") for one in (1, 2, 3)]


def test_changes_outside_metadata_give_no_rows(pair: Pair) -> None:
    old, new = small_state(), small_state()
    new.update(0, recovery_state=1)
    new.controller_epoch = 9
    assert pair.diff(old, new) == ([], dict.fromkeys((1, 2, 3), "rows"))


def test_a_replica_that_moves(pair: Pair) -> None:
    old, new = small_state(), small_state()
    new.update(0, replicas=[3, 2], leader=2, leader_epoch=4, isr=[2, 3])
    rows, _ = pair.diff(old, new)
    assert [row for row in summaries(rows) if row[1] != "UpdateMetadata"] == [
        (1, "StopReplica", "t-0x"),
        (2, "LeaderAndIsr", "t-0"),
        (3, "LeaderAndIsr", "t-0!"),
    ]
    (stop,) = (row for row in rows if row["api"] == 5)
    assert (stop["leader_epoch"], stop["step"]) == (4, 3)


def test_topics_queued_for_deletion_being_deleted_and_removed(pair: Pair) -> None:
    old, new = small_state(), small_state()
    for state in (old, new):
        state.add_topic("u", {0: [1]}, leader=1, leader_epoch=0, isr=[1])
        state.add_topic("v", {0: [1]}, leader=1, leader_epoch=0, isr=[1])
    new.mark_topics_deleting(["t", "u"])
    new.set_deletion_in_progress(["u"])
    new.remove_topics(["v"])
    rows, _ = pair.diff(old, new)
    gone = [f"{name} gone" for name in ("t-0", "t-1", "u-0", "v-0")]
    assert [name for one, api, name in summaries(rows) if (one, api) == (3, "UpdateMetadata")] == gone
    stops = {
        (row["broker"], row["topic"], row["leader_epoch"], row["delete"]) for row in rows if row["api"] == 5
    }
    assert stops == {(1, "u", -2, True), (1, "v", -2, True)}
    assert not [row for row in rows if row["api"] == 4]
    deletions = {
        row["topic"]: (row["gone"], bytes(row["topic_id"]), row["isr"]) for row in rows if row["broker"] == 3
    }
    # Kafka keeps the ISR of what is queued for deletion; for what is removed the ISR is empty.
    assert deletions == {
        "t": (False, b"t" * 16, [2, 3]), "u": (False, bytes(16), [1]), "v": (True, bytes(16), []),
    }  # fmt: skip
    # What was queued before is not sent again; the brokers that were stopped are not stopped again.
    last = small_state()
    rows, _ = pair.diff(new, last)
    assert {row["topic"] for row in rows} == {"t"}
    assert {(row["api"], row["leader"]) for row in rows} == {(6, 1), (6, 2)}


def test_a_topic_created_again_is_stopped_first(pair: Pair) -> None:
    old, new = small_state(), small_state()
    new.remove_topics(["t"])
    new.add_topic("t", {0: [3]}, topic_id=b"u" * 16, leader=3, leader_epoch=0, isr=[3])
    rows, _ = pair.diff(old, new)
    steps = {(row["broker"], row["step"], row["api"], row["partition"]) for row in rows if row["api"] != 6}
    assert steps == {
        (1, 0, 5, 0), (2, 0, 5, 0),
        (3, 1, 4, 0),
        # Not there in the new one: the order does not matter.
        (2, 3, 5, 1), (3, 3, 5, 1),
    }  # fmt: skip
    one = [
        (row["partition"], row["leader"], bytes(row["topic_id"]))
        for row in rows
        if row["broker"] == 1 and row["step"] == 2
    ]
    assert sorted(one) == [(0, 3, b"u" * 16), (1, -2, b"u" * 16)]


def test_brokers_come_go_and_restart(pair: Pair) -> None:
    old, new = small_state(), small_state()
    new.set_brokers([broker(1, 100), broker(2, 200), broker(4, 100)])
    rows, receivers = pair.diff(old, new)
    assert receivers == {1: "brokers", 2: "all", 4: "all"}
    by_broker = {
        one: [row for row in summaries(rows) if row[0] == one and (one != 1 or row[1] != "UpdateMetadata")]
        for one in receivers
    }
    # t-1 has another offline replica now.
    assert [row for row in summaries(rows) if row[:2] == (1, "UpdateMetadata")] == [
        (1, "UpdateMetadata", "t-1")
    ]
    assert by_broker == {
        1: [],
        2: [
            (2, "LeaderAndIsr", "t-0"), (2, "LeaderAndIsr", "t-1"),
            (2, "UpdateMetadata", "t-0"), (2, "UpdateMetadata", "t-1"),
        ],
        4: [(4, "UpdateMetadata", "t-0"), (4, "UpdateMetadata", "t-1")],
    }  # fmt: skip


def test_without_epochs_a_broker_is_known_by_its_address(pair: Pair) -> None:
    from ctrlchan.state import Broker, Endpoint, SecurityProtocol

    old, new = small_state(), small_state()
    moved = Broker(2, -1, (Endpoint("PLAINTEXT", SecurityProtocol.PLAINTEXT, "elsewhere", 1),), "r1")
    old.set_brokers([broker(1, -1), broker(2, -1), broker(3, 100)])
    new.set_brokers([broker(1, -1), moved, broker(3, 100)])
    assert pair.diff(old, new)[1] == {1: "brokers", 2: "all", 3: "brokers"}


def test_a_broker_that_shuts_down_stops_following(pair: Pair) -> None:
    old, new = small_state(), small_state()
    new.set_shutting_down([2])
    rows, _ = pair.diff(old, new)
    assert [row for row in summaries(rows) if row[1] != "UpdateMetadata"] == [(2, "StopReplica", "t-0")]


def test_undeliverable_changes_are_counted(command: Command, tmp_path: Path) -> None:
    old, new = small_state(), small_state()
    new.update(0, leader=2)
    old.write(tmp_path / "a")
    new.write(tmp_path / "b")
    words = ("diff", tmp_path / "a", tmp_path / "b", tmp_path / "out")
    ran = command(*words, "--json")
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == {
        "diff": str(tmp_path / "out"),
        "leader_and_isr_rows": 0,
        "update_metadata_rows": 1,
        "stop_replica_rows": 0,
        "brokers": 3,
        "brokers_with_all_rows": 0,
        "undeliverable": 1,
    }
    again = command(*words)
    assert (again.returncode, again.stdout) == (1, "")
    assert "already there" in again.stderr


def test_a_diff_of_version_1_is_read(pair: Pair) -> None:
    """Its brokers have the column ``told`` in place of ``update_metadata``."""
    import pyarrow.parquet as pq

    from ctrlchan.pipeline import read_diff

    old, new = small_state(), small_state()
    new.set_brokers([broker(1, 100), broker(2, 200), broker(3, 100)])
    rows, receivers = pair.diff(old, new)
    file = pair.folder / "diff" / "diff.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "format_version": 1}))
    brokers = pair.folder / "diff" / "brokers.parquet"
    pq.write_table(pq.read_table(brokers).rename_columns({"update_metadata": "told"}), brokers)
    read = read_diff(pair.spark, pair.folder / "diff")
    assert {row["id"]: row["update_metadata"] for row in read.brokers.collect()} == receivers
    assert summaries(read.per_broker().collect()) == summaries(rows)


def test_snapshots_of_two_clusters(pair: Pair) -> None:
    old, new = small_state(), small_state()
    new.cluster_id = "another"
    with pytest.raises(PipelineError, match="snapshots of two clusters: 'c' and 'another'"):
        pair.diff(old, new)

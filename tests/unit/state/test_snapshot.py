"""Snapshot folders: a written state is read back, and every error of a folder is one line."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ctrlchan.errors import SnapshotError
from ctrlchan.state import Broker, ClusterState, Endpoint, SecurityProtocol
from ctrlchan.state.brokers import brokers_list
from tests.unit.state.helpers import rows_of, small_state


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "cluster"
    small_state().write(path)
    return path


def assert_equal(one: ClusterState, other: ClusterState) -> None:
    assert rows_of(one) == rows_of(other)
    assert one.topics.names.to_list() == other.topics.names.to_list()
    assert one.topics.ids.tolist() == other.topics.ids.tolist()
    assert one.topics.deleting is not None
    assert other.topics.deleting is not None
    assert one.topics.deleting.tolist() == other.topics.deleting.tolist()
    assert brokers_list(one.brokers) == brokers_list(other.brokers)
    assert one.describe() == other.describe()
    assert one.deletion_in_progress == other.deletion_in_progress


def test_round_trip_of_everything(tmp_path: Path) -> None:
    state = small_state()
    endpoints = (
        Endpoint("INTERNAL", SecurityProtocol.PLAINTEXT, "b4", 9092),
        Endpoint("CLIENTS", SecurityProtocol.SASL_SSL, "::1", 9093),
    )
    state.add_brokers([Broker(4, 2**40, endpoints, "rack-ü")])
    state.update(1, adding=[4], removing=[2], recovery_state=1, leader_epoch=-1)
    state.set_offline_dirs(3, [2])
    state.set_shutting_down([1])
    state.mark_topics_deleting(["a", "c"])
    state.set_deletion_in_progress(["c"])
    state.write(tmp_path / "deep" / "cluster")
    assert_equal(ClusterState.read(str(tmp_path / "deep" / "cluster")), state)


def test_an_empty_state(tmp_path: Path) -> None:
    ClusterState.empty("e").write(tmp_path / "e")
    state = ClusterState.read(tmp_path / "e")
    assert (len(state.topics), len(state.partitions), len(state.brokers)) == (0, 0, 0)
    assert (state.cluster_id, state.controller_id, state.controller_epoch) == ("e", -1, 0)


def test_topics_added_later_are_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    state = small_state()
    state.add_topic("Z", {0: [1]})
    assert state.topic_row("Z") == 3
    state.write(tmp_path / "s")
    again = ClusterState.read(tmp_path / "s")
    assert again.topics.names.to_list() == ["Z", "a", "b", "c"]
    assert rows_of(again) == rows_of(state)


def test_what_other_programs_find_in_the_files(folder: Path) -> None:
    schema = pq.read_schema(folder / "partitions.parquet")
    assert schema.names == [
        "topic", "topic_id", "partition", "controller_epoch", "leader", "leader_epoch", "partition_epoch",
        "recovery_state", "isr", "replicas", "adding_replicas", "removing_replicas", "offline_replicas",
        "row_version",
    ]  # fmt: skip
    assert schema.field("topic").type == pa.string()
    assert schema.field("row_version").type == pa.int64()
    assert schema.field("topic_id").type == pa.binary(16)
    assert schema.field("leader").type == pa.int32()
    assert pa.types.is_list(schema.field("isr").type)
    assert pq.read_schema(folder / "brokers.parquet").names == ["id", "epoch", "rack", "endpoints"]
    cluster = json.loads((folder / "cluster.json").read_text())
    assert len(cluster.pop("state_id")) == 32
    assert cluster == {
        "format": "ctrlchan-snapshot", "format_version": 1, "cluster_id": "test", "controller_id": 1,
        "controller_epoch": 5, "state_version": 0, "brokers_version": 0,
    }  # fmt: skip


# -- versions


def test_a_state_goes_on_counting_where_its_snapshot_ended(tmp_path: Path) -> None:
    state = small_state()
    # Rows of a topic that comes last here and first in the file: the versions move with them.
    state.add_topic("Z", {0: [1], 1: [1]})
    assert state.changes.version == 0
    state.set_brokers([])
    start = state.changes.version
    state.update(state.row("b", 0), leader=1)
    state.update(state.row("Z", 1), leader=1)
    state.write(tmp_path / "s")
    again = ClusterState.read(tmp_path / "s")
    ours, theirs = state.changes, again.changes
    assert (theirs.id, theirs.version, theirs.brokers) == (ours.id, ours.version, ours.brokers)
    for name, number in rows_of(state):
        assert theirs.rows[again.row(name, number)] == ours.rows[state.row(name, number)]
    assert theirs.rows[again.row("Z", 1)] == start + 2
    again.update(again.row("b", 0), leader=1)
    assert theirs.rows[again.row("b", 0)] == theirs.version == ours.version + 1
    again.write(tmp_path / "s", overwrite=True)
    assert ClusterState.read(tmp_path / "s").changes.version == theirs.version


def test_writing_begins_to_count(tmp_path: Path) -> None:
    state = small_state()
    state.write(tmp_path / "s")
    state.update(0, leader=1)
    written = ClusterState.read(tmp_path / "s").changes
    assert (written.id, written.version) == (state.changes.id, 0)
    assert state.changes.version == 1


def test_an_older_snapshot_has_no_versions(folder: Path) -> None:
    table = pq.read_table(folder / "partitions.parquet").drop_columns(["row_version"])
    pq.write_table(table, folder / "partitions.parquet", store_schema=False)
    cluster = json.loads((folder / "cluster.json").read_text())
    old = {name: value for name, value in cluster.items() if not name.endswith(("_version", "state_id"))}
    (folder / "cluster.json").write_text(json.dumps({**old, "format_version": 1}))
    changes = ClusterState.read(folder).changes
    assert changes.id != cluster["state_id"]
    assert (changes.version, changes.rows.max()) == (0, 0)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"state_id": 5}, "state_id is 5, expected a text"),
        ({"state_id": ""}, "state_id is '', expected a text"),
        ({"state_version": -1}, "state_version is -1, expected a whole number"),
        ({"state_version": None}, "state_version is None, expected a whole number"),
        ({"brokers_version": 3}, r"brokers_version is 3, expected a whole number in 0 \.\. 2"),
    ],
)
def test_versions_that_cannot_be(folder: Path, changed: dict[str, Any], reason: str) -> None:
    cluster = json.loads((folder / "cluster.json").read_text())
    (folder / "cluster.json").write_text(json.dumps({**cluster, "state_version": 2, **changed}))
    with pytest.raises(SnapshotError, match=rf"cluster\.json: {reason}"):
        ClusterState.read(folder)


@pytest.mark.parametrize(
    ("versions", "reason"),
    [
        (pa.array([0, 1, None, 0]), "row 2 .*row_version is null"),
        (pa.array([0, 1, 3, 0]), "row 2 .*row_version 3 is not in 0 .. 2"),
        (pa.array([0, -1, 0, 0]), "row 1 .*row_version -1 is not in 0 .. 2"),
        (pa.array([0, 1, 2, 0], pa.int32()), "column row_version has type int32, expected int64"),
    ],
)
def test_row_versions_that_cannot_be(folder: Path, versions: Any, reason: str) -> None:
    cluster = json.loads((folder / "cluster.json").read_text())
    (folder / "cluster.json").write_text(json.dumps({**cluster, "state_version": 2}))
    table = pq.read_table(folder / "partitions.parquet").slice(0, 4).drop_columns(["row_version"])
    pq.write_table(table.append_column("row_version", versions), folder / "partitions.parquet")
    with pytest.raises(SnapshotError, match=rf"partitions\.parquet.*: {reason}"):
        ClusterState.read(folder)


# -- writing


def test_a_folder_that_is_there_is_replaced_only_when_asked_for(folder: Path) -> None:
    other = ClusterState.empty("other")
    with pytest.raises(SnapshotError, match=r"cluster: exists; to replace it ask for that"):
        other.write(folder)
    assert ClusterState.read(folder).cluster_id == "test"
    other.write(folder, overwrite=True)
    assert ClusterState.read(folder).cluster_id == "other"
    assert [path.name for path in folder.parent.iterdir()] == ["cluster"]


def test_only_snapshots_and_empty_folders_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    ClusterState.empty().write(tmp_path / "empty", overwrite=True)
    (tmp_path / "file").write_text("mine")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "file").write_text("mine")
    with pytest.raises(SnapshotError, match="file: exists and is not a folder"):
        ClusterState.empty().write(tmp_path / "file", overwrite=True)
    with pytest.raises(SnapshotError, match="home: exists and is not a snapshot, so it is not overwritten"):
        ClusterState.empty().write(tmp_path / "home", overwrite=True)
    assert (tmp_path / "home" / "file").read_text() == "mine"
    with pytest.raises(SnapshotError, match="cannot be written"):
        ClusterState.empty().write(tmp_path / "file" / "below")


def test_a_write_that_fails_leaves_what_was_there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_arguments: Any, **_options: Any) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(pq, "write_table", full)
    with pytest.raises(SnapshotError, match=r"cannot be written \(No space left on device\)"):
        ClusterState.empty("other").write(folder, overwrite=True)
    assert ClusterState.read(folder).cluster_id == "test"
    assert [path.name for path in folder.parent.iterdir()] == ["cluster"]


def test_a_rename_that_fails_puts_the_old_folder_back(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rename = Path.rename

    def refuse_into_place(self: Path, target: Path) -> Path:
        if target == folder and not self.name.endswith("-old"):
            raise OSError("refused")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", refuse_into_place)
    with pytest.raises(SnapshotError, match="refused"):
        ClusterState.empty("other").write(folder, overwrite=True)
    monkeypatch.undo()
    assert ClusterState.read(folder).cluster_id == "test"
    assert [path.name for path in folder.parent.iterdir()] == ["cluster"]


# -- part files


def parts(folder: Path, *tables: pa.Table) -> Path:
    path = folder / "partitions.parquet"
    path.unlink()
    path.mkdir()
    (path / "_SUCCESS").touch()
    (path / ".part-0.crc").write_bytes(b"x")
    for number, one in enumerate(tables):
        pq.write_table(one, path / f"part-{number:05}.parquet")
    return path


def test_a_folder_of_part_files(folder: Path) -> None:
    before = ClusterState.read(folder)
    whole = pq.read_table(folder / "partitions.parquet")
    parts(folder, whole.slice(3), whole.slice(0, 1), whole.slice(1, 2))
    assert_equal(ClusterState.read(folder), before)


def test_bad_rows_of_part_files_are_named_by_their_file(folder: Path) -> None:
    whole = pq.read_table(folder / "partitions.parquet")
    parts(folder, whole.slice(0, 2), whole.slice(0, 3), whole.slice(3))
    with pytest.raises(SnapshotError) as caught:
        ClusterState.read(folder)
    assert str(caught.value) == (
        f"{folder / 'partitions.parquet'}: 2 bad rows: "
        "part-00001.parquet row 0 (a-0): the same partition as part-00000.parquet row 0; "
        "part-00001.parquet row 1 (a-1): the same partition as part-00000.parquet row 1"
    )


def test_part_files_that_do_not_fit_together(folder: Path) -> None:
    whole = pq.read_table(folder / "partitions.parquet")
    text = whole.set_column(4, "leader", pa.array(["x"] * 6))
    path = parts(folder, whole, text)
    with pytest.raises(SnapshotError, match="part files do not fit together"):
        ClusterState.read(folder)
    pq.write_table(whole.drop_columns(["isr"]), path / "part-00001.parquet")
    with pytest.raises(SnapshotError, match=r"part-00001\.parquet: no column isr"):
        ClusterState.read(folder)


def test_a_folder_without_part_files(folder: Path) -> None:
    parts(folder)
    with pytest.raises(SnapshotError, match=r"partitions\.parquet: a folder without part files"):
        ClusterState.read(folder)


# -- broken snapshots


def write_json(folder: Path, **changes: Any) -> None:
    path = folder / "cluster.json"
    cluster = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({name: value for name, value in cluster.items() if value is not ...}))


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def replace_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def change_partition(folder: Path, name: str, value: Any, kind: pa.DataType) -> None:
    path = folder / "partitions.parquet"
    table = pq.read_table(path)
    at = table.schema.get_field_index(name)
    values = table.column(name).to_pylist()
    values[2] = value
    pq.write_table(table.set_column(at, name, pa.array(values, kind)), path)


BREAKS: list[tuple[Callable[[Path], object], str]] = [
    (lambda f: (f / "cluster.json").unlink(), "cluster.json: no such file (is this a snapshot folder?)"),
    (lambda f: (f / "cluster.json").write_text("{"), "cluster.json: not JSON (Expecting property name"),
    (lambda f: (f / "cluster.json").write_bytes(b"\xff"), "cluster.json: cannot be read ("),
    (lambda f: (f / "cluster.json").write_text("[]"), "cluster.json: not a description of a snapshot"),
    (lambda f: write_json(f, format="other"), "cluster.json: not a description of a snapshot"),
    (lambda f: write_json(f, format_version=2), "cluster.json: format_version is 2, newer than the 1"),
    (
        lambda f: write_json(f, format_version=0),
        "cluster.json: format_version is 0, expected a number from 1",
    ),
    (lambda f: write_json(f, format_version="1"), "cluster.json: format_version is '1', expected a number"),
    (lambda f: write_json(f, cluster_id=...), "cluster.json: cluster_id is None, expected a text"),
    (lambda f: write_json(f, controller_id=True), "cluster.json: controller_id is True, expected a whole"),
    (lambda f: write_json(f, controller_epoch=2**31), "cluster.json: controller_epoch is 2147483648, exp"),
    (lambda f: write_json(f, shutting_down=[9]), "cluster.json: 9 is not in the snapshot"),
    (lambda f: write_json(f, shutting_down=["1"]), "cluster.json: shutting_down is ['1'], expected a list"),
    (lambda f: write_json(f, deleting=["nope"]), "cluster.json: 'nope' is not in the snapshot"),
    (lambda f: write_json(f, deleting="a"), "cluster.json: deleting is 'a', expected a list"),
    (lambda f: write_json(f, deletion_in_progress=["x"]), "cluster.json: 'x' is not in the snapshot"),
    (lambda f: (f / "partitions.parquet").unlink(), "partitions.parquet: no such file"),
    (lambda f: (f / "brokers.parquet").unlink(), "brokers.parquet: no such file"),
    (lambda f: replace_by_folder(f / "brokers.parquet"), "brokers.parquet: not a file"),
    (lambda f: truncate(f / "partitions.parquet"), "partitions.parquet: not a readable Parquet file ("),
    (lambda f: truncate(f / "brokers.parquet"), "brokers.parquet: not a readable Parquet file ("),
    (lambda f: (f / "brokers.parquet").write_bytes(b""), "brokers.parquet: not a readable Parquet file ("),
    (
        lambda f: change_partition(f, "leader", None, pa.int32()),
        "partitions.parquet: 1 bad row: row 2 (a-2): leader is null",
    ),
    (
        lambda f: change_partition(f, "partition", 1, pa.int64()),
        "partitions.parquet: 1 bad row: row 2 (a-1): the same partition as row 1",
    ),
    (
        lambda f: change_partition(f, "isr", [-1], pa.list_(pa.int32())),
        "partitions.parquet: 1 bad row: row 2 (a-2): isr [-1] names no broker id",
    ),
]


@pytest.mark.parametrize(("spoil", "reason"), BREAKS, ids=[reason for _, reason in BREAKS])
def test_a_broken_snapshot_is_one_error_line(
    folder: Path, spoil: Callable[[Path], object], reason: str
) -> None:
    spoil(folder)
    with pytest.raises(SnapshotError, match=re.escape(reason)) as caught:
        ClusterState.read(folder)
    assert str(caught.value).startswith(str(folder))
    assert "\n" not in str(caught.value)


def test_a_file_cut_in_its_middle(folder: Path) -> None:
    """Parquet's footer is at the end: damage before it shows when the columns are read."""
    path = folder / "partitions.parquet"
    whole = path.read_bytes()
    path.write_bytes(whole[:4] + bytes(200) + whole[204:])
    with pytest.raises(SnapshotError, match="not a readable Parquet file"):
        ClusterState.read(folder)


def test_what_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SnapshotError, match="file: not a folder"):
        ClusterState.read(tmp_path / "file")
    with pytest.raises(SnapshotError, match="nothing: no such folder"):
        ClusterState.read(tmp_path / "nothing")

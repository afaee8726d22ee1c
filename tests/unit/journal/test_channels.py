"""The status of channels beside the journal: unfinished requests are listed there and counted once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ctrlchan import EmbeddedCluster
from ctrlchan.batch import ControllerBrokerRequestBatch
from ctrlchan.channel import ControllerChannelManager, ControlRequest
from ctrlchan.channel.request import Coverage
from ctrlchan.errors import JournalError
from ctrlchan.journal import Journal, read_channels, read_journal
from ctrlchan.journal.channels import channel_files
from ctrlchan.journal.table import table_of
from ctrlchan.state import ClusterState
from ctrlchan.state.storage.schemas import CHANNELS, JOURNAL, JOURNAL_LATER, JOURNAL_VERSION_KEY
from tests.fault.channels import config, eventually, peers
from tests.fault.requests import update
from tests.unit.channel.bodies import PlainUpdate, shared_body_of
from tests.unit.journal.chunks import plain_chunk

FLUSH = 0.02


def brokers_of(journal: Path) -> dict[int, dict[str, Any]]:
    return {row["broker"]: row for row in read_channels(journal).to_pylist()}


def test_an_unfinished_request_is_listed_until_it_has_its_row(tmp_path: Path) -> None:
    coverage = Coverage("state", 3, "orders-0,orders-1")
    with (
        peers(2) as brokers,
        Journal(tmp_path, flush_interval=FLUSH) as journal,
        ControllerChannelManager(config(), 7, journal=journal) as channel,
    ):
        brokers[1].gate.clear()
        channel.startup([peer.broker for peer in brokers])
        request = update(1)
        request.state_version, request.coverage = 5, coverage
        sent = channel.send_requests([1, 2], request)
        channel.wait(sent[:1], 10)
        # Until both are connected, both may be listed.
        eventually(
            lambda: {one: len(row["requests"]) for one, row in brokers_of(tmp_path).items()} == {1: 0, 2: 1}
        )
        seen = brokers_of(tmp_path)
        [waiting] = seen[2]["requests"]
        assert (seen[1]["requests"], seen[1]["unfinished"], seen[2]["unfinished"]) == ([], 0, 1)
        assert seen[2]["unfinished_bytes"] == waiting["bytes"] == sent[1].request.size
        assert waiting["enqueue_ns"] == sent[1].enqueued_ns
        assert (waiting["api"], waiting["version"], waiting["controller_epoch"]) == (6, 8, 7)
        assert (waiting["state_id"], waiting["from_version"], waiting["state_version"]) == ("state", 3, 5)
        assert waiting["partitions"] == ["orders-0", "orders-1"]
        assert waiting["in_flight"]
        assert not seen[2]["closed"]
        assert read_journal(tmp_path)["broker"].to_pylist() == [1]
        brokers[1].gate.set()
        channel.wait(sent, 10)
        eventually(lambda: not brokers_of(tmp_path)[2]["requests"])
    rows = read_journal(tmp_path).to_pylist()
    assert len(rows) == 2
    assert [row["generation"] for row in rows] == [seen[row["broker"]]["generation"] for row in rows]
    [ended] = [row for row in rows if (row["broker"], row["enqueue_ns"]) == (2, waiting["enqueue_ns"])]
    assert ended["partitions"] == waiting["partitions"]
    closed = brokers_of(tmp_path)
    assert all(row["closed"] and row["outcomes"] == 2 for row in closed.values())


def test_merged_and_split_requests_are_listed_as_they_were_sent(tmp_path: Path) -> None:
    with (
        peers(1) as [peer],
        Journal(tmp_path, flush_interval=FLUSH) as journal,
        ControllerChannelManager(config(max_request_bytes=2_000), 7, journal=journal) as channel,
    ):
        peer.gate.clear()
        channel.startup([peer.broker])
        small = [shared_body_of(PlainUpdate(8, {"topic": (1, {number: 1})})) for number in range(8)]
        large = shared_body_of(
            PlainUpdate(8, {f"topic-{number}": (number + 1, {0: 1}) for number in range(60)})
        )
        requests = [ControlRequest(shared_body, 7, rows=shared_body.rows) for shared_body in (*small, large)]
        for number, request in enumerate(requests):
            request.coverage = Coverage("state", None, f"topic-{number}")
        sent = [channel.send_request(1, request) for request in requests]
        assert requests[-1].parts is not None
        eventually(lambda: len(brokers_of(tmp_path).get(1, {}).get("requests", [])) == len(sent))
        waiting = brokers_of(tmp_path)[1]["requests"]
        assert [one["partitions"] for one in waiting] == [[f"topic-{number}"] for number in range(9)]
        assert [one["enqueue_ns"] for one in waiting] == [one.enqueued_ns for one in sent]
        peer.gate.set()
        channel.wait(sent, 10)
    assert read_journal(tmp_path).num_rows == len(sent)


def test_a_new_generation_is_written_before_its_first_response(tmp_path: Path) -> None:
    with (
        peers(2) as [first, second],
        Journal(tmp_path, flush_interval=FLUSH) as journal,
        ControllerChannelManager(config(), 7, journal=journal) as channel,
    ):
        channel.startup([first.broker])
        channel.wait(channel.send_requests([1], update(0)), 10)
        assert journal.flush()
        [before] = read_channels(tmp_path).to_pylist()
        again = type(first.broker)(1, first.broker.epoch + 1, second.broker.endpoints)
        channel.add_broker(again)
        assert journal.flush()
        [after] = read_channels(tmp_path).to_pylist()
    assert after["generation"] > before["generation"]
    assert (before["broker_epoch"], after["broker_epoch"]) == (first.broker.epoch, again.epoch)
    assert after["since_at"] > before["since_at"]


def test_the_status_of_a_short_channel_is_closed(tmp_path: Path) -> None:
    with peers(1) as [peer], Journal(tmp_path) as journal:
        for _ in range(2):
            with ControllerChannelManager(config(), 7, journal=journal) as channel:
                channel.startup([peer.broker])
                channel.wait(channel.send_requests([1], update(0)), 10)
    rows = read_channels(tmp_path).to_pylist()
    assert len(channel_files(tmp_path)) == len(rows) == 2
    assert [(row["closed"], row["outcomes"], row["broker_epoch"]) for row in rows] == [(True, 1, 1001)] * 2


def test_journals_without_channels_are_read_and_newer_ones_refused(tmp_path: Path) -> None:
    assert read_channels(tmp_path).schema.equals(CHANNELS)
    older = table_of([plain_chunk(3)], "host", 0).drop_columns(sorted(JOURNAL_LATER))
    pq.write_table(older, tmp_path / "a.parquet")
    read = read_journal(tmp_path)
    assert read.schema.names == JOURNAL.names
    assert read["partitions"].null_count == read["state_id"].null_count == 3
    place = tmp_path / "_channels"
    place.mkdir()
    (place / "broken.parquet").write_bytes(b"PAR1")
    with pytest.raises(JournalError, match=r"broken\.parquet: not a whole Parquet file"):
        read_channels(tmp_path)
    table = CHANNELS.empty_table()
    pq.write_table(table.replace_schema_metadata({JOURNAL_VERSION_KEY: b"2"}), place / "broken.parquet")
    with pytest.raises(JournalError, match="journal version '2'"):
        read_channels(tmp_path)
    pq.write_table(table.drop_columns(["closed"]), place / "broken.parquet")
    with pytest.raises(JournalError, match="columns are missing: closed"):
        read_channels(tmp_path)


def test_files_of_channels_are_checked(tmp_path: Path) -> None:
    """A copied file would count each waiting request twice."""
    with (
        peers(1) as [peer],
        Journal(tmp_path) as journal,
        ControllerChannelManager(config(), 7, journal=journal) as channel,
    ):
        channel.startup([peer.broker])
        channel.wait(channel.send_requests([1], update(0)), 10)
    file = Path(str(channel_files(tmp_path)[0]))
    rows = pq.read_table(file)
    copy = file.with_name("copy.parquet")
    copy.write_bytes(file.read_bytes())
    with pytest.raises(JournalError, match=r"copy\.parquet: its rows are of another channel \(a copy\?\)"):
        read_channels(tmp_path)
    copy.unlink()
    for name, column, message in (
        ("state", pa.array([None], pa.string()), "rows have no state, which no journal writes; restore it"),
        ("unfinished", pa.array(["1"]), "column unfinished has type string, expected int64; restore it"),
    ):
        pq.write_table(rows.set_column(rows.column_names.index(name), name, column), file)
        with pytest.raises(JournalError, match=f"{file}: {message}"):
            read_channels(tmp_path)


@dataclass
class Pushing:
    """A controller of the topic "orders"."""

    channel: ControllerChannelManager
    state: ClusterState
    batch: ControllerBrokerRequestBatch

    def push(self, ids: list[int], rows: Any) -> None:
        self.batch.add_update_metadata(ids, rows)
        self.channel.wait(self.batch.send_requests_to_brokers(7), 10)


@contextmanager
def pushing(tmp_path: Path, brokers: int, partitions: int) -> Iterator[Pushing]:
    """Push to embedded brokers 1 to ``brokers``, which all have every partition."""
    with (
        EmbeddedCluster(count=brokers, log_dir=None) as cluster,
        Journal(tmp_path) as journal,
        ControllerChannelManager(config(), 7, journal=journal) as channel,
    ):
        state = ClusterState.empty(controller_epoch=7)
        state.set_brokers(cluster.brokers)
        replicas = {number: list(range(1, brokers + 1)) for number in range(partitions)}
        state.add_topic("orders", replicas, leader=1, leader_epoch=0)
        channel.startup(cluster.brokers)
        yield Pushing(channel, state, ControllerBrokerRequestBatch(channel, state))


def pushed(tmp_path: Path) -> tuple[ClusterState, list[dict[str, Any]]]:
    """Return the state and the journal rows after the usual pushes of a controller."""
    with pushing(tmp_path, 3, 100) as controller:
        channel, state, batch = controller.channel, controller.state, controller.batch

        def push(rows: Any) -> None:
            controller.push([1, 2, 3], rows)

        push("all")
        state.update(7, leader=2)
        push(7)
        state.update(slice(0, 80), leader=3)
        push(slice(0, 80))
        push("changed")
        state.update(slice(0, 70), leader=1)
        push("changed")
        state.update(1, leader=2)
        push(slice(2, 100))
        push(())
        batch.add_leader_and_isr([1], 5)
        batch.add_stop_replica([2], 6)
        channel.wait(batch.send_requests_to_brokers(7), 10)
    return state, read_journal(tmp_path).to_pylist()


def test_the_coverage_of_requests(tmp_path: Path) -> None:
    state, rows = pushed(tmp_path)
    covered = [
        (row["api"], row["from_version"], row["state_version"], row["partitions"])
        for row in rows
        if row["broker"] == 1
    ]
    everything, single, many, changed, changed_again, others, brokers_only, leader, leader_too = covered
    assert {row["state_id"] for row in rows} == {state.changes.id}
    assert all(row["outcome"] == "acknowledged" for row in rows)
    start = everything[2]
    assert everything == (6, -1, start, None)
    assert single == (6, None, start + 1, ["orders-7"])
    # It has all rows that changed at start + 2, and no others.
    assert many == (6, start, start + 2, [])
    # The first push of changes: only the push of all rows is remembered.
    assert changed[:3] == (6, start, start + 2)
    assert changed_again == (6, start + 2, start + 3, None)
    # A row that changed at this version is missing, so the others are named.
    assert others == (6, start + 4, start + 4, [f"orders-{number}" for number in range(2, 100)])
    assert brokers_only == (6, None, start + 4, [])
    assert (leader[0], leader[3]) == (4, ["orders-5"])
    assert (leader_too[0], leader_too[3]) == (6, ["orders-5"])
    [stop] = [row for row in rows if row["api"] == 5]
    assert (stop["broker"], stop["partitions"], stop["from_version"]) == (2, ["orders-6"], None)


def test_without_a_journal_there_is_no_coverage() -> None:
    with EmbeddedCluster(count=1, log_dir=None) as cluster, ControllerChannelManager(config(), 7) as channel:
        state = ClusterState.empty(controller_epoch=7)
        state.set_brokers(cluster.brokers)
        state.add_topic("orders", {0: [1]}, leader=1, leader_epoch=0)
        channel.startup(cluster.brokers)
        batch = ControllerBrokerRequestBatch(channel, state)
        batch.add_update_metadata([1], 0)
        [sent] = batch.send_requests_to_brokers(7)
        channel.wait([sent], 10)
    assert sent.request.coverage is None
    assert sent.request.state_version is None


def test_older_and_newer_rows_are_in_one_folder(tmp_path: Path) -> None:
    """Spark and Arrow ignore names that begin with an underscore."""
    pushed(tmp_path)
    older = table_of([plain_chunk(3, channel="older")], "host", 0).drop_columns(sorted(JOURNAL_LATER))
    pq.write_table(older, tmp_path / "20200101T000000.000000Z-000000.parquet")
    table = read_journal(tmp_path)
    assert table["channel"].to_pylist().count("older") == 3


def test_the_coverage_of_a_push_of_changes_after_named_rows(tmp_path: Path) -> None:
    """It leaves out rows that were named before, so it has no range of versions: its partitions are named,
    unless they are many."""
    with pushing(tmp_path, 2, 3_000) as controller:
        state, push = controller.state, controller.push
        push([1, 2], "changed")
        for missed in (slice(100, 200), slice(1000, 2500)):
            state.update(missed, leader=2)
            push([1], missed)
            state.update(7, leader=2)
            push([1, 2], 7)
            push([2], "changed")
    rows = [row for row in read_journal(tmp_path).to_pylist() if row["broker"] == 2]
    _, single, few, single_again, many = rows
    assert (single["partitions"], single_again["partitions"]) == (["orders-7"], ["orders-7"])
    assert few["rows"] == 100
    assert few["from_version"] == few["state_version"] == single["state_version"]
    assert few["partitions"] == [f"orders-{number}" for number in range(100, 200)]
    assert (many["rows"], many["from_version"], many["partitions"]) == (1500, None, None)

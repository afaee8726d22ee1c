"""Executors send all frames to their brokers, in order, once unless a process is killed."""

from __future__ import annotations

import os
import pickle
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ctrlchan
from ctrlchan.cli.push import push_state
from ctrlchan.errors import ConfigError, ErrorCode, PipelineError
from ctrlchan.journal import read_journal
from ctrlchan.pipeline import (
    DispatchConfig,
    Frames,
    FramesConfig,
    by_broker,
    diff_snapshots,
    dispatch,
    frames,
    read_frames,
    read_snapshot,
    write_frames,
)
from ctrlchan.pipeline.jobs.dispatch.checkpoint import checkpoints
from ctrlchan.pipeline.jobs.dispatch.job import sending_of
from ctrlchan.pipeline.jobs.dispatch.run import Run
from ctrlchan.pipeline.jobs.dispatch.sender import send_frames
from ctrlchan.state.importing.generate import GeneratorConfig, generate
from tests.fault.channels import eventually
from tests.spark.standalone import StandaloneCluster
from tests.spark.watched import Permits, WatchedBroker, numbers_of, steps_of, watched, without_correlation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EPOCH = 6


def a_state(brokers: Sequence[WatchedBroker], partitions: int = 1_000) -> ctrlchan.ClusterState:
    config = GeneratorConfig(
        topics=partitions // 25,
        partitions_per_topic=25,
        brokers=len(brokers),
        replication=min(2, len(brokers)),
        controller_epoch=EPOCH,
    )
    state = generate(config)
    state.set_brokers(one.broker for one in brokers)
    return state


def some_frames(
    spark: SparkSession,
    folder: Path,
    brokers: Sequence[WatchedBroker],
    *,
    limit: int = 4_000,
    partitions: int = 1_000,
) -> tuple[Frames, dict[int, list[bytes]]]:
    """Return frames, written to ``folder`` and read again, and the frames that each broker is to receive."""
    a_state(brokers, partitions).write(folder / "snapshot")
    source = read_snapshot(spark, folder / "snapshot")
    write_frames(frames(spark, source, FramesConfig(max_request_bytes=limit, tasks=2)), folder / "frames")
    return read_frames(spark, folder / "frames"), to_be_seen(folder / "frames")


def to_be_seen(folder: Path) -> dict[int, list[bytes]]:
    rows = pq.read_table(folder / "frames", columns=["broker", "sequence", "frame"]).to_pylist()
    seen: dict[int, list[bytes]] = {}
    for row in sorted(rows, key=lambda row: (row["broker"], row["sequence"])):
        seen.setdefault(row["broker"], []).append(without_correlation(row["frame"][4:]))
    return seen


def test_brokers_end_as_after_a_push(spark: SparkSession, tmp_path: Path) -> None:
    with watched(4) as ours, watched(4) as theirs:
        state = a_state(theirs)
        result = push_state(
            state, ctrlchan.ChannelConfig(controller_id=0, senders=1), EPOCH, rounds=1, timeout=60
        )
        assert result.ok
        found, _ = some_frames(spark, tmp_path, ours)
        metadata = Frames(found.frames.where("api = 6 AND rows > 0"), found.brokers, found.about)
        first = {one.broker.id: found.frames.where(f"broker = {one.broker.id} AND api = 4") for one in ours}
        assert all(of.count() > 2 for of in first.values())
        # Only UpdateMetadata, as a push; numbered anew, for a broker's frames have no gaps.
        push_only = frames(
            spark,
            read_snapshot(spark, tmp_path / "snapshot"),
            FramesConfig(apis=["UpdateMetadata"], max_request_bytes=4_000),
        )
        assert push_only.frames.count() == metadata.frames.count()
        sent = dispatch(spark, push_only, DispatchConfig(journal=tmp_path / "journal"))
        assert sent.ok
        assert [one.state() for one in ours] == [one.state() for one in theirs]
        assert len(ours[0].state()["partitions"]) == 1_000


def by_name(rows: list[dict[str, Any]]) -> dict[tuple[str, int], dict[str, Any]]:
    return {(row["topic"], row["partition"]): row for row in rows}


@pytest.mark.long
def test_after_a_difference_brokers_are_as_after_a_push_of_the_new_snapshot(
    spark: SparkSession, tmp_path: Path
) -> None:
    config = ctrlchan.ChannelConfig(controller_id=0, senders=1)
    with watched(3) as ours, watched(3) as theirs:
        for brokers, folder in ((ours, tmp_path / "ours"), (theirs, tmp_path / "theirs")):
            state = a_state(brokers)
            state.write(folder / "old")
            assert push_state(state, config, EPOCH, rounds=1, timeout=60).ok
            state.remove_topics([state.topic_name(4)])
            state.add_topic("fresh", {0: [0, 1], 1: [1, 2]})
            state.update(state.rows_of_topic("fresh"), leader=[0, 1], leader_epoch=0, isr=[[0, 1], [1, 2]])
            state.update(state.rows_of_topic(state.topic_name(9)), leader_epoch=5, leader=2)
            state.write(folder / "new")
        old, new = (read_snapshot(spark, tmp_path / "ours" / name) for name in ("old", "new"))
        changes = diff_snapshots(old, new)
        sent = dispatch(spark, frames(spark, changes), DispatchConfig(journal=tmp_path / "journal"))
        assert sent.ok
        state = ctrlchan.ClusterState.read(tmp_path / "theirs" / "new")
        with ctrlchan.ControllerChannelManager(config, EPOCH) as channel:
            channel.startup(state.brokers)
            batch = ctrlchan.ControllerBrokerRequestBatch(channel, state)
            batch.new_batch()
            batch.add_update_metadata([0, 1, 2], rows="all")
            assert len(channel.wait(batch.send_requests_to_brokers(EPOCH), 60)) == 3
        gone = a_state(ours).topic_name(4)
        for one, other in zip(ours, theirs, strict=True):
            received, wanted = (by_name(both.state()["partitions"]) for both in (one, other))
            assert received == {name: row for name, row in wanted.items() if name[0] != gone}
            assert len(received) == 1_000 - 25 + 2


def test_every_frame_once_in_order_and_no_frame_the_next_time(spark: SparkSession, tmp_path: Path) -> None:
    config = DispatchConfig(journal=tmp_path / "journal")
    with watched(5) as brokers:
        found, expected = some_frames(spark, tmp_path, brokers)
        counts = {broker: len(of) for broker, of in expected.items()}
        for _ in range(2):
            sent = dispatch(spark, found, config)
            assert sent.ok
            came = {one.broker.id: numbers_of(one.frames, expected[one.broker.id]) for one in brokers}
            assert came == {broker: list(range(count)) for broker, count in counts.items()}
        assert {one.broker: one.done_before for one in sent.brokers} == counts
        assert {one.applied for one in sent.brokers} == {0}
        held = brokers[2].state()
        assert sum(leader == 2 for leader in held["replicas"][1]) > 0
    rows = read_journal(tmp_path / "journal").to_pylist()
    assert {(row["broker"], row["frame"]) for row in rows} == {
        (broker, number) for broker, count in counts.items() for number in range(count)
    }
    assert len(rows) == sum(counts.values()) == sent.journal.count()
    assert {row["dataset"] for row in rows} == {found.about["dataset"]}
    assert {row["outcome"] for row in rows} == {"acknowledged"}
    # The last frame's row in the journal shows that a broker has the full state.
    for broker, count in counts.items():
        versions = {row["frame"]: row["from_version"] for row in rows if row["broker"] == broker}
        assert [versions[number] for number in range(count)] == [None] * (count - 1) + [-1]
    assert {row["state_id"] for row in rows} == {found.about["state_id"]}


def test_a_broker_stops_at_the_first_fencing_response(spark: SparkSession, tmp_path: Path) -> None:
    config = DispatchConfig(journal=tmp_path / "journal")
    with watched(3) as brokers:
        found, expected = some_frames(spark, tmp_path, brokers)
        brokers[1].embedded.set_epoch(4)
        sent = dispatch(spark, found, config)
        assert not sent.ok
        results = {one.broker: (one.outcome, one.error_code, one.applied) for one in sent.brokers}
        assert results[1] == ("fenced", ErrorCode.STALE_BROKER_EPOCH, 0)
        assert brokers[1].frames == expected[1][:1]
        for other in (0, 2):
            assert results[other] == ("acknowledged", 0, len(expected[other]))
        brokers[1].embedded.set_epoch(3)
        again = dispatch(spark, found, config)
        assert again.ok
        assert brokers[1].frames[1:] == expected[1]
        assert [len(one.frames) for one in brokers[::2]] == [len(expected[0]), len(expected[2])]


@pytest.mark.long
def test_a_newer_controller_stops_all_brokers(spark: SparkSession, tmp_path: Path) -> None:
    with watched(4) as brokers:
        found, expected = some_frames(spark, tmp_path, brokers)
        for one in brokers[1:]:
            one.gate.clear()

        def newer(core: ctrlchan.broker.core.BrokerCore) -> None:
            core.replicas.controller_epoch = EPOCH + 1

        brokers[0].embedded.inspect(newer)

        def open_gates() -> None:
            eventually(lambda: any((tmp_path / "journal" / "_dispatch").glob("*.stop")), 60)
            for one in brokers:
                one.gate.set()

        opener = threading.Thread(target=open_gates)
        opener.start()
        sent = dispatch(spark, found, DispatchConfig(journal=tmp_path / "journal", tasks=2))
        opener.join()
        assert not sent.ok
        results = {one.broker: one for one in sent.brokers}
        assert (results[0].outcome, results[0].error_code) == ("fenced", ErrorCode.STALE_CONTROLLER_EPOCH)
        assert {one.outcome for one in sent.brokers} <= {"fenced", "stopped"}
        assert all(len(one.frames) < len(expected[one.broker.id]) for one in brokers)


def test_a_newer_controller_in_the_journal_is_enough(spark: SparkSession, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    with watched(2) as brokers:
        found, _ = some_frames(spark, tmp_path, brokers)
        newer = Frames(found.frames, found.brokers, found.about)
        config = ctrlchan.ChannelConfig(controller_id=0, senders=1)
        with ctrlchan.Journal(journal) as written:
            push_state(a_state(brokers), config, EPOCH + 1, rounds=1, timeout=60, journal=written)
        seen = [len(one.frames) for one in brokers]
        sent = dispatch(spark, newer, DispatchConfig(journal=journal))
        assert {(one.outcome, one.applied) for one in sent.brokers} == {("fenced", 0)}
        assert [len(one.frames) for one in brokers] == seen


@pytest.mark.long
def test_a_silent_broker_times_out_and_does_not_delay_others(spark: SparkSession, tmp_path: Path) -> None:
    config = DispatchConfig(journal=tmp_path / "journal", timeout=4.0, tasks=1)
    with watched(3) as brokers:
        found, expected = some_frames(spark, tmp_path, brokers)
        brokers[0].gate.clear()
        sent = dispatch(spark, found, config)
        results = {one.broker: one for one in sent.brokers}
        assert results[0].outcome == "broker gone"
        assert "not taken within 4 s" in results[0].error
        assert [results[1].outcome, results[2].outcome] == ["acknowledged"] * 2
        brokers[0].gate.set()
        assert dispatch(spark, found, DispatchConfig(journal=tmp_path / "journal")).ok
        # It may have taken the frame that was given up; nothing else came twice.
        steps_of(brokers[0].frames, expected[0], cuts=1)


def test_partition_errors_are_recorded_and_do_not_stop_a_broker(spark: SparkSession, tmp_path: Path) -> None:
    with watched(2) as brokers:
        found, expected = some_frames(spark, tmp_path, brokers)
        assert dispatch(spark, found, DispatchConfig(journal=tmp_path / "first")).ok
        # The same leader epochs again: the request is applied, with an error for each partition it leads.
        again = dispatch(spark, found, DispatchConfig(journal=tmp_path / "second"))
        assert again.ok
        assert all(one.partition_errors > 0 for one in again.brokers)
        assert [len(one.frames) for one in brokers] == [2 * len(expected[0]), 2 * len(expected[1])]


def test_ctrl_c_waits_for_frames_in_flight_and_the_next_call_continues(
    spark: SparkSession, tmp_path: Path
) -> None:
    config = DispatchConfig(journal=tmp_path / "journal")
    with watched(3) as brokers:
        found, expected = some_frames(spark, tmp_path, brokers)
        for one in brokers:
            one.gate.clear()

        def interrupt() -> None:
            for one in brokers:
                one.until(1)
            os.kill(os.getpid(), signal.SIGINT)
            eventually(lambda: any((tmp_path / "journal" / "_dispatch").glob("*.stop")))
            for one in brokers:
                one.gate.set()

        before = signal.getsignal(signal.SIGINT)
        interrupter = threading.Thread(target=interrupt)
        interrupter.start()
        sent = dispatch(spark, found, config)
        interrupter.join()
        assert signal.getsignal(signal.SIGINT) is before
        assert sent.stopped
        assert {one.outcome for one in sent.brokers} == {"stopped"}
        assert [len(one.frames) for one in brokers] == [one.applied for one in sent.brokers]
        assert dispatch(spark, found, config).ok
        assert {one.broker.id: one.frames for one in brokers} == expected
    assert list((tmp_path / "journal" / "_dispatch").glob("*.run")) == []


# -- what cannot be sent


@pytest.mark.long
def test_frames_of_another_controller_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    with watched(2) as brokers:
        found, _ = some_frames(spark, tmp_path, brokers)
        other = Frames(found.frames, found.brokers, found.about | {"controller_id": 9})
        with pytest.raises(Exception, match="does not begin as a request of controller 9"):
            dispatch(spark, other, DispatchConfig(journal=tmp_path / "journal"))
        other = Frames(found.frames, found.brokers, found.about | {"controller_epoch": 9})
        with pytest.raises(Exception, match=f"is of controller epoch {EPOCH}, not 9"):
            dispatch(spark, other, DispatchConfig(journal=tmp_path / "journal"))
        assert [one.frames for one in brokers] == [[], []]


def test_a_gap_in_a_brokers_frames_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with watched(2) as brokers:
        found, expected = some_frames(spark, tmp_path, brokers)
        gap = Frames(found.frames.where("sequence <> 2 OR broker <> 1"), found.brokers, found.about)
        with pytest.raises(Exception, match="frame 3 of broker 1 comes where 2 is due"):
            dispatch(spark, gap, DispatchConfig(journal=tmp_path / "journal", tasks=1))
        assert expected[1][: len(brokers[1].frames)] == brokers[1].frames
        assert len(brokers[1].frames) <= 2


def test_invalid_settings(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="timeout"):
        DispatchConfig(journal=tmp_path, timeout=0)
    with pytest.raises(ConfigError, match="tasks"):
        DispatchConfig(journal=tmp_path, tasks=0)


# -- two at once


@pytest.mark.long
def test_a_copy_of_a_task_waits_and_finds_all_frames_done(spark: SparkSession, tmp_path: Path) -> None:
    with watched(3) as brokers:
        found, expected = some_frames(spark, tmp_path, brokers)
        sending = sending_of(
            found.about, found.brokers.toArrow(), DispatchConfig(journal=tmp_path / "journal")
        )
        run = Run(sending.journal, sending.run)
        run.begin()
        batches = found.frames.orderBy("sequence", "broker").toArrow().to_batches()
        for one in brokers:
            one.gate.clear()
        results: list[int] = []

        def task() -> None:
            results.append(sum(one.applied for one in send_frames(batches, sending)))

        tasks = [threading.Thread(target=task) for _ in range(3)]
        for thread in tasks:
            thread.start()
        for one in brokers:
            one.until(1)
        for one in brokers:
            one.gate.set()
        for thread in tasks:
            thread.join()
        run.end()
        assert sorted(results) == [0, 0, sum(map(len, expected.values()))]
        assert {one.broker.id: one.frames for one in brokers} == expected


def test_an_executor_without_the_drivers_folder_fails(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="is not the driver's here"):
        Run(tmp_path, "elsewhere").require_begun()


def test_a_checkpoint_ends_at_the_first_gap(tmp_path: Path) -> None:
    from ctrlchan.state.storage.schemas import JOURNAL

    def row(frame: int | None, outcome: str, dataset: str | None = "d", epoch: int = 5) -> dict[str, object]:
        plain: dict[str, object] = {field.name: 0 for field in JOURNAL if not field.nullable}
        texts: dict[str, object] = {
            "channel": "c",
            "host": "h",
            "detail": "",
            "outcome": outcome,
            "dataset": dataset,
        }
        return (
            plain | texts | {"broker": 1, "frame": frame, "controller_epoch": epoch, "sequence": frame or 0}
        )

    rows = [
        *(row(frame, "acknowledged") for frame in (0, 1, 1, 2)),
        row(3, "partition errors"),
        row(4, "fenced"),
        row(5, "acknowledged"),
        row(4, "acknowledged", dataset="another"),
        row(None, "acknowledged", dataset=None, epoch=9),
    ]
    pq.write_table(pa.Table.from_pylist(rows, schema=JOURNAL), tmp_path / "a.parquet")
    found = checkpoints(tmp_path, "d", [1, 2])
    assert found[1] == (4, 9)
    assert found[2] == (0, -1)


# -- as a data source


@pytest.mark.long
def test_a_dataframe_of_frames_is_written_to_brokers(spark: SparkSession, tmp_path: Path) -> None:
    with watched(3) as brokers:
        found, expected = some_frames(spark, tmp_path, brokers)
        writer = by_broker(found.frames.where("broker <> 1"), 2).write.format("ctrlchan").mode("append")
        writer.option("journal", str(tmp_path / "journal")).save(str(tmp_path / "frames"))
        assert [one.frames for one in brokers] == [expected[0], [], expected[2]]
        brokers[1].embedded.set_epoch(9)
        writer = by_broker(found.frames).write.format("ctrlchan").mode("append")
        with pytest.raises(Exception, match="broker 1: fenced: STALE_BROKER_EPOCH"):
            writer.option("journal", str(tmp_path / "journal")).save(str(tmp_path / "frames"))
        assert [one.frames for one in brokers] == [expected[0], expected[1][:1], expected[2]]


def test_only_mode_append_is_accepted(spark: SparkSession, tmp_path: Path) -> None:
    with watched(1) as brokers:
        found, _ = some_frames(spark, tmp_path, brokers)
        writer = by_broker(found.frames).write.format("ctrlchan").mode("overwrite")
        with pytest.raises(Exception, match="append"):
            writer.option("journal", str(tmp_path / "journal")).save(str(tmp_path / "frames"))
        with pytest.raises(Exception, match="option journal"):
            by_broker(found.frames).write.format("ctrlchan").mode("append").save(str(tmp_path / "frames"))
        assert brokers[0].frames == []


# -- killed


@contextmanager
def command(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [sys.executable, "-m", "ctrlchan", "pipeline", "dispatch", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as job:
        yield job


#: What a worker of Spark does with its partition, without Spark.
TASK = """
import pickle, sys
import pyarrow.parquet as pq
from ctrlchan.pipeline.jobs.dispatch.sender import send_frames

rows = pq.read_table(sys.argv[1]).sort_by([("sequence", "ascending"), ("broker", "ascending")])
sending = pickle.load(sys.stdin.buffer)
print(sum(one.applied for one in send_frames(rows.to_batches(max_chunksize=16), sending)))
"""


@pytest.mark.long
def test_a_task_killed_at_random_points_continues_in_order(spark: SparkSession, tmp_path: Path) -> None:
    chance = random.Random(5)
    permits, cuts = Permits(), 8
    with watched(4, permits=permits) as brokers:
        found, expected = some_frames(spark, tmp_path, brokers, limit=1_500, partitions=2_000)
        in_all = sum(map(len, expected.values()))
        config = DispatchConfig(journal=tmp_path / "journal", flush_interval=0.05)
        sending = sending_of(found.about, found.brokers.toArrow(), config)
        run = Run(sending.journal, sending.run)
        run.begin()
        for cut in range(cuts + 1):
            with subprocess.Popen(
                [sys.executable, "-c", TASK, str(tmp_path / "frames" / "frames")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            ) as task:
                assert task.stdin is not None
                task.stdin.write(pickle.dumps(sending))
                task.stdin.close()
                if cut < cuts:
                    permits.give(chance.randrange(len(brokers) + 1, in_all // cuts))
                    permits.until_spent()
                    task.kill()
                else:
                    permits.unlimited()
                task.wait(120)
        assert task.returncode == 0
        run.end()
        for one in brokers:
            steps_of(one.frames, expected[one.broker.id], cuts)
        assert sum(map(len, expected.values())) < sum(len(one.frames) for one in brokers)
        check_against_a_push(brokers, tmp_path / "snapshot")


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_command_killed_and_run_again(spark: SparkSession, tmp_path: Path) -> None:
    arguments = [str(tmp_path / "frames"), "-j", str(tmp_path / "journal"), "--flush-interval", "0.05"]
    arguments += ["--master", "local[2]", "--conf", "spark.driver.memory=1g"]
    permits = Permits()
    with watched(3, permits=permits) as brokers:
        _, expected = some_frames(spark, tmp_path, brokers)
        with command(*arguments) as job:
            permits.give(7)
            permits.until_spent()
            for process in reversed(psutil.Process(job.pid).children(recursive=True)):
                # A sender whose worker is gone may have ended by itself.
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            job.kill()
        permits.unlimited()
        with command(*arguments) as job:
            _, errors = job.communicate(timeout=300)
            assert job.returncode == 0, errors.decode()
        for one in brokers:
            steps_of(one.frames, expected[one.broker.id], cuts=1)
        check_against_a_push(brokers, tmp_path / "snapshot")


def test_tasks_carry_no_secrets(spark: SparkSession, tmp_path: Path) -> None:
    properties = tmp_path / "server.properties"
    login = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="u" password="s3cr3t";'
    properties.write_text(
        "broker.id=0\nlisteners=SASL_PLAINTEXT://127.0.0.1:9092\n"
        "security.inter.broker.protocol=SASL_PLAINTEXT\n"
        "sasl.mechanism.inter.broker.protocol=SCRAM-SHA-256\n"
        f"listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config={login}\n"
    )
    with watched(1) as brokers:
        found, _ = some_frames(spark, tmp_path, brokers)
    config = DispatchConfig(journal=tmp_path / "journal", properties=properties)
    sending = sending_of(found.about, found.brokers.toArrow(), config)
    assert sending.channel.sasl is not None
    assert b"s3cr3t" not in pickle.dumps(sending)
    there = pickle.loads(pickle.dumps(sending))
    assert there.channel == sending.channel


def check_against_a_push(brokers: Sequence[WatchedBroker], snapshot: Path) -> None:
    """Compare these brokers with others that got the same snapshot by a push."""
    with watched(len(brokers)) as theirs:
        state = ctrlchan.ClusterState.read(snapshot)
        state.set_brokers(one.broker for one in theirs)
        config = ctrlchan.ChannelConfig(controller_id=0, senders=1)
        assert push_state(state, config, EPOCH, rounds=1, timeout=60).ok
        for one, other in zip(brokers, theirs, strict=True):
            ours, wanted = one.state(), other.state()
            assert (ours["partitions"], ours["brokers"]) == (wanted["partitions"], wanted["brokers"])


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_cluster_whose_executor_is_killed(
    spark: SparkSession, cluster: StandaloneCluster, tmp_path: Path
) -> None:
    arguments = [str(tmp_path / "frames"), "-j", str(tmp_path / "journal"), "--tasks", "4"]
    with watched(4) as brokers:
        _, expected = some_frames(spark, tmp_path, brokers)
        for one in brokers:
            one.gate.clear()
        with command(*arguments, *cluster.arguments()) as job:
            # Two executors of one core: two brokers are being sent to, and wait.
            eventually(lambda: sum(bool(one.frames) for one in brokers) >= 2, 90)
            killed = cluster.executors()[0]
            killed.kill()
            for one in brokers:
                one.gate.set()
            _, errors = job.communicate(timeout=180)
            assert job.returncode == 0, errors.decode()
        assert killed.pid not in {executor.pid for executor in cluster.executors()}
        assert sum(len(one.frames) > len(expected[one.broker.id]) for one in brokers) <= 1
        for one in brokers:
            steps_of(one.frames, expected[one.broker.id], cuts=1)
        check_against_a_push(brokers, tmp_path / "snapshot")

"""Tests of the monitor: sums, restarts, unfinished requests, alerts and their exit status."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import SparkSession

import ctrlchan
from ctrlchan.errors import ConfigError, JournalError, PipelineError
from ctrlchan.journal import read_journal
from ctrlchan.pipeline import MonitorConfig, monitor
from ctrlchan.pipeline.jobs.monitor.aggregates import AGGREGATES, EVER
from ctrlchan.pipeline.jobs.monitor.checkpoint import CheckpointStore, MonitorState
from ctrlchan.pipeline.jobs.monitor.figures import Diverged, Figures, RequestFigures, figures_of
from ctrlchan.pipeline.jobs.monitor.prometheus import write_textfile
from ctrlchan.pipeline.jobs.monitor.rules import Alert, Rules
from ctrlchan.pipeline.jobs.monitor.unfinished import BrokerWait, read_unfinished
from ctrlchan.state.storage.schemas import JOURNAL, JOURNAL_VERSION_KEY
from tests.kafka.waiting import wait_until
from tests.spark.journals import NOW, row, show_channel, write_file


def _config(folder: Path, **settings: Any) -> MonitorConfig:
    return MonitorConfig(**{"journal": folder / "journal", "now": float(NOW), "interval": 0.1, **settings})


def test_requests_whose_end_has_no_time() -> None:
    sums = {field.name: 1 for field in AGGREGATES} | {"outcome": "acknowledged", "at": EVER}
    rows = [sums | {"error_code": 0, "last_at": None}, sums | {"error_code": 1, "last_at": 7}]
    for some, last in ((rows[:1], {}), (rows, {1: 7})):
        state = MonitorState(pa.Table.from_pylist(some, schema=AGGREGATES))
        assert figures_of(state, [], now=float(NOW), window=60.0).acknowledged_at == last


def _random_rows(chance: random.Random, count: int) -> list[dict[str, Any]]:
    outcomes = ["acknowledged"] * 8 + ["refused", "fenced", "cancelled"]
    return [
        row(
            chance.randrange(1, 4),
            outcome=(outcome := chance.choice(outcomes)),
            error_code=31 if outcome == "refused" else 0,
            api=chance.choice([4, 5, 6]),
            ended=chance.uniform(0, 2_000),
            took=chance.expovariate(20),
            attempts=chance.choice([1, 1, 1, 3]),
        )
        for _ in range(count)
    ]


def _counted(figures: Figures) -> dict[tuple[int, str, str], int]:
    """(broker, api, outcome) -> requests."""
    return {
        (one.broker, one.api, outcome): count
        for one in figures.requests
        for outcome, count in one.outcomes.items()
    }


def _expected(journal: Path) -> dict[tuple[int, str, str], int]:
    names = {4: "LeaderAndIsr", 5: "StopReplica", 6: "UpdateMetadata"}
    rows = read_journal(journal, ["broker", "api", "outcome"]).to_pylist()
    return dict(Counter((one["broker"], names[one["api"]], one["outcome"]) for one in rows))


def _look(spark: SparkSession, config: MonitorConfig) -> Figures:
    """Return the figures of a newly started monitor."""
    with monitor(spark, config) as running:
        running.catch_up()
        return running.look()


def test_figures_are_those_of_the_journal(spark: SparkSession, tmp_path: Path) -> None:
    chance = random.Random(3)
    rows = [_random_rows(chance, 300) for _ in range(4)]
    for some in rows:
        write_file(tmp_path / "journal", some)
    figures = _look(spark, _config(tmp_path, max_files=1))
    assert figures.rows == 1200
    assert figures.batch == 3
    assert _counted(figures) == _expected(tmp_path / "journal")
    everything = [one for some in rows for one in some]
    for one in figures.requests:
        mine = [r for r in everything if (r["broker"], r["api"]) == (one.broker, _key(one.api))]
        recent = [r for r in mine if r["end_ns"] // 10**10 * 10 >= NOW - 300]
        assert (one.bytes, one.attempts) == (100 * len(mine), sum(r["attempts"] for r in mine))
        assert one.repeated == sum(r["attempts"] > 1 for r in mine)
        assert one.errors.get("CLUSTER_AUTHORIZATION_FAILED", 0) == sum(r["error_code"] == 31 for r in mine)
        seconds = np.array([(r["end_ns"] - r["enqueue_ns"]) / 1e9 for r in mine])
        assert one.seconds == pytest.approx(seconds.sum())
        assert sum(one.buckets) == len(mine)
        assert one.recent == len(recent)
        assert one.recent_failed == sum(r["outcome"] not in ("acknowledged", "cancelled") for r in recent)
        assert one.recent_p50 is not None
        assert one.recent_p99 is not None
        assert one.recent_p50 <= one.recent_p99


def _key(api: str) -> int:
    return {"LeaderAndIsr": 4, "StopReplica": 5, "UpdateMetadata": 6}[api]


def test_a_monitor_continues_from_a_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    chance = random.Random(4)
    config = _config(tmp_path, checkpoint=tmp_path / "checkpoint", max_files=2)
    for count in (3, 0, 2):
        for _ in range(count):
            write_file(tmp_path / "journal", _random_rows(chance, 20))
        assert _counted(_look(spark, config)) == _expected(tmp_path / "journal")
    # The figures are there before anything is read.
    with monitor(spark, config) as running:
        assert running.look().rows == 100
    # Only the last states are kept.
    assert len(list((tmp_path / "checkpoint" / "sums").glob("*.parquet"))) <= 3


@pytest.mark.long
@pytest.mark.parametrize("when", ["before the state is written", "after the state is written"])
def test_a_batch_that_runs_again_counts_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """After a failure between writing the state and Spark's commit the batch runs again."""
    chance = random.Random(5)
    config = _config(tmp_path, checkpoint=tmp_path / "checkpoint", max_files=1)
    for _ in range(2):
        write_file(tmp_path / "journal", _random_rows(chance, 20))
    _look(spark, config)
    write_file(tmp_path / "journal", _random_rows(chance, 20))
    write = CheckpointStore.write

    def fails(self: CheckpointStore, state: MonitorState) -> None:
        if when == "after the state is written":
            write(self, state)
        raise PipelineError("the power is gone")

    with monkeypatch.context() as patched:
        patched.setattr(CheckpointStore, "write", fails)
        with pytest.raises(PipelineError, match="the power is gone"), monitor(spark, config) as running:
            running.catch_up()
    write_file(tmp_path / "journal", _random_rows(chance, 20))
    figures = _look(spark, config)
    assert figures.rows == 80
    assert _counted(figures) == _expected(tmp_path / "journal")


def _command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "ctrlchan", "pipeline", "monitor", *map(str, arguments)]


@pytest.mark.long
def test_a_killed_monitor_is_started_again(tmp_path: Path) -> None:
    """Kill the monitor with kill -9 while the journal grows; no row is lost or counted twice."""
    chance = random.Random(6)
    journal, checkpoint = tmp_path / "journal", tmp_path / "checkpoint"
    write_file(journal, _random_rows(chance, 50))
    options = ("--checkpoint", checkpoint, "--interval", "0.1", "--json", "--master", "local[2]")
    for _ in range(2):
        with subprocess.Popen(
            _command(journal, *options), stdout=subprocess.PIPE, text=True, start_new_session=True
        ) as process:
            assert process.stdout is not None
            try:
                for seen, line in enumerate(process.stdout, 1):
                    rows = json.loads(line)["rows"]
                    assert rows <= read_journal(journal, ["broker"]).num_rows
                    if seen == 6:
                        break
                    write_file(journal, _random_rows(chance, 50))
            finally:
                # Also kills its JVM and workers.
                os.killpg(process.pid, signal.SIGKILL)
    ran = subprocess.run(
        [*_command(journal, *options), "--once"], capture_output=True, text=True, timeout=240
    )
    assert ran.returncode in (0, 3), ran.stderr
    last = json.loads(ran.stdout)
    found = {
        (one["broker"], one["api"], outcome): count
        for one in last["requests"]
        for outcome, count in one["outcomes"].items()
    }
    assert found == _expected(journal)
    assert last["batch"] > 0


def test_unfinished_requests(spark: SparkSession, tmp_path: Path) -> None:
    config = _config(tmp_path, checkpoint=tmp_path / "checkpoint")
    journal = tmp_path / "journal"
    first, second, third = (round((NOW - age) * 1e9) for age in (90, 80, 70))
    write_file(journal, [row(2)])
    show_channel(journal, {1: [first, second], 2: [third]}, attempts=4, last_error="timed out")
    waits = {wait.broker: wait for wait in _look(spark, config).waits}
    assert (waits[1].unfinished, waits[1].oldest_at, waits[1].attempts) == (2, first // 1000, 4)
    assert waits[2].oldest_at == third // 1000

    # The request has ended, the channel file still lists it.
    write_file(journal, [row(1, enqueue_ns=first), row(1, enqueue_ns=third)])
    figures = _look(spark, config)
    waits = {wait.broker: wait for wait in figures.waits}
    assert (waits[1].unfinished, waits[1].oldest_at, waits[1].last_error) == (1, second // 1000, "")
    assert figures.age(waits[1]) == pytest.approx(80)
    assert waits[2].unfinished == 1
    # Also in a restarted monitor, which has not read the row itself.
    assert {wait.broker: wait.unfinished for wait in _look(spark, config).waits} == {1: 1, 2: 1}


def test_the_session_of_a_batch_does_not_become_that_of_the_process(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark gives a stream a copy of the session."""
    spark.createDataFrame([(1,)], "one int")  # this thread has an active session from here on
    journal = tmp_path / "journal"
    write_file(journal, [row(1)])
    show_channel(journal, {1: [round((NOW - 90) * 1e9)]})
    assert _look(spark, _config(tmp_path)).waits
    assert ctrlchan.pipeline.session() is spark


def test_only_the_newest_channel_to_a_broker_counts(tmp_path: Path) -> None:
    show_channel(tmp_path, {1: [5], 2: [6]}, channel="killed", since=1)
    show_channel(tmp_path, {1: []}, channel="successor", since=2)
    show_channel(tmp_path, {3: [7]}, channel="closed", closed=True)
    unfinished = read_unfinished(tmp_path)
    assert {wait.broker: wait.unfinished for wait in unfinished.waits(set())} == {1: 0, 2: 1}


@pytest.mark.parametrize("wrong", ["newer", "broken"])
def test_unreadable_files_are_an_error(spark: SparkSession, tmp_path: Path, wrong: str) -> None:
    config = _config(tmp_path, checkpoint=tmp_path / "checkpoint")
    write_file(tmp_path / "journal", [row()])
    assert _look(spark, config).rows == 1
    if wrong == "newer":
        file = write_file(tmp_path / "journal", [row()], JOURNAL.with_metadata({JOURNAL_VERSION_KEY: b"99"}))
    else:
        file = write_file(tmp_path / "journal", [row()])
        file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises((JournalError, PipelineError)) as caught:
        _look(spark, config)
    assert file.name in str(caught.value)
    # No row of the file is counted; the repaired file is read.
    file.unlink()
    file.write_bytes(write_file(tmp_path / "elsewhere", [row(), row()]).read_bytes())
    assert _look(spark, config).rows == 3


def test_wrong_folders_and_settings_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="no such journal folder"):
        monitor(spark, _config(tmp_path))
    write_file(tmp_path / "journal", [row()])
    write_file(tmp_path / "other", [row()])
    with monitor(spark, _config(tmp_path, checkpoint=tmp_path / "checkpoint")):
        pass
    with pytest.raises(PipelineError, match="this checkpoint is of"):
        monitor(spark, _config(tmp_path, journal=tmp_path / "other", checkpoint=tmp_path / "checkpoint"))
    for setting in ({"window": 1.0}, {"interval": 0.0}, {"max_files": 0}):
        with pytest.raises(ConfigError):
            _config(tmp_path, **setting)


def test_reading_in_the_background(spark: SparkSession, tmp_path: Path) -> None:
    write_file(tmp_path / "journal", [row()])
    with monitor(spark, _config(tmp_path)) as running:
        running.start()

        def counted(rows: int) -> bool:
            return running.look().rows == rows

        wait_until(lambda: counted(1), timeout=60, what="the first row is counted")
        write_file(tmp_path / "journal", [row(), row()])
        wait_until(lambda: counted(3), timeout=60, what="the new rows are counted")
        temporary = running._folder
        assert temporary.is_dir()
    assert not temporary.exists()


def _figures(**changes: Any) -> Figures:
    return Figures(**{"now": float(NOW), "window": 300.0, "rows": 0, "batch": 0, "requests": (), **changes})


def _requests(broker: int, recent: int, failed: int) -> RequestFigures:
    return RequestFigures(
        *(
            broker,
            "UpdateMetadata",
            recent,
            {"acknowledged": recent},
            {"UNKNOWN_SERVER_ERROR": 1},
            7,
            recent,
            0,
        ),
        *(0.5, (recent, *[0] * 12), recent, failed, 0.001, 0.002, 0.003),
    )


def _wait(broker: int, age: float) -> BrokerWait:
    return BrokerWait(broker, 2, round((NOW - age) * 1e6), "waiting", 3, "timed out", False)


@pytest.mark.parametrize(
    ("figures", "alerts"),
    [
        (_figures(), []),
        (_figures(waits=(_wait(1, 29), _wait(2, 31))), [("stuck", 2)]),
        (
            _figures(requests=(_requests(1, 10, 1), _requests(2, 10, 2), _requests(3, 9, 9))),
            [("error_rate", 2)],
        ),
        (
            _figures(fenced_at={1: 5, 2: 5, 3: 5}, acknowledged_at={1: 6, 2: 4}),
            [("fenced", 2), ("fenced", 3)],
        ),
        (_figures(diverged=(Diverged(4, 2, ("t-0",)), Diverged(5, 0))), [("diverged", 4)]),
    ],
)
def test_rules_give_alerts(figures: Figures, alerts: list[tuple[str, int]]) -> None:
    assert [(alert.rule, alert.broker) for alert in Rules().alerts(figures)] == alerts
    off = Rules(stuck=None, error_rate=None, fenced=False, diverged=None)
    assert off.alerts(figures) == []


def test_rules_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "alerts.toml"
    file.write_text("[stuck]\nseconds = 5\n[error_rate]\nat_least = 3\n[diverged]\nenabled = false\n")
    assert Rules.read(file) == Rules(
        stuck=5, error_rate=0.1, error_rate_at_least=3, fenced=False, diverged=None
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[late]", "late: there is no such rule"),
        ("[stuck]\nminutes = 1", "stuck.minutes: there is no such setting"),
        ("[stuck]\nseconds = 'x'", "stuck.seconds: 'x' is not a number"),
        ("[stuck]\nseconds = true", "is not a number"),
        ("[stuck]\nseconds = 0", "must be more than 0"),
        ("[error_rate]\nabove = 2", "not a share"),
        ("[fenced]\nenabled = 1", "not true or false"),
        ("[stuck", "alerts.toml"),
    ],
)
def test_wrong_rule_files_are_refused(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "alerts.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        Rules.read(file)
    assert message in str(caught.value)
    assert "alerts.toml" in str(caught.value)


def test_the_file_for_prometheus(tmp_path: Path) -> None:
    figures = _figures(
        rows=10, requests=(_requests(1, 10, 0),), waits=(_wait(2, 31),), diverged=(Diverged(1, 4),)
    )
    file = tmp_path / "metrics" / "ctrlchan.prom"
    write_textfile(file, figures, [Alert("stuck", 2, 31.0, "")])
    samples = {
        (sample.name, frozenset(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(file.read_text())
        for sample in family.samples
    }

    def of(name: str, *labels: str) -> float:
        return samples[name, frozenset(labels)]

    assert of("ctrlchan_monitor_requests_total", "1", "UpdateMetadata", "acknowledged") == 10
    assert of("ctrlchan_monitor_errors_total", "1", "UpdateMetadata", "UNKNOWN_SERVER_ERROR") == 1
    assert of("ctrlchan_monitor_request_seconds_count", "1", "UpdateMetadata") == 10
    assert of("ctrlchan_monitor_oldest_unfinished_seconds", "2") == pytest.approx(31)
    assert of("ctrlchan_monitor_stale_partitions", "1") == 4
    assert of("ctrlchan_monitor_alert", "stuck", "2") == 1
    assert of("ctrlchan_monitor_rows_total") == 10


@pytest.mark.long
@pytest.mark.parametrize(("waits", "status"), [(False, 0), (True, 3)])
def test_the_exit_status(tmp_path: Path, waits: bool, status: int) -> None:
    journal, prom = tmp_path / "journal", tmp_path / "ctrlchan.prom"
    write_file(journal, [row(), row(2)])
    if waits:
        show_channel(journal, {2: [round((NOW - 60) * 1e9)]}, last_error="timed out")
    command = _command(journal, "--once", "--prometheus", prom, "--master", "local[2]")
    ran = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert ran.returncode == status, ran.stderr
    assert "2 requests" in ran.stdout
    assert ("alert: stuck: broker 2" in ran.stdout) == waits
    assert ('ctrlchan_monitor_alert{broker="2",rule="stuck"} 1.0' in prom.read_text()) == waits


@pytest.mark.long
def test_an_alert_ends_the_command(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    write_file(journal, [row(outcome="fenced", error_code=11)])
    command = _command(journal, "--interval", "0.2", "--no-fenced", "--for", "0.5", "--master", "local[2]")
    ran = subprocess.run([*command, "--fail-on-alert"], capture_output=True, text=True, timeout=240)
    assert ran.returncode == 0, ran.stderr
    command = _command(journal, "--interval", "0.2", "--fail-on-alert", "--master", "local[2]")
    ran = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert ran.returncode == 3
    assert "alert: fenced: broker 1" in ran.stdout


def test_a_broken_checkpoint_is_an_error(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, "journal")
    assert store.newest() == MonitorState()
    store.write(MonitorState(batch=4))
    assert store.before(5).batch == 4
    with pytest.raises(PipelineError, match="the state before batch 4"):
        store.before(4)
    (tmp_path / f"{5:020d}.parquet").write_bytes(b"x")
    with pytest.raises(PipelineError, match="not a state of a monitor"):
        store.newest()
    (tmp_path / "monitor.json").write_text("{")
    with pytest.raises(PipelineError, match=r"monitor\.json"):
        CheckpointStore(tmp_path, "journal")


@pytest.fixture(scope="module")
def stale(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with journal and snapshot; broker 2 was not sent the last change of partition 1."""
    folder = tmp_path_factory.mktemp("stale")
    with (
        ctrlchan.EmbeddedCluster(count=2, log_dir=None) as cluster,
        ctrlchan.Journal(folder / "journal") as journal,
    ):
        state = ctrlchan.ClusterState.empty(controller_id=0, controller_epoch=7)
        state.set_brokers(cluster.brokers)
        state.add_topic("orders", {0: [1, 2], 1: [2, 1]})
        state.update(state.rows_of_topic("orders"), leader=[1, 2], leader_epoch=0, isr=[[1, 2], [2, 1]])
        config = ctrlchan.ChannelConfig(controller_id=0, inter_broker_protocol="3.9")
        with ctrlchan.ControllerChannelManager(config, controller_epoch=7, journal=journal) as channel:
            channel.startup(state.brokers)
            batch = ctrlchan.ControllerBrokerRequestBatch(channel, state)
            for brokers, leader_of_one in (([1, 2], 2), ([1], 1)):
                state.update(np.array([1]), leader=[leader_of_one], leader_epoch=leader_of_one)
                batch.new_batch()
                batch.add_update_metadata(brokers, rows="changed")
                channel.wait(batch.send_requests_to_brokers(controller_epoch=7), timeout=30)
    state.write(folder / "snapshot")
    return folder


def _persisted(spark: SparkSession) -> set[int]:
    context = spark.sparkContext._jsc
    assert context is not None
    return set(context.getPersistentRDDs())


@pytest.mark.long
def test_brokers_with_stale_metadata(spark: SparkSession, stale: Path) -> None:
    config = MonitorConfig(journal=stale / "journal", snapshot=stale / "snapshot", interval=0.1)
    kept = len(_persisted(spark))
    figures = _look(spark, config)
    assert figures.diverged == (Diverged(2, 1, ("orders-1",)),)
    # A monitor runs for days: cached tables must not pile up.
    assert len(_persisted(spark)) <= kept
    assert [(one.rule, one.broker) for one in Rules().alerts(figures)] == [("diverged", 2)]
    assert _look(spark, MonitorConfig(journal=stale / "journal")).diverged is None


@pytest.mark.long
def test_a_snapshot_of_another_state_is_an_error(spark: SparkSession, stale: Path, tmp_path: Path) -> None:
    ctrlchan.ClusterState.empty(controller_id=0, controller_epoch=7).write(tmp_path / "other")
    config = MonitorConfig(journal=stale / "journal", snapshot=tmp_path / "other")
    with pytest.raises(PipelineError, match="other"):
        _look(spark, config)

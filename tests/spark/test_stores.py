"""Jobs on HDFS and S3: the main path of each, and what dies or fails on the way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

import psutil
import pytest

from ctrlchan.journal import read_journal
from ctrlchan.pipeline.spark.tables import FRAMES_FOLDER, count_rows, require_frames
from ctrlchan.state.importing.generate import GeneratorConfig, generate
from ctrlchan.storage import names_in, path_of
from tests.fault.channels import eventually
from tests.spark.standalone import StandaloneCluster
from tests.spark.watched import Permits, WatchedBroker, steps_of, watched
from tests.storage.frames import some_frames, write_dataset
from tests.storage.hdfs import hadoop_jars, serving_hdfs
from tests.storage.s3 import Request, S3Server, serving_s3

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

#: Seconds for a process that runs all jobs, and for a command.
_PATIENCE: Final = 1500
_COMMAND: Final = 900
_LOCAL: Final = ("--master", "local[2]", "--conf", "spark.driver.memory=1g")


class Store(NamedTuple):
    """``root``: URL of a folder. ``settings``: Spark's, which it needs. ``s3``: the server of an S3 store."""

    root: str
    settings: dict[str, str]
    s3: S3Server | None

    def options(self) -> list[str]:
        return [word for name, value in self.settings.items() for word in ("--conf", f"{name}={value}")]


@pytest.fixture(scope="module")
def s3() -> Iterator[Store]:
    """Its variables are those of this process and of its children."""
    import s3fs

    with serving_s3() as server, pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment.items():
            patch.setenv(name, value)
        s3fs.S3FileSystem.clear_instance_cache()
        yield Store(server.bucket("lake"), {"spark.jars": ",".join(hadoop_jars())}, server)


@pytest.fixture(scope="module")
def hdfs() -> Iterator[Store]:
    with serving_hdfs() as url:
        yield Store(url, {}, None)


@pytest.fixture(params=["hdfs", "s3"])
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    """A folder for each test."""
    found: Store = request.getfixturevalue(request.param)
    yield found._replace(root=f"{found.root}/{request.node.name.partition('[')[0]}")
    if found.s3 is not None:
        found.s3.fault = None


@pytest.fixture(scope="module")
def store_cluster(tmp_path_factory: pytest.TempPathFactory, s3: Store) -> Iterator[StandaloneCluster]:
    """Executors with the variables of S3."""
    with StandaloneCluster(tmp_path_factory.mktemp("store-cluster"), dict(os.environ)) as started:
        yield started


def all_jobs(store: Store) -> None:
    """Run the main path of every job in a process of its own."""
    settings = [f"{name}={value}" for name, value in store.settings.items()]
    command = [sys.executable, "-m", "tests.spark.stores_job", store.root, *settings]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, check=False)
    assert ran.stdout.endswith("whole\n"), ran.stderr[-8_000:]


def test_every_job(store: Store) -> None:
    all_jobs(store)
    if store.s3 is not None:
        assert any(one.conditional for one in store.s3.requests)


def test_every_job_on_an_s3_that_is_busy_slow_and_forgetful(s3: Store) -> None:
    """Of some requests nothing is done, some are done and answered by an error, and some are late."""
    assert s3.s3 is not None
    count = 0

    def fault(_: Request) -> str | float | None:
        nonlocal count
        count += 1
        if count % 29 == 0:
            return "busy"
        if count % 53 == 0:
            return "lost"
        return 0.5 if count % 17 == 0 else None

    s3.s3.fault = fault
    try:
        all_jobs(s3._replace(root=f"{s3.root}/busy"))
    finally:
        s3.s3.fault = None
    assert count > 500


@contextmanager
def pipeline(*words: object) -> Iterator[subprocess.Popen[str]]:
    """A command; at the end of the block it is waited for."""
    with subprocess.Popen(
        [sys.executable, "-m", "ctrlchan", "pipeline", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as command:
        try:
            yield command
        finally:
            if command.poll() is None:
                end(command)


def end(command: subprocess.Popen[str]) -> None:
    """Kill a command and all processes below it, as if its machine had gone."""
    for process in reversed(psutil.Process(command.pid).children(recursive=True)):
        # A sender whose worker is gone may have ended by itself.
        with suppress(psutil.NoSuchProcess):
            process.kill()
    command.kill()
    command.wait()


def frames_sent(command: subprocess.Popen[str]) -> int:
    """Wait for a dispatch to end; return how many frames it has sent."""
    output, errors = command.communicate(timeout=_COMMAND)
    assert command.returncode == 0, errors
    sent: int = json.loads(output)["frames_sent"]
    return sent


def a_dataset(
    store: Store, brokers: Sequence[WatchedBroker], partitions_per_topic: int = 25
) -> tuple[list[str], dict[int, list[bytes]]]:
    """Write frames; return the words of a command that sends them, and what each broker is to receive."""
    sending, rows, expected = some_frames(brokers, partitions_per_topic)
    write_dataset(path_of(f"{store.root}/frames"), sending, rows)
    words = ["dispatch", f"{store.root}/frames", "--journal", f"{store.root}/journal", "--json"]
    return [*words, "--flush-interval", "0.2", *store.options()], expected


def until_owned(
    store: Store, tasks: int, commands: Sequence[subprocess.Popen[str]], permits: Permits
) -> None:
    """Wait until so many tasks have a lease.

    Brokers go on answering meanwhile, a frame a second: how long a cluster takes to start is not known, and
    a frame without an answer is sent again after its time.
    """
    folder = path_of(f"{store.root}/journal/_dispatch")
    while sum(name.startswith("owner-") for name in names_in(folder)) < tasks:
        ended = [one.communicate() for one in commands if one.poll() is not None]
        assert ended == []
        permits.give(1)
        time.sleep(1)


def check(
    store: Store, brokers: Sequence[WatchedBroker], expected: dict[int, list[bytes]], cuts: int
) -> None:
    """Every frame has come, in order, with at most ``cuts`` steps back; all outcomes are in the journal."""
    for one in brokers:
        steps_of(one.frames, expected[one.broker.id], cuts)
    rows = read_journal(f"{store.root}/journal").to_pylist()
    assert {row["outcome"] for row in rows} == {"acknowledged"}
    assert {(row["broker"], row["frame"]) for row in rows} == {
        (broker, frame) for broker, frames in expected.items() for frame in range(len(frames))
    }


def test_a_killed_dispatch_goes_on(store: Store) -> None:
    permits = Permits()
    with watched(3, permits=permits) as brokers:
        words, expected = a_dataset(store, brokers)
        with pipeline(*words, *_LOCAL) as command:
            permits.give(sum(map(len, expected.values())) // 2)
            permits.until_spent(_COMMAND)
            end(command)
        permits.unlimited()
        with pipeline(*words, *_LOCAL) as command:
            assert frames_sent(command) > 0
        check(store, brokers, expected, cuts=1)


def test_a_killed_executor_is_taken_over_from(store: Store, store_cluster: StandaloneCluster) -> None:
    with watched(4) as brokers:
        words, expected = a_dataset(store, brokers)
        for one in brokers:
            one.gate.clear()
        with pipeline(*words, "--tasks", "4", *store_cluster.arguments()) as command:
            # Two executors of one core: two brokers are being sent to, and wait.
            eventually(lambda: sum(bool(one.frames) for one in brokers) >= 2, _COMMAND)
            store_cluster.executors()[0].kill()
            for one in brokers:
                one.gate.set()
            frames_sent(command)
        assert sum(len(one.frames) > len(expected[one.broker.id]) for one in brokers) <= 1
        check(store, brokers, expected, cuts=1)


def test_two_clusters_dispatch_at_once(store: Store, store_cluster: StandaloneCluster) -> None:
    permits = Permits()
    with watched(3, permits=permits) as brokers:
        words, expected = a_dataset(store, brokers, partitions_per_topic=250)
        in_all = sum(map(len, expected.values()))
        with (
            pipeline(*words, "--tasks", "2", *store_cluster.arguments()) as first,
            pipeline(*words, "--tasks", "2", *_LOCAL) as second,
        ):
            # Both are there: some tasks own brokers, the others wait for them.
            until_owned(store, 4, [first, second], permits)
            assert sum(len(one.frames) for one in brokers) < in_all
            permits.unlimited()
            sent = [frames_sent(first), frames_sent(second)]
        assert sum(sent) == in_all, sent
        assert [len(one.frames) for one in brokers] == [len(expected[one.broker.id]) for one in brokers]
        check(store, brokers, expected, cuts=0)


def test_a_killed_writer_is_in_nobodys_way(store: Store) -> None:
    """Spark writes many files, and is killed after some of them."""
    state = generate(GeneratorConfig(topics=40, partitions_per_topic=50, brokers=3, replication=2))
    state.write(f"{store.root}/live")
    folder = path_of(f"{store.root}/frames")
    words = ["frames", f"{store.root}/live", "-o", str(folder), "--json", *_LOCAL, *store.options()]
    with pipeline(*words) as command:
        eventually(lambda: names_in(folder) != [] or command.poll() is not None, _COMMAND)
        assert command.poll() is None, command.communicate()[1]
        end(command)
    [left] = names_in(folder)
    with pipeline(*words) as command:
        _, errors = command.communicate(timeout=_COMMAND)
        assert command.returncode == 0, errors
    assert f"{left}: left by a writer that died" in errors
    tables, _ = require_frames(folder)
    assert tables.name != left
    assert count_rows(tables / FRAMES_FOLDER) > 0


def test_the_demo(store: Store) -> None:
    words = ["demo", "-o", f"{store.root}/demo", "--topics", "20", "--json", *_LOCAL, *store.options()]
    with pipeline(*words) as command:
        output, errors = command.communicate(timeout=_COMMAND)
    assert command.returncode == 0, errors
    assert json.loads(output)["result"] == "Broker 5 is stale and broker 4 is slow."
    assert names_in(path_of(f"{store.root}/demo")) == ["journal", "report", "snapshot"]


def test_the_check_reads_and_writes(store: Store) -> None:
    words = ["check", "--json", *_LOCAL, *store.options(), "--storage", store.root]
    with pipeline(*words) as command:
        output, errors = command.communicate(timeout=_COMMAND)
    assert command.returncode == 0, output + errors
    assert [one["problems"] for one in json.loads(output)["executors"]] == [[]]


def test_the_check_names_the_classes_that_spark_does_not_have(s3: Store) -> None:
    with pipeline("check", *_LOCAL, "--storage", s3.root) as command:
        _, errors = command.communicate(timeout=_COMMAND)
    assert command.returncode == 1
    assert "hadoop-aws" in errors

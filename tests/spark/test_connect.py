"""Jobs in a session of Spark Connect: a client without Java, a server with this Python."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from ctrlchan.errors import ConfigError, PipelineError
from ctrlchan.journal import read_journal
from ctrlchan.pipeline import DiffConfig, diff, explain, frames, read_snapshot, session
from ctrlchan.pipeline.spark import connect
from ctrlchan.pipeline.spark.location import remote_url
from ctrlchan.state import ClusterState
from ctrlchan.state.importing.describe_text import import_describe
from ctrlchan.state.importing.generate import GeneratorConfig, generate
from tests.spark.connect_client import explain_config
from tests.spark.connect_server import ConnectServer
from tests.spark.log_files import random_logs
from tests.spark.test_ingest import DESCRIBE, same
from tests.spark.watched import watched

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
#: Tests of a session of this process: its JVM, its settings, its tasks.
_NOT_REMOTE = ("part_files_are_tasks", "lines_of_many_pieces", "cluster", "another_default_file_system")
_OF_A_JVM = " and ".join(f"not {name}" for name in _NOT_REMOTE)


def client(*words: object, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python as on a machine without Java, in an empty folder."""
    empty = folder / "nothing"
    empty.mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, *map(str, words)],
        env={
            "PATH": str(empty),
            "HOME": str(empty),
            "JAVA_HOME": "",
            "LC_ALL": "C.UTF-8",
            "PYTHONPATH": str(ROOT),
            **environment,
        },
        cwd=empty,
        capture_output=True,
        text=True,
        timeout=540,
        check=False,
    )


def inputs(folder: Path, brokers: list[Any]) -> tuple[ClusterState, list[str]]:
    """Write what the client reads; return the new state and the texts of the logs in order."""
    (folder / "topics.txt").write_text(DESCRIBE)
    state = generate(GeneratorConfig(topics=4, partitions_per_topic=5, brokers=len(brokers), replication=2))
    state.set_brokers(brokers)
    state.write(folder / "old")
    state.update([0, 7], leader_epoch=9, partition_epoch=9)
    state.write(folder / "new")
    logs = random_logs(folder / "logs", seed=3, entries=20)
    return state, [one.text for one in logs.in_order]


def frames_of(table: Any) -> list[tuple[Any, ...]]:
    rows = table.select(["broker", "sequence", "api", "version", "frame"]).to_pylist()
    return sorted(tuple(row.values()) for row in rows)


def test_frames_are_made_without_java(
    spark: SparkSession, connect_server: ConnectServer, tmp_path: Path
) -> None:
    state = generate(GeneratorConfig(topics=4, partitions_per_topic=5, brokers=2, replication=2))
    state.write(tmp_path / "new")
    words = ("-m", "ctrlchan", "pipeline", "frames", tmp_path / "new", "-o", tmp_path / "frames")
    ran = client(*words, "--remote", connect_server.url, "--json", folder=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""
    made = frames(spark, read_snapshot(spark, tmp_path / "new")).frames
    assert frames_of(pq.read_table(tmp_path / "frames" / "frames")) == frames_of(made.toArrow())


@pytest.mark.long
def test_every_job_runs_without_java(
    spark: SparkSession, connect_server: ConnectServer, tmp_path: Path
) -> None:
    """With the results of a session that has a JVM."""
    with watched(2) as brokers:
        state, texts = inputs(tmp_path, [one.broker for one in brokers])
        ran = client("-m", "tests.spark.connect_client", connect_server.url, tmp_path, folder=tmp_path)
        assert ran.returncode == 0, ran.stderr
        assert ran.stderr == ""
        partitions = [one.state()["partitions"] for one in brokers]
    found = json.loads(ran.stdout)
    assert found["ingest"]["refused"] == 0
    assert found["tasks"] > 0
    assert same(
        ClusterState.read(tmp_path / "made"), import_describe(DESCRIBE.splitlines(), controller_epoch=7)
    )
    assert found["diff"] == diff(spark, DiffConfig(old=tmp_path / "old", new=tmp_path / "new")).counts()
    made = frames(spark, read_snapshot(spark, tmp_path / "new")).frames
    assert frames_of(pq.read_table(tmp_path / "frames" / "frames")) == frames_of(made.toArrow())
    assert [one["outcome"] for one in found["dispatch"]] == ["acknowledged"] * 2
    assert [len(one) for one in partitions] == [len(state.partitions)] * 2
    assert found["journal"] == read_journal(tmp_path / "journal").num_rows == made.count()
    assert found["report"] == "All 2 brokers answer in time, and have current metadata."
    assert found["counts"]["entries"] == len(texts)
    assert found["texts"] == texts
    history = explain(spark, explain_config(tmp_path)).as_json()
    assert history["entries"] != []
    assert found["history"] == json.loads(json.dumps(history))
    assert (found["source"], found["written"]) == (len(state.partitions), made.count())


@pytest.mark.long
def test_commands_run_without_java(connect_server: ConnectServer, tmp_path: Path) -> None:
    random_logs(tmp_path / "logs", seed=3, entries=20)
    remote = {"SPARK_REMOTE": connect_server.url}
    ran = client("-m", "ctrlchan", "pipeline", "check", "--json", folder=tmp_path, **remote)
    assert ran.returncode == 0, ran.stderr
    summary = json.loads(ran.stdout)
    assert (summary["master"], summary["cores"]) == ("local[2]", 2)
    assert [one["problems"] for one in summary["executors"]] == [[]]
    words = ("-m", "ctrlchan", "pipeline", "merge-logs", tmp_path / "logs", "--remote", connect_server.url)
    ran = client(*words, folder=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert "Deleted partition" in ran.stdout
    words_of_explain = ("-m", "ctrlchan", "pipeline", "explain", "a-0", tmp_path / "logs")
    ran = client(*words_of_explain, "--remote", connect_server.url, folder=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert "a-0" in ran.stdout
    ran = client(*words[:4], tmp_path / "none", *words[5:], folder=tmp_path)
    assert ran.stderr == f"error: {tmp_path}/none: no such file or folder\n"
    ran = client(*words, "--conf", "spark.executor.memory=1g", folder=tmp_path)
    assert ran.stderr.startswith("error: spark.executor.memory: a session of Spark Connect cannot set it")


@pytest.mark.long
@pytest.mark.parametrize(
    "tests",
    [
        "test_frames.py test_tables.py test_footers.py",
        "test_diff.py test_merge_logs.py test_lines.py test_explain.py",
        "test_ingest.py",
        "test_report.py test_divergence.py test_divergence_of_brokers.py",
        "test_dispatch.py test_source.py",
    ],
)
def test_the_tests_of_jobs_pass(tests: str, connect_server: ConnectServer) -> None:
    """Also in a session of Spark Connect; of those that are not long."""
    files = [f"tests/spark/{name}" for name in tests.split()]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", *files, "-k", _OF_A_JVM, "-p", "no:cacheprovider"],
        env={**os.environ, "SPARK_REMOTE": connect_server.url},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=1_800,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-5_000:]


# -- where Spark runs


def test_one_of_master_and_remote(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    assert remote_url(None, None) is None
    monkeypatch.setenv("SPARK_REMOTE", "sc://there")
    assert remote_url(None, None) == "sc://there"
    assert remote_url(None, "sc://elsewhere") == "sc://elsewhere"
    assert remote_url("local[1]", None) is None
    with pytest.raises(ConfigError, match="give one"):
        remote_url("yarn", "sc://there")
    with pytest.raises(ConfigError, match="'local' is no Spark Connect server"):
        remote_url(None, "local")


@pytest.mark.parametrize(
    ("url", "error", "message"),
    [
        ("sc://127.0.0.1:{port}", PipelineError, "no Spark Connect server answers there"),
        ("sc://127.0.0.1:{port}/path", ConfigError, "sc://127.0.0.1:{port}/path"),
    ],
)
def test_no_server(url: str, error: type[Exception], message: str) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    with pytest.raises(error, match=re.escape(message.format(port=port))):
        connect.start(url.format(port=port), {}, small=False)
    assert "SPARK_CONNECT_MODE_ENABLED" not in os.environ


def test_a_session_of_this_process_is_not_remote(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "sc://there")
    assert session() is spark


#: A command whose job ends when the server does, or when Ctrl-C comes.
WAITING = """
import sys, time
from pathlib import Path
from ctrlchan.cli import main
from ctrlchan.cli.pipeline import app
from ctrlchan.cli.pipeline.common import RunOptions, spark_of

@app.command()
def waiting(url: str, begun: str) -> None:
    def work(batches):
        Path(begun).touch()
        time.sleep(600)
        yield from batches

    with spark_of("waiting", RunOptions(remote=url, as_json=True)) as spark:
        from ctrlchan.pipeline.spark import connect
        from pyspark.sql.connect.client.retries import DefaultPolicy
        spark.client.set_retry_policies([DefaultPolicy(max_retries=2)])
        spark.range(2).mapInArrow(work, "id long").collect()

main(["pipeline", "waiting", *sys.argv[1:]])
"""


@pytest.mark.long
@pytest.mark.parametrize("end", ["server", "Ctrl-C"])
def test_a_job_that_ends_early(end: str, tmp_path: Path) -> None:
    (tmp_path / "waiting.py").write_text(WAITING)
    begun = tmp_path / "begun"
    with ConnectServer(tmp_path) as server:
        words = [sys.executable, str(tmp_path / "waiting.py"), server.url, str(begun)]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as job:
            deadline = time.monotonic() + 120
            while not begun.exists():
                assert time.monotonic() < deadline
                assert job.poll() is None
                time.sleep(0.05)
            if end == "server":
                server.stop()
            else:
                job.send_signal(signal.SIGINT)
            _, said = job.communicate(timeout=120)
    lines = [line for line in said.splitlines() if line]
    if end == "server":
        assert job.returncode == 1
        # The server may have time for a last answer.
        assert lines in (
            [
                "error: the Spark Connect server, or the rows that it kept for this session, have "
                "gone: run the job again"
            ],
            ["error: Spark was stopped while the job ran: run the job again"],
        )
    else:
        assert job.returncode == 130
        assert "Traceback" not in said

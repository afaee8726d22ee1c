"""One Spark session on two cores for all tests of this folder, and a real cluster for those that need one.

Both end with the folder's last test, so that the other tests have the machine for themselves.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from subprocess import CompletedProcess
from typing import TYPE_CHECKING, Protocol

import pytest

from ctrlchan.pipeline.spark.defaults import SMALL_QUERIES
from ctrlchan.pipeline.spark.input_size import SMALL_INPUTS
from tests.spark.connect_server import ConnectServer
from tests.spark.standalone import StandaloneCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


#: Of the settings for small inputs: those with which a single task, or the driver, does the work.
_OF_ONE_TASK = {SMALL_INPUTS, "spark.sql.leafNodeDefaultParallelism", "spark.sql.shuffle.partitions"}
#: Spark's own values of those that the shared session has others for.
_LARGE_QUERIES = {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.autoBroadcastJoinThreshold": "10MB",
    "spark.sql.codegen.factoryMode": "FALLBACK",
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.optimizer.disableHints": "false",
}


@pytest.fixture(scope="package")
def spark() -> Iterator[SparkSession]:
    """``local[2]``; shared, so nobody stops it or changes its settings.

    With SPARK_REMOTE, for tests that can run there (``test_connect``): a session of a Spark Connect server.
    """
    from ctrlchan.pipeline import running

    # What Spark compiles, broadcasts and prints for queries of any size costs more than small queries.
    # ``test_diff`` has a history that runs with ``large_inputs``; so do all jobs on the cluster.
    conf = {name: value for name, value in SMALL_QUERIES.items() if name not in _OF_ONE_TASK}
    conf["spark.sql.shuffle.partitions"] = "2"
    master = None
    if "SPARK_REMOTE" not in os.environ:
        master = "local[2]"
        # The line of each call would be asked for and handed to the JVM.
        conf["spark.python.sql.dataFrameDebugging.enabled"] = "false"
        # Tests that compare every frame of a cluster have all of them in one answer.
        conf["spark.driver.memory"] = "6g"
    with running("ctrlchan-tests", master=master, conf=conf) as session:
        yield session


@contextmanager
def settings(spark: SparkSession, changed: Mapping[str, str]) -> Iterator[None]:
    """Change settings of the session for the block."""
    before = {name: spark.conf.get(name, None) for name in changed}
    for name, value in changed.items():
        spark.conf.set(name, value)
    yield
    for name, old in before.items():
        if old is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, old)


def small_inputs(spark: SparkSession) -> AbstractContextManager[None]:
    """Give the session the settings of one for small inputs."""
    return settings(spark, SMALL_QUERIES)


def large_inputs(spark: SparkSession) -> AbstractContextManager[None]:
    """Let the session compile, broadcast and adapt its queries, as Spark does where nothing is set."""
    return settings(spark, _LARGE_QUERIES)


@pytest.fixture
def small(spark: SparkSession) -> Iterator[None]:
    """See ``small_inputs``."""
    with small_inputs(spark):
        yield


class Command(Protocol):
    """Runs ``ctrlchan pipeline`` with these words."""

    def __call__(self, *words: object) -> CompletedProcess[str]: ...


@pytest.fixture
def command(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Command]:
    """The command in this process, with the shared session in place of one of its own.

    Its settings are those for small inputs, as the command would choose.
    """
    from ctrlchan.cli import main
    from ctrlchan.pipeline import sessions

    monkeypatch.setattr(sessions, "stop", lambda _: None)
    # The command sets both.
    monkeypatch.setenv("PYTHONSAFEPATH", os.environ.get("PYTHONSAFEPATH", ""))
    py4j = logging.getLogger("py4j")
    level = py4j.level

    def run(*words: object) -> CompletedProcess[str]:
        assert sessions.session() is spark
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main(["pipeline", *map(str, words)])
        output = capsys.readouterr()
        assert isinstance(end.value.code, int)
        return CompletedProcess([*map(str, words)], end.value.code, output.out, output.err)

    with small_inputs(spark):
        yield run
    py4j.setLevel(level)


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    """A master and two workers, one core and one executor each; jobs come from processes of their own
    (``ctrlchan pipeline ... --master``), as a process has one Spark at a time."""
    with StandaloneCluster(tmp_path_factory.mktemp("spark-cluster"), dict(os.environ)) as started:
        yield started


@pytest.fixture(scope="package")
def connect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    """A Spark Connect server; its clients are processes of their own, as this one has a JVM."""
    with ConnectServer(tmp_path_factory.mktemp("spark-connect")) as started:
        yield started

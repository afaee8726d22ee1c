"""One Spark session on two cores for all tests of this folder, and a real cluster for those that need one.

Both end with the folder's last test, so that the other tests have the machine for themselves.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from subprocess import CompletedProcess
from typing import TYPE_CHECKING, Final, Protocol

import pytest

from tests.spark.standalone import StandaloneCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_SHUFFLES: Final = "spark.sql.shuffle.partitions"


@pytest.fixture(scope="package")
def spark() -> Iterator[SparkSession]:
    """``local[2]``; shared, so nobody stops it or changes its settings."""
    from ctrlchan.pipeline import running

    with running(
        "ctrlchan-tests",
        master="local[2]",
        conf={
            # Tests that compare every frame of a cluster have all of them in one answer.
            "spark.driver.memory": "6g",
            # A third of the time of small queries, together. Jobs on the cluster do without.
            _SHUFFLES: "2",
            "spark.sql.adaptive.enabled": "false",
            "spark.sql.codegen.wholeStage": "false",
        },
    ) as session:
        yield session


class Command(Protocol):
    """Runs ``ctrlchan pipeline`` with these words."""

    def __call__(self, *words: object) -> CompletedProcess[str]: ...


@pytest.fixture
def command(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Command]:
    """The command in this process, with the shared session in place of one of its own.

    Shuffles have one partition, as for the small inputs of a command.
    """
    from ctrlchan.cli import main
    from ctrlchan.pipeline import sessions

    monkeypatch.setattr(sessions, "stop", lambda _: None)
    # The command sets both.
    monkeypatch.setenv("PYTHONSAFEPATH", os.environ.get("PYTHONSAFEPATH", ""))
    py4j = logging.getLogger("py4j")
    level, shuffles = py4j.level, spark.conf.get(_SHUFFLES) or ""
    spark.conf.set(_SHUFFLES, "1")

    def run(*words: object) -> CompletedProcess[str]:
        assert sessions.session() is spark
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main(["pipeline", *map(str, words)])
        output = capsys.readouterr()
        assert isinstance(end.value.code, int)
        return CompletedProcess([*map(str, words)], end.value.code, output.out, output.err)

    yield run
    spark.conf.set(_SHUFFLES, shuffles)
    py4j.setLevel(level)


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    """A master and two workers, one core and one executor each; jobs come from processes of their own
    (``ctrlchan pipeline ... --master``), as a process has one Spark at a time."""
    with StandaloneCluster(tmp_path_factory.mktemp("spark-cluster"), dict(os.environ)) as started:
        yield started

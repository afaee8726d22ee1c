"""One Spark session on two cores for all tests of this folder, and a real cluster for those that need one.

Both end with the folder's last test, so that the other tests have the machine for themselves.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.spark.standalone import StandaloneCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
            # A third of the time of small queries, together. Commands and jobs on the cluster do without.
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.adaptive.enabled": "false",
            "spark.sql.codegen.wholeStage": "false",
        },
    ) as session:
        yield session


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    """A master and two workers, one core and one executor each; jobs come from processes of their own
    (``ctrlchan pipeline ... --master``), as a process has one Spark at a time."""
    with StandaloneCluster(tmp_path_factory.mktemp("spark-cluster"), dict(os.environ)) as started:
        yield started

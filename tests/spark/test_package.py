"""A standalone cluster whose executors have a Python without any package: the archive is enough for them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

import ctrlchan
from ctrlchan.pipeline.package import make_package
from tests.kafka.ports import free_port
from tests.spark.standalone import StandaloneCluster

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that has nothing but itself."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, symlinks=True)
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_package(tmp_path_factory.mktemp("package") / "ctrlchan.tar.gz").path


@pytest.fixture(scope="module")
def bare_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    """Workers that find no package: neither by PYTHONPATH nor in the folder where they run."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with StandaloneCluster(tmp_path_factory.mktemp("bare-cluster"), environment) as started:
        yield started


def pipeline(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ctrlchan", "pipeline", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)


def test_the_check_names_what_is_missing(
    bare_cluster: StandaloneCluster, bare_python: Path, tmp_path: Path
) -> None:
    run = pipeline(
        *("check", "--json", *bare_cluster.arguments(), "--conf", f"spark.pyspark.python={bare_python}"),
        *("--storage", tmp_path, "--broker", f"127.0.0.1:{free_port()}"),
    )
    assert run.returncode == 1, run.stderr
    executors = json.loads(run.stdout)["executors"]
    assert len(executors) == 2
    for executor in executors:
        packages, broker = executor["problems"]
        assert packages.startswith("no numpy, pyarrow, pandas, ctrlchan: make a package")
        assert "no connection to the broker 127.0.0.1:" in broker
    assert list(tmp_path.iterdir()) == []


def test_the_archive_is_enough(
    bare_cluster: StandaloneCluster, bare_python: Path, archive: Path, tmp_path: Path
) -> None:
    options = [
        *bare_cluster.arguments(),
        "--conf",
        f"spark.pyspark.python={bare_python}",
        "--package",
        archive,
    ]
    run = pipeline("check", "--json", *options, "--storage", tmp_path)
    assert run.returncode == 0, run.stdout + run.stderr
    assert [one["problems"] for one in json.loads(run.stdout)["executors"]] == [[], []]
    state = ctrlchan.ClusterState.empty(controller_id=0, controller_epoch=1)
    with ctrlchan.EmbeddedCluster(count=3, log_dir=None) as brokers:
        state.set_brokers(brokers.brokers)
        state.add_topic("orders", {0: [1, 2, 3], 1: [2, 3, 1]})
        rows = state.rows_of_topic("orders")
        state.update(rows, leader=[1, 2], leader_epoch=0, isr=[[1, 2, 3], [2, 3, 1]])
        state.write(tmp_path / "snapshot")
        for job in (
            ["frames", tmp_path / "snapshot", "-o", tmp_path / "frames"],
            ["dispatch", tmp_path / "frames", "--journal", tmp_path / "journal"],
        ):
            run = pipeline(*job, *options)
            assert run.returncode == 0, run.stdout + run.stderr
        assert [one["metadata"]["partitions"] for one in brokers.describe()] == [2, 2, 2]

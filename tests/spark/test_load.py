"""The clients of ``ctrlchan bench`` as tasks of Spark: all together, their results added up."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ctrlchan import EmbeddedCluster
from ctrlchan.cli import main
from ctrlchan.errors import PipelineError
from ctrlchan.loads.guard import OwnNames, find_cluster, new_run
from ctrlchan.loads.kinds.consume import ConsumeLoad
from ctrlchan.loads.kinds.produce import ProduceLoad
from ctrlchan.pipeline.jobs.load.job import run_load
from tests.spark.standalone import StandaloneCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def kafka_cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(1) as started:
        yield started


def a_load(cluster: EmbeddedCluster, **changed: Any) -> ProduceLoad:
    client = {"bootstrap.servers": cluster.bootstrap_servers}
    values = {
        "run": new_run(),
        "cluster_id": find_cluster(client).cluster_id,
        "client": client,
        "clients": 2,
        "rate": 100.0,
        "seconds": 1.0,
        "warmup": 0.5,
        "partitions": 3,
        "replication": 1,
        "size": 20,
    }
    return ProduceLoad(**{**values, **changed})


def test_results_of_all_tasks_are_added_up(spark: SparkSession, kafka_cluster: EmbeddedCluster) -> None:
    load = a_load(kafka_cluster)
    own = OwnNames(load.client, load.run)
    own.create_topic(load.topic, 3, 1)
    one = run_load(spark, load).operations["produce"]
    assert (one.count, one.items, one.warmup, one.errors) == (100, 100, 50, {})
    assert len(one.latencies) == 100
    assert len(kafka_cluster.records(load.topic)) == 150
    own.delete()


def test_a_worker_that_is_not_ready_lets_nobody_begin(
    spark: SparkSession, kafka_cluster: EmbeddedCluster
) -> None:
    load = a_load(kafka_cluster, cluster_id="other")
    with pytest.raises(PipelineError, match="cluster other was to be loaded: nothing is done"):
        run_load(spark, load)
    # The second of two has a partition that is not there; the first does not wait for it for ever.
    values = {one.name: getattr(a_load(kafka_cluster), one.name) for one in fields(ProduceLoad)}
    half = ConsumeLoad(**values | {"partitions": 2, "rate": 0.0, "records": 10})
    own = OwnNames(half.client, half.run)
    own.create_topic(half.topic, 1, 1)
    with pytest.raises(PipelineError, match="5 records could not be produced: Local: Unknown partition"):
        run_load(spark, half)
    own.delete()


def test_the_command_runs_its_clients_on_a_cluster_of_spark(
    cluster: StandaloneCluster, kafka_cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    cluster_id = find_cluster({"bootstrap.servers": kafka_cluster.bootstrap_servers}).cluster_id
    words = ["-b", kafka_cluster.bootstrap_servers, "--cluster-id", cluster_id, "--clients", "2"]
    words += ["--rate", "100", "--seconds", "1", "--warmup", "0", "--json", str(tmp_path / "result.json")]
    ran = subprocess.run(
        [sys.executable, "-m", "ctrlchan", "bench", "produce", *words, *cluster.arguments()],
        capture_output=True,
        text=True,
        env=dict(os.environ),
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr
    found = json.loads((tmp_path / "result.json").read_text())
    assert found["operations"]["produce"]["count"] == found["records_in_topic"] == 100


def test_an_embedded_cluster_is_not_loaded_from_other_machines(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["bench", "produce", "--embedded", "1", "--master", "spark://127.0.0.1:1"])
    assert end.value.code == 1
    assert "other machines do not reach a cluster" in capfd.readouterr().err

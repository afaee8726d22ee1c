"""``ctrlchan pipeline ingest`` of what Kafka's own tool prints and of a real ZooKeeper."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ctrlchan import ClusterState
from ctrlchan.state.brokers import brokers_list
from ctrlchan.state.importing.describe_text import import_describe
from tests.acceptance.inherited import Inherited
from tests.kafka.rig import KafkaRig
from tests.unit.state.helpers import rows_of


@pytest.mark.long
def test_the_text_of_kafka_topics(inherited: Inherited, tmp_path: Path) -> None:
    (tmp_path / "topics.txt").write_text(inherited.described)
    counts = ingest(tmp_path, "--describe", "topics.txt")
    assert (counts["refused"], counts["partitions"]) == (0, inherited.partitions)
    state = ClusterState.read(tmp_path / "out")
    by_driver = import_describe(inherited.described.splitlines())
    assert rows_of(state) == rows_of(by_driver)
    assert brokers_list(state.brokers) == brokers_list(by_driver.brokers)
    # The tool and ZooKeeper agree on the columns that both have.
    described, kept = state.partitions, inherited.state.partitions
    assert described.leader.tolist() == kept.leader.tolist()
    assert described.replicas.to_lists() == kept.replicas.to_lists()
    assert state.topics.ids.tobytes() == inherited.state.topics.ids.tobytes()


@pytest.mark.long
def test_a_dump_of_zookeeper(kafka: KafkaRig, inherited: Inherited, tmp_path: Path) -> None:
    ran = command("snapshot", "dump", "--zookeeper", kafka.zookeeper_connect)
    (tmp_path / "zk.tsv").write_text(ran.stdout)
    counts = ingest(tmp_path, "--zookeeper", "zk.tsv")
    assert counts["refused"] == 0
    # A line of a topic describes the topic and each of its partitions.
    state = ClusterState.read(tmp_path / "out")
    assert counts["in"] == len(ran.stdout.splitlines()) + len(state.partitions)
    by_driver = ClusterState.from_zookeeper(kafka.zookeeper)
    assert inherited.topic in state.topics.names.to_list()
    assert rows_of(state) == rows_of(by_driver)
    assert brokers_list(state.brokers) == brokers_list(by_driver.brokers)
    for name in ("cluster_id", "controller_id", "controller_epoch"):
        assert getattr(state, name) == getattr(by_driver, name)


def ingest(folder: Path, option: str, file: str) -> dict[str, Any]:
    out, path = str(folder / "out"), str(folder / file)
    ran = command("pipeline", "ingest", out, option, path, "--master", "local[2]", "--json")
    counts: dict[str, Any] = json.loads(ran.stdout)
    return counts


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    ran = subprocess.run(
        [sys.executable, "-m", "ctrlchan", *arguments], capture_output=True, text=True, timeout=600
    )
    assert ran.returncode == 0, ran.stderr
    return ran

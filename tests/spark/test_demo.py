"""The demo: real brokers, one slow and one gone; the report names these two and nobody else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from subprocess import CompletedProcess

import pyarrow.parquet as pq
import pytest

from ctrlchan.journal import read_channels
from ctrlchan.state import ClusterState
from tests.spark.conftest import Command


def in_a_process(*words: object) -> CompletedProcess[str]:
    command = [sys.executable, "-m", "ctrlchan", "pipeline", *map(str, words)]
    settings = ["--master", "local[2]", "--conf", "spark.driver.memory=1g"]
    return subprocess.run([*command, *settings], capture_output=True, text=True, timeout=280)


@pytest.mark.parametrize("own_spark", [False, pytest.param(True, marks=pytest.mark.long)])
def test_the_report_names_both(command: Command, tmp_path: Path, own_spark: bool) -> None:
    words = ["demo", "-o", tmp_path / "demo", "--json", "--topics", 20]
    ran = in_a_process(*words) if own_spark else command(*words)
    assert ran.returncode == 0, ran.stderr
    summary = json.loads(ran.stdout)
    assert (summary["stale"], summary["slow"]) == ({"5": 12}, [4])
    assert summary["result"] == "Broker 5 is stale and broker 4 is slow."
    divergence = pq.read_table(tmp_path / "demo" / "report" / "divergence").to_pylist()
    assert {(row["broker"], row["reason"], row["certain"]) for row in divergence} == {(5, "waiting", True)}
    # Elections that broker 5 has not heard of, by the state itself.
    state = ClusterState.read(tmp_path / "demo" / "snapshot")
    changed = {
        (state.topic_name(int(state.partitions.topic_row[row])), int(state.partitions.partition[row]))
        for row in (state.changes.rows > state.changes.version - 12).nonzero()[0]
    }
    assert {(row["topic"], row["partition"]) for row in divergence} == changed
    # The channel has ended with the demo, and says so.
    assert all(read_channels(tmp_path / "demo" / "journal")["closed"].to_pylist())
    again = command(*words)
    assert again.returncode == 1
    assert "already there (--overwrite replaces it)" in again.stderr

"""The demo: real brokers, one slow and one gone; the report names these two and nobody else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from ctrlchan.cli import main
from ctrlchan.journal import read_channels
from ctrlchan.state import ClusterState


def test_the_report_names_both(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = [sys.executable, "-m", "ctrlchan", "pipeline", "demo", "-o", str(tmp_path / "demo"), "--json"]
    settings = ["--master", "local[2]", "--conf", "spark.driver.memory=1g", "--topics", "20"]
    ran = subprocess.run([*command, *settings], capture_output=True, text=True, timeout=280)
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
    with pytest.raises(SystemExit) as again:
        main(command[3:])
    assert again.value.code == 1
    assert "already there (--overwrite replaces it)" in capsys.readouterr().err

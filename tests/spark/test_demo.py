"""The demo: real brokers, one slow and one gone; the report names these two and nobody else.

``test_quick_start.py`` runs the command in this process, and looks at the same results.
"""

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

STALE = 5
#: Elections that the stale broker has missed.
MISSED = 12


def in_a_process(*words: object) -> CompletedProcess[str]:
    command = [sys.executable, "-m", "ctrlchan", "pipeline", *map(str, words)]
    settings = ["--master", "local[2]", "--conf", "spark.driver.memory=1g"]
    return subprocess.run([*command, *settings], capture_output=True, text=True, timeout=280)


def assert_only_the_missed_elections_are_stale(folder: Path) -> None:
    """Compare the report in the demo's folder with the state, and look at the journal's end."""
    divergence = pq.read_table(folder / "report" / "divergence").to_pylist()
    assert {(row["broker"], row["reason"], row["certain"]) for row in divergence} == {
        (STALE, "waiting", True)
    }
    # Elections that the stale broker has not heard of, by the state itself.
    state = ClusterState.read(folder / "snapshot")
    changed = {
        (state.topic_name(int(state.partitions.topic_row[row])), int(state.partitions.partition[row]))
        for row in (state.changes.rows > state.changes.version - MISSED).nonzero()[0]
    }
    assert {(row["topic"], row["partition"]) for row in divergence} == changed
    # The channel has ended with the demo, and says so.
    assert all(read_channels(folder / "journal")["closed"].to_pylist())


@pytest.mark.long
def test_the_report_names_both(tmp_path: Path) -> None:
    """In a Spark of its own."""
    words = ["demo", "-o", tmp_path / "demo", "--json", "--topics", 20]
    ran = in_a_process(*words)
    assert ran.returncode == 0, ran.stderr
    summary = json.loads(ran.stdout)
    assert (summary["stale"], summary["slow"]) == ({str(STALE): MISSED}, [4])
    assert summary["result"] == "Broker 5 is stale and broker 4 is slow."
    assert_only_the_missed_elections_are_stale(tmp_path / "demo")

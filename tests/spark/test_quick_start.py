"""The quick start of operators: each command that it shows, as a reader types them one after another."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from ctrlchan import EmbeddedCluster
from tests.documented import ROOT, Reader, shown_by
from tests.spark import release_logs
from tests.spark.conftest import Command

RELEASE = (3, 9)


def write_logs(folder: Path) -> None:
    """Write ``state-change.log`` of three brokers; the last one is a broker without a replica."""
    lines = [*release_logs.creation(RELEASE)]
    for epoch, leader in ((0, 1), (1, 2)):
        lines += release_logs.requests(RELEASE, epoch, leader)
        lines.append(release_logs.cached(RELEASE, epoch, leader, 3))
    logs: dict[int, list[str]] = defaultdict(list)
    for second, line in enumerate(lines):
        text = f"[2026-01-31 10:00:{second:02d},000] {line.level} {line.message} (state.change.logger)\n"
        logs[line.broker].append(text)
    for broker, texts in logs.items():
        (folder / f"broker-{broker}").mkdir()
        (folder / f"broker-{broker}" / "state-change.log").write_text("".join(texts))


def test_operator(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_logs(tmp_path)
    with EmbeddedCluster(2) as cluster:
        cluster.create_topic("clicks")
        nodes = cluster.controller.describe()["zookeeper"]["servers"]
        # The lines of the logs are of a topic with another name.
        reader = Reader(tmp_path, {"localhost:2181": nodes, "orders-0": "t-0", "orders": "t"})
        ran: dict[str, CompletedProcess[str]] = {}
        for shown in shown_by(ROOT / "docs" / "quickstart" / "operator.md"):
            words = reader.words(shown)
            in_spark = words[:2] == ["ctrlchan", "pipeline"]
            ran[" ".join(words[1:3])] = command(*words[2:]) if in_spark else reader.run(shown)
    assert {name: one.returncode for name, one in ran.items() if one.returncode} == {
        "pipeline monitor": 3,
        "push live": 1,
    }
    result = ran["pipeline report"].stdout.splitlines()[0]
    assert result.startswith("Broker 5 is stale")
    assert result.endswith("broker 4 is slow.")
    assert (tmp_path / "demo" / "report" / "report.html").exists()
    assert "diverged" in ran["pipeline monitor"].stdout
    assert "t-0" in ran["pipeline explain"].stdout
    assert (
        (tmp_path / "merged.log").read_text().startswith("[2026-01-31 10:00:00,000] INFO [Controller id=1 ")
    )
    assert re.search(r" 1  topics", ran["snapshot show"].stdout)
    assert "--take-over" in ran["push live"].stderr

"""``ctrlchan bench produce``: as many records are in the topic as were acknowledged."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from ctrlchan import EmbeddedCluster
from ctrlchan.cli import main
from ctrlchan.errors import KafkaError
from tests.unit.loads.conftest import own_topics


def test_every_acknowledged_record_is_in_the_topic(cluster: EmbeddedCluster, bench: Any) -> None:
    found = bench("produce", "--clients", 2, "--size", 37, "--partitions", 3, "--keep", warmup=0.3)
    one = found["operations"]["produce"]
    assert one["errors"] == {}
    assert one["warmup_items"] > 0
    records = cluster.records(f"{found['run']}-records")
    assert len(records) == one["items"] + one["warmup_items"] == found["records_in_topic"]
    assert {len(record.value or b"") for record in records} == {37}
    assert {record.partition for record in records} == {0, 1, 2}
    assert one["bytes_per_second"] == pytest.approx(one["items_per_second"] * 37)


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_a_rate_is_kept_exactly(bench: Any, cluster: EmbeddedCluster, acks: str) -> None:
    found = bench("produce", "--rate", 200, "--clients", 2, "--acks", acks, warmup=0.5)
    one = found["operations"]["produce"]
    # What is due in each phase is known; a busy machine makes it late, not less.
    assert (one["count"], one["warmup_items"], found["records_in_topic"]) == (200, 100, 300)
    latency = one["latency_ms"]
    assert 0 < latency["p50"] <= latency["p90"] <= latency["p99"] <= latency["max"]
    assert own_topics(cluster) == []


def test_records_that_fail_are_counted_and_the_status_says_so(
    cluster: EmbeddedCluster, cluster_id: str, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ["-b", cluster.bootstrap_servers, "--cluster-id", cluster_id, "--warmup", "0", "--seconds", "0.5"]
    words += ["--rate", "20", "--acks", "1", "--json", str(tmp_path / "result.json")]
    settings = tmp_path / "client.properties"
    # A file's settings count, and the command line's win.
    settings.write_text("linger.ms = wrong\nretries = 0\n")
    for broker in (1, 2):
        cluster.broker(broker).fail("Produce", error="INVALID_RECORD", times=1_000)
    try:
        with pytest.raises(SystemExit) as end:
            main(["bench", "produce", *words, "--config", str(settings), "-c", "linger.ms=1"])
    finally:
        cluster.clear_faults()
    printed = capfd.readouterr()
    assert end.value.code == 1
    assert "10 failed with INVALID_RECORD" in printed.out
    assert "no produce has succeeded" in printed.err
    one = json.loads((tmp_path / "result.json").read_text())["operations"]["produce"]
    assert (one["count"], one["errors"]) == (0, {"INVALID_RECORD": 10})


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_ends_the_workers_deletes_the_topics_and_shows_what_was_done(
    cluster: EmbeddedCluster, cluster_id: str, number: int
) -> None:
    command = [sys.executable, "-m", "ctrlchan", "bench", "produce", "-b", cluster.bootstrap_servers]
    command += [
        "--cluster-id",
        cluster_id,
        "--seconds",
        "600",
        "--warmup",
        "0",
        "--rate",
        "100",
        "--json",
        "-",
    ]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    _until(lambda: _produced(cluster) > 50, child)
    os.kill(child.pid, number)
    out, err = child.communicate(timeout=60)
    assert child.returncode == 130, err
    found = json.loads(out)
    one = found["operations"]["produce"]
    assert one["count"] == found["records_in_topic"] > 50
    assert found["measured_seconds"] < 600
    assert own_topics(cluster) == []


def test_a_killed_command_leaves_no_worker(cluster: EmbeddedCluster, cluster_id: str) -> None:
    command = [sys.executable, "-m", "ctrlchan", "bench", "produce", "-b", cluster.bootstrap_servers]
    command += ["--cluster-id", cluster_id, "--seconds", "600", "--rate", "100"]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _until(lambda: _produced(cluster) > 0, child)
    workers = psutil.Process(child.pid).children(recursive=True)
    assert workers
    child.kill()
    child.wait(60)
    _until(lambda: not any(map(_is_alive, workers)))
    (topic,) = own_topics(cluster)
    cluster.delete_topics(topic)


def _is_alive(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def _produced(cluster: EmbeddedCluster) -> int:
    """Return the records of runs; 0 while a broker does not know their topics yet."""
    with suppress(KafkaError):
        return sum(len(cluster.records(name)) for name in own_topics(cluster))
    return 0


def _until(is_so: Any, child: subprocess.Popen[Any] | None = None, seconds: float = 120) -> None:
    """Wait; end the child if that takes too long."""
    deadline = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > deadline:
            if child is not None:
                child.kill()
                child.wait()
            raise AssertionError("not in time")
        time.sleep(0.05)

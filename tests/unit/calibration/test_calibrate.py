"""``ctrlchan bench calibrate`` on small clusters, and the processes that it starts."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import psutil
import pytest

from ctrlchan.calibration import failovers, measure, pushes
from ctrlchan.calibration.costs_file import read_calibration
from ctrlchan.calibration.failovers import TimedCluster, TimedEvent
from ctrlchan.calibration.memory_nodes import MemoryNodes
from ctrlchan.calibration.pushes import TimedPush
from ctrlchan.calibration.sinks import Sinks
from ctrlchan.cli import main
from ctrlchan.errors import CtrlchanError
from ctrlchan.planning.costs import Costs
from ctrlchan.planning.events import Counted
from ctrlchan.planning.times import event_time, failover_time, push_time
from ctrlchan.planning.traffic import ApiTraffic, Traffic
from ctrlchan.zookeeper.client import connected
from tests.kafka.waiting import wait_until


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let a calibration measure little, into a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(measure, "PUSHES", ((200, 3), (100, 5), (10, 9)))
    monkeypatch.setattr(measure, "FAILOVERS", ((30, 3), (90, 5)))
    monkeypatch.setattr(failovers, "_FAILOVERS", 1)
    monkeypatch.setattr(failovers, "_SILENT_NS", 10**9)
    monkeypatch.setattr(pushes, "_ROUNDS", 3)


def test_calibrate_keeps_costs_for_this_machine(small: None, capfd: pytest.CaptureFixture[str]) -> None:
    before = set(psutil.Process().children(recursive=True))
    with MemoryNodes() as zookeeper:
        with pytest.raises(SystemExit) as ended:
            main(["bench", "calibrate", "--zookeeper", f"{zookeeper.address}/kafka", "--json"])
        assert ended.value.code == 0
        printed = json.loads(capfd.readouterr().out)
        with connected(zookeeper.address) as client:
            assert client.get_children("/kafka") == []
    kept = read_calibration()
    assert kept is not None
    assert kept.zookeeper == printed["zookeeper"] == "a server"
    assert printed["costs"]["processors"] == kept.costs.processors > 0
    assert kept.costs.encode_seconds > 0
    assert kept.costs.byte_seconds > 0
    assert kept.costs.read_seconds > 0
    assert kept.costs.controller_bytes > 10 * 2**20
    assert set(psutil.Process().children(recursive=True)) <= before


def test_costs_are_those_that_explain_the_times() -> None:
    wanted = Costs(
        encode_seconds=5e-9,
        byte_seconds=2e-10,
        cached_byte_seconds=1e-10,
        request_seconds=3e-6,
        push_seconds=1e-3,
        read_seconds=2e-6,
        failover_seconds=0.2,
        failover_partition_seconds=1e-6,
        failover_broker_seconds=2e-3,
        write_seconds=1e-5,
        event_seconds=0.03,
        controller_bytes=1e8,
        controller_partition_bytes=500.0,
        processors=os.cpu_count() or 1,
    )

    def traffic(requests: int, size: int, partitions: int) -> Traffic:
        return Traffic({"UpdateMetadata": ApiTraffic(requests, size, size // requests, partitions)})

    timed = [
        TimedPush(one, push_time(wanted, one, None).seconds)
        for one in (
            traffic(10, 10**8, 10**5),
            traffic(40, 4 * 10**8, 2 * 10**5),
            traffic(600, 10**7, 100),
            traffic(100, 5 * 10**7, 10**4),
        )
    ]
    clusters = []
    for partitions, brokers in ((1_000, 6), (50_000, 6), (10_000, 90)):
        failover = Counted(traffic(3 * brokers, 200 * partitions * brokers, 4 * partitions))
        death = Counted(traffic(4 * brokers, 20 * partitions * brokers, partitions), 100, partitions // 10)
        clusters.append(
            TimedCluster(
                partitions,
                brokers,
                TimedEvent(failover, failover_time(wanted, failover, partitions, brokers, None).seconds, 0),
                (TimedEvent(death, event_time(wanted, death, None).seconds, 0),),
                wanted.read_seconds,
                round(1e8 + 500 * partitions + failover.traffic.total.encoded_bytes),
            )
        )
    found = asdict(measure.costs_from(wanted.encode_seconds, timed, clusters))
    assert found == pytest.approx(asdict(wanted), rel=1e-3)


def test_a_zookeeper_that_is_not_there_is_one_line(small: None, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["bench", "calibrate", "--zookeeper", "127.0.0.1:1"])
    assert ended.value.code == 1
    assert "error: zookeeper 127.0.0.1:1" in capfd.readouterr().err
    assert read_calibration() is None


def test_a_sink_ends_a_connection_of_another_protocol() -> None:
    with Sinks(1) as sinks, socket.create_connection(("127.0.0.1", sinks.ports[0]), timeout=10) as client:
        client.sendall(b"GET / HTTP/1.1\r\n\r\n")
        with suppress(ConnectionResetError):
            assert client.recv(1) == b""
        assert sinks.report().requests == 0


def test_a_sink_whose_process_has_ended_is_an_error() -> None:
    with Sinks(1) as sinks:
        process = psutil.Process(sinks.pid)
        process.kill()
        process.wait(10)
        with pytest.raises(CtrlchanError, match="has ended"):
            sinks.report()


def test_ctrl_c_ends_every_process_and_deletes_every_node() -> None:
    with MemoryNodes() as zookeeper:
        calibrate = subprocess.Popen(
            [sys.executable, "-m", "ctrlchan", "bench", "calibrate", "--zookeeper", zookeeper.address],
            stderr=subprocess.PIPE,
            text=True,
        )
        assert calibrate.stderr is not None
        assert any("failovers" in line for line in calibrate.stderr)
        process = psutil.Process(calibrate.pid)
        wait_until(lambda: len(process.children()) == 2, timeout=60, what="sinks and a controller run")
        children = process.children(recursive=True)
        calibrate.send_signal(signal.SIGINT)
        assert calibrate.wait(60) == 130
        calibrate.stderr.close()
        assert not any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in children)
        with connected(zookeeper.address) as client:
            assert client.get_children("/") == ["zookeeper"] or not client.get_children("/")

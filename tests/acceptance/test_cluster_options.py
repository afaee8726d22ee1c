"""The options of ``ctrlchan cluster``: ports, listeners, settings, topics, kept folders, its status page."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from ctrlchan.cli import local_cluster, main
from ctrlchan.cli.cluster_options import Topic, read_advertised, read_settings, read_topic
from ctrlchan.cli.local_cluster import ClusterOptions, start_cluster
from ctrlchan.controller.status.metrics import ControllerMetrics
from ctrlchan.controller.status.recent import RecentNotifications
from tests.acceptance.test_cluster_command import COMMAND, all_ended, running
from tests.kafka.ports import free_ports
from tests.kafka.waiting import wait_until


def topics_of(bootstrap_servers: str) -> dict[str, int]:
    """Return the number of partitions of each topic, as a client sees them."""
    found = AdminClient({"bootstrap.servers": bootstrap_servers}).list_topics(timeout=60).topics
    return {name: len(topic.partitions) for name, topic in found.items()}


def stopped(process: psutil.Popen, number: int = signal.SIGINT) -> str:
    """End the command; return what it has printed on standard error."""
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    return str(errors, "utf-8")


def test_the_port_is_that_of_the_first_broker() -> None:
    port = free_ports(2)
    with running("--brokers", "2", "--port", str(port)) as (process, printed):
        assert printed["bootstrap_servers"] == f"127.0.0.1:{port},127.0.0.1:{port + 1}"
        # A port that is asked for is not replaced.
        taken = subprocess.run(
            [*COMMAND, "--brokers", "1", "--port", str(port)], capture_output=True, text=True
        )
        assert taken.returncode == 1
        assert "Address already in use" in taken.stderr.splitlines()[-1]
        stopped(process)


def test_without_a_port_it_takes_the_next_free_ones_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    assert local_cluster._FIRST_PORT == 9092
    first = free_ports(3)
    monkeypatch.setattr(local_cluster, "_FIRST_PORT", first)
    lines: list[str] = []
    options = ClusterOptions(brokers=1, controller_id=1000, session_timeout=6.0)
    with socket.create_server(("127.0.0.1", first)), ExitStack() as stack:
        metrics, recent = ControllerMetrics(), RecentNotifications()
        found = start_cluster(stack, options, metrics=metrics, recent=recent, warn=lines.append)
        assert found.brokers.bootstrap_servers == f"127.0.0.1:{first + 1}"
    assert lines == [f"port {first} or one of the next is in use: the first broker listens on {first + 1}"]


def test_containers_have_a_listener_of_their_own() -> None:
    port = free_ports(1)
    options = ("--listener", f"DOCKER=0.0.0.0:{port}", "--advertised", f"DOCKER=host.docker.internal:{port}")
    with running("--brokers", "1", "--port", "0", *options) as (_, printed):
        (broker,) = printed["brokers"]
        assert broker["listeners"] == [broker["address"], f"DOCKER://host.docker.internal:{port}"]
        seen = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"}).list_topics(timeout=60)
        assert {str(one.host) for one in seen.brokers.values()} == {"host.docker.internal"}


def test_settings_and_topics(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=2\ndefault.replication.factor=1\nlisteners=PLAINTEXT://:9092\n")
    options = ["--brokers", "2", "--port", "0", "--config", str(file), "-c", "num.partitions=3"]
    topics = ["--topic", "orders:6:2", "--topic", "clicks"]
    with running(*options, *topics) as (process, printed):
        assert topics_of(printed["bootstrap_servers"]) == {"orders": 6, "clicks": 3}
        assert f"warning: {file}: listeners has no effect" in stopped(process)


def test_a_kept_folder_goes_on_with_its_brokers_and_in_silence(tmp_path: Path) -> None:
    folder = ("--log-dir", str(tmp_path), "--port", "0")
    with running("--brokers", "2", "--topic", "orders:50:2", *folder) as (process, printed):
        producer = Producer({"bootstrap.servers": printed["bootstrap_servers"]})
        producer.produce("orders", b"1")
        assert producer.flush(60) == 0
        stopped(process)
    with running(*folder) as (process, printed):
        assert [one["id"] for one in printed["brokers"]] == [1, 2]
        assert topics_of(printed["bootstrap_servers"])["orders"] == 50
        lines = stopped(process).splitlines()
    silent = r"starting 2 brokers and their controller \(.*|page: http://.*"
    assert [line for line in lines if not re.fullmatch(silent, line)] == []
    fewer = subprocess.run([*COMMAND, *folder, "--brokers", "1"], capture_output=True, text=True)
    assert fewer.returncode == 1
    assert "has the records of brokers 1, 2, and this cluster has no broker 2" in fewer.stderr


def test_no_word_of_zookeeper_where_there_is_none() -> None:
    process = psutil.Popen(
        [*COMMAND, "--brokers", "1", "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        lines: list[str] = []
        while not (lines and lines[-1].startswith("bootstrap.servers=127.0.0.1:")):
            lines.append(process.stdout.readline())
            assert lines[-1], lines
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    assert "zookeeper" not in ("".join(lines) + output + errors).lower()
    assert process.returncode == 0


def test_controller_status_shows_the_cluster() -> None:
    with running("--brokers", "1", "--port", "0", "--topic", "orders:7") as (_, printed):
        status = [sys.executable, "-m", "ctrlchan", "controller", "status"]
        if printed["page"] != "http://127.0.0.1:9404/":
            status.append(printed["page"].rstrip("/"))

        def shown(*options: str) -> str:
            command = [*status, *options]
            return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout

        def partitions() -> int:
            return int(json.loads(shown("--json"))["figures"]["partitions"])

        wait_until(lambda: partitions() == 7, what="the status shows the topic", timeout=60)
        text = shown()
        assert "nodes in memory: answered" in text
        assert "ZooKeeper" not in text


@contextmanager
def starting(folder: Path, *options: str) -> Iterator[psutil.Popen]:
    process = psutil.Popen(
        [*COMMAND, "--json", "--port", "0", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(folder)},
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("moment", "number"),
    [
        # SIGINT and SIGTERM end it in the same way: each has its moment, and make acceptance has all.
        pytest.param(moment, number, id=f"{number.name}, {moment}", marks=() if now else pytest.mark.long)
        for moment, soft in (
            ("a broker is started", signal.SIGINT),
            ("there is a folder", signal.SIGTERM),
            ("there are logs", signal.SIGINT),
        )
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
        for now in [number in (soft, signal.SIGKILL)]
    ],
)
def test_a_signal_while_it_starts_leaves_nothing(moment: str, number: int, tmp_path: Path) -> None:
    moments: dict[str, Any] = {
        "a broker is started": lambda: children,
        "there is a folder": lambda: list(tmp_path.iterdir()),
        "there are logs": lambda: list(tmp_path.glob("*/broker-*")),
    }
    with starting(tmp_path, "--brokers", "2") as process:
        children: list[psutil.Process] = []

        def is_moment() -> bool:
            with suppress(psutil.NoSuchProcess):
                children[:] = process.children(recursive=True)
            return bool(moments[moment]())

        wait_until(is_moment, what=moment, timeout=60)
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == (-number if number == signal.SIGKILL else 130)
    assert b"Traceback" not in errors
    assert b"error" not in errors
    wait_until(lambda: all_ended(children), what="its processes have ended", timeout=60)
    wait_until(lambda: not list(tmp_path.iterdir()), what="no folder is left", timeout=60)


def test_it_ends_with_its_parent(tmp_path: Path) -> None:
    command = [*COMMAND, "--json", "--port", "0", "--brokers", "1", "--end-with-parent"]
    program = f"import subprocess, time; child = subprocess.Popen({command!r}); time.sleep(600)"
    parent = psutil.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    with parent.stdout:
        json.loads(parent.stdout.readline())
        children = parent.children(recursive=True)
        parent.kill()
        parent.wait()
    wait_until(lambda: all_ended(children), what="the cluster has ended", timeout=60)
    wait_until(lambda: not list(tmp_path.iterdir()), what="no folder is left", timeout=60)


@pytest.mark.parametrize(
    ("text", "topic"),
    [
        ("orders", Topic("orders", None, None)),
        ("orders:6", Topic("orders", 6, None)),
        ("orders:6:3", Topic("orders", 6, 3)),
    ],
)
def test_how_topics_are_written(text: str, topic: Topic) -> None:
    assert read_topic(text) == topic


def test_how_advertised_addresses_are_written() -> None:
    given = ["host:1", "DOCKER=other:2"]
    assert read_advertised(given, "PLAINTEXT") == {"PLAINTEXT": "host:1", "DOCKER": "other:2"}


def test_settings_of_options_win(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=2\nlog.retention.ms=1\nnot.known=1\n")
    warned: list[str] = []
    found = read_settings(file, ["num.partitions = 3"], warned.append)
    assert found == {"num.partitions": "3", "log.retention.ms": "1"}
    assert warned == [f"warning: {file}: not.known has no effect"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--topic", "orders:0"], "'orders:0' is not NAME, NAME:PARTITIONS or NAME:PARTITIONS:REPLICAS"),
        (["--topic", "orders:x"], "'orders:x' is not"),
        (["-c", "num.partitions"], "'num.partitions' is not NAME=VALUE"),
        (["-c", "num.partition=1"], "the nearest is num.partitions"),
        (["-c", "num.partitions=x"], "num.partitions"),
        (["-c", "listeners=PLAINTEXT://:9092"], "listeners is set by options"),
        (["--listener", "127.0.0.1:1"], "is not NAME=HOST:PORT"),
        (["--listener", "DOCKER=0.0.0.0:1"], "nobody can connect to 0.0.0.0"),
        (["--advertised", "no-such-host.invalid:1"], "broker 1 is not at PLAINTEXT://no-such-host.invalid:1"),
        (["--host", "no-such-host.invalid"], "no-such-host.invalid"),
        (["--config", "/nowhere/server.properties"], "/nowhere/server.properties"),
    ],
)
def test_wrong_usage_is_one_line(
    capfd: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["cluster", "--brokers", "1", *arguments])
    assert ended.value.code in (1, 2)
    # Lines with a % are librdkafka's: clients of other tests may miss their brokers.
    (line,) = [one for one in capfd.readouterr().err.splitlines() if not one.startswith(("starting", "%"))]
    assert line.startswith("error: ")
    assert message in line

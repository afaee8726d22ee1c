"""``ctrlchan broker``: its output, its end, and wrong usage."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest

from ctrlchan._codec import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA
from ctrlchan.cli.broker_properties import read_broker_properties
from ctrlchan.errors import ConfigError
from ctrlchan.launch.embedded import EmbeddedBroker
from ctrlchan.zookeeper.memory.server import MemoryZooKeeper
from tests.kafka.ports import free_port
from tests.kafka.wire import answers_api_versions, exchange
from tests.kafka.zookeeper import ZooKeeperServer
from tests.unit.broker.local_broker import Part, control_frame

COMMAND = [sys.executable, "-m", "ctrlchan", "broker"]


@contextmanager
def running(*arguments: str, command: Sequence[str] = COMMAND) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        with process:
            yield process
    finally:
        process.kill()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().rstrip()


def ended(process: subprocess.Popen[str], number: int) -> tuple[int, str]:
    """(exit status, standard error) after this signal."""
    process.send_signal(number)
    _, errors = process.communicate(timeout=20)
    return process.returncode, errors


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_prints_its_port_and_ends_on_a_signal(number: int) -> None:
    with running("--id", "7", "--listener", "INTERNAL") as process:
        printed = re.fullmatch(r"broker 7 listens on INTERNAL://127\.0\.0\.1:(\d+)", line(process))
        assert printed is not None
        assert answers_api_versions("127.0.0.1", int(printed[1]))
        assert ended(process, number) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "ids"),
    [(["--id", "4", "--id", "2"], [4, 2]), (["--count", "3", "--first-id", "0"], [0, 1, 2])],
)
def test_several_brokers_in_one_process(arguments: list[str], ids: list[int]) -> None:
    with running("--json", "--epoch", "9", *arguments) as process:
        printed = [json.loads(line(process)) for _ in ids]
        assert [one["id"] for one in printed] == ids
        assert {(one["host"], one["listener"], one["epoch"]) for one in printed} == {
            ("127.0.0.1", "PLAINTEXT", 9)
        }
        assert len({one["port"] for one in printed}) == len(ids)
        assert all(answers_api_versions("127.0.0.1", one["port"]) for one in printed)
        assert ended(process, signal.SIGTERM) == (0, "")


def test_without_a_controller_it_says_what_to_type(tmp_path: Path) -> None:
    with running("--log-dir", str(tmp_path)) as process:
        line(process)
        status, errors = ended(process, signal.SIGTERM)
    assert status == 0
    assert "there is no controller, so clients cannot create topics" in errors
    assert f"ctrlchan cluster --brokers 1 --log-dir {tmp_path}. " in errors


def test_verbose_logs_a_line_for_each_control_request() -> None:
    with running("--json", command=[sys.executable, "-m", "ctrlchan", "-vv", "broker"]) as process:
        port = json.loads(line(process))["port"]
        for api_key, version in (
            (UPDATE_METADATA, 8),
            (LEADER_AND_ISR, 7),
            (LEADER_AND_ISR, 7),
            (STOP_REPLICA, 4),
        ):
            exchange("127.0.0.1", port, control_frame(api_key, version, [Part()]))
        exchange("127.0.0.1", port, control_frame(UPDATE_METADATA, 8, [], controller_epoch=1))
        status, errors = ended(process, signal.SIGTERM)
    assert status == 0
    lines = [
        re.sub(r"^\S+ \S+ INFO |\d+ bytes|[\d.]+ ms|127\.0\.0\.1:\d+", "~", one)
        for one in errors.splitlines()
    ]
    peer = "from ~ (User:ANONYMOUS)"
    head = "correlation 77 controller 1000 epoch 5 broker epoch 50: 1 partitions, ~"
    assert lines == [
        f"~broker 1: UpdateMetadata v8 {head}, NONE, ~, {peer}",
        f"~broker 1: LeaderAndIsr v7 {head}, NONE, ~, {peer}",
        f"~broker 1: LeaderAndIsr v7 {head}, NONE, 1 partition errors, ~, {peer}",
        f"~broker 1: StopReplica v4 {head}, NONE, ~, {peer}",
        "~broker 1 refuses UpdateMetadataRequest: the latest controller epoch is 5",
        "~broker 1: UpdateMetadata v8 correlation 77 controller 1000 epoch 1 broker epoch 50: "
        "0 partitions, ~, STALE_CONTROLLER_EPOCH, ~, from ~ (User:ANONYMOUS)",
    ]


@pytest.mark.parametrize("stores", [False, True])
def test_a_port_that_is_taken_is_one_line_and_status_1(tmp_path: Path, stores: bool) -> None:
    arguments = ["--log-dir", str(tmp_path)] if stores else []
    with EmbeddedBroker(1) as taken:
        ran = subprocess.run(
            [*COMMAND, "--port", str(taken.port), *arguments], capture_output=True, text=True, timeout=60
        )
    assert ran.returncode == 1
    (line,) = ran.stderr.splitlines()
    assert line == f"error: broker 1: cannot listen on 127.0.0.1:{taken.port}: Address already in use"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--id", "1", "--count", "2"],
        ["--id", "1", "--id", "1"],
        ["--id", "-1"],
        ["--count", "0"],
        ["--port", "65535", "--count", "2"],
        ["--port", "x"],
        ["--config", "server.properties", "--port", "9092"],
        ["--controller", "--log-dir", "logs"],
        ["--controller", "--zookeeper", "localhost:1"],
        ["--controller", "--zookeeper", "localhost:1", "--log-dir", "logs", "--count", "2"],
    ],
)
def test_wrong_usage_is_status_2(arguments: list[str]) -> None:
    ran = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 2
    assert "Traceback" not in ran.stderr


def test_help_has_examples() -> None:
    ran = subprocess.run([*COMMAND, "--help"], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0
    assert "ctrlchan broker --count 30" in ran.stdout


def test_a_properties_file_with_log_dirs(tmp_path: Path) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    file = tmp_path / "server.properties"
    file.write_text(
        "broker.id=7\nlisteners=INTERNAL://127.0.0.1:0\nlistener.security.protocol.map=INTERNAL:PLAINTEXT\n"
        f"log.dirs={folders[0]},{folders[1]}\nnum.io.threads=2\nnot.known=1\nnum.partition=3\n"
    )
    with running("--config", str(file)) as process:
        printed = re.fullmatch(r"broker 7 listens on INTERNAL://127\.0\.0\.1:(\d+)", line(process))
        assert printed is not None
        assert answers_api_versions("127.0.0.1", int(printed[1]))
        status, errors = ended(process, signal.SIGTERM)
    assert status == 0
    assert "server.properties: not.known has no effect\n" in errors
    assert "server.properties: num.partition has no effect (is num.partitions meant?)\n" in errors
    # The third line says what is missing: a controller.
    assert len(errors.splitlines()) == 3
    assert all((folder / ".kafka_cleanshutdown").exists() for folder in folders)
    # Without an id that of the folders is taken; an option counts before the file.
    file.write_text("listeners=PLAINTEXT://127.0.0.1:0\n")
    with running("--config", str(file), "--log-dir", str(folders[0]), "--json") as process:
        assert json.loads(line(process))["id"] == 7
        assert ended(process, signal.SIGTERM)[0] == 0


def test_a_properties_file_with_a_session_timeout(tmp_path: Path, zookeeper_server: ZooKeeperServer) -> None:
    lines = f"broker.id=7\nlisteners=PLAINTEXT://127.0.0.1:0\nlog.dirs={tmp_path / 'logs'}\n"
    file = tmp_path / "server.properties"
    # Nobody is the controller.
    lines += "controlled.shutdown.enable=false\n"
    file.write_text(f"{lines}zookeeper.connect={zookeeper_server.address}/timeout\n")
    assert read_broker_properties(file).session_timeout is None
    with file.open("a") as end:
        end.write("zookeeper.session.timeout.ms=4500\n")
    assert read_broker_properties(file).session_timeout == 4.5
    with running("--config", str(file), "--no-controller") as process:
        assert line(process).startswith("broker 7 listens on ")
        with socket.create_connection(("127.0.0.1", zookeeper_server.port), 20) as connection:
            connection.sendall(b"cons")
            assert b",to=4500," in connection.makefile("rb").read()
        assert ended(process, signal.SIGTERM) == (0, "")


def test_a_broker_without_an_id(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    lines = f"listeners=PLAINTEXT://127.0.0.1:0\nlog.dirs={tmp_path / 'logs'}\n"
    with MemoryZooKeeper() as zookeeper:
        lines += f"zookeeper.connect={zookeeper.address}/ids\n"
        file.write_text(lines)
        # As Kafka's, ids are above those that people choose.
        assert [read_broker_properties(file).settings["id"] for _ in range(3)] == [1001, 1002, 1003]
        file.write_text(f"{lines}broker.id=-1\nreserved.broker.max.id=7\n")
        assert read_broker_properties(file).settings["id"] == 11
        file.write_text(f"{lines}broker.id.generation.enable=false\n")
        with pytest.raises(ConfigError, match=r"broker\.id is not set"):
            read_broker_properties(file)
    file.write_text(f"{lines}broker.id=1001\n")
    with pytest.raises(ConfigError, match=r"properties:4: broker\.id: .*not greater than reserved"):
        read_broker_properties(file)
    file.write_text(f"{lines}broker.id=1001\nbroker.id.generation.enable=false\n")
    assert read_broker_properties(file).settings["id"] == 1001
    file.write_text("listeners=PLAINTEXT://127.0.0.1:0\n")
    with pytest.raises(ConfigError, match=r"broker\.id is not set"):
        read_broker_properties(file, log_dir=str(tmp_path / "none"))


@pytest.mark.parametrize(
    ("options", "is_elected"), [([], True), (["--no-controller"], False)], ids=["a controller, too", "not"]
)
def test_a_broker_with_a_file_takes_part_in_elections(
    tmp_path: Path, zookeeper_server: ZooKeeperServer, options: list[str], is_elected: bool
) -> None:
    port, chroot = free_port(), f"/elected-{is_elected}"
    file = tmp_path / "server.properties"
    file.write_text(
        "broker.id=7\nlisteners=PLAINTEXT://127.0.0.1:0\ncontrolled.shutdown.max.retries=1\n"
        f"log.dirs={tmp_path / 'logs'}\nzookeeper.connect={zookeeper_server.address}{chroot}\n"
    )
    with running("--config", str(file), "--metrics-port", str(port), *options) as process:
        address = line(process).removeprefix("broker 7 listens on PLAINTEXT://")
        if is_elected:
            assert line(process).endswith("elected in controller epoch 1")
            host, _, number = address.partition(":")
            assert answers_api_versions(host, int(number))
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
            metrics = answer.read().decode()
        assert "\nkafka_server_kafkaserver_brokerstate 3.0\n" in metrics
        active = "\nkafka_controller_kafkacontroller_activecontrollercount 1.0\n"
        assert (active in metrics) == is_elected
        assert "\nkafka_server_sessionexpirelistener_sessionstate 1.0\n" in metrics
        query = (
            "name[]=kafka_server_kafkaserver_brokerstate&name[]=kafka_network_requestmetrics_requests_total"
        )
        with urlopen(f"http://127.0.0.1:{port}/metrics?{query}", timeout=20) as answer:
            lines = answer.read().decode().splitlines()
        named = {one.split("{")[0].split(" ")[0] for one in lines if not one.startswith("#")}
        assert named == {
            "kafka_server_kafkaserver_brokerstate",
            "kafka_network_requestmetrics_requests_total",
        }
        assert "\nkafka_server_sessionexpirelistener_zookeepersyncconnects_total 1.0\n" in metrics
        status, errors = ended(process, signal.SIGTERM)
    assert (status, errors) == (0, "")


def test_a_listener_for_the_controller(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    lines = (
        "broker.id=1\nlisteners=PLAINTEXT://127.0.0.1:0,CONTROL://127.0.0.1:0\n"
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROL:PLAINTEXT\n"
    )
    for name, reason in (("OTHER", "must be one of"), ("PLAINTEXT", "must be another listener")):
        file.write_text(f"{lines}control.plane.listener.name={name}\n")
        with pytest.raises(ConfigError, match=f"properties:4: control.plane.listener.name: {reason}"):
            read_broker_properties(file)
    file.write_text(f"{lines}control.plane.listener.name=CONTROL\n")
    assert read_broker_properties(file).settings["more_listeners"] == [("CONTROL", "127.0.0.1", 0)]


def test_metrics_are_served_on_a_port(tmp_path: Path) -> None:
    port = free_port()
    arguments = ["--id", "7", "--log-dir", str(tmp_path), "--metrics-port", str(port)]
    with running(*arguments) as process:
        assert line(process).startswith("broker 7 listens")
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
            text = answer.read().decode()
        assert "\nkafka_server_kafkaserver_brokerstate 3.0\n" in text
        taken = subprocess.run(
            [*COMMAND, "--log-dir", str(tmp_path / "other"), "--metrics-port", str(port)],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert taken.returncode == 1
        assert taken.stderr.startswith(f"error: metrics: cannot listen on 127.0.0.1:{port}")
        assert ended(process, signal.SIGTERM)[0] == 0
    ran = subprocess.run([*COMMAND, "--metrics-port", str(port)], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, len(ran.stderr.splitlines())) == (1, 1)
    assert "with a log directory" in ran.stderr


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("listeners=SSL://127.0.0.1:0", "listener SSL: SSL needs a certificate"),
        ("broker.id=x", "Invalid value x for configuration broker.id: Not a number of type INT"),
        ("log.dirs=none", "broker.id is not set"),
        (
            "broker.id=1\nnum.io.threads=none",
            "Invalid value none for configuration num.io.threads: Not a number of type INT",
        ),
        (
            "broker.id=1\nzookeeper.session.timeout.ms=0",
            "configuration zookeeper.session.timeout.ms: Value must be at least 1",
        ),
    ],
)
def test_a_properties_file_that_cannot_be_is_one_line(tmp_path: Path, text: str, reason: str) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"log.dir={tmp_path}\n{text}\n")
    ran = subprocess.run([*COMMAND, "--config", str(file)], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 1
    (line,) = ran.stderr.splitlines()
    assert reason in line

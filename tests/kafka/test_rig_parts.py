"""The rig's own promises: a missing Java is a skip or, in CI, a failure; no process outlives the test run."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.kafka import jars
from tests.kafka.requirement import require_kafka
from tests.kafka.waiting import wait_until

_PARENT = """
import os, signal, sys, time
from pathlib import Path
from tests.kafka.processes import Child, Reaper
child = Child("a child", [sys.executable, "-c", "import time; time.sleep(600)"], Path(sys.argv[1]), Reaper())
print(child.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv("CTRLCHAN_REQUIRE_KAFKA", raising=False)
    # What was found on the real PATH must not be remembered here, nor what is missing here later.
    monkeypatch.setattr(jars, "java_version", jars.java_version.__wrapped__)


@pytest.mark.usefixtures("no_java")
def test_without_java_a_test_is_skipped() -> None:
    with pytest.raises(pytest.skip.Exception, match="needs Java 17 or newer: no `java` on the PATH"):
        require_kafka()


@pytest.mark.usefixtures("no_java")
@pytest.mark.parametrize("variable", ["CI", "CTRLCHAN_REQUIRE_KAFKA"])
def test_in_ci_it_fails(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "true")
    with pytest.raises(pytest.fail.Exception, match="real Kafka is required here"):
        require_kafka()


def test_without_maven_the_reason_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(jars, "check_java", lambda: None)
    monkeypatch.setattr(jars, "BUILD", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(jars.KafkaUnavailableError, match="needs Maven"):
        jars.kafka_jars()


def test_children_end_with_a_killed_parent(tmp_path: Path) -> None:
    parent = subprocess.run(
        [sys.executable, "-c", _PARENT, str(tmp_path / "output")],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert parent.returncode == -signal.SIGKILL, parent.stderr
    child = int(parent.stdout)
    wait_until(lambda: not _runs(child), what="the orphan is ended")


def test_waiting_ends_at_the_deadline() -> None:
    with pytest.raises(TimeoutError, match=r"the impossible: not within 0\.02 s"):
        wait_until(lambda: False, timeout=0.02, what="the impossible")


def _runs(pid: int) -> bool:
    try:
        # Where nobody collects orphans a dead one stays as a zombie.
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
